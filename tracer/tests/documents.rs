//! The documents say what the program does.

use std::collections::BTreeSet;

use serde_json::Value;
use tracer::report::export::FORMATS;
use tracer::trace::record::{MAJOR, MINOR, Record};

const FORMAT: &str = include_str!("../../docs/trace-format.md");
const EXPORT: &str = include_str!("../../docs/export.md");

/// Lines of the document's JSON blocks.
fn examples() -> impl Iterator<Item = &'static str> {
    FORMAT.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).flat_map(str::lines)
}

#[test]
fn every_example_is_what_the_program_writes() {
    for line in examples() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let record: Record = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {line}"));
        let written = serde_json::to_value(&record).unwrap();
        assert_eq!(written, value, "the program would write {written}");
    }
}

#[test]
fn every_kind_of_record_is_documented() {
    let kind =
        |line: &str| serde_json::from_str::<Value>(line).unwrap().as_object().unwrap().keys().next().unwrap().clone();
    let shown: BTreeSet<_> = examples().map(kind).collect();
    let all = [
        "header", "library", "process", "frame", "stack", "rm", "call", "block", "log", "nvml", "loss", "notice",
        "footer",
    ];
    assert_eq!(shown, all.iter().map(|kind| (*kind).to_owned()).collect());
}

#[test]
fn the_version_is_the_current_one() {
    assert!(FORMAT.contains(&format!("This is format version {MAJOR}.{MINOR}.")));
}

#[test]
fn every_export_is_documented() {
    for format in &FORMATS {
        let name = format.name;
        assert!(
            EXPORT.contains(&format!("| [{name}](#{name}) | ")) && EXPORT.contains(&format!("\n## {name}\n")),
            "{name}"
        );
    }
}

//! Line tables against each interpreter's own reading of them, and what damage does.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use proptest::prelude::*;

use super::{
    layout,
    lines::{Format, Line, line},
};

/// Interpreters of this machine: the system's, pyenv's.
fn interpreters() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = home.join(".pyenv/versions").read_dir().into_iter().flatten().flatten();
    let programs = versions.map(|entry| entry.path().join("bin/python3")).chain([PathBuf::from("/usr/bin/python3")]);
    programs.filter(|program| program.exists()).collect()
}

fn format(version: (u8, u8)) -> Option<Format> {
    match version {
        (3, 9) => Some(Format::Lnotab),
        (3, 10) => Some(Format::Ranges),
        (3, 11..) => Some(Format::Locations),
        _ => None,
    }
}

#[test]
fn lines_are_those_the_interpreter_gives() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stack/python/tests/tables.py");
    let mut compared = Vec::new();
    for program in interpreters() {
        // Large modules with every construct there is.
        let modules = ["argparse", "inspect", "typing", "decimal", "_pydecimal", "asyncio.base_events", "pickletools"];
        let output = Command::new(&program).arg(&script).args(modules).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut rows = text.lines();
        let version = rows.next().and_then(|row| row.split_once(' '));
        let Some((major, minor)) = version else { continue };
        let version = (major.parse().unwrap(), minor.parse().unwrap());
        let Some(format) = format(version) else { continue };
        assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut positions = 0;
        for row in rows {
            let (first, table, expected): (i32, String, Vec<(u32, Option<u32>)>) = serde_json::from_str(row).unwrap();
            let table: Vec<u8> =
                (0..table.len()).step_by(2).map(|at| u8::from_str_radix(&table[at..at + 2], 16).unwrap()).collect();
            for (position, expected) in expected {
                let expected = expected.map_or(Line::None, Line::At);
                assert_eq!(line(format, &table, first, position), expected, "{program:?} {first} {position} {table:?}");
                positions += 1;
            }
        }
        assert!(positions > 10_000, "{program:?}: {positions}");
        compared.push(version);
    }
    assert!(!compared.is_empty(), "no interpreter of 3.9 or later on this machine");
    println!("compared with {compared:?}");
}

#[test]
fn a_position_outside_the_table_is_unknown() {
    for format in [Format::Ranges, Format::Locations] {
        assert_eq!(line(format, &[], 7, 0), Line::Unknown);
    }
    // One entry without columns, for one code unit.
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3, 2], 7, 0), Line::At(8));
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3, 2], 7, 2), Line::Unknown);
    assert_eq!(line(Format::Locations, &[13 << 3, 2], 7, 0), Line::Unknown, "no mark of an entry's beginning");
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3], 7, 0), Line::Unknown, "cut off");
    assert_eq!(line(Format::Ranges, &[2, 0x80], 7, 0), Line::None);
    assert_eq!(line(Format::Ranges, &[2, 0xf0], 7, 0), Line::Unknown, "a line below zero");
}

#[test]
fn only_versions_that_are_known_have_a_layout() {
    for minor in 0..20 {
        let layout = layout::known((3, minor));
        assert_eq!(layout.is_some(), (9..=12).contains(&minor), "3.{minor}");
        let Some(layout) = layout else { continue };
        // An offset that was forgotten is 0. In 3.12 the code object comes first.
        assert!(layout.walk.thread_id > 0 && layout.walk.thread_frame > 0 && layout.walk.frame_position > 0);
        assert!(layout.walk.frame_previous > 0 && layout.walk.code_names > 0 && layout.walk.code_line > 0);
        assert!(layout.walk.ascii > 0 && layout.walk.compact > layout.walk.ascii);
        assert!(layout.main > 0 && layout.threads > 0);
        assert_eq!(layout.instructions > 0, minor >= 11);
    }
}

proptest! {
    #[test]
    fn any_table_is_read_to_its_end(table in prop::collection::vec(any::<u8>(), 0..300), first: i32, offset: u32) {
        for format in [Format::Lnotab, Format::Ranges, Format::Locations] {
            line(format, &table, first, offset);
        }
    }
}

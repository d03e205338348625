//! Exports, read back by others: Python's json and pickle, Go's pprof, `DuckDB` (`readers/read.py`). What they sum up is what
//! the report says.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tracer::report::export::FORMATS;
use tracer::trace::Writer;
use tracer::trace::record::{Alloc, Call, Footer, Frame, Header, Image, Op, Outcome, Process, Record, Rm, Stack, Step};

const MIB: u64 = 1 << 20;

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn vramtrace(arguments: &[&str]) -> Vec<u8> {
    run(Command::new(assert_cmd::cargo::cargo_bin!("vramtrace")).args(arguments))
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// What a reader finds in an export of `trace`.
fn read(trace: &Path, format: &str, directory: &TempDir) -> Value {
    let out = directory.path().join(format);
    let (trace, out) = (trace.to_str().unwrap(), out.to_str().unwrap());
    vramtrace(&["export", trace, "--format", format, "-o", out, "--force"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/read.py");
    let packages = std::env::var("VRAMTRACE_READERS").expect("set by cargo xtask test");
    json(&run(Command::new("python3").arg(script).args([format, out]).env("PYTHONPATH", packages)))
}

/// Live bytes by phase and by rank, and all of them, as the report has them.
fn report(trace: &Path) -> Value {
    let by = |axis: &str| {
        let report = json(&vramtrace(&["report", trace.to_str().unwrap(), "--by", axis, "--format", "json"]));
        let cell = |cell: &Value| (cell[axis].as_str().unwrap().to_owned(), cell["live_bytes"].clone());
        let cells: serde_json::Map<_, _> = report["cells"].as_array().unwrap().iter().map(cell).collect();
        (Value::Object(cells), report["total"].clone())
    };
    let ((phases, total), (ranks, _)) = (by("phase"), by("rank"));
    serde_json::json!({
        "live": total["live_bytes"], "allocated": total["allocated_bytes"], "phases": phases, "ranks": ranks,
    })
}

/// Cells without bytes may be left out.
fn without_zeros(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(cells) = value.as_object_mut() {
        cells.retain(|_, bytes| *bytes != 0);
    }
    value
}

fn agree(trace: &Path) {
    let (directory, expected) = (tempfile::tempdir().unwrap(), report(trace));
    assert!(expected["live"].as_u64() > Some(0));
    for format in &FORMATS {
        let found = read(trace, format.name, &directory);
        for key in ["live", "allocated", "phases", "ranks"] {
            if let Some(found) = found.get(key) {
                let expected = without_zeros(&expected[key]);
                assert_eq!(without_zeros(found), expected, "{key} of {} in {}", trace.display(), format.name);
            }
        }
    }
}

#[test]
#[ignore = "needs Go and DuckDB: cargo xtask test --only readers"]
fn every_format_holds_the_reports_bytes() {
    recorded().iter().for_each(|trace| agree(trace));
}

/// Traces recorded on real GPUs.
fn recorded() -> Vec<PathBuf> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traces");
    let paths = std::fs::read_dir(traces).unwrap().map(|entry| entry.unwrap().path());
    let recorded: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "vrt")).collect();
    assert!(recorded.len() >= 2);
    recorded
}

/// The document's queries, on the recorded traces. A thousand would be no different.
#[test]
#[ignore = "needs Go and DuckDB: cargo xtask test --only readers"]
fn the_documents_queries_give_the_reports_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let traces = directory.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    for trace in recorded() {
        let out = traces.join(trace.file_stem().unwrap()).with_extension("parquet");
        vramtrace(&["export", trace.to_str().unwrap(), "--format", "parquet", "-o", out.to_str().unwrap()]);
    }
    let document = include_str!("../../docs/export.md");
    let queries = document.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let answers: Vec<Value> = queries.map(|query| duckdb(query, directory.path())).collect();
    let sum = |answer: &Value, column: &str| -> i64 {
        answer.as_array().unwrap().iter().map(|row| row[column].as_i64().unwrap()).sum()
    };
    let live: i64 = recorded().iter().map(|trace| report(trace)["live"].as_i64().unwrap()).sum();
    let [held, unusual, callers, failures] = &answers[..] else { panic!("{} queries", answers.len()) };
    assert_eq!(sum(held, "live_bytes"), live);
    assert_eq!(sum(unusual, "bytes"), live, "fewer than 20 rows, so all are there");
    assert!(sum(callers, "bytes") <= live && sum(callers, "bytes") > live * 9 / 10, "ten callers hold most");
    let oom = serde_json::json!([{"api": "cudaMalloc", "requested": 4_u64 << 40}]);
    let failed = &failures.as_array().unwrap()[0];
    assert_eq!(serde_json::json!([{"api": failed["api"], "requested": failed["requested"]}]), oom);
}

/// Rows of a query's answer.
fn duckdb(query: &str, directory: &Path) -> Value {
    let script = "import duckdb, json, sys; r = duckdb.sql(sys.argv[1]); \
                  print(json.dumps([dict(zip(r.columns, row)) for row in r.fetchall()]))";
    let packages = std::env::var("VRAMTRACE_READERS").expect("set by cargo xtask test");
    let mut python = Command::new("python3");
    json(&run(python.args(["-c", script, query]).env("PYTHONPATH", packages).current_dir(directory)))
}

/// Names that programs may have, and that no format may stumble over.
fn hostile_names() -> Vec<String> {
    let long = "vector<".repeat(1500);
    let names = [
        "\u{202e}evil\u{202c}",
        "</script><script>",
        "a\"b\\c'd",
        "nul\0inside",
        "line\nbreak\r\ttab",
        "; DROP",
        "💥 é",
    ];
    names.map(str::to_owned).into_iter().chain([long, "x".repeat(10 << 10)]).collect()
}

fn hostile_trace(path: &Path) {
    let names = hostile_names();
    let header = Header { format: "vramtrace".to_owned(), major: 1, t: 1000, unix_ns: 1 << 60, ..Header::default() };
    let argv = vec!["ev\"il\u{202e}\0".to_owned()];
    let exec = Process { t: 1000, pid: 41, step: Step::Exec(Image { argv, ..Image::default() }) };
    let mut records = vec![Record::Header(header), Record::Process(exec)];
    let frame = |(id, name): (usize, &String)| {
        let (file, module) = (Some(name.clone()).filter(|_| id % 2 == 0), name.clone());
        let function = name.clone();
        Record::Frame(Frame { id: id as u32, function, module, file, line: Some(7), ..Frame::default() })
    };
    records.extend(names.iter().enumerate().map(frame));
    records.push(Record::Stack(Stack { id: 0, frames: (0..names.len() as u32).collect() }));
    let alloc = |t, parent, object, class, more: Alloc| {
        let op = Op::Alloc(Alloc { client: 1, parent, object, class, file: 7, ..more });
        Record::Rm(Rm {
            t,
            pid: 41,
            tid: 41,
            calls: vec!["cuda\"\0Malloc".to_owned()],
            stack: Some(0),
            op,
            ..Rm::default()
        })
    };
    records.extend([
        alloc(2000, 0, 1, 0x41, Alloc::default()),
        alloc(2000, 1, 2, 0x80, Alloc { device_id: Some(0), ..Alloc::default() }),
        alloc(3000, 2, 3, 0x40, Alloc { size: Some(118 * MIB), ..Alloc::default() }),
        alloc(4000, 2, 4, 0x40, Alloc { size: Some(2 * MIB), ..Alloc::default() }),
        Record::Rm(Rm { t: 5000, pid: 41, tid: 41, op: Op::Free { client: 1, object: 4 }, ..Rm::default() }),
    ]);
    let api = "cuda\"\0Malloc".to_owned();
    records.push(Record::Call(Call { t: 6000, start: 5500, pid: 41, tid: 42, api, stack: Some(0), ..Call::default() }));
    records.push(Record::Footer(Footer { t: 7000, outcome: Outcome::Exited { code: 0 }, events: 5 }));
    let mut writer = Writer::create(path, false).unwrap();
    records.iter().for_each(|record| writer.record(record).unwrap());
    writer.finish().unwrap();
}

#[test]
#[ignore = "needs Go and DuckDB: cargo xtask test --only readers"]
fn hostile_names_survive() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("hostile.vrt");
    hostile_trace(&trace);
    for format in &FORMATS {
        let found = read(&trace, format.name, &directory);
        assert_eq!(found["live"], 118 * MIB, "{}", format.name);
        let names: Vec<&str> = found["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        // Folded stacks have separators of their own, and perfetto's slices show lines of innermost frames.
        if !matches!(format.name, "folded" | "perfetto") {
            for name in hostile_names() {
                assert!(names.iter().any(|found| found.contains(&name)), "{name:?} is not in {}", format.name);
            }
        }
    }
}

//! Exports, read back by others: Python's json and pickle, Go's pprof, `DuckDB` (`readers/read.py`). What they sum up is what
//! the report says.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tracer::report::export::FORMATS;
use tracer::trace::Writer;
use tracer::trace::record::{
    Alloc, Block, Call, Footer, Frame, Header, Image, Op, Outcome, Process, Record, Rm, Stack, Step,
};

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
                // A snapshot's events go up to the moment looked at: what a rank was left after that is not among them.
                if (key, format.name) == ("allocated", "torch-snapshot") {
                    let range = expected["live"].as_u64().unwrap()..=expected[key].as_u64().unwrap();
                    assert!(range.contains(&found.as_u64().unwrap()), "{found} of {}", trace.display());
                    continue;
                }
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
    let rows = unusual.as_array().unwrap();
    let by: Vec<u64> = rows.iter().map(|row| row["unusual"].as_f64().unwrap().abs() as u64).collect();
    assert!(rows.len() == 20 && by.is_sorted_by(|a, b| a >= b) && by[0] > 0, "{unusual}");
    assert!((1..=live).contains(&sum(unusual, "bytes")), "of all phases some");
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

fn write(path: &Path, records: &[Record]) {
    let mut writer = Writer::create(path, false).unwrap();
    records.iter().for_each(|record| writer.record(record).unwrap());
    writer.finish().unwrap();
}

/// The begin of a trace of process 41, with one GPU.
fn begin(title: &str) -> Vec<Record> {
    let header = Header { format: "vramtrace".to_owned(), major: 1, t: 1000, unix_ns: 1 << 60, ..Header::default() };
    let exec = Step::Exec(Image { argv: vec![title.to_owned()], ..Image::default() });
    vec![
        Record::Header(header),
        Record::Process(Process { t: 1000, pid: 41, step: exec }),
        alloc(2000, "", 0, 1, 0x41, &Alloc::default()),
        alloc(2000, "", 1, 2, 0x80, &Alloc { device_id: Some(0), ..Alloc::default() }),
    ]
}

fn alloc(t: u64, api: &str, parent: u32, object: u32, class: u32, more: &Alloc) -> Record {
    let op = Op::Alloc(Alloc { client: 1, parent, object, class, file: 7, ..more.clone() });
    let calls = if api.is_empty() { Vec::new() } else { vec![api.to_owned()] };
    Record::Rm(Rm { t, pid: 41, tid: 41, calls: calls.into(), stack: Some(0), op, ..Rm::default() })
}

fn memory(t: u64, api: &str, object: u32, bytes: u64) -> Record {
    alloc(t, api, 2, object, 0x40, &Alloc { size: Some(bytes), ..Alloc::default() })
}

fn rm(t: u64, op: Op) -> Record {
    Record::Rm(Rm { t, pid: 41, tid: 41, op, ..Rm::default() })
}

const API: &str = "cuda\"\0Malloc";

fn hostile_trace(path: &Path) {
    let names = hostile_names();
    let mut records = begin("ev\"il\u{202e}\0");
    let frame = |(id, name): (usize, &String)| {
        let (function, module, file) = (name.clone(), name.clone(), Some(name.clone()).filter(|_| id % 2 == 0));
        Record::Frame(Frame { id: id as u32, function, module, file, line: Some(7), ..Frame::default() })
    };
    records.extend(names.iter().enumerate().map(frame));
    records.push(Record::Stack(Stack { id: 0, frames: (0..names.len() as u32).collect() }));
    records.extend([
        memory(3000, API, 3, 118 * MIB),
        memory(4000, API, 4, 2 * MIB),
        rm(5000, Op::Free { client: 1, object: 4 }),
    ]);
    let api = API.to_owned();
    records.push(Record::Call(Call { t: 6000, start: 5500, pid: 41, tid: 42, api, stack: Some(0), ..Call::default() }));
    records.push(Record::Footer(Footer { t: 7000, outcome: Outcome::Exited { code: 0 }, events: 5 }));
    write(path, &records);
}

/// `PyTorch`'s blocks stand in its segments: one of `cudaMalloc`, and one that grows piece by piece.
#[test]
#[ignore = "needs Go and DuckDB: cargo xtask test --only readers"]
fn a_snapshot_has_pytorchs_blocks() {
    const BASE: u64 = 0x7f12_0000_0000;
    const SEGMENT: u64 = BASE + (1 << 32);
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("torch.vrt");
    let mut records = begin("python3");
    let map = |t, object, base, length| rm(t, Op::Map { base, length, offset: 0, client: 1, object });
    let mut account = 0_i64;
    let mut block = |t, address, bytes: i64| {
        account += bytes;
        let (allocated, reserved) = (account as u64, 26 * MIB);
        Record::Block(Block { t, pid: 41, tid: 41, device: 0, address, bytes, allocated, reserved, stack: None })
    };
    let mib = MIB as i64;
    records.extend([
        memory(3000, "cudaMalloc", 3, 20 * MIB),
        map(3001, 3, SEGMENT, 20 * MIB),
        block(3002, SEGMENT + 2 * MIB, 4 * mib),
        block(3003, SEGMENT + 8 * MIB, 5 * mib),
        memory(4000, "cuMemCreate", 4, 2 * MIB),
        map(4001, 4, BASE, 2 * MIB),
        memory(4002, "cuMemCreate", 5, 4 * MIB),
        map(4003, 5, BASE + 2 * MIB, 4 * MIB),
        block(4004, BASE + MIB, 3 * mib),
        block(5000, SEGMENT + 2 * MIB, -4 * mib),
        memory(6000, "cuCtxCreate_v4", 6, 8 * MIB),
    ]);
    records.push(Record::Footer(Footer { t: 7000, outcome: Outcome::Exited { code: 0 }, events: 5 }));
    write(&trace, &records);
    let found = read(&trace, "torch-snapshot", &directory);
    assert_eq!((&found["live"], &found["allocated"]), (&(34 * MIB).into(), &(34 * MIB).into()));
    // 5 and 3 MiB of blocks, and what is no segment of the allocator's is all used.
    assert_eq!(found["used"], (5 + 3 + 8) * MIB);
    for format in ["perfetto", "parquet"] {
        assert_eq!(read(&trace, format, &directory)["blocks"], 8 * MIB, "{format}");
    }
    agree(&trace);
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

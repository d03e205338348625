//! Damaged and hostile traces, from outside: every command that reads a trace prints what there is or one line that says
//! what is wrong, within memory that the file is worth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tracer::report::export::FORMATS;

/// Address space of a command, KiB: enough for a recorded server many times this size, far below what a file could claim.
const MEMORY: &str = "1500000";
/// A small recorded server: it ran out of memory while it started.
const RECORDED: &str = "../tests/traces/h200-sglang-tp1-toolow.vrt";
const HEAD: &str = "{\"header\":{\"format\":\"vramtrace\",\"major\":1}}\n";

/// Every command on a trace, without the program's name.
fn commands(trace: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(|word| word.replace("TRACE", trace)).collect();
    let fixed = [
        "report TRACE",
        "report TRACE --format json --by phase,rank,kind,owner,role,device,stack",
        "report TRACE --at oom",
        "diff TRACE TRACE",
        "diff TRACE TRACE --format json --at common",
        "html TRACE --vs TRACE -o -",
        "flamegraph TRACE --value allocated -o -",
        "flamegraph TRACE --vs TRACE -o -",
    ];
    let exports = FORMATS.iter().map(|format| format!("export TRACE --format {} -o -", format.name));
    fixed.iter().map(|line| (*line).to_owned()).chain(exports).map(|line| words(&line)).collect()
}

fn run(arguments: &[String]) -> Output {
    // dash and bash both count in KiB.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v $0 && exec \"$@\"", MEMORY, env!("CARGO_BIN_EXE_vramtrace")]).args(arguments);
    command.env("NO_COLOR", "1").output().unwrap()
}

/// Runs every command; gives what the first, the report, printed.
fn every_command_copes(what: &str, trace: &Path) -> String {
    let mut report = None;
    for arguments in commands(&trace.display().to_string()) {
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let shown = || format!("{what}: {}: {:?}: {said}", arguments.join(" "), output.status);
        match output.status.code() {
            // Folded stacks of nothing are no lines.
            Some(0) => {
                assert!(arguments.contains(&"folded".into()) || !output.stdout.is_empty(), "nothing: {}", shown());
            }
            Some(1) => assert!(said.starts_with("error: ") || said.starts_with("vramtrace: "), "{}", shown()),
            _ => panic!("{}", shown()),
        }
        assert!(!said.contains("panicked") && said.lines().count() <= 2, "{}", shown());
        report.get_or_insert_with(|| String::from_utf8_lossy(&output.stdout).into_owned());
    }
    report.unwrap()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("a.vrt");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn text(&self, text: &[u8]) -> PathBuf {
        self.file(&zstd::encode_all(text, 1).unwrap())
    }

    fn lines(&self, lines: &[Value]) -> PathBuf {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.text(format!("{HEAD}{lines}").as_bytes())
    }
}

fn recorded() -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED)).unwrap()
}

#[test]
fn a_file_cut_off_is_read_up_to_there() {
    let (place, whole) = (Place::new(), recorded());
    for cut in [whole.len() / 3, whole.len() - 1] {
        every_command_copes("cut off", &place.file(&whole[..cut]));
    }
    let report = every_command_copes("cut off", &place.file(&whole[..whole.len() / 2]));
    assert!(report.contains("breaks off"), "{report}");
}

#[test]
fn flipped_bits_are_told() {
    let (place, mut bytes) = (Place::new(), recorded());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let report = every_command_copes("a flipped bit", &place.file(&bytes));
    assert!(report.contains("damaged after line"), "{report}");
}

#[test]
fn damaged_lines_are_told() {
    let place = Place::new();
    let mut text = zstd::decode_all(&recorded()[..]).unwrap();
    let middle = text.len() / 2;
    text[middle..middle + 3].copy_from_slice(b"\xff{\"");
    let report = every_command_copes("a damaged line", &place.text(&text));
    assert!(report.contains("damaged after line"), "{report}");
}

/// Few bytes that claim half a gigabyte of text: zeros, a line without an end, and lines that all say the same.
#[test]
fn small_files_that_claim_much_text_take_little_memory() {
    let place = Place::new();
    let log = json!({"log": {"t": 1, "pid": 1, "fd": 1, "text": "x".repeat(4000)}}).to_string() + "\n";
    let rm = json!({"rm": {"t": 1, "pid": 1, "tid": 1, "alloc": {"client": 1, "parent": 1, "object": 1, "class": 64}}});
    let rm = rm.to_string() + "\n";
    for (what, text) in [("zeros", "\0"), ("a long line", "{\"notice\":{\"text\":\""), ("lines", &log), ("rows", &rm)] {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        std::io::Write::write_all(&mut encoder, HEAD.as_bytes()).unwrap();
        let mebibyte = text.repeat((1 << 20) / text.len() + 1);
        for _ in 0..512 {
            std::io::Write::write_all(&mut encoder, mebibyte.as_bytes()).unwrap();
        }
        let path = place.file(&encoder.finish().unwrap());
        let output = run(&["report".into(), path.display().to_string()]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains("damaged after line"), "{what}: {output:?}");
    }
}

/// Sizes and times as large as numbers go, and what contradicts itself.
#[test]
fn impossible_figures_do_no_harm() {
    let place = Place::new();
    let alloc = |object: u32, size: u64, t: u64| {
        let alloc = json!({"client": 1, "parent": 2, "object": object, "class": 64, "size": size, "requested": size});
        json!({"rm": {"t": t, "pid": 7, "tid": 7, "alloc": alloc, "stack": object % 3}})
    };
    let process = |t: u64| json!({"process": {"t": t, "pid": 7, "attached": {"argv": ["a"], "parent": 7}}});
    let block = |t: u64, bytes: i64| {
        let far = u64::MAX;
        json!({"block": {"t": t, "pid": 7, "tid": 7, "device": 0, "address": far - 1, "bytes": bytes, "allocated": far, "reserved": far}})
    };
    let nvml = |t: u64| {
        let listed =
            json!([{"pid": 7, "bytes": u64::MAX}, {"pid": 7, "bytes": u64::MAX}, {"pid": 8, "bytes": u64::MAX}]);
        json!({"nvml": {"begin": t + 9, "t": t, "uuid": "GPU-0", "used": u64::MAX, "free": u64::MAX, "reserved": 1, "processes": listed}})
    };
    let failed = json!({"call": {"t": 0, "start": u64::MAX, "pid": 7, "tid": 7, "api": "cudaMalloc", "result": 2,
        "size": u64::MAX, "free": u64::MAX, "total": 0, "device": i64::MIN, "outer": 5}});
    let registered =
        json!({"rm": {"t": 1, "pid": 7, "tid": 7, "register_vaspace": {"uuid": "GPU-0", "client": 1, "vaspace": 2}}});
    let mut lines = vec![process(u64::MAX - 1), process(5), registered, nvml(1)];
    lines.extend([json!({"frame": {"id": 0, "function": "f"}}), json!({"stack": {"id": 0, "frames": [0]}})]);
    // Forward, cyclic and out of order.
    lines.extend([json!({"stack": {"id": 1, "frames": [1, 0, 4_294_967_295_u32]}}), json!({"frame": {"id": 7}})]);
    lines.extend((0..6).map(|n| alloc(10 + n, u64::MAX, 100 - u64::from(n))));
    lines.extend((0..6).map(|n| alloc(20 + n, i64::MAX as u64, u64::MAX - u64::from(n))));
    lines.push(alloc(30, 2 << 20, 40));
    lines.extend([block(3, i64::MAX), block(2, i64::MIN), block(u64::MAX, i64::MAX), nvml(u64::MAX - 9), failed]);
    lines.extend((0..3).map(|_| json!({"loss": {"t": 1, "why": "ring_full", "count": u64::MAX}})));
    lines.push(json!({"rm": {"t": 50, "pid": 7, "tid": 7, "dup": {"client": 1, "parent": 11, "object": 11, "source_client": 1, "source_object": 11}}}));
    lines.push(json!({"process": {"t": 60, "pid": 7, "exit": {"code": -1, "signal": 9}}}));
    let trace = place.lines(&lines);
    let report = every_command_copes("impossible figures", &trace);
    assert!(report.contains("no machine can have"), "{report}");
    let json = run(&["report".into(), trace.display().to_string(), "--format".into(), "json".into()]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    // None of it is in the sums, and that is said.
    assert_eq!((&json["total"]["allocated_bytes"], &json["total"]["count"]), (&json!(2 << 20), &json!(13)));
    assert!(
        json["losses"]["impossible_figure"].as_u64() > Some(12) && json["losses"]["ring_full"].as_u64() > Some(1 << 49)
    );
}

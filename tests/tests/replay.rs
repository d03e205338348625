//! Real runs on H200s, replayed through the ioctl decoder and the ledger: nvidia-smi's figures must come out exactly.
//!
//! `tests/traces/raw/*.gz` are the recorded logs, cut down by [`rawlog::reduce`] to the lines that bear on memory (with
//! the times at which the server's log said what). Where `VRAMTRACE_RAW_LOGS` names a directory with the full logs, they are
//! replayed too, and the fixtures must be what the reducer makes of them; `VRAMTRACE_BLESS=1` writes them anew.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use live_tests::rawlog::{self, Line};
use tracer::ledger::{Allocation, At, Book, Kind, Ledger};
use tracer::trace::record::{Gpu, Header, Record};

const MIB: u64 = 1 << 20;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/raw")
}

/// Where the full logs are, if somebody has them.
fn full_logs() -> Option<PathBuf> {
    std::env::var_os("VRAMTRACE_RAW_LOGS").map(PathBuf::from)
}

/// The full log and the marks of its server's.
fn full(dir: &Path, name: &str) -> Vec<Line> {
    let trace = if name == "h200-torch-raw" { "txt.gz" } else { "trace.gz" };
    let mut text = rawlog::gunzip(&dir.join(format!("{name}.{trace}"))).expect("the full log");
    let server = dir.join(format!("{name}.log.gz"));
    if server.exists() {
        text = rawlog::marks_of(&rawlog::gunzip(&server).expect("the server's log")) + &text;
    }
    rawlog::parse(&text).expect("a log")
}

/// The fixture, then the full log where it is at hand: both must pass.
fn logs(name: &str) -> Vec<Vec<Line>> {
    let path = fixtures().join(format!("{name}.gz"));
    let mut logs = Vec::new();
    if let Some(dir) = full_logs() {
        let log = full(&dir, name);
        let reduced = rawlog::reduce(&log);
        if std::env::var_os("VRAMTRACE_BLESS").is_some() {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gz.write_all(reduced.as_bytes()).expect("compress");
            std::fs::write(&path, gz.finish().expect("compress")).expect("write the fixture");
        }
        assert_eq!(rawlog::gunzip(&path).expect("the fixture"), reduced, "{name}: the fixture is not the reduced log");
        logs.push(log);
    }
    logs.push(rawlog::parse(&rawlog::gunzip(&path).expect("the fixture")).expect("a log"));
    logs
}

fn book(lines: &[Line], gpus: u32) -> Book {
    let mut ledger = Ledger::new();
    let gpus = (0..gpus).map(|index| Gpu { index, ..Gpu::default() }).collect();
    ledger.push(Record::Header(Header { gpus, ..Header::default() }));
    for record in rawlog::records(lines) {
        ledger.push(record);
    }
    ledger.finish()
}

fn process(book: &Book, pid: u32) -> usize {
    book.processes.iter().position(|p| p.pid == pid).expect("the process")
}

fn live_mib(book: &Book, pid: u32, t: u64) -> u64 {
    let process = process(book, pid);
    let bytes = book.live_at(t, |a| a.process == process);
    assert_eq!(bytes % MIB, 0);
    bytes / MIB
}

/// MiB allocated and freed by a process from `from` to `to`.
fn turnover(book: &Book, pid: u32, from: u64, to: u64) -> (u64, u64) {
    let process = process(book, pid);
    let within = |t: u64| from < t && t <= to;
    let sum = |which: &dyn Fn(&Allocation) -> bool| {
        book.allocations.iter().filter(|a| a.process == process && which(a)).map(|a| a.bytes).sum::<u64>() / MIB
    };
    (sum(&|a| within(a.born)), sum(&|a| a.died.is_some_and(|(t, _)| within(t))))
}

fn kinds(book: &Book, pid: u32, t: u64) -> BTreeMap<Kind, u64> {
    let process = process(book, pid);
    let cells = book.group_by(At::Time(t), |a| (a.process, a.kind));
    let cells = cells.into_iter().filter(|((p, _), totals)| *p == process && totals.live > 0);
    cells.map(|((_, kind), totals)| (kind, totals.live / MIB)).collect()
}

#[test]
fn torch_holds_what_nvidia_smi_says() {
    for log in logs("h200-torch-raw") {
        let book = book(&log, 1);
        assert_eq!(live_mib(&book, 490, book.end), 842);
        // The child that opened an IPC handle: its context, and nothing for the import.
        let child =
            book.processes.iter().find(|p| p.pid != 490 && live_mib(&book, p.pid, book.end) > 0).expect("child");
        assert_eq!(live_mib(&book, child.pid, book.end), 518);
        let expected = [
            (Kind::Context, 104),
            // Once for a launch, and nothing else outside the calls but the side stream's channels.
            (Kind::Module, 2),
            (Kind::LocalMemory, 504),
            (Kind::Channel, 70),
            (Kind::CudaMalloc, 162),
        ];
        assert_eq!(kinds(&book, 490, book.end), BTreeMap::from(expected));
        // 4 TiB, tried twice, and a fabric handle that was not permitted.
        let failures: Vec<_> = book.failures.iter().map(|f| (f.api.as_str(), f.result, f.out_of_memory)).collect();
        assert_eq!(failures, [("cudaMalloc", 2, true), ("cuMemCreate", 800, false)]);
        assert_eq!(book.failures[0].requested, Some(4 << 40));
    }
}

#[test]
fn sglang_tp1_is_exact_in_every_phase() {
    for log in logs("h200-sglang-tp1") {
        let book = book(&log, 1);
        let at = rawlog::marks(&log);
        assert_eq!(live_mib(&book, 1256, at["ready"]), 44174);
        // With the requests that followed: nvidia-smi's other reading.
        assert_eq!(live_mib(&book, 1256, book.end), 44238);
        assert_eq!(book.processes.iter().filter(|p| live_mib(&book, p.pid, book.end) > 0).count(), 1);
        let phases = [
            ("context", 0, at["distributed_begin"], (518, 0)),
            ("distributed", at["distributed_begin"], at["distributed_end"], (510, 414)),
            ("before load", at["distributed_end"], at["load_begin"], (68, 0)),
            ("weights", at["load_begin"], at["load_end"], (326, 0)),
            ("kv cache", at["load_end"], at["pool_end"], (42456, 0)),
            ("backends", at["pool_end"], at["prefill_begin"], (228, 0)),
            ("prefill graphs", at["prefill_begin"], at["prefill_end"], (672, 262)),
            ("decode graphs", at["prefill_end"], at["decode_end"], (42, 8)),
            ("warm-up", at["decode_end"], at["ready"], (38, 0)),
            ("requests", at["ready"], book.end, (64, 0)),
        ];
        for (phase, from, to, expected) in phases {
            assert_eq!(turnover(&book, 1256, from, to), expected, "{phase}");
        }
    }
}

/// What each kind held at ready, by kind; what the driver did unasked is told apart from what was asked for.
#[test]
fn kinds_of_sglang_tp1() {
    for log in logs("h200-sglang-tp1") {
        let book = book(&log, 1);
        let expected = [
            // 17 objects; the local-memory pool of 414 MiB among them was replaced at the first launch.
            (Kind::Context, 518 - 414),
            // Three objects at launches, outside any call and any capture.
            (Kind::Module, 6),
            (Kind::LocalMemory, 504),
            // 35 objects at the first use of side streams.
            (Kind::Channel, 70),
            // PyTorch's and, 66 MiB, cuBLAS's.
            (Kind::CudaMalloc, 43422),
            // 34 objects at instantiations.
            (Kind::GraphExec, 68),
        ];
        assert_eq!(kinds(&book, 1256, rawlog::marks(&log)["ready"]), BTreeMap::from(expected));
        assert!(book.failures.is_empty());
    }
}

#[test]
fn sglang_tp2_is_exact_on_both_ranks() {
    for (name, pids, expected) in
        [("h200-sglang-tp2-ar-on", [741, 742], 45470), ("h200-sglang-tp2-ar-off", [1673, 1674], 45552)]
    {
        for log in logs(name) {
            let book = book(&log, 2);
            let ready = rawlog::marks(&log)["ready"];
            let mut gpus = Vec::new();
            for pid in pids {
                assert_eq!(live_mib(&book, pid, ready), expected, "{name} {pid}");
                let process = process(&book, pid);
                gpus.extend(book.peaks().into_keys().filter(|(p, _)| *p == process).map(|(_, gpu)| gpu));
                // NCCL's peer buffers: 96 imports a rank, each of what the other rank owns, no bytes of one's own.
                let imports: Vec<_> = book.imports.iter().filter(|i| i.process == process).collect();
                assert_eq!(imports.len(), 96);
                assert!(
                    imports.iter().all(|i| i.bytes >= 2 * MIB && i.calls.iter().any(|c| c.starts_with("cuIpcOpen")))
                );
            }
            gpus.sort_unstable();
            assert_eq!(gpus, [0, 1], "a GPU a rank");
            assert!(book.gpus.iter().all(|gpu| gpu.uuid.starts_with("GPU-")));
            // A fabric handle is tried first, then one without.
            assert!(book.failures.iter().all(|f| f.api == "cuMemCreate" && f.result == 800 && !f.out_of_memory));
        }
    }
}

#[test]
fn kinds_of_sglang_tp2() {
    let kinds_of =
        |name, pid| logs(name).into_iter().map(move |log| kinds(&book(&log, 2), pid, rawlog::marks(&log)["ready"]));
    for pid in [741, 742] {
        for kinds in kinds_of("h200-sglang-tp2-ar-on", pid) {
            // Local memory grew twice, the second time for NCCL's kernels, whose code is 50 objects.
            assert_eq!((kinds[&Kind::LocalMemory], kinds[&Kind::Vmm]), (690, 82), "{kinds:?}");
            assert_eq!(
                (kinds[&Kind::Context], kinds[&Kind::Channel], kinds[&Kind::Module]),
                (104, 70, 106),
                "{kinds:?}"
            );
        }
    }
    for pid in [1673, 1674] {
        for kinds in kinds_of("h200-sglang-tp2-ar-off", pid) {
            assert_eq!((kinds[&Kind::LocalMemory], kinds.get(&Kind::Vmm)), (690, None), "{kinds:?}");
            // NCCL's captured launches need graph memory: what the custom all-reduce saves.
            assert_eq!(
                (kinds[&Kind::Channel], kinds[&Kind::Module], kinds[&Kind::GraphExec]),
                (70, 106, 250),
                "{kinds:?}"
            );
        }
    }
}

#[test]
fn fixtures_are_small() {
    for entry in std::fs::read_dir(fixtures()).expect("fixtures") {
        let entry = entry.expect("a fixture");
        let mut bytes = Vec::new();
        std::fs::File::open(entry.path()).and_then(|mut f| f.read_to_end(&mut bytes)).expect("a fixture");
        assert!(bytes.len() <= 300 << 10, "{:?}", entry.path());
    }
}

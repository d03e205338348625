//! Real `SGLang` servers recorded on H200s before there was a trace format, as traces.
//!
//! `tests/traces/raw/NAME.gz` are the requests and calls ([`rawlog`]), `NAME.log.gz` all that the server wrote, each line
//! with its time on the same clock. Which of the lines a trace keeps is decided when they are read, by the rules of today.

use std::path::{Path, PathBuf};

use tracer::ledger::{Book, Ledger};
use tracer::trace::record::{Gpu, Header, Log, Process, Record, Step};

use crate::rawlog;

/// A recorded server.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Base name of its files in `tests/traces/raw`.
    pub name: &'static str,
    /// HTTP server and tokenizer; the parent of the ranks.
    pub main: u32,
    /// Ranks by what their lines begin with.
    pub ranks: &'static [(&'static str, u32)],
}

/// Tensor parallel 1.
pub const TP1: Server = Server { name: "h200-sglang-tp1", main: 1203, ranks: &[("", 1256)] };
/// Tensor parallel 2 with custom all-reduce, as is the default.
pub const TP2_ON: Server = Server { name: "h200-sglang-tp2-ar-on", main: 638, ranks: &[("TP0", 741), ("TP1", 742)] };
/// The same with `--disable-custom-all-reduce`.
pub const TP2_OFF: Server =
    Server { name: "h200-sglang-tp2-ar-off", main: 1581, ranks: &[("TP0", 1673), ("TP1", 1674)] };

/// What the main process of a server with one rank writes; all else is the rank's.
const MAIN_SAYS: [&str; 3] = ["server_args=", "The server is fired up", "SIGTERM received"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/raw")
}

/// Lines that the server wrote, each behind its time on the clock of the requests.
fn log(name: &str) -> String {
    rawlog::gunzip(&fixtures().join(format!("{name}.log.gz"))).expect("the server's log")
}

/// Who wrote a line.
fn writer(server: &Server, line: &str) -> u32 {
    let parsed = tracer::lifecycle::logs::parse(line);
    let tag: String = parsed.rank.iter().map(|(dimension, n)| format!("{dimension}{n}")).collect();
    let is_mains =
        server.ranks.len() > 1 && tag.is_empty() || MAIN_SAYS.iter().any(|text| parsed.message.starts_with(text));
    let rank = server.ranks.iter().find(|(of_rank, _)| *of_rank == tag).map(|(_, pid)| *pid);
    if is_mains { server.main } else { rank.expect("a rank") }
}

/// Its ledger.
///
/// # Panics
/// When a fixture is damaged.
#[must_use]
pub fn book(server: &Server) -> Book {
    let mut ledger = Ledger::new();
    records(server).into_iter().for_each(|record| ledger.push(record));
    ledger.finish()
}

/// The records that a tracer would have written, in order of time.
///
/// # Panics
/// When a fixture is damaged.
#[must_use]
pub fn records(server: &Server) -> Vec<Record> {
    let gpus = (0..server.ranks.len() as u32).map(|index| Gpu { index, ..Gpu::default() }).collect();
    let mut records = vec![Record::Header(Header { gpus, ..Header::default() })];
    records.extend(server.ranks.iter().map(|(_, pid)| {
        let step = Step::Forked { parent: server.main };
        Record::Process(Process { t: 0, pid: *pid, step })
    }));
    let path = fixtures().join(format!("{}.gz", server.name));
    let lines = rawlog::parse(&rawlog::gunzip(&path).expect("the fixture")).expect("a log");
    let log = log(server.name);
    let logged = rawlog::server_lines(&log).expect("a log");
    let logged = logged.into_iter().map(|(t, line)| {
        let text = tracer::lifecycle::logs::clean(line);
        Record::Log(Log { t, pid: writer(server, line), fd: 2, text })
    });
    let time = |record: &Record| match record {
        Record::Log(log) => log.t,
        Record::Call(call) => call.t,
        Record::Rm(rm) => rm.t,
        _ => 0,
    };
    records.extend(rawlog::records(&lines).into_iter().chain(logged));
    records.sort_by_key(time);
    records
}

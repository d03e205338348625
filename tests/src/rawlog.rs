//! Reader of logs that a prototype recorded on H200s: real `SGLang` and `PyTorch` runs, before there was a trace
//! format.
//!
//! A line is `ns pid/tid > api args…` (entry), `… < api result` (return) or `… ioctl cmd fd=N words…` with the argument's
//! u64 words *at entry*: for an RM alloc the first 32 bytes of `NVOS64_PARAMETERS`, then 128 bytes of `pAllocParms`; for
//! others the first 64 bytes of the argument. So a request shows what was asked for, and no status. Here it becomes what
//! the kernel hook would have seen at return: sizes of video memory rounded up to 2 MiB, as the driver rounds them, and a
//! failing status inside a CUDA call that failed.
//!
//! [`reduce`] cuts a log down to the lines that bear on memory, for keeping in the repository. It adds lines
//! `ns 0/0 mark NAME` from the server's own log, whose lines begin with the same clock.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytemuck::Zeroable as _;
use tracer::collect::ioctl::{self, Abi, RM_ALLOC, RM_ALLOC_MEMORY, RM_DUP_OBJECT, RM_FREE};
use tracer::trace::record::{Call, Record, Rm};
use tracer_ebpf::Ioctl;

/// Driver of the machine.
const DRIVER: Abi = Abi { branch: Some(580) };
/// `NV01_MEMORY_LOCAL_USER`.
const CLASS_VIDEO_MEMORY: u32 = 0x40;
/// What the driver rounds video memory up to on an H200.
const PAGE: u64 = 2 << 20;
/// `cudaErrorMemoryAllocation`.
const OUT_OF_MEMORY: i64 = 2;

/// Requests kept by [`reduce`], with the offset of their status.
const REQUESTS: [(u32, usize); 5] = [
    (ioctl::request(RM_ALLOC, 48), 40),
    (ioctl::request(RM_FREE, 16), 12),
    (ioctl::request(RM_DUP_OBJECT, 28), 24),
    (ioctl::request(RM_ALLOC_MEMORY, 56), 40),
    (ioctl::UVM_REGISTER_GPU_VASPACE, 28),
];

/// Lines of a server's log that part its start-up, in order: a name, and what the line contains.
const MARKS: [(&str, &str); 9] = [
    ("distributed_begin", "Init torch distributed begin"),
    ("distributed_end", "Init torch distributed ends"),
    ("load_begin", "Load weight begin"),
    ("load_end", "Load weight end"),
    ("pool_end", "Memory pool end"),
    ("prefill_begin", "Capture target prefill CUDA graph begin"),
    ("prefill_end", "Capture target prefill CUDA graph end"),
    ("decode_end", "Capture target decode CUDA graph end"),
    ("ready", "The server is fired up"),
];

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Nanoseconds.
    pub t: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What it says.
    pub what: What,
    text: String,
}

/// What a line says.
#[derive(Clone, Debug)]
pub enum What {
    /// A call was entered.
    Enter(String),
    /// It returned with this result.
    Leave(String, i64),
    /// The process made a request of the driver.
    Ioctl(u32, Vec<u64>),
    /// The server's log said something.
    Mark(String),
}

/// Decompresses a file.
///
/// # Errors
/// When it cannot be read.
pub fn gunzip(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}

/// Parses a log.
///
/// # Errors
/// At the first line that is none of the known forms.
pub fn parse(text: &str) -> Result<Vec<Line>> {
    text.lines().map(|line| parse_line(line).with_context(|| format!("line {line:?}"))).collect()
}

fn parse_line(text: &str) -> Result<Line> {
    let mut words = text.split_ascii_whitespace();
    let mut word = || words.next().context("too short");
    let t = word()?.parse()?;
    let (pid, tid) = word()?.split_once('/').context("no pid/tid")?;
    let what = match (word()?, word()?) {
        (">", api) => What::Enter(api.to_owned()),
        ("<", api) => What::Leave(api.to_owned(), word()?.parse()?),
        ("mark", name) => What::Mark(name.to_owned()),
        ("ioctl", cmd) => {
            let hex = |w: &str| u64::from_str_radix(w.trim_start_matches("0x"), 16);
            let cmd = u32::try_from(hex(cmd)?)?;
            What::Ioctl(cmd, words.skip(1).map(hex).collect::<Result<_, _>>()?)
        }
        _ => anyhow::bail!("unknown form"),
    };
    Ok(Line { t, pid: pid.parse()?, tid: tid.parse()?, what, text: text.to_owned() })
}

/// Times of the server's log lines, by name.
#[must_use]
pub fn marks(lines: &[Line]) -> HashMap<String, u64> {
    let mark = |line: &Line| match &line.what {
        What::Mark(name) => Some((name.clone(), line.t)),
        _ => None,
    };
    lines.iter().filter_map(mark).collect()
}

/// Lines `ns 0/0 mark NAME` for what a server's log says first.
#[must_use]
pub fn marks_of(server_log: &str) -> String {
    let mut text = String::new();
    for (name, part) in MARKS {
        if let Some(line) = server_log.lines().find(|line| line.contains(part)) {
            let t = line.split(' ').next().unwrap_or_default();
            let _ = writeln!(text, "{t} 0/0 mark {name}");
        }
    }
    text
}

/// Lines of a server's log with their times, those that a trace would keep.
///
/// # Errors
/// When a line does not begin with a time.
pub fn server_lines(server_log: &str) -> Result<Vec<(u64, &str)>> {
    let mut lines = Vec::new();
    for line in server_log.lines() {
        let (t, text) = line.split_once(' ').with_context(|| format!("line {line:?}"))?;
        if tracer::lifecycle::logs::interesting(text) {
            lines.push((t.parse().with_context(|| format!("line {line:?}"))?, text));
        }
    }
    Ok(lines)
}

/// A call in progress.
struct Open {
    api: String,
    line: usize,
}

/// For each line, those of the calls around it (outermost first); and for each entry, the result.
fn nesting(lines: &[Line]) -> (Vec<Vec<usize>>, HashMap<usize, i64>) {
    let mut threads: HashMap<u32, Vec<Open>> = HashMap::new();
    let (mut around, mut results) = (Vec::with_capacity(lines.len()), HashMap::new());
    for (i, line) in lines.iter().enumerate() {
        let stack = threads.entry(line.tid).or_default();
        if let What::Leave(api, result) = &line.what
            && let Some(at) = stack.iter().rposition(|open| open.api == *api)
        {
            results.insert(stack[at].line, *result);
            stack.truncate(at);
        }
        around.push(stack.iter().map(|open| open.line).collect());
        if let What::Enter(api) = &line.what {
            stack.push(Open { api: api.clone(), line: i });
        }
    }
    (around, results)
}

/// True for calls whose result is a CUDA error code.
fn is_cuda(lines: &[Line], entry: usize) -> bool {
    matches!(&lines[entry].what, What::Enter(api) if api.starts_with("cu"))
}

/// The lines that bear on memory: requests about objects and the calls around them, CUDA calls that failed, beginnings and
/// ends of captures, marks.
#[must_use]
pub fn reduce(lines: &[Line]) -> String {
    let (around, results) = nesting(lines);
    let mut keep = vec![false; lines.len()];
    for (i, line) in lines.iter().enumerate() {
        match &line.what {
            What::Ioctl(cmd, _) if REQUESTS.iter().any(|(request, _)| request == cmd) => {
                keep[i] = true;
                around[i].iter().for_each(|&entry| keep[entry] = true);
            }
            What::Mark(_) => keep[i] = true,
            What::Enter(api) => {
                let failed = is_cuda(lines, i) && results.get(&i).is_some_and(|&result| result != 0);
                let capture = api.starts_with("cuStreamBeginCapture") || api.starts_with("cuStreamEndCapture");
                keep[i] |= failed || capture;
            }
            _ => {}
        }
    }
    // A return is kept with its entry: it is the next of that name at the same depth on the thread.
    let mut open: HashMap<(u32, &str, usize), usize> = HashMap::new();
    for (i, line) in lines.iter().enumerate() {
        match &line.what {
            What::Enter(api) => drop(open.insert((line.tid, api, around[i].len()), i)),
            What::Leave(api, _) => {
                let entry = open.remove(&(line.tid, api, around[i].len()));
                keep[i] = entry.is_some_and(|entry| keep[entry]);
            }
            _ => {}
        }
    }
    lines.iter().zip(keep).filter(|(_, keep)| *keep).fold(String::new(), |text, (line, _)| text + &line.text + "\n")
}

/// The records that a tracer would have written.
#[must_use]
pub fn records(lines: &[Line]) -> Vec<Record> {
    let (around, results) = nesting(lines);
    let api = |entry: usize| match &lines[entry].what {
        What::Enter(api) => api.clone(),
        _ => String::new(),
    };
    let mut records = Vec::new();
    let mut entries: HashMap<(u32, String, usize), usize> = HashMap::new();
    for (i, line) in lines.iter().enumerate() {
        let calls = &around[i];
        let outer = calls.first().map_or(0, |&entry| lines[entry].t);
        let (pid, tid, t) = (line.pid, line.tid, line.t);
        match &line.what {
            What::Ioctl(cmd, words) => {
                let mut errors = calls.iter().filter(|&&e| is_cuda(lines, e)).filter_map(|e| results.get(e)).copied();
                let error = errors.rfind(|&result| result != 0);
                let decoded = at_return(*cmd, words, error).and_then(|ioctl| ioctl::decode(&ioctl, DRIVER));
                let Some(decoded) = decoded else { continue };
                let (status, calls): (_, Arc<[_]>) = (decoded.status, calls.iter().map(|&e| api(e)).collect());
                records.extend(decoded.ops.into_iter().map(|op| {
                    Record::Rm(Rm { t, pid, tid, status, calls: calls.clone(), outer, op, ..Rm::default() })
                }));
            }
            What::Enter(api) => drop(entries.insert((tid, api.clone(), calls.len()), i)),
            What::Leave(name, result) => {
                let Some(entry) = entries.remove(&(tid, name.clone(), calls.len())) else { continue };
                let start = lines[entry].t;
                records.push(Record::Call(Call {
                    t,
                    start,
                    pid,
                    tid,
                    api: name.clone(),
                    result: if is_cuda(lines, entry) { *result } else { 0 },
                    depth: u32::try_from(calls.len()).unwrap_or(u32::MAX),
                    outer: calls.first().map_or(start, |&e| lines[e].t),
                    ..Call::default()
                }));
            }
            What::Mark(_) => {}
        }
    }
    records
}

/// The request as the driver would have left it. `None` for those that the log has too little of.
fn at_return(cmd: u32, words: &[u64], error: Option<i64>) -> Option<Ioctl> {
    let (_, status) = *REQUESTS.iter().find(|(request, _)| *request == cmd)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let is_alloc = cmd & 0xff == RM_ALLOC && cmd > 0xff;
    let mut ioctl = Ioctl { cmd, ..Ioctl::zeroed() };
    let head = if is_alloc { 32 } else { 64 };
    ioctl.arg[..head].copy_from_slice(bytes.get(..head)?);
    ioctl.arg_len = 64;
    let code: u32 = match error {
        None => 0,
        Some(OUT_OF_MEMORY) => 0x51,
        Some(_) => ioctl::STATUS_UNKNOWN,
    };
    // A free inside a failing call cleans up: it did take place.
    let code = if is_alloc { code } else { 0 };
    ioctl.arg[status..status + 4].copy_from_slice(&code.to_le_bytes());
    if is_alloc {
        ioctl.params.copy_from_slice(bytes.get(32..160)?);
        ioctl.params_len = 128;
        let word = |at: usize| u32::from_le_bytes(ioctl.arg[at..at + 4].try_into().unwrap_or_default());
        let (object, class) = (word(8), word(12));
        // The driver chooses a client's handle, which the entry does not show.
        if object == 0 {
            return None;
        }
        if class == CLASS_VIDEO_MEMORY {
            let size = u64::from_le_bytes(ioctl.params[64..72].try_into().ok()?).next_multiple_of(PAGE);
            ioctl.params[64..72].copy_from_slice(&size.to_le_bytes());
        }
    }
    Some(ioctl)
}

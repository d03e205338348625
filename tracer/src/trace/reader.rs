//! Reading a trace.
//!
//! Decoding JSON takes most of the time of a report, so it is spread over threads: one decompresses and cuts the text
//! into batches of whole lines, some decode batches, and the reader hands out their records in order. Memory is bounded
//! by the batches in flight.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use memchr::memchr;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Error;
use super::lines::{Batch, Lines, NotZstd};
use super::quick::Quick;
use super::record::{Header, KINDS, MAJOR, MINOR, Record};
use crate::parallel::workers;

/// Most decoding threads: enough to keep up with decompression.
const WORKERS: usize = 6;

/// Most batches that wait to be taken apart.
const DONE: usize = 4;

/// Reads the records of a trace, one at a time.
///
/// A trace that was cut off gives its records up to there, then ends; [`truncated`](Self::truncated) tells. Damage gives
/// one [`Error::Damaged`], then the end.
#[derive(Debug)]
pub struct Reader {
    path: String,
    header: Option<Header>,
    records: std::vec::IntoIter<Record>,
    /// Damage that follows `records`.
    damage: Option<String>,
    /// Batches being decoded, in order; `None` at the end.
    batches: Option<Receiver<Receiver<Decoded>>>,
    lines: u64,
    footer: bool,
    unknown: u64,
    /// Where batches go that were read.
    done: Option<SyncSender<Vec<Record>>>,
}

/// A decoded batch.
#[derive(Debug, Default)]
struct Decoded {
    records: Vec<Record>,
    lines: u64,
    unknown: u64,
    damage: Option<String>,
}

impl Reader {
    /// Opens a trace file and reads its header.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotATrace`], [`Error::Newer`], or [`Error::Damaged`] when the first line is.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| Error::io(&name, e))?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(Error::NotATrace { path: name, why: "it is a directory" });
        }
        Self::named(file, name)
    }

    /// Reads a trace from anything.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn from_read(input: impl Read + Send + 'static) -> Result<Self, Error> {
        Self::named(input, "trace".to_owned())
    }

    fn named(input: impl Read + Send + 'static, path: String) -> Result<Self, Error> {
        let mut lines = match Lines::new(input).map_err(|e| Error::io(&path, e))? {
            Ok(lines) => lines,
            Err(NotZstd) => return Err(Error::NotATrace { path, why: "it is not zstd-compressed" }),
        };
        let first = lines.next().unwrap_or_default();
        let header = match self::lines(&first.text).next() {
            Some(line) => Some(header(line, &path)?),
            None => None,
        };
        let newer = header.as_ref().is_some_and(|header| header.minor > MINOR);
        let mut reader = Self {
            path,
            header,
            records: Vec::new().into_iter(),
            damage: None,
            batches: None,
            lines: 0,
            footer: false,
            unknown: 0,
            done: None,
        };
        reader.accept(decode(&first, newer));
        if reader.damage.is_none() {
            reader.batches = Some(spawn(lines, newer));
        }
        Ok(reader)
    }

    /// The header, unless the file was cut off before its end.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// True once the records have ended without a footer: the file was cut off or damaged, or is still being written.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.batches.is_none() && self.records.as_slice().is_empty() && !self.footer
    }

    /// Lines of unknown kinds skipped so far.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The next records, or the damage that stands in their place: what [`next`](Self::next) gives, many at a time.
    pub(crate) fn batch(&mut self) -> Option<Result<Vec<Record>, Error>> {
        if let Some(damage) = self.more() {
            return Some(Err(damage));
        }
        let records: Vec<Record> = std::mem::take(&mut self.records).collect();
        self.footer |= records.iter().any(|record| matches!(record, Record::Footer(_)));
        (!records.is_empty()).then_some(Ok(records))
    }

    /// Has records of a batch taken apart on a thread of its own. They share lists with others, and to let go of a share is
    /// slow on a thread that writes much.
    pub(crate) fn done_with(&mut self, records: Vec<Record>) {
        let spawn = || {
            let (done, batches) = sync_channel::<Vec<Record>>(DONE);
            thread::spawn(move || batches.into_iter().for_each(drop));
            done
        };
        // The thread lives as long as the reader.
        let _ = self.done.get_or_insert_with(spawn).send(records);
    }

    /// Waits for more records, where there are none left; gives the damage that stands in their place, if so.
    fn more(&mut self) -> Option<Error> {
        while self.records.as_slice().is_empty() {
            if let Some(why) = self.damage.take() {
                self.batches = None;
                return Some(Error::Damaged { path: self.path.clone(), line: self.lines, why });
            }
            // A decoder that died (it cannot) ends the trace as if it were cut off.
            match self.batches.as_ref()?.recv().and_then(|batch| batch.recv()) {
                Ok(decoded) => self.accept(decoded),
                Err(_) => self.batches = None,
            }
        }
        None
    }

    fn accept(&mut self, decoded: Decoded) {
        self.records = decoded.records.into_iter();
        self.unknown += decoded.unknown;
        self.lines += decoded.lines;
        self.damage = decoded.damage;
    }
}

impl Iterator for Reader {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.records.as_slice().is_empty()
            && let Some(damage) = self.more()
        {
            return Some(Err(damage));
        }
        let record = self.records.next()?;
        self.footer |= matches!(record, Record::Footer(_));
        Some(Ok(record))
    }
}

/// Starts the threads. They end when the reader is dropped: their channels close.
fn spawn<R: Read + Send + 'static>(lines: Lines<R>, newer: bool) -> Receiver<Receiver<Decoded>> {
    let workers = workers().min(WORKERS);
    let (ordered, results) = sync_channel(2 * workers);
    let (jobs, work) = channel::<(Batch, Sender<Decoded>)>();
    let work = Arc::new(Mutex::new(work));
    for _ in 0..workers {
        let work = Arc::clone(&work);
        thread::spawn(move || {
            loop {
                let job = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((batch, reply)) = job else { break };
                // The reader may be gone.
                let _ = reply.send(decode(&batch, newer));
            }
        });
    }
    thread::spawn(move || {
        for batch in lines {
            let (reply, result) = channel();
            // The order of results is the order of batches; a full channel holds this thread back.
            if ordered.send(result).is_err() || jobs.send((batch, reply)).is_err() {
                break;
            }
        }
    });
    results
}

/// The records of plain lines, and what is wrong with the line after them.
#[cfg(any(test, fuzzing))]
pub(crate) fn records(text: &[u8]) -> (Vec<Record>, Option<String>) {
    let decoded = decode(&Batch { text: text.to_vec(), damage: None }, false);
    (decoded.records, decoded.damage)
}

fn decode(batch: &Batch, newer: bool) -> Decoded {
    // Lines are some 150 bytes long: room for most batches at once.
    let mut decoded = Decoded { records: Vec::with_capacity(batch.text.len() / 128), ..Decoded::default() };
    let mut quick = Quick::default();
    for line in lines(&batch.text) {
        match quick.record(line).map_or_else(|| json(line), Ok) {
            Ok(record) => decoded.records.push(record),
            Err(_) if is_unknown_kind(line, newer) => decoded.unknown += 1,
            Err(why) => {
                decoded.damage = Some(why);
                return decoded;
            }
        }
        decoded.lines += 1;
    }
    decoded.damage.clone_from(&batch.damage);
    decoded
}

/// The record of any line, or what is wrong with it.
fn json(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|e| e.to_string())?;
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// Lines of text, each with its newline. Looking for those byte by byte would take as long as the numbers in them.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// Tells an unknown kind (skip it) from a damaged line.
fn is_unknown_kind(line: &[u8], newer: bool) -> bool {
    let Ok(object) = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(line) else { return false };
    match object.keys().next() {
        // A known kind that does not fit can only be a later minor version's (a new operation or step).
        Some(kind) if object.len() == 1 => newer || !KINDS.contains(&kind.as_str()),
        _ => false,
    }
}

/// The part of a header that decides whether the rest can be read.
#[derive(Deserialize)]
struct Versions {
    header: Option<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    format: String,
    major: u32,
    tool: String,
}

fn header(line: &[u8], path: &str) -> Result<Header, Error> {
    let foreign = |why| Error::NotATrace { path: path.to_owned(), why };
    // The versions alone first: the rest of a newer header may not fit.
    let Ok(Versions { header: Some(version) }) = serde_json::from_slice(line) else {
        return Err(foreign("its first line is no header"));
    };
    if version.format != "vramtrace" {
        return Err(foreign("its first line is not vramtrace's"));
    }
    let path = path.to_owned();
    if version.major > MAJOR {
        return Err(Error::Newer { path, major: version.major, tool: version.tool, supported: MAJOR });
    }
    match serde_json::from_slice(line) {
        Ok(Record::Header(header)) => Ok(header),
        Ok(_) => Err(foreign("its first line is no header")),
        Err(e) => Err(Error::Damaged { path, line: 0, why: format!("the header: {e}") }),
    }
}

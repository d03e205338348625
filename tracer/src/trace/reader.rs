//! Reading a trace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::Error;
use super::record::{Header, MAJOR, MINOR, Record};

/// Longest line read: far above any record, far below what would hurt.
pub const MAX_LINE: usize = 64 * 1024 * 1024;
/// Decompressed bytes buffered.
const BUFFER: usize = 256 * 1024;
/// Largest zstd window accepted, as a power of two: 128 MiB, what `zstd -d` accepts by default.
const WINDOW_LOG: u32 = 27;
/// First bytes of a zstd frame (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Record kinds this version knows: the names of [`Record`]'s variants.
const KINDS: [&str; 11] =
    ["header", "library", "process", "frame", "stack", "rm", "call", "nvml", "loss", "notice", "footer"];

/// Reads the records of a trace, one at a time.
///
/// A trace that was cut off gives its records up to there, then ends; [`truncated`](Self::truncated) tells. Damage gives
/// one [`Error::Damaged`], then the end.
pub struct Reader<R: Read> {
    input: Input<R>,
    line: Vec<u8>,
    lines: u64,
    path: String,
    header: Option<Header>,
    pending: Option<Record>,
    newer: bool,
    done: bool,
    footer: bool,
    unknown: u64,
}

/// Decompressed text.
type Input<R> = BufReader<zstd::stream::read::Decoder<'static, BufReader<io::Chain<io::Cursor<Vec<u8>>, R>>>>;

impl Reader<File> {
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
}

impl<R: Read> Reader<R> {
    /// Reads a trace from anything.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn from_read(input: R) -> Result<Self, Error> {
        Self::named(input, "trace".to_owned())
    }

    fn named(mut input: R, path: String) -> Result<Self, Error> {
        let magic = magic(&mut input).map_err(|e| Error::io(&path, e))?;
        if !ZSTD_MAGIC.starts_with(&magic) {
            return Err(Error::NotATrace { path, why: "it is not zstd-compressed" });
        }
        let empty = magic.len() < ZSTD_MAGIC.len();
        let raw = BufReader::new(io::Cursor::new(magic).chain(input));
        let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(|e| Error::io(&path, e))?;
        decoder.window_log_max(WINDOW_LOG).map_err(|e| Error::io(&path, e))?;
        let mut reader = Self {
            input: BufReader::with_capacity(BUFFER, decoder),
            line: Vec::new(),
            lines: 0,
            path,
            header: None,
            pending: None,
            newer: false,
            done: empty,
            footer: false,
            unknown: 0,
        };
        if !empty {
            reader.read_header()?;
        }
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<(), Error> {
        if !self.next_line()? {
            return Ok(());
        }
        let foreign = |why| Error::NotATrace { path: self.path.clone(), why };
        // Read the versions alone first: the rest of a newer header may not fit.
        let Ok(Versions { header: Some(versions) }) = serde_json::from_slice(&self.line) else {
            return Err(foreign("its first line is no header"));
        };
        if versions.format != "vramtrace" {
            return Err(foreign("its first line is not vramtrace's"));
        }
        if versions.major > MAJOR {
            let (path, major, tool) = (self.path.clone(), versions.major, versions.tool);
            return Err(Error::Newer { path, major, tool, supported: MAJOR });
        }
        self.newer = versions.minor > MINOR;
        match serde_json::from_slice(&self.line) {
            Ok(Record::Header(header)) => {
                self.header = Some(header.clone());
                self.pending = Some(Record::Header(header));
                Ok(())
            }
            Ok(_) => Err(foreign("its first line is no header")),
            Err(e) => Err(self.damaged(format!("the header: {e}"))),
        }
    }

    /// The header, unless the file was cut off before its end.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// True once the records have ended without a footer: the file was cut off or damaged, or is still being written.
    pub fn truncated(&self) -> bool {
        self.done && !self.footer
    }

    /// Lines of unknown kinds skipped so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    fn damaged(&mut self, why: String) -> Error {
        self.done = true;
        Error::Damaged { path: self.path.clone(), line: self.lines.saturating_sub(1), why }
    }

    /// Reads the next whole line into `self.line`; false at the end, whichever way it comes.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let limit = MAX_LINE as u64 + 1;
        let result = (&mut self.input).take(limit).read_until(b'\n', &mut self.line);
        self.lines += 1;
        match result {
            Ok(_) if self.line.last() == Some(&b'\n') => Ok(true),
            Ok(_) if self.line.len() > MAX_LINE => Err(self.damaged(format!("a line is longer than {MAX_LINE} bytes"))),
            // The end: between lines, or in the middle of one (what is there of it is not to be trusted).
            Ok(_) => {
                self.done = true;
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.done = true;
                Ok(false)
            }
            Err(e) => Err(self.damaged(format!("decompression: {e}"))),
        }
    }

    /// Tells an unknown kind (skip it) from a damaged line.
    fn is_unknown_kind(&self) -> bool {
        use std::collections::BTreeMap;
        let Ok(object) = serde_json::from_slice::<BTreeMap<String, serde::de::IgnoredAny>>(&self.line) else {
            return false;
        };
        match object.keys().next() {
            // A known kind that does not fit can only be a later minor version's (a new operation or step).
            Some(kind) if object.len() == 1 => self.newer || !KINDS.contains(&kind.as_str()),
            _ => false,
        }
    }

    fn read_record(&mut self) -> Result<Option<Record>, Error> {
        while !self.done && self.next_line()? {
            match serde_json::from_slice(&self.line) {
                Ok(record) => {
                    self.footer |= matches!(record, Record::Footer(_));
                    return Ok(Some(record));
                }
                Err(_) if self.is_unknown_kind() => self.unknown += 1,
                Err(e) => return Err(self.damaged(e.to_string())),
            }
        }
        Ok(None)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.pending.take() {
            return Some(Ok(record));
        }
        self.read_record().transpose()
    }
}

/// Up to the first four bytes.
fn magic(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
    input.take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

/// The part of a header that decides whether the rest can be read.
#[derive(Deserialize)]
struct Versions {
    header: Option<Version>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Version {
    format: String,
    major: u32,
    minor: u32,
    tool: String,
}

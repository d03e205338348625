//! Traces: the file, and the lines in it.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Cursor},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::PathBuf,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{outputs, scenario};
use crate::{
    ledger::{Book, Ledger},
    lifecycle::Rules,
    report::export::FORMATS,
    trace::{
        Reader, Writer, reader,
        record::{Header, Record},
    },
};

/// Any file in place of a trace: read, and everything made of it.
pub fn trace_reader(data: &[u8]) {
    let Ok(reader) = Reader::from_read(Cursor::new(data.to_vec())) else { return };
    let book = Book::of(reader);
    let rules = Rules::standard();
    // Which output: all of them for every input would take most of the time.
    let what = usize::from(data.last().copied().unwrap_or(0));
    match what % 4 {
        0 => outputs::report(&book, rules, what / 4),
        1 => outputs::compare(&book, &book, rules, what / 4),
        2 => outputs::pictures(&book, rules),
        _ => exported(&book, data, usize::from(data[data.len() / 2])),
    }
}

fn exported(book: &Book, trace: &[u8], format: usize) {
    // Formats that show calls read the trace once more.
    if let Ok(file) = Memory::new(trace) {
        outputs::export(book, Rules::standard(), &file.path(), format);
    }
}

/// Any lines after the first byte, which says what is made of them. Compression is left out: damage would rarely get
/// past it.
pub fn trace_lines(data: &[u8]) {
    let Some((what, text)) = data.split_first() else { return };
    let mut ledger = Ledger::new();
    let mut live = Ledger::new();
    let (records, _damage) = reader::records(text);
    for (number, record) in records.iter().enumerate() {
        ledger.push(record.clone());
        live.push_live(record);
        if number % 16 == 15 {
            live.fold(number as u64);
        }
    }
    let rules = Rules::standard();
    let book = ledger.finish();
    let (what, which) = (usize::from(*what) % (FORMATS.len() + 4), usize::from(*what) / (FORMATS.len() + 4));
    match what {
        0 => outputs::report(&book, rules, which),
        1 => outputs::compare(&book, &book, rules, which),
        2 => outputs::pictures(&book, rules),
        3 => outputs::live(live, rules),
        format => exported(&book, &compress(&records).unwrap_or_default(), format - 4),
    }
}

fn compress(records: &[Record]) -> Result<Vec<u8>, crate::trace::Error> {
    let mut writer = Writer::new(Vec::new())?;
    for record in records {
        writer.record(record)?;
    }
    writer.finish()
}

/// A file without a name.
pub(super) struct Memory(File);

impl Memory {
    pub(super) fn new(bytes: &[u8]) -> io::Result<Self> {
        let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC)?);
        file.write_all_at(bytes, 0)?;
        Ok(Self(file))
    }

    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    pub(super) fn into_file(self) -> File {
        self.0
    }
}

/// Records of every kind, as a small server would leave them.
fn records() -> Vec<Vec<Record>> {
    let header = Record::Header(Header {
        format: "vramtrace".into(),
        major: crate::trace::record::MAJOR,
        minor: crate::trace::record::MINOR,
        ..Header::default()
    });
    let begin = |records: Vec<Record>| [vec![header.clone()], records].concat();
    scenario::seeds().iter().map(|seed| begin(scenario::records(seed))).collect()
}

pub(super) fn compressed_seeds() -> Vec<Vec<u8>> {
    records().iter().filter_map(|records| compress(records).ok()).collect()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let line = |record: &Record| serde_json::to_string(record).unwrap_or_default() + "\n";
    let text = |(what, records): (usize, Vec<Record>)| {
        [vec![what as u8], records.iter().map(line).collect::<String>().into_bytes()].concat()
    };
    records().into_iter().enumerate().map(text).collect()
}

/// Keys and short values of the seeds.
pub(super) fn words() -> Vec<String> {
    let mut words = BTreeSet::new();
    for seed in seeds() {
        let text = String::from_utf8_lossy(&seed[1..]).into_owned();
        words.extend(text.split(['{', '}', '[', ']', ',', ':']).filter(|w| w.len() < 40).map(str::to_owned));
    }
    let numbers = ["18446744073709551615", "9223372036854775807", "-9223372036854775808", "4294967295", "null", "-1"];
    words.into_iter().take(400).chain(numbers.map(str::to_owned)).collect()
}

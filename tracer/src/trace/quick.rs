//! Reading the lines that long traces are made of: driver requests that make, free and map memory, and blocks.
//!
//! A reader of JSON takes fields in any order and text in any form; the writer knows one. Lines just as it writes them are
//! read here, in a fraction of the time. Of any other line nothing is said: it may be as good.

use std::sync::Arc;

use memchr::memchr;

use super::record::{Alloc, Block, Op, Record, Rm};
use crate::map::Map;

/// Longest number read: whatever its digits, it fits.
const DIGITS: usize = 19;

/// Reads lines of one text.
#[derive(Default)]
pub(super) struct Quick<'t> {
    /// Lists of calls by how they are written. There are few: records share them.
    calls: Map<&'t [u8], Arc<[String]>>,
}

impl<'t> Quick<'t> {
    /// The record of a line, if it is of a kind and form known here.
    pub(super) fn record(&mut self, line: &'t [u8]) -> Option<Record> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut scan = Scan(line);
        let record = if scan.eat(b"{\"rm\":{\"t\":").is_some() {
            Record::Rm(self.rm(&mut scan)?)
        } else {
            scan.eat(b"{\"block\":{\"t\":")?;
            Record::Block(block(&mut scan)?)
        };
        scan.eat(b"}}")?;
        scan.0.is_empty().then_some(record)
    }

    fn rm(&mut self, scan: &mut Scan<'t>) -> Option<Rm> {
        Some(Rm {
            t: scan.number()?,
            start: scan.optional(b",\"start\":")?.unwrap_or_default(),
            unfinished: scan.eat(b",\"unfinished\":true").is_some(),
            pid: scan.field(b",\"pid\":")?,
            tid: scan.field(b",\"tid\":")?,
            status: scan.optional(b",\"status\":")?.unwrap_or_default(),
            calls: if scan.eat(b",\"calls\":[").is_some() { self.calls(scan)? } else { Arc::default() },
            outer: scan.optional(b",\"outer\":")?.unwrap_or_default(),
            stack: scan.optional(b",\"stack\":")?,
            op: op(scan)?,
        })
    }

    fn calls(&mut self, scan: &mut Scan<'t>) -> Option<Arc<[String]>> {
        let (list, rest) = scan.0.split_at(memchr(b']', scan.0)?);
        scan.0 = &rest[1..];
        if let Some(known) = self.calls.get(list) {
            return Some(Arc::clone(known));
        }
        let calls: Arc<[String]> = list.split(|&byte| byte == b',').map(name).collect::<Option<Vec<_>>>()?.into();
        self.calls.insert(list, Arc::clone(&calls));
        Some(calls)
    }
}

/// A function's name, which needs no escapes.
fn name(quoted: &[u8]) -> Option<String> {
    let name = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_plain.then(|| String::from_utf8(name.to_vec()).ok()).flatten()
}

fn op(scan: &mut Scan<'_>) -> Option<Op> {
    let op = if scan.eat(b",\"alloc\":{\"client\":").is_some() {
        Op::Alloc(Alloc {
            client: scan.number()?,
            parent: scan.field(b",\"parent\":")?,
            object: scan.field(b",\"object\":")?,
            class: scan.field(b",\"class\":")?,
            size: scan.optional(b",\"size\":")?,
            requested: scan.optional(b",\"requested\":")?,
            device_id: scan.optional(b",\"device_id\":")?,
            attr: scan.optional(b",\"attr\":")?,
            flags: scan.optional(b",\"flags\":")?,
            file: scan.field(b",\"file\":")?,
        })
    } else if scan.eat(b",\"free\":{\"client\":").is_some() {
        Op::Free { client: scan.number()?, object: scan.field(b",\"object\":")? }
    } else if scan.eat(b",\"map\":{\"base\":").is_some() {
        Op::Map {
            base: scan.number()?,
            length: scan.field(b",\"length\":")?,
            offset: scan.field(b",\"offset\":")?,
            client: scan.field(b",\"client\":")?,
            object: scan.field(b",\"object\":")?,
        }
    } else {
        scan.eat(b",\"unmap\":{\"base\":")?;
        Op::Unmap { base: scan.number()? }
    };
    scan.eat(b"}")?;
    Some(op)
}

fn block(scan: &mut Scan<'_>) -> Option<Block> {
    Some(Block {
        t: scan.number()?,
        pid: scan.field(b",\"pid\":")?,
        tid: scan.field(b",\"tid\":")?,
        device: scan.field(b",\"device\":")?,
        address: scan.field(b",\"address\":")?,
        bytes: match scan.optional::<i64>(b",\"bytes\":-")? {
            // JSON has a zero below zero, integers have none.
            Some(bytes) => Some(-bytes).filter(|bytes| *bytes != 0)?,
            None => scan.field(b",\"bytes\":")?,
        },
        allocated: scan.field(b",\"allocated\":")?,
        reserved: scan.field(b",\"reserved\":")?,
        stack: scan.optional(b",\"stack\":")?,
    })
}

/// What is left of a line.
struct Scan<'t>(&'t [u8]);

impl Scan<'_> {
    /// Goes past `text`, if that is next.
    fn eat(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// The number behind `name`, which must be next.
    fn field<T: TryFrom<u64>>(&mut self, name: &[u8]) -> Option<T> {
        self.eat(name)?;
        self.number()
    }

    /// The same of a name that may be missing: a number, if any, or nothing at all where it cannot be read.
    fn optional<T: TryFrom<u64>>(&mut self, name: &[u8]) -> Option<Option<T>> {
        if self.eat(name).is_some() { self.number().map(Some) } else { Some(None) }
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let (mut digits, mut number) = (0, 0_u64);
        while let Some(digit @ b'0'..=b'9') = self.0.get(digits) {
            if digits == DIGITS {
                return None;
            }
            number = number * 10 + u64::from(digit - b'0');
            digits += 1;
        }
        // JSON's numbers begin with no needless zero.
        if digits == 0 || (digits > 1 && self.0[0] == b'0') {
            return None;
        }
        self.0 = &self.0[digits..];
        T::try_from(number).ok()
    }
}

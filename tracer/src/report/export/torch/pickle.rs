//! Python's pickle format, as much of it as plain data needs: dicts, lists, text and integers.
//!
//! Protocol 2, with opcodes as in `Lib/pickle.py`. No opcode that names a class is ever written. What is repeated is
//! written once and referred to by its number in the memo, so that a reader shares it too. Only opcodes that the reader on
//! <https://pytorch.org/memory_viz> knows (`torch/utils/viz/MemoryViz.js`) are used, and lists are appended to in batches
//! as Python does it: that reader puts a batch on the call stack.

use std::collections::HashMap;
use std::io::{self, Write};

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const BINUNICODE: u8 = b'X';
const BININT1: u8 = b'K';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const LONG_BINPUT: u8 = b'r';
const LONG_BINGET: u8 = b'j';

/// Items of a list that are appended at once (`_BATCHSIZE`).
const BATCH: usize = 1000;

/// Number of something in the memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

/// Writes one pickle. Whoever calls it sees to it that dicts get keys and values by turns.
pub(super) struct Pickle<'w, W: Write + ?Sized> {
    to: &'w mut W,
    memos: u32,
    keys: HashMap<&'static str, Memo>,
}

/// A list that is being written.
#[derive(Default)]
pub(super) struct List {
    in_batch: usize,
}

impl<'w, W: Write + ?Sized> Pickle<'w, W> {
    pub(super) fn begin(to: &'w mut W) -> io::Result<Self> {
        to.write_all(&[PROTO, 2])?;
        Ok(Self { to, memos: 0, keys: HashMap::new() })
    }

    pub(super) fn end(self) -> io::Result<()> {
        self.to.write_all(&[STOP])
    }

    /// Begins a dict; [`Self::end_dict`] ends it.
    pub(super) fn dict(&mut self) -> io::Result<()> {
        self.to.write_all(&[EMPTY_DICT, MARK])
    }

    pub(super) fn end_dict(&mut self) -> io::Result<()> {
        self.to.write_all(&[SETITEMS])
    }

    /// Text that is written often: a key, or one of a few values.
    pub(super) fn key(&mut self, key: &'static str) -> io::Result<()> {
        if let Some(memo) = self.keys.get(key) {
            return self.get(*memo);
        }
        self.text(key)?;
        let memo = self.memo()?;
        self.keys.insert(key, memo);
        Ok(())
    }

    /// A key and an integer.
    pub(super) fn field(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.int(value)
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a name is longer than 4 GiB"))?;
        self.to.write_all(&[BINUNICODE])?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(text.as_bytes())
    }

    pub(super) fn int(&mut self, value: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(value) {
            return self.to.write_all(&[BININT1, byte]);
        }
        if let Ok(int) = i32::try_from(value) {
            self.to.write_all(&[BININT])?;
            return self.to.write_all(&int.to_le_bytes());
        }
        // Two's complement, shortest, little-endian: a leading zero bit keeps it positive.
        let bytes = value.to_le_bytes();
        let length = (64 - value.leading_zeros() as usize) / 8 + 1;
        self.to.write_all(&[LONG1, length as u8])?;
        self.to.write_all(&bytes[..length.min(8)])?;
        if length > 8 { self.to.write_all(&[0]) } else { Ok(()) }
    }

    /// Begins a list; [`Self::item`] goes before each item, [`Self::end_list`] after the last.
    pub(super) fn list(&mut self) -> io::Result<List> {
        self.to.write_all(&[EMPTY_LIST])?;
        Ok(List::default())
    }

    pub(super) fn item(&mut self, list: &mut List) -> io::Result<()> {
        if list.in_batch == BATCH {
            self.to.write_all(&[APPENDS])?;
            list.in_batch = 0;
        }
        list.in_batch += 1;
        if list.in_batch == 1 { self.to.write_all(&[MARK]) } else { Ok(()) }
    }

    #[expect(clippy::needless_pass_by_value, reason = "no item can follow")]
    pub(super) fn end_list(&mut self, list: List) -> io::Result<()> {
        if list.in_batch > 0 { self.to.write_all(&[APPENDS]) } else { Ok(()) }
    }

    /// Remembers what was written last.
    pub(super) fn memo(&mut self) -> io::Result<Memo> {
        let memo = Memo(self.memos);
        self.memos = self.memos.checked_add(1).ok_or_else(|| io::Error::other("too many different things"))?;
        self.to.write_all(&[LONG_BINPUT])?;
        self.to.write_all(&memo.0.to_le_bytes())?;
        Ok(memo)
    }

    /// What was remembered, once more.
    pub(super) fn get(&mut self, memo: Memo) -> io::Result<()> {
        self.to.write_all(&[LONG_BINGET])?;
        self.to.write_all(&memo.0.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Pickle::begin(&mut bytes).unwrap().int(value).unwrap();
        bytes.split_off(2)
    }

    /// As `pickletools.dis(pickle.dumps(n, 2))` shows them.
    #[test]
    fn integers_are_written_as_python_writes_them() {
        assert_eq!(int(0), [b'K', 0]);
        assert_eq!(int(255), [b'K', 255]);
        assert_eq!(int(0x7fff_ffff), [b'J', 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(int(0x8000_0000), [0x8a, 5, 0, 0, 0, 0x80, 0]);
        assert_eq!(int(1 << 39), [0x8a, 6, 0, 0, 0, 0, 0x80, 0]);
        assert_eq!(int(u64::MAX), [0x8a, 9, 255, 255, 255, 255, 255, 255, 255, 255, 0]);
    }

    #[test]
    fn lists_are_appended_to_in_batches() {
        let mut bytes = Vec::new();
        let mut pickle = Pickle::begin(&mut bytes).unwrap();
        let mut list = pickle.list().unwrap();
        for _ in 0..2500 {
            pickle.item(&mut list).unwrap();
            pickle.int(7).unwrap();
        }
        pickle.end_list(list).unwrap();
        pickle.end().unwrap();
        let count = |op: u8| bytes.iter().filter(|byte| **byte == op).count();
        assert_eq!((count(MARK), count(APPENDS), count(BININT1)), (3, 3, 2500));
    }

    #[test]
    fn keys_are_written_once() {
        let mut bytes = Vec::new();
        let mut pickle = Pickle::begin(&mut bytes).unwrap();
        pickle.field("size", 1).unwrap();
        pickle.field("size", 2).unwrap();
        assert_eq!(bytes.windows(4).filter(|window| window == b"size").count(), 1);
    }
}

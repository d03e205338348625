//! Code objects as user space keeps them.

use std::collections::HashMap;

use tracer_ebpf::{PythonCode, PythonFrame, Text};

use super::{
    find::Interpreter,
    lines::{self, Line},
    memory::Memory,
};
use crate::{
    stack::Interner,
    trace::record::{Frame, FrameKind},
};

/// Bytes of a name read at most.
const NAME: u64 = 4096;
/// Bytes of a line table read at most: generated code may have large ones.
const TABLE: u64 = 1 << 20;
/// Positions of one code object whose frames are remembered.
const POSITIONS: usize = 512;
/// Where the text of a `bytes` object begins.
const BYTES_DATA: u64 = 32;

/// What a code object is called, and where its lines are.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) identity: u64,
    address: u64,
    name: String,
    file: String,
    first: i32,
    /// `None` when it could not be read.
    table: Option<Vec<u8>>,
    /// Numbers of frames by position.
    frames: HashMap<u64, u32>,
}

impl Code {
    /// Takes over what the kernel side read, and reads the rest while the process lives.
    pub(super) fn new(code: &PythonCode, interpreter: &Interpreter) -> Self {
        let memory = Memory { pid: code.header.tgid };
        let walk = &interpreter.walk;
        let text = |text: &Text, bytes: &[u8]| {
            decode(text, bytes, |text, len| {
                let data = if text.state & 0x40 == 0 { walk.compact } else { walk.ascii };
                memory.bytes(text.at.checked_add(data.into())?, len)
            })
        };
        let table = if code.table_length == u64::from(code.table_len) {
            code.table.get(..code.table_len as usize).map(<[u8]>::to_vec)
        } else {
            Some(code.table_length).filter(|&len| len <= TABLE).and_then(|len| {
                // The table may be gone by now: it is this code's if the code still names it.
                let names = code.code.checked_add(walk.code_names.into())?;
                let at = names.checked_add(if walk.qualified == 0 { 16 } else { 24 })?;
                let table = memory.bytes(code.table_at.checked_add(BYTES_DATA)?, len as usize)?;
                (memory.u64(at)? == code.table_at).then_some(table)
            })
        };
        Self {
            identity: code.identity,
            address: code.code,
            name: text(&code.name, &code.name_text).unwrap_or_default(),
            file: text(&code.file, &code.file_text).unwrap_or_default(),
            first: code.line,
            table: table.filter(|_| code.kind == interpreter.code_type),
            frames: HashMap::new(),
        }
    }

    /// Bytes of memory this takes, about.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.table.as_ref().map_or(0, Vec::len)
    }

    /// Number of the frame that runs this code at a position.
    pub(super) fn frame(&mut self, frame: &PythonFrame, interpreter: &Interpreter, out: &mut Interner) -> u32 {
        if let Some(&number) = self.frames.get(&frame.position) {
            return number;
        }
        if self.frames.len() == POSITIONS {
            self.frames.clear();
        }
        let number = out.frame(self.describe(frame.position, interpreter));
        self.frames.insert(frame.position, number);
        number
    }

    fn describe(&self, position: u64, interpreter: &Interpreter) -> Frame {
        let (line, mark) = match self.line(position, interpreter) {
            Line::At(line) => (Some(line), ""),
            Line::None => (None, ""),
            Line::Unknown => (u32::try_from(self.first).ok(), " [its first line]"),
        };
        let name = if self.name.is_empty() { "[unnamed Python code]" } else { &self.name };
        let file = Some(self.file.clone()).filter(|file| !file.is_empty());
        Frame { function: format!("{name}{mark}"), file, line, kind: FrameKind::Python, ..Frame::default() }
    }

    fn line(&self, position: u64, interpreter: &Interpreter) -> Line {
        let layout = &interpreter.layout;
        let offset = match layout.version {
            // Of the last instruction, in bytes; -1 before the first.
            (3, 9) => Some(position as u32).filter(|&at| at.cast_signed() >= 0),
            (3, 10) => (position as u32).checked_mul(2).filter(|_| (position as u32).cast_signed() >= 0),
            _ => position.checked_sub(self.address.wrapping_add(layout.instructions)).and_then(|at| at.try_into().ok()),
        };
        let (Some(table), Some(offset)) = (&self.table, offset) else { return Line::Unknown };
        lines::line(layout.lines, table, self.first, offset)
    }
}

/// The text of a string object, of which `bytes` were read; `more` reads it again, in full. `None` when it is none.
pub(super) fn decode(text: &Text, bytes: &[u8], more: impl Fn(&Text, usize) -> Option<Vec<u8>>) -> Option<String> {
    let width = (text.state >> 2 & 7) as usize;
    let compact = text.state & 0x20 != 0;
    if !matches!(width, 1 | 2 | 4) || !compact {
        return None;
    }
    let len = text.length.checked_mul(width as u64)?;
    let read = bytes.get(..text.len as usize)?;
    let (bytes, cut) = if len == read.len() as u64 {
        (read.to_vec(), false)
    } else {
        let wanted = len.min(NAME) as usize / width * width;
        let bytes = more(text, wanted).unwrap_or_else(|| read.to_vec());
        let cut = (bytes.len() as u64) < len;
        (bytes, cut)
    };
    let point = |unit: &[u8]| match *unit {
        // Latin-1 are the first code points.
        [byte] => Some(char::from(byte)),
        [a, b] => char::from_u32(u16::from_le_bytes([a, b]).into()),
        [a, b, c, d] => char::from_u32(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    };
    let mut string: String =
        bytes.chunks_exact(width).map(|unit| point(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if cut {
        string.push('…');
    }
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State of a compact string of code points that take `width` bytes.
    const fn state(width: u32) -> u32 {
        width << 2 | 1 << 5
    }

    fn read(length: u64, state: u32, bytes: &[u8], more: Option<&[u8]>) -> Option<String> {
        let text = Text { at: 0, length, state, len: bytes.len() as u32 };
        decode(&text, bytes, |_, len| more.and_then(|bytes| bytes.get(..len)).map(<[u8]>::to_vec))
    }

    #[test]
    fn strings_of_every_width() {
        assert_eq!(read(4, state(1) | 0x40, b"load", None).as_deref(), Some("load"));
        assert_eq!(read(2, state(1), b"\xfc\xe9", None).as_deref(), Some("üé"));
        assert_eq!(read(2, state(2), &[0x37, 0x04, 0x3e, 0x04], None).as_deref(), Some("зо"));
        assert_eq!(read(1, state(4), &[0x40, 0xf6, 0x01, 0], None).as_deref(), Some("\u{1f640}"));
        // A lone surrogate has no place in UTF-8.
        assert_eq!(read(1, state(2), &[0x00, 0xd8], None).as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn a_long_string_is_read_again_or_marked() {
        let whole = [b'n'; 5000];
        assert_eq!(read(300, state(1), &whole[..255], Some(&whole)).unwrap(), "n".repeat(300));
        assert_eq!(read(300, state(1), &whole[..255], None).unwrap(), "n".repeat(255) + "…");
        assert_eq!(read(5000, state(1), &whole[..255], Some(&whole)).unwrap(), "n".repeat(4096) + "…");
        assert_eq!(read(5, state(1), &[], Some(&whole)).unwrap(), "nnnnn", "its page was not in memory");
    }

    #[test]
    fn what_is_no_string_has_no_text() {
        assert_eq!(read(4, 0, b"load", None), None);
        assert_eq!(read(4, state(3), b"load", None), None);
        assert_eq!(read(4, state(1) & !(1 << 5), b"load", None), None);
        assert_eq!(read(u64::MAX, state(4), b"load", None), None);
    }
}

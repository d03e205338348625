//! Cutting decompressed text into batches of whole lines.

use std::io::{self, Chain, Cursor, Read};

use memchr::{memchr_iter, memrchr};

use super::inflate::Inflate;

/// Longest line read: above any record (a process's start holds up to 1 MiB of arguments and environment, and escapes take
/// up to six characters), far below what would hurt: three bytes of a line can be an object of a hundred in memory.
pub(super) const MAX_LINE: usize = 8 << 20;
/// A few bytes can claim gigabytes of text, and memory goes by the text. So text is read up to [`TEXT`] bytes and [`RATIO`]
/// more for each byte of the file: recorded servers have 10 to 21, and samples of a machine with hundreds of processes,
/// line after line alike but for their times, some 200.
const RATIO: u64 = 1000;
const TEXT: u64 = 8 << 20;
/// And lines up to this number and one more for each byte of the file: that is what tells a time from the one before.
const LINES: u64 = 64 << 10;
/// Text in a batch, about.
const BATCH: usize = 256 * 1024;
/// What is read at once: a block of zstd is no larger (RFC 8878 §3.1.1.2.4).
const BLOCK: usize = 128 * 1024;
/// First bytes of a zstd frame (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) text: Vec<u8>,
    /// Why nothing can be read after them, if that is not a plain end.
    pub(super) damage: Option<String>,
}

/// The input is something else.
pub(super) struct NotZstd;

/// Decompresses the first bytes, which were looked at, and what follows them.
type Input<R> = Inflate<Chain<Cursor<Vec<u8>>, R>>;

/// Batches of a compressed file, up to its end, the place where it was cut off, or damage.
pub(super) struct Lines<R: Read> {
    /// `None` at the end.
    input: Option<Input<R>>,
    block: Vec<u8>,
    /// Beginning of a line whose end was not read yet.
    rest: Vec<u8>,
    /// Bytes and lines of text so far.
    text: u64,
    lines: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(mut input: R) -> io::Result<Result<Self, NotZstd>> {
        let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
        input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
        if !ZSTD_MAGIC.starts_with(&magic) {
            return Ok(Err(NotZstd));
        }
        let cut_off = magic.len() < ZSTD_MAGIC.len();
        let decoder = Inflate::new(Cursor::new(magic).chain(input))?;
        Ok(Ok(Self {
            input: (!cut_off).then_some(decoder),
            block: vec![0; BLOCK],
            rest: Vec::new(),
            text: 0,
            lines: 0,
        }))
    }

    /// Why no more of the file is read, if so; `new` is the text read last.
    fn too_much(&mut self, new: &[u8]) -> Option<String> {
        self.text += new.len() as u64;
        self.lines += memchr_iter(b'\n', new).count() as u64;
        let bytes = self.input.as_ref().map_or(0, |input| input.taken);
        if self.text > TEXT + bytes.saturating_mul(RATIO) {
            return Some(format!("more than {RATIO} bytes of text for each byte of the file, which no trace has"));
        }
        (self.lines > LINES + bytes)
            .then(|| "more than one line for each byte of the file, which no trace has".to_owned())
    }

    /// Ends with the whole lines of `text`; a part of a line is not to be trusted.
    fn end(&mut self, mut text: Vec<u8>, damage: Option<String>) -> Batch {
        self.input = None;
        text.truncate(memrchr(b'\n', &text).map_or(0, |at| at + 1));
        Batch { text, damage }
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let start = text.len();
            match self.input.as_mut()?.read(&mut self.block) {
                Ok(n @ 1..) => text.extend(&self.block[..n]),
                Ok(0) => return Some(self.end(text, None)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Some(self.end(text, None)),
                Err(e) => return Some(self.end(text, Some(format!("decompression: {e}")))),
            }
            let too_much = self.too_much(&text[start..]);
            let newline = memrchr(b'\n', &text[start..]);
            if text.len() > MAX_LINE && newline.is_none() {
                let why = format!("a line is longer than {MAX_LINE} bytes");
                return Some(self.end(text, Some(why)));
            }
            if too_much.is_some() {
                return Some(self.end(text, too_much));
            }
            if let (Some(at), true) = (newline, text.len() >= BATCH) {
                self.rest = text.split_off(start + at + 1);
                return Some(Batch { text, damage: None });
            }
        }
    }
}

//! Decompression, and cutting text into batches of whole lines.

use std::io::{self, BufReader, Chain, Cursor, Read};

use zstd::stream::read::Decoder;

/// Longest line read: far above any record, far below what would hurt.
pub(super) const MAX_LINE: usize = 64 * 1024 * 1024;
/// Text in a batch, about; also what is read at once.
const BATCH: usize = 256 * 1024;
/// Largest zstd window accepted, as a power of two: 128 MiB, what `zstd -d` accepts by default.
const WINDOW_LOG: u32 = 27;
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
type Input<R> = Decoder<'static, BufReader<Chain<Cursor<Vec<u8>>, R>>>;

/// Batches of a compressed file, up to its end, the place where it was cut off, or damage.
pub(super) struct Lines<R: Read> {
    /// `None` at the end.
    input: Option<Input<R>>,
    /// Beginning of a line whose end was not read yet.
    rest: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(mut input: R) -> io::Result<Result<Self, NotZstd>> {
        let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
        input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
        if !ZSTD_MAGIC.starts_with(&magic) {
            return Ok(Err(NotZstd));
        }
        let cut_off = magic.len() < ZSTD_MAGIC.len();
        let mut decoder = Decoder::with_buffer(BufReader::new(Cursor::new(magic).chain(input)))?;
        decoder.window_log_max(WINDOW_LOG)?;
        Ok(Ok(Self { input: (!cut_off).then_some(decoder), rest: Vec::new() }))
    }

    /// Ends with the whole lines of `text`; a part of a line is not to be trusted.
    fn end(&mut self, mut text: Vec<u8>, damage: Option<String>) -> Batch {
        self.input = None;
        text.truncate(text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1));
        Batch { text, damage }
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let start = text.len();
            text.resize(start + BATCH, 0);
            let result = self.input.as_mut()?.read(&mut text[start..]);
            text.truncate(start + result.as_ref().map_or(0, |&n| n));
            match result {
                Ok(1..) => {}
                Ok(0) => return Some(self.end(text, None)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Some(self.end(text, None)),
                Err(e) => return Some(self.end(text, Some(format!("decompression: {e}")))),
            }
            let newline = text[start..].iter().rposition(|&b| b == b'\n');
            if let (Some(at), true) = (newline, text.len() >= BATCH) {
                self.rest = text.split_off(start + at + 1);
                return Some(Batch { text, damage: None });
            }
            if text.len() > MAX_LINE {
                let why = format!("a line is longer than {MAX_LINE} bytes");
                return Some(self.end(text, Some(why)));
            }
        }
    }
}

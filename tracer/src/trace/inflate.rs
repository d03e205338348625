//! Decompression, a block at a time, so that what stands before damage is kept.

use std::io::{self, BufRead as _, BufReader, Read};

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

/// Largest zstd window accepted, as a power of two: 128 MiB, what `zstd -d` accepts by default.
const WINDOW_LOG: u32 = 27;
/// Bytes of a block's header (RFC 8878 §3.1.1.2).
const HEADER: usize = 3;
/// Bytes to begin a frame with: its magic and what follows (`ZSTD_startingInputLength`).
const BEGIN: usize = 5;

/// Text of a compressed file.
///
/// libzstd says how many bytes it needs to finish a block and to read the header of the next, and gets the block alone: of
/// what it was given together it gives nothing when the end of it turns out to be damaged.
pub(super) struct Inflate<R> {
    from: BufReader<R>,
    decoder: Decoder<'static>,
    /// Bytes that the decoder asks for; 0 between frames.
    wants: usize,
    /// Compressed bytes taken so far.
    pub(super) taken: u64,
}

impl<R: Read> Inflate<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self { from: BufReader::with_capacity(64 << 10, from), decoder, wants: 0, taken: 0 })
    }
}

impl<R: Read> Read for Inflate<R> {
    /// A file that ends within a frame is an [`io::ErrorKind::UnexpectedEof`].
    fn read(&mut self, text: &mut [u8]) -> io::Result<usize> {
        loop {
            let wants = if self.wants == 0 { BEGIN } else { self.wants };
            let wants = if wants > HEADER { wants - HEADER } else { wants };
            let bytes = self.from.fill_buf()?;
            let bytes = &bytes[..bytes.len().min(wants)];
            let is_end = bytes.is_empty();
            if is_end && self.wants == 0 {
                return Ok(0);
            }
            let (mut input, mut output) = (InBuffer::around(bytes), OutBuffer::around(text));
            self.wants = self.decoder.run(&mut input, &mut output)?;
            let (taken, given) = (input.pos(), output.pos());
            self.from.consume(taken);
            self.taken += taken as u64;
            if given > 0 {
                return Ok(given);
            }
            if is_end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

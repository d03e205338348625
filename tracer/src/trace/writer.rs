//! Writing a trace.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use super::Error;
use super::record::Record;

/// Encoded lines gathered before they go to the compressor.
const BATCH: usize = 64 * 1024;
/// zstd level: the fastest standard one. A trace is written beside a server that wants the CPU.
const LEVEL: i32 = 1;

/// Writes records as zstd-compressed JSON lines.
///
/// Memory is bounded by one batch of lines plus the compressor's window, whatever the length of the trace. Dropping a
/// writer without [`finish`](Self::finish) leaves a file that reads up to the last [`flush`](Self::flush).
pub struct Writer<W: Write> {
    encoder: zstd::stream::write::Encoder<'static, W>,
    lines: Vec<u8>,
    path: String,
}

impl Writer<File> {
    /// Creates the file `path`, mode 0600.
    ///
    /// The last component is never followed as a symbolic link. With `force`, an existing regular file that has no other
    /// name is overwritten; anything else that exists is left alone.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Unsafe`], or [`Error::Io`].
    pub fn create(path: &Path, force: bool) -> Result<Self, Error> {
        let file = open(path, force, None)?;
        Self::named(file, path.display().to_string())
    }

    /// Like [`create`](Self::create), for a tracer that runs as root on behalf of somebody: the file belongs to
    /// `uid:gid`, and only a file that already is theirs is overwritten.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_owned(path: &Path, force: bool, uid: u32, gid: u32) -> Result<Self, Error> {
        let file = open(path, force, Some(uid))?;
        let name = path.display().to_string();
        fchown(&file, Some(uid), Some(gid)).map_err(|e| Error::io(&name, e))?;
        Self::named(file, name)
    }
}

impl Writer<File> {
    /// Fails when the file has no name any more: nobody could ever read it.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub fn check(&self) -> Result<(), Error> {
        match self.encoder.get_ref().metadata() {
            Ok(meta) if meta.nlink() == 0 => Err(Error::Removed(self.path.clone())),
            _ => Ok(()),
        }
    }
}

fn open(path: &Path, force: bool, owner: Option<u32>) -> Result<File, Error> {
    let name = path.display().to_string();
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path) {
        Ok(file) => return Ok(file),
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io(&name, e)),
        Err(_) if !force => return Err(Error::Exists(name)),
        Err(_) => {}
    }
    // O_NONBLOCK keeps the open of a FIFO from waiting; what was opened is judged by its descriptor, so that nobody can
    // swap it between the check and the use.
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => Error::Unsafe { path: name.clone(), why: "it is a symbolic link" },
        Some(libc::ENXIO) => Error::Unsafe { path: name.clone(), why: "it is not a regular file" },
        _ => Error::io(&name, e),
    })?;
    let meta = file.metadata().map_err(|e| Error::io(&name, e))?;
    let why = if !meta.is_file() {
        "it is not a regular file"
    } else if meta.nlink() != 1 {
        "the file has other names (hard links)"
    } else if owner.is_some_and(|uid| uid != meta.uid()) {
        "it belongs to somebody else"
    } else {
        file.set_len(0).map_err(|e| Error::io(&name, e))?;
        return Ok(file);
    };
    Err(Error::Unsafe { path: name, why })
}

impl<W: Write> Writer<W> {
    /// Writes to anything.
    ///
    /// # Errors
    /// [`Error::Io`] when the compressor cannot be set up.
    pub fn new(inner: W) -> Result<Self, Error> {
        Self::named(inner, "trace".to_owned())
    }

    fn named(inner: W, path: String) -> Result<Self, Error> {
        let mut encoder = zstd::stream::write::Encoder::new(inner, LEVEL).map_err(|e| Error::io(&path, e))?;
        encoder.include_checksum(true).map_err(|e| Error::io(&path, e))?;
        Ok(Self { encoder, lines: Vec::with_capacity(BATCH + 4096), path })
    }

    /// Adds one record. It reaches the file at the latest with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::Encode`] leaves the file as it was; [`Error::Io`] does not.
    pub fn record(&mut self, record: &Record) -> Result<(), Error> {
        let good = self.lines.len();
        if let Err(e) = serde_json::to_writer(&mut self.lines, record) {
            self.lines.truncate(good);
            return Err(e.into());
        }
        self.lines.push(b'\n');
        if self.lines.len() >= BATCH { self.drain() } else { Ok(()) }
    }

    fn drain(&mut self) -> Result<(), Error> {
        self.encoder.write_all(&self.lines).map_err(|e| Error::io(&self.path, e))?;
        self.lines.clear();
        Ok(())
    }

    /// Ends the current compressed block: everything recorded so far can be read even if this process is killed now.
    /// A block costs a few bytes, so five a second are cheap.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.encoder.flush().map_err(|e| Error::io(&self.path, e))
    }

    /// Ends the file and gives back what it was written to.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<W, Error> {
        self.drain()?;
        let Self { encoder, path, .. } = self;
        let mut inner = encoder.finish().map_err(|e| Error::io(&path, e))?;
        inner.flush().map_err(|e| Error::io(&path, e))?;
        Ok(inner)
    }
}

//! Reading what is needed of an ELF file: where functions begin in the file, its build id and soname.
//!
//! Aya would parse the file anew for every probe and attach to the first symbol of a name, whatever its type. Here a
//! library is read once, in pieces, and nothing in it is trusted: every offset is checked against the file's length,
//! memory stays below 64 MiB of strings plus the headers, and no more than [`READ`] is read, whatever the file claims (one
//! full of holes may be larger than any disk).

#[cfg(test)]
mod bombs;
mod dynamic;
mod identity;
mod sections;
mod symbols;
#[cfg(test)]
pub(in crate::attach) mod tests;

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};

use super::{arch, files::open_regular};

pub use sections::{Section, Segment};
pub use symbols::{Definition, Refusal};

/// Why a file could not be read as an ELF library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Opening or reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is no ELF file, or one for another machine.
    #[error("{} is {what}, not a 64-bit {} ELF library or program", path.display(), arch::here().name)]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// Its headers contradict each other or the file's length.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first contradiction.
        what: &'static str,
    },
    /// Its tables are larger than any library's.
    #[error("{} has tables that are larger than any library's: more than {} MiB would have to be read", path.display(), READ >> 20)]
    TooMuch {
        /// The file.
        path: PathBuf,
    },
}

/// Bytes read of one file at most. The symbols of the largest libraries known (libtorch with debugging symbols) take some
/// hundred MiB.
const READ: u64 = if cfg!(test) { 192 << 20 } else { 2 << 30 };

/// An opened ELF file.
#[derive(Debug)]
pub struct ElfFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Bytes that may still be read.
    budget: Cell<u64>,
    segments: Vec<ProgramHeader64<LE>>,
    sections: Vec<SectionHeader64<LE>>,
    /// Index of the section that holds the names of sections.
    names: usize,
}

impl ElfFile {
    /// Opens a file and reads its headers.
    ///
    /// # Errors
    /// When it cannot be read, is not ELF for this processor, or is damaged.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = open_regular(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::of(path, file)
    }

    /// Reads the headers of an open file; `path` is what errors call it.
    ///
    /// # Errors
    /// As [`ElfFile::open`].
    pub fn of(path: &Path, file: File) -> Result<Self, Error> {
        let len = file.metadata().map_err(|source| Error::Io { path: path.to_owned(), source })?.len();
        let mut this = Self {
            path: path.to_owned(),
            file,
            len,
            budget: Cell::new(READ),
            segments: Vec::new(),
            sections: Vec::new(),
            names: 0,
        };
        let header = this.header()?;
        this.names = header.e_shstrndx.get(LE).into();
        let segments = (header.e_phnum.get(LE), header.e_phentsize.get(LE), size_of::<ProgramHeader64<LE>>());
        let sections = (header.e_shnum.get(LE), header.e_shentsize.get(LE), size_of::<SectionHeader64<LE>>());
        if [segments, sections].iter().any(|(count, size, known)| *count > 0 && usize::from(*size) != *known) {
            return Err(this.damaged("its headers have an unknown size"));
        }
        this.segments =
            this.records(header.e_phoff.get(LE), segments.0.into(), "program headers lie beyond its end")?;
        this.sections =
            this.records(header.e_shoff.get(LE), sections.0.into(), "section headers lie beyond its end")?;
        Ok(this)
    }

    /// Length of the file, bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.len
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn header(&self) -> Result<FileHeader64<LE>, Error> {
        let foreign = |what: &str| Error::Foreign { path: self.path.clone(), what: what.to_owned() };
        let mut ident = [0; 6];
        if self.len < ident.len() as u64 {
            return Err(foreign("a file of a few bytes"));
        }
        self.read_exact(&mut ident, 0)?;
        match ident {
            [0x7f, b'E', b'L', b'F', elf::ELFCLASS64, elf::ELFDATA2LSB] => {}
            [0x7f, b'E', b'L', b'F', elf::ELFCLASS32, _] => return Err(foreign("a 32-bit ELF file")),
            [0x7f, b'E', b'L', b'F', elf::ELFCLASS64, elf::ELFDATA2MSB] => {
                return Err(foreign("a big-endian ELF file"));
            }
            _ => return Err(foreign("no ELF file")),
        }
        let header: FileHeader64<LE> = self.records(0, 1, "it ends within its header")?[0];
        let own = arch::here().machine;
        match (header.e_machine.get(LE), header.e_type.get(LE)) {
            (machine, elf::ET_DYN | elf::ET_EXEC) if machine == own => Ok(header),
            (machine, kind) if machine == own => Err(foreign(&format!("an ELF file of type {kind}"))),
            (machine, _) => Err(foreign(&format!("an ELF file for machine {machine}"))),
        }
    }

    fn sections_of(&self, kind: u32) -> impl Iterator<Item = &SectionHeader64<LE>> {
        self.sections.iter().filter(move |section| section.sh_type.get(LE) == kind)
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { path: self.path.clone(), what }
    }

    fn read_exact(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.spend(buffer.len() as u64)?;
        self.file.read_exact_at(buffer, offset).map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// Fails where that many bytes are more than may still be read.
    fn can_spend(&self, bytes: u64) -> Result<u64, Error> {
        self.budget.get().checked_sub(bytes).ok_or_else(|| Error::TooMuch { path: self.path.clone() })
    }

    fn spend(&self, bytes: u64) -> Result<(), Error> {
        self.budget.set(self.can_spend(bytes)?);
        Ok(())
    }

    /// Bytes of the file; `beyond` is the error when they are not all there.
    pub(in crate::attach) fn bytes(&self, offset: u64, len: u64, beyond: &'static str) -> Result<Vec<u8>, Error> {
        self.records(offset, len, beyond)
    }

    /// Fixed-size records of the file; `beyond` is the error when they are not all there.
    fn records<T: object::Pod>(&self, offset: u64, count: u64, beyond: &'static str) -> Result<Vec<T>, Error> {
        let len = count.saturating_mul(size_of::<T>() as u64);
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.damaged(beyond));
        }
        self.can_spend(len)?;
        let len = usize::try_from(len).map_err(|_| self.damaged(beyond))?;
        // Words, so that the records are aligned.
        let mut words = vec![0_u64; len.div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..len];
        self.read_exact(bytes, offset)?;
        let records = object::pod::slice_from_all_bytes(bytes).map_err(|()| self.damaged(beyond))?;
        Ok(records.to_vec())
    }
}

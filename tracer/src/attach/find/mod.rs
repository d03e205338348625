//! Finding the libraries to probe, before and beside the processes that map them.
//!
//! Probes go by inode, so a library need not be mapped yet. Three places are searched: what processes map now
//! ([`mapped_by`], [`running`]), where a Python program's packages keep theirs ([`near_command`]), and what the dynamic
//! loader knows ([`ld_so_cache`]). A library found nowhere is caught when it is mapped. Processes that vanish and files
//! that may not be read are no errors: they are counted.

mod cache;
mod command;
mod maps;
mod process;
mod python;
mod root;
mod runtime;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::elf::{self, ElfFile};
use super::files::open_same;
use super::plan::Plan;
use crate::probe::{self, Lib};

pub use cache::ld_so_cache;
pub use command::near_command;
pub use process::{mapped_by, running};
pub use runtime::{Part, Runtime, is_libc, runtime_of};
pub use tree::{ancestors, descendants, has_ended, process_of, processes, started};

/// Takes any bytes for the files of a hostile root directory or process.
#[cfg(any(test, fuzzing))]
pub(crate) fn foreign(bytes: &[u8]) {
    maps::parse(bytes).for_each(drop);
    cache::paths(bytes).for_each(drop);
    std::hint::black_box(python::interpreter(bytes));
}

/// A library to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Which library it is.
    pub lib: Lib,
    /// A path that opens it from here; under `/proc/PID` where the target has another root.
    pub path: PathBuf,
    /// Its path as the target sees it.
    pub shown: String,
    /// Device of the file system (`st_dev`).
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl Library {
    /// Opens it; another file that has taken its place is an error.
    pub(in crate::attach) fn open(&self) -> io::Result<File> {
        open_same(&self.path, (self.device, self.inode))
    }

    /// A library at a path that opens it from here. Follows links.
    ///
    /// # Errors
    /// When there is no readable regular file.
    fn at(lib: Lib, path: &Path, shown: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let shown = shown.to_string_lossy().into_owned();
        Ok(Self { lib, path: path.to_owned(), shown, device: meta.dev(), inode: meta.ino() })
    }
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Libraries, each file once, in the order found.
    pub libraries: Vec<Library>,
    /// Processes and files that vanished or may not be read, and directories past the limit of the search.
    pub skipped: u64,
    seen: HashSet<(u64, u64)>,
}

impl Found {
    /// Adds a library unless the same file is there already.
    pub fn add(&mut self, library: Library) {
        if self.seen.insert((library.device, library.inode)) {
            self.libraries.push(library);
        }
    }

    /// Adds all that another search found.
    pub fn merge(&mut self, other: Self) {
        other.libraries.into_iter().for_each(|library| self.add(library));
        self.skipped += other.skipped;
    }

    fn add_or_skip(&mut self, library: io::Result<Library>) {
        match library {
            Ok(library) => self.add(library),
            Err(_) => self.skipped += 1,
        }
    }
}

/// The library a file of this name is, by the names its packagers use: `libcudart.so.12`, `libcuda.so.580.159.04`, and
/// as wheels rename the copies they bundle, `libcudart.faf08d9a.so.13`, `libnccl-0123abcd.so.2`. Plugins and debuggers
/// with similar names (`libnccl-net.so`, `libcudadebugger.so.1`, `libc10_cuda.so`) are none.
#[must_use]
pub fn recognise(name: &str) -> Option<Lib> {
    if name.starts_with("torch_memory_saver_") && name.ends_with(".so") {
        return Some(Lib::MemorySaver);
    }
    let (lib, rest) = Lib::ALL.iter().find_map(|lib| {
        let rest = name.strip_prefix(&lib.to_string())?;
        rest.starts_with(['.', '-']).then_some((*lib, rest))
    })?;
    let version = match rest.strip_prefix(".so") {
        Some(version) => version,
        None => {
            let (hash, version) = rest[1..].split_once(".so")?;
            (hash.len() >= 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(version)?
        }
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (version.is_empty() || version.strip_prefix('.')?.split('.').all(is_number)).then_some(lib)
}

/// [`recognise`] for a path.
fn recognise_path(path: &Path) -> Option<Lib> {
    recognise(path.file_name()?.to_str()?)
}

/// Why a file named by the user cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// It is no readable ELF file.
    #[error(transparent)]
    Elf(#[from] elf::Error),
    /// It cannot be looked at.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// None of the probed functions is in it.
    #[error("{} defines no function of {} (is it stripped?)", _0.display(), Lib::ALL.map(|lib| lib.to_string()).join(", "))]
    NothingToProbe(PathBuf),
}

/// A file the user names (`--lib`): any name, also a program with a static runtime. It is the library it is called, by
/// file name or soname, else the one most of whose functions it defines (libnccl carries a whole static runtime).
///
/// # Errors
/// When it is no ELF file for this machine or defines nothing that is probed.
pub fn named(path: &Path) -> Result<Library, NamedError> {
    let file = ElfFile::open(path)?;
    let plan = Plan::of_everything(&file)?;
    let probes = || plan.points.iter().filter_map(|point| probe::by_id(point.probe));
    let defined = |lib: Lib| probes().filter(|probe| probe.library == lib).count();
    let called = recognise_path(path).or_else(|| recognise(&file.soname()?)).filter(|lib| defined(*lib) > 0);
    let most = || Lib::ALL.into_iter().max_by_key(|lib| defined(*lib)).filter(|lib| defined(*lib) > 0);
    let lib = called.or_else(most).ok_or_else(|| NamedError::NothingToProbe(path.to_owned()))?;
    Library::at(lib, path, path).map_err(|source| NamedError::Io { path: path.to_owned(), source })
}

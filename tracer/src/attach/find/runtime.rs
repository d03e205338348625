//! The parts of a process that programs do not choose: its libc and its dynamic linker.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{maps, process};
use crate::attach::files::open_same;

/// Which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Where `ioctl` is.
    Libc,
    /// Where `_dl_debug_state` is.
    Linker,
}

impl Runtime {
    /// Opens it; another file that has taken its place is an error.
    pub(in crate::attach) fn open(&self) -> io::Result<File> {
        open_same(&self.path, (self.device, self.inode))
    }
}

/// A file that serves as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Which part; musl's one file is both, and given twice.
    pub part: Part,
    /// A path that opens it from here.
    pub path: PathBuf,
    /// Its path as the target sees it.
    pub shown: String,
    /// Device of the file system (`st_dev`).
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// The libc and dynamic linker that a process maps now; none once it has ended.
#[must_use]
pub fn runtime_of(pid: u32) -> Vec<Runtime> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for mapping in maps::parse(&std::fs::read(proc.join("maps")).unwrap_or_default()) {
        for &part in parts(&mapping.path) {
            if seen.insert((part, mapping.device, mapping.inode))
                && let Some((path, (device, inode))) = process::openable(&proc, &mapping)
            {
                let shown = mapping.path.to_string_lossy().into_owned();
                found.push(Runtime { part, path, shown, device, inode });
            }
        }
    }
    found
}

/// True for the path of a libc.
#[must_use]
pub fn is_libc(path: &Path) -> bool {
    parts(path).contains(&Part::Libc)
}

/// By the names that glibc (before and since 2.34) and musl install.
fn parts(path: &Path) -> &'static [Part] {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let versioned = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.ends_with(".so") && rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match name {
        "libc.so.6" => &[Part::Libc],
        _ if versioned("libc-") => &[Part::Libc],
        _ if name.starts_with("ld-musl-") => &[Part::Libc, Part::Linker],
        _ if name.starts_with("ld-linux") || versioned("ld-") => &[Part::Linker],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(parts(Path::new("/lib/x86_64-linux-gnu/libc.so.6")), [Part::Libc]);
        assert_eq!(parts(Path::new("/lib/x86_64-linux-gnu/libc-2.31.so")), [Part::Libc]);
        assert_eq!(parts(Path::new("/lib64/ld-linux-x86-64.so.2")), [Part::Linker]);
        assert_eq!(parts(Path::new("/lib/x86_64-linux-gnu/ld-2.31.so")), [Part::Linker]);
        assert_eq!(parts(Path::new("/lib/ld-musl-x86_64.so.1")), [Part::Libc, Part::Linker]);
        for other in ["/x/libc10.so", "/x/libcap.so.2", "/x/libc-client.so", "/x/ld-wrapper", "/"] {
            assert!(parts(Path::new(other)).is_empty(), "{other}");
        }
    }

    #[test]
    fn our_own() {
        let mut parts: Vec<Part> = runtime_of(std::process::id()).iter().map(|r| r.part).collect();
        parts.sort_by_key(|p| *p as u8);
        assert_eq!(parts, [Part::Libc, Part::Linker]);
        assert!(runtime_of(0).is_empty());
    }
}

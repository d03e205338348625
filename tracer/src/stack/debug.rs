//! Where a file's debugging information is.

use std::{fs::File, path::PathBuf};

use crate::attach::{elf::ElfFile, files::open_regular};

/// Debugging information is read from files up to this size (bytes): that of a debug build of libtorch would take more
/// memory than the tracer may use.
const LARGEST: u64 = 256 << 20;
/// Where distributions install debugging information, by build id (GDB's manual, "Debugging Information in Separate
/// Files").
const INSTALLED: &str = "/usr/lib/debug/.build-id";
/// Sections that name other files (GDB's manual; dwz(1); DWARF 5 §7.3.6). Whoever made the file chose the names, and
/// they may be those of anything: a device, a FIFO. They are never followed.
const LINKS: [&str; 3] = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];

/// Where a file's debugging information is.
#[derive(Debug)]
pub(super) enum Debug {
    /// In the file, if anywhere.
    Here,
    /// In a file that this host has for its build id, with its symbols.
    Elsewhere(File),
    /// None that may be read.
    Nowhere,
}

impl Debug {
    /// Of a file. What it says of other files is not believed; its build id is looked up among what is installed here.
    pub(super) fn of(file: &ElfFile) -> Self {
        let is_small = |len: u64| len <= LARGEST;
        if !LINKS.iter().any(|name| file.section(name).is_some()) {
            return if is_small(file.size()) { Self::Here } else { Self::Nowhere };
        }
        let found = file.build_id().and_then(|id| open_regular(&installed(&id)?).ok());
        let found = found.filter(|found| found.metadata().is_ok_and(|meta| is_small(meta.len())));
        found.map_or(Self::Nowhere, Self::Elsewhere)
    }
}

/// Path for a build id in hexadecimal digits. Those of linkers have at least 8 bytes.
fn installed(id: &str) -> Option<PathBuf> {
    let (first, rest) = (id.len() >= 16).then(|| id.split_at_checked(2)).flatten()?;
    Some(format!("{INSTALLED}/{first}/{rest}.debug").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_have_paths() {
        let path = installed("0123456789abcdef").unwrap();
        assert_eq!(path.to_str(), Some("/usr/lib/debug/.build-id/01/23456789abcdef.debug"));
        assert_eq!(installed("0123456789abcd"), None);
        assert_eq!(installed(""), None);
    }
}

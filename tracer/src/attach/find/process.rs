//! Libraries that processes map.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::maps::{self, Mapping};
use super::{Found, Library, recognise_path};

/// Libraries of interest that a process maps now.
#[must_use]
pub fn mapped_by(pid: u32) -> Found {
    let mut found = Found::default();
    add(&mut found, pid);
    found
}

/// Libraries of interest that any process maps now.
#[must_use]
pub fn running() -> Found {
    let mut found = Found::default();
    super::tree::processes().into_iter().for_each(|pid| add(&mut found, pid));
    found
}

fn add(found: &mut Found, pid: u32) {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let Ok(text) = fs::read(proc.join("maps")) else {
        found.skipped += 1;
        return;
    };
    let mut last = None;
    for mapping in maps::parse(&text) {
        let Some(lib) = recognise_path(&mapping.path) else { continue };
        // The segments of one library follow each other.
        let file = (mapping.device, mapping.inode);
        if last.replace(file) == Some(file) {
            continue;
        }
        match openable(&proc, &mapping).and_then(|path| Library::at(lib, &path, &mapping.path).ok()) {
            Some(library) => found.add(library),
            None => found.skipped += 1,
        }
    }
}

/// A path that opens the mapped file itself, not another that now has its name: its path from here, its path in the
/// target's root, or the kernel's link to it. Where that link may not be followed, what the target has under that name.
pub(super) fn openable(proc: &Path, mapping: &Mapping) -> Option<PathBuf> {
    let rooted = proc.join("root").join(mapping.path.strip_prefix("/").ok()?);
    let linked = proc.join("map_files").join(&mapping.range);
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (mapping.device, mapping.inode))
    };
    if is_it(&mapping.path) {
        return Some(mapping.path.clone());
    }
    if is_it(&rooted) || (!mapping.deleted && fs::metadata(&linked).is_err()) {
        return Some(rooted);
    }
    fs::metadata(&linked).is_ok().then_some(linked)
}

//! Libraries that processes map.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::maps::{self, Mapping};
use super::{Found, Library, recognise_path};
use crate::probe::Lib;

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
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        add(&mut found, pid);
    }
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
        match open(&proc, lib, &mapping) {
            Some(library) => found.add(library),
            None => found.skipped += 1,
        }
    }
}

/// The mapped file itself, not another that now has its name: by its path from here, by its path in the target's root,
/// or by the kernel's link to it. Where that link may not be followed, what the target has under that name.
fn open(proc: &Path, lib: Lib, mapping: &Mapping) -> Option<Library> {
    let rooted = proc.join("root").join(mapping.path.strip_prefix("/").ok()?);
    let linked = proc.join("map_files").join(&mapping.range);
    let is_it = |path: &&PathBuf| {
        fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (mapping.device, mapping.inode))
    };
    let by_name = [&mapping.path, &rooted].into_iter().find(is_it);
    let path = by_name.or_else(|| fs::metadata(&linked).is_ok().then_some(&linked));
    let path = path.or_else(|| (!mapping.deleted).then_some(&rooted))?;
    Library::at(lib, path, &mapping.path).ok()
}

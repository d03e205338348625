//! Libraries that processes map.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::maps::{self, Mapping};
use super::{Found, Library, recognise_path};
use crate::attach::files::{self, Identity};

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
        match openable(&proc, &mapping) {
            Some((path, (device, inode))) => {
                let shown = mapping.path.to_string_lossy().into_owned();
                found.add(Library { lib, path, shown, device, inode });
            }
            None => found.skipped += 1,
        }
    }
}

/// A path that opens the mapped file itself, not another that now has its name, and what it opens: its path from here,
/// its path in the target's root, or the kernel's link to it.
///
/// A file system may show another device number in `stat` than in `maps` (overlayfs, btrfs). Where the kernel's link may
/// not be followed either (it takes `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`), the file of the same inode number that
/// the target has under that name, inside its own root, is taken for it.
pub(super) fn openable(proc: &Path, mapping: &Mapping) -> Option<(PathBuf, Identity)> {
    let root = proc.join("root");
    let rooted = root.join(mapping.path.strip_prefix("/").ok()?);
    let linked = proc.join("map_files").join(&mapping.range);
    let mapped = (mapping.device, mapping.inode);
    let is_it = |path: &Path| regular(path).is_some_and(|found| found == mapped);
    if is_it(&mapping.path) {
        return Some((mapping.path.clone(), mapped));
    }
    if is_it(&rooted) {
        return Some((rooted, mapped));
    }
    if let Some(found) = regular(&linked) {
        return Some((linked, found));
    }
    let found = files::open_in(&root, &mapping.path).and_then(|file| files::identity_of(&file)).ok();
    // What opens the path later follows links without that root: it must come to the same file.
    found
        .filter(|found| !mapping.deleted && found.1 == mapping.inode && regular(&rooted) == Some(*found))
        .map(|found| (rooted, found))
}

/// What a path leads to, if that is a regular file.
fn regular(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| (meta.dev(), meta.ino()))
}

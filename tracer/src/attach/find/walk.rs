//! A bounded search of directories.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Found, Library, recognise_path};

/// Directory entries looked at in one search. A Python installation of a model server has about 60,000 files; the
/// directories searched in it hold some 2,000.
const ENTRIES: u64 = 200_000;

/// A search under way.
#[derive(Default)]
pub(super) struct Walk {
    found: Found,
    looked_at: u64,
    done: HashSet<(PathBuf, u32)>,
}

impl Walk {
    /// Searches a directory, and the directories in it down to `depth` levels. Links to directories are not followed.
    /// Directories that are not there are no loss.
    pub(super) fn search(&mut self, dir: &Path, depth: u32) {
        if !self.done.insert((dir.to_owned(), depth)) {
            return;
        }
        for entry in self.entries(dir) {
            if let Some(lib) = recognise_path(&entry) {
                // The name the loader will map, not a link's.
                let real = fs::canonicalize(&entry).unwrap_or_else(|_| entry.clone());
                self.found.add_or_skip(Library::at(lib, &real, &real));
            } else if depth > 0 && fs::symlink_metadata(&entry).is_ok_and(|meta| meta.is_dir()) {
                self.search(&entry, depth - 1);
            }
        }
    }

    /// One file, if it is a library of interest.
    pub(super) fn file(&mut self, path: &Path) {
        if let Some(lib) = recognise_path(path) {
            self.found.add_or_skip(Library::at(lib, path, path));
        }
    }

    /// What a directory holds, sorted, so that a search finds the same in the same order every time.
    pub(super) fn entries(&mut self, dir: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
        let room = ENTRIES - self.looked_at;
        let mut paths: Vec<PathBuf> = entries.flatten().take(room as usize).map(|entry| entry.path()).collect();
        self.looked_at += paths.len() as u64;
        if self.looked_at == ENTRIES {
            self.found.skipped += 1;
        }
        paths.sort_unstable();
        paths
    }

    /// What was found.
    pub(super) fn finish(self) -> Found {
        self.found
    }
}

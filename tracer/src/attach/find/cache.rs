//! glibc's `ld.so.cache` (`sysdeps/generic/dl-cache.h`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{Found, Library, recognise_path, root};
use crate::attach::{arch, files::read_head};

/// Magic and version of the format in use since glibc 2.2 (the only one since 2.32).
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic of the format before, which may stand in front of it.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
/// `sizeof (struct file_entry)` of the old format.
const OLD_ENTRY: usize = 12;
/// `sizeof (struct cache_file_new)`.
const HEADER: usize = 48;
/// `sizeof (struct file_entry_new)`: flags, key, value, osversion, hwcap.
const ENTRY: usize = 24;
/// Larger files are no caches: one entry takes about 100 bytes.
const LIMIT: u64 = 16 << 20;

/// Libraries of interest in the loader's cache below a root directory (`/`, or `/proc/PID/root`).
#[must_use]
pub fn ld_so_cache(root: &Path) -> Found {
    let mut found = Found::default();
    let Some(cache) = root::resolve(root, Path::new("/etc/ld.so.cache")) else { return found };
    let Ok(bytes) = read_head(&root::inside(root, &cache), LIMIT) else {
        found.skipped += 1;
        return found;
    };
    for path in paths(&bytes) {
        let Some(lib) = recognise_path(path) else { continue };
        match root::resolve(root, path) {
            Some(shown) => found.add_or_skip(Library::at(lib, &root::inside(root, &shown), &shown)),
            None => found.skipped += 1,
        }
    }
    found
}

/// Absolute paths of the cache's libraries for this processor. Entries that make no sense are left out; a cache in another
/// format has none.
pub(super) fn paths(file: &[u8]) -> impl Iterator<Item = &Path> {
    let cache = new_format(file).unwrap_or_default();
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let count = word(cache, MAGIC.len()).unwrap_or(0) as usize;
    let entries = cache.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY).take(count);
    entries.filter_map(move |entry| {
        // The part of an entry's flags that names a processor.
        if word(entry, 0)? & 0xff00 != arch::here().cache {
            return None;
        }
        // Offsets count from the header of this format.
        let path = cache.get(word(entry, 8)? as usize..)?;
        let path = &path[..path.iter().position(|&byte| byte == 0)?];
        path.starts_with(b"/").then(|| Path::new(OsStr::from_bytes(path)))
    })
}

fn new_format(file: &[u8]) -> Option<&[u8]> {
    let start = if file.starts_with(OLD_MAGIC) {
        let count = u32::from_le_bytes(file.get(OLD_MAGIC.len()..)?.get(..4)?.try_into().ok()?) as usize;
        (OLD_MAGIC.len() + 4).checked_add(count.checked_mul(OLD_ENTRY)?)?.checked_next_multiple_of(8)?
    } else {
        0
    };
    file.get(start..).filter(|cache| cache.starts_with(MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache of `(flags, path)`.
    fn cache(entries: &[(u32, &str)]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        let mut strings = Vec::new();
        file.extend((entries.len() as u32).to_le_bytes());
        file.resize(HEADER, 0);
        for (flags, path) in entries {
            let at = (HEADER + entries.len() * ENTRY + strings.len()) as u32;
            file.extend([*flags, at, at, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
            strings.extend(path.bytes().chain([0]));
        }
        file.extend(strings);
        file
    }

    #[test]
    fn new_format_alone_or_behind_the_old_one() {
        let new = cache(&[(0x0303, "/a/libcuda.so.1"), (0x0003, "/i386/libcuda.so.1"), (0x0303, "relative")]);
        assert_eq!(paths(&new).collect::<Vec<_>>(), [Path::new("/a/libcuda.so.1")]);
        let mut both = OLD_MAGIC.to_vec();
        both.extend(3_u32.to_le_bytes());
        both.resize((16 + 3 * OLD_ENTRY).next_multiple_of(8), 7);
        both.extend(&new);
        assert_eq!(paths(&both).collect::<Vec<_>>(), [Path::new("/a/libcuda.so.1")]);
    }

    #[test]
    fn the_cache_of_a_root_leads_into_that_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::create_dir_all(root.path().join("lib")).unwrap();
        std::fs::write(root.path().join("lib/libnccl.so.2.21"), "x").unwrap();
        std::os::unix::fs::symlink("/lib/libnccl.so.2.21", root.path().join("lib/libnccl.so.2")).unwrap();
        let entries = [(0x0303, "/lib/libnccl.so.2"), (0x0303, "/lib/libc.so.6"), (0x0303, "/lib/libcuda.so.1")];
        std::fs::write(root.path().join("etc/ld.so.cache"), cache(&entries)).unwrap();
        let found = ld_so_cache(root.path());
        assert_eq!(found.libraries.len(), 1);
        assert_eq!(found.libraries[0].shown, "/lib/libnccl.so.2.21");
        assert_eq!(found.libraries[0].path, root.path().join("lib/libnccl.so.2.21"));
        assert_eq!(found.skipped, 1, "the cache names a libcuda that is not there");
        assert_eq!(ld_so_cache(&root.path().join("lib")), Found::default(), "no cache, nothing found");
    }

    #[test]
    fn this_machines_cache_parses() {
        let file = read_head(Path::new("/etc/ld.so.cache"), LIMIT).unwrap();
        let libc = paths(&file).find(|path| path.file_name().is_some_and(|name| name == "libc.so.6")).unwrap();
        assert!(libc.exists());
    }

    proptest! {
        #[test]
        fn damage_is_survived(at in 0..200_usize, byte: u8, cut in 0..300_usize) {
            let paths_of_3 = ["/a/libcuda.so.1", "/b/libcudart.so.12", "/c/libnccl.so.2"];
            let mut file = cache(&paths_of_3.map(|path| (0x0303, path)));
            let len = file.len();
            file[at % len] = byte;
            file.truncate(cut);
            prop_assert!(paths(&file).count() <= 3);
        }

        #[test]
        fn noise_is_survived(noise: Vec<u8>) {
            let mut file = MAGIC.to_vec();
            file.extend(noise);
            let _ = paths(&file).count();
        }
    }
}

//! Opening files that others control: nothing but regular files, never blocking, never more than asked for.
//!
//! A target chooses what lies under a library's name: a FIFO that nobody writes to, a device whose opening alone has an
//! effect (a watchdog reboots the machine), a link out of its container. So a file is first held by `O_PATH`, which opens
//! nothing (open(2)), then judged, then opened through that very handle.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// A file's device and inode, as `stat` has them.
pub(crate) type Identity = (u64, u64);

/// Opens a regular file. Links are followed.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    reopen(&OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?)
}

/// Opens a regular file by its path in the tree below the directory `root`, as a process with that root would: no link
/// leads out, neither absolute ones nor `..`, nor the kernel's own in `/proc` (openat2(2), Linux 5.6).
pub(crate) fn open_in(root: &Path, path: &Path) -> io::Result<File> {
    let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    reopen(&File::from(openat2(root, path, how)?))
}

/// Opens the regular file that `path` led to when it was looked at; another that is there by now is an error.
pub(crate) fn open_same(path: &Path, identity: Identity) -> io::Result<File> {
    let file = open_regular(path)?;
    if identity_of(&file)? != identity {
        return Err(io::Error::other("another file has taken its place"));
    }
    Ok(file)
}

/// What an open file is.
pub(crate) fn identity_of(file: &File) -> io::Result<Identity> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// A path that names an open file for as long as it stays open, whatever became of its name.
pub(crate) fn descriptor_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Opens for reading what a handle holds, if that is a regular file.
fn reopen(handle: &File) -> io::Result<File> {
    if !handle.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(descriptor_path(handle))
}

/// The first `limit` bytes of a regular file.
pub(crate) fn read_head(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    head_of(&open_regular(path)?, limit)
}

/// The first `limit` bytes of an open file.
pub(crate) fn head_of(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;

    use super::*;

    fn kind(result: io::Result<File>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("libcuda.so.1");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for path in [&fifo, dir.path(), Path::new("/dev/zero"), Path::new("/dev/ptmx")] {
            assert_eq!(kind(open_regular(path)), Some(io::ErrorKind::InvalidInput), "{}", path.display());
        }
        let link = dir.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        assert_eq!(kind(open_regular(&link)), Some(io::ErrorKind::InvalidInput));
        assert!(open_regular(Path::new("/proc/self/exe")).is_ok());
    }

    #[test]
    fn no_link_leads_out_of_a_root() {
        let outside = tempfile::NamedTempFile::new().unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("inside"), "x").unwrap();
        let deep = root.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        symlink(outside.path(), deep.join("absolute")).unwrap();
        symlink(format!("../../../../../../..{}", outside.path().display()), deep.join("relative")).unwrap();
        symlink("/proc/self/exe", deep.join("magic")).unwrap();
        symlink("/inside", deep.join("own")).unwrap();
        let open = |path: &str| open_in(root.path(), Path::new(path));
        assert_eq!(kind(open("/a/b/absolute")), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(open("/a/b/relative")), Some(io::ErrorKind::NotFound));
        assert!(open("/a/b/magic").is_err());
        assert!(open("/a/b/own").is_ok(), "an absolute link counts from that root");
        assert!(open("a/../../inside").is_ok());
    }

    #[test]
    fn a_file_put_in_anothers_place_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("libcuda.so.1"), dir.path().join("other"));
        fs::write(&path, "one").unwrap();
        fs::write(&other, "two").unwrap();
        let identity = identity_of(&open_regular(&path).unwrap()).unwrap();
        assert!(open_same(&path, identity).is_ok());
        fs::rename(&other, &path).unwrap();
        assert!(open_same(&path, identity).unwrap_err().to_string().contains("taken its place"));
    }
}

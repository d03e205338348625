//! The executable mappings of a process, from `/proc/PID/maps`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    stat::makedev,
};

use crate::attach::files::{identity_of, open_in, open_regular};

/// Executable mappings kept of one process; a server that loads every CUDA library there is has under a thousand.
const MAPPINGS: usize = 16 * 1024;
/// Name the kernel gives to the code it maps into every process.
const VDSO: &str = "[vdso]";

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// File offset of `start`.
    pub(super) offset: u64,
    /// Device and inode of the file; 0, 0 without one.
    pub(super) file: (u64, u64),
    /// Path as the process sees it, `[vdso]` and the like, or empty.
    pub(super) path: Rc<str>,
}

/// Reads the executable mappings of a process, in address order.
pub(super) fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    parse(BufReader::new(File::open(format!("/proc/{pid}/maps"))?))
}

pub(super) fn parse(mut lines: impl BufRead) -> io::Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    let mut line = Vec::new();
    while mappings.len() < MAPPINGS && lines.read_until(b'\n', &mut line)? > 0 {
        mappings.extend(parse_line(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    Ok(mappings)
}

/// `start-end perms offset major:minor inode   path` (proc(5)); `None` for a mapping that is not executable.
fn parse_line(line: &str) -> Option<Mapping> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let mut rest = line.trim_end_matches('\n');
    let mut field = || {
        let (field, tail) = rest.split_once(' ')?;
        rest = tail;
        Some(field)
    };
    let (start, end) = field()?.split_once('-')?;
    let executable = field()?.as_bytes().get(2) == Some(&b'x');
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    // The inode ends the line where there is no path.
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = path.trim_start();
    executable.then_some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        file: (makedev(hex(major)?, hex(minor)?), inode.parse().ok()?),
        path: path.strip_suffix(" (deleted)").unwrap_or(path).into(),
    })
}

impl Mapping {
    /// Opens the mapped file: deleted ones, those of other mount namespaces, and the vDSO too. `None` when it cannot
    /// be had (the process is gone, no permission) or is no regular file: opening a device may have effects.
    pub(super) fn open(&self, pid: u32) -> Option<File> {
        if &*self.path == VDSO {
            return vdso().ok();
        }
        let (device, inode) = self.file;
        // `map_files` is the mapped file itself, but needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; a path may by now
        // name another file. A file system may show another device number in `stat` than in `maps` (btrfs,
        // overlayfs), so below the process's own root the inode has to do.
        if inode == 0 {
            return None;
        }
        let linked: PathBuf = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end).into();
        let root: PathBuf = format!("/proc/{pid}/root").into();
        let path = Path::new(&*self.path);
        let same_inode = |file: &File| identity_of(file).is_ok_and(|found| found.1 == inode);
        let same = |file: &File| identity_of(file).is_ok_and(|found| found == (device, inode));
        let rooted = || open_in(&root, path).ok().filter(same_inode);
        open_regular(&linked).ok().or_else(rooted).or_else(|| open_regular(path).ok().filter(same))
    }
}

/// The vDSO as a file. The kernel maps the same image into every 64-bit process, so ours serves for all.
fn vdso() -> io::Result<File> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let own = read(std::process::id())?.into_iter().find(|mapping| &*mapping.path == VDSO).ok_or_else(missing)?;
    let mut image = vec![0; usize::try_from(own.end - own.start).map_err(|_| missing())?];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, own.start)?;
    let file = File::from(memfd_create(c"vdso", MFdFlags::MFD_CLOEXEC)?);
    file.write_all_at(&image, 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keeps_executable_mappings_with_odd_names() {
        let text = b"55d0c0000000-55d0c0001000 r--p 00000000 fe:01 1234                       /usr/bin/python3.11\n\
            55d0c0001000-55d0c0400000 r-xp 00001000 fe:01 1234                       /usr/bin/python3.11\n\
            7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
            7f0000002000-7f0000003000 r-xp 00002000 00:1f 99                         /opt/a b/lib\xff.so (deleted)\n\
            7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]\n";
        let maps = parse(&text[..]).unwrap();
        let paths: Vec<&str> = maps.iter().map(|mapping| &*mapping.path).collect();
        assert_eq!(paths, ["/usr/bin/python3.11", "", "/opt/a b/lib\u{fffd}.so", "[vdso]"]);
        assert_eq!((maps[0].start, maps[0].end, maps[0].offset), (0x55d0_c000_1000, 0x55d0_c040_0000, 0x1000));
        assert_eq!(maps[2].file, (makedev(0, 0x1f), 99));
    }

    #[test]
    fn opens_the_vdso_as_an_elf_file() {
        let mut magic = [0; 4];
        vdso().unwrap().read_exact_at(&mut magic, 0).unwrap();
        assert_eq!(&magic, b"\x7fELF");
    }

    #[test]
    fn a_file_that_took_the_path_is_not_mistaken_for_the_mapped_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (dev, ino) = file.as_file().metadata().map(|meta| (meta.dev(), meta.ino())).unwrap();
        let path: Rc<str> = file.path().to_str().unwrap().into();
        // Process 0 does not exist: only the path remains.
        let mapping = |file| Mapping { start: 0, end: 1, offset: 0, file, path: path.clone() };
        assert!(mapping((dev, ino)).open(0).is_some());
        assert!(mapping((dev, ino + 1)).open(0).is_none());
        assert!(mapping((dev + 1, ino)).open(0).is_none());
    }

    proptest! {
        #[test]
        fn never_panics(text in prop::collection::vec(any::<u8>(), 0..400)) {
            parse(&text[..]).unwrap();
        }
    }
}

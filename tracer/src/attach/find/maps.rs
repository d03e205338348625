//! `/proc/PID/maps`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A file mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Address range as the kernel writes it, the name of its link in `/proc/PID/map_files`.
    pub(super) range: String,
    /// Device of the file system, as `st_dev` has it.
    pub(super) device: u64,
    /// Inode number.
    pub(super) inode: u64,
    /// Path, without the kernel's mark for deleted files.
    pub(super) path: PathBuf,
    /// The file was unlinked, or replaced by another.
    pub(super) deleted: bool,
}

/// File mappings in the text of a maps file; anonymous memory and lines that make no sense are left out.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(mapping)
}

/// `7f00-7f10 r-xp 00000000 fe:10 1234      /path/with spaces`
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (range, _permissions, _offset, device, inode) = (text()?, text()?, text()?, text()?, text()?);
    let path = fields.next()?.trim_ascii_start();
    if !path.starts_with(b"/") {
        return None;
    }
    let (major, minor) = device.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    // The kernel writes map_files' names without the padding that maps has.
    let (start, end) = range.split_once('-')?;
    let address = |hex| u64::from_str_radix(hex, 16).ok();
    let path = unescape(path);
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (path.as_slice(), false),
    };
    Some(Mapping {
        range: format!("{:x}-{:x}", address(start)?, address(end)?),
        device: libc::makedev(number(major)?, number(minor)?),
        inode: inode.parse().ok()?,
        path: Path::new(OsStr::from_bytes(path)).to_owned(),
        deleted,
    })
}

/// The kernel writes a newline in a path as `\012`, and nothing else in octal.
fn unescape(path: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [first, tail @ ..] = rest {
        let newline = rest.strip_prefix(b"\\012");
        plain.push(if newline.is_some() { b'\n' } else { *first });
        rest = newline.unwrap_or(tail);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_spaces_marks_and_escapes() {
        let text = b"00400000-00401000 r-xp 00001000 fe:10 77                 /opt/my libs/libcuda.so.1\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
            7f0000001000-7f0000002000 r-xp 00000000 00:00 0          [vdso]\n\
            7f0000002000-7f0000003000 r--p 00000000 103:05 9 /a\\012b/libnccl.so.2 (deleted)\n\
            nonsense\n7f-80 r--p 0 zz:1 1 /x\n";
        let all: Vec<Mapping> = parse(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].range, "400000-401000");
        assert_eq!(all[0].path, Path::new("/opt/my libs/libcuda.so.1"));
        assert_eq!((all[0].device, all[0].inode, all[0].deleted), (libc::makedev(0xfe, 0x10), 77, false));
        assert_eq!(all[1].path, Path::new("/a\nb/libnccl.so.2"));
        assert_eq!((all[1].device, all[1].deleted), (libc::makedev(0x103, 5), true));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text: Vec<u8>) {
            let _ = parse(&text).count();
        }
    }
}

//! Descriptors of traced processes, as `proc_pid_fdinfo(5)` has them.
//!
//! Not by what `/proc/PID/fd/N` points to: that changes when a device node is removed or made anew, as container engines and
//! `nvidia-modprobe` do under running programs.

use std::{fs, io};

/// A descriptor as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Inode number of its file; 0 where the kernel does not say (before Linux 5.14).
    pub(super) inode: u64,
    /// `O_CLOEXEC`: an exec closes it.
    pub(super) closes_at_exec: bool,
}

impl Descriptor {
    /// Looks at descriptor `fd` of `pid`.
    ///
    /// # Errors
    /// There is none ([`io::ErrorKind::NotFound`]), or it may not be looked at.
    pub(super) fn read(pid: u32, fd: u32) -> io::Result<Self> {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
        let field = |name: &str| info.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
        let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
        Ok(Self {
            inode: field("ino:").and_then(|inode| inode.parse().ok()).unwrap_or(0),
            closes_at_exec: flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0),
        })
    }

    /// True unless it is known to be of another file than that of this inode number.
    pub(super) fn may_be(self, inode: u64) -> bool {
        self.inode == inode || self.inode == 0 || inode == 0
    }
}

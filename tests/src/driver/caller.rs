//! The process at the other end of a request: its id and its memory.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Process id of a thread (`Tgid` of `/proc/TID/status`).
#[must_use]
pub fn process_of(tid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    tgid.unwrap_or(tid)
}

/// What the driver's `copy_from_user` does.
///
/// # Errors
/// `EFAULT` when not all of it can be read.
pub fn copy_from(pid: u32, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    let remote = [RemoteIoVec { base: usize::try_from(address).map_err(|_| Errno::EFAULT)?, len }];
    match process_vm_readv(as_pid(pid), &mut [IoSliceMut::new(&mut bytes)], &remote) {
        Ok(n) if n == len => Ok(bytes),
        _ => Err(Errno::EFAULT),
    }
}

/// What the driver's `copy_to_user` does.
///
/// # Errors
/// `EFAULT` when not all of it can be written.
pub fn copy_to(pid: u32, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let len = bytes.len();
    let remote = [RemoteIoVec { base: usize::try_from(address).map_err(|_| Errno::EFAULT)?, len }];
    match process_vm_writev(as_pid(pid), &[IoSlice::new(bytes)], &remote) {
        Ok(n) if n == len => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// A descriptor of this process for the open file behind a descriptor of another one.
///
/// # Errors
/// `EBADF` when it has no such descriptor.
pub fn fetch_file(pid: u32, fd: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the system call takes plain integers and touches no memory.
    let process = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: pidfd_open returned a new descriptor that nothing else owns.
    let process = unsafe { OwnedFd::from_raw_fd(i32::try_from(process).map_err(|_| Errno::EBADF)?) };
    // SAFETY: as above, plain integers.
    let file = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })?;
    // SAFETY: pidfd_getfd returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(file).map_err(|_| Errno::EBADF)?) })
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

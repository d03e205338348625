//! Uprobes that are perf events of one process.

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use aya_obj::generated::{bpf_attach_type::BPF_PERF_EVENT, bpf_cmd, perf_event_attr};

use super::{Point, bpf_fd, zeroed};

// include/uapi/linux/perf_event.h.
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

/// Runs `program` whenever a thread of a process comes to a point of the file. `kind` is the number of the perf device for
/// uprobes. It lasts as long as the descriptor.
pub(in crate::attach::kernel) fn uprobe(
    program: &OwnedFd,
    kind: u32,
    path: &Path,
    point: Point,
    tgid: u32,
) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a structure of plain integers; zero is the default of every field.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.type_ = kind;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = point.offset;
    // A program runs all the same, and a task switch finds nothing to count.
    attr.set_disabled(1);
    let (any_cpu, no_group) = (-1, -1);
    // SAFETY: `attr` and the path it points to outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tgid, any_cpu, no_group, CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave this descriptor to us.
    let event = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?) };
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.link_create.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = BPF_PERF_EVENT as u32;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = point.cookie;
    // The link keeps the event.
    bpf_fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

//! Where driver ioctls are read.

use std::{
    fmt,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use super::{Error, btf::Btf, programs::Programs, sys};

/// Kernel functions that carry driver ioctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverHook {
    /// `ioctl` of the libc that the target maps: other processes pay only for their own calls of that function.
    Libc,
    /// nvidia.ko's and nvidia-uvm.ko's own: no other process's system call passes here.
    Module,
    /// Files of FUSE file systems: the simulated driver.
    Fuse,
    /// The `sys_exit` tracepoint: sees static and unknown libcs too, but every system call of every process pays.
    Syscall,
}

/// `(module, function, program)`. Sources: open-gpu-kernel-modules `nv.c` (`nvidia_unlocked_ioctl`, `nvidia_close`),
/// `uvm.c` (`uvm_unlocked_ioctl_entry`); Linux fs/fuse/ioctl.c, fs/fuse/file.c.
type Row = (Option<&'static str>, &'static str, &'static str);

impl DriverHook {
    const fn rows(self) -> &'static [Row] {
        match self {
            Self::Module => &[
                (Some("nvidia"), "nvidia_unlocked_ioctl", "driver_ioctl"),
                (Some("nvidia"), "nvidia_close", "driver_release"),
                (Some("nvidia_uvm"), "uvm_unlocked_ioctl_entry", "driver_ioctl"),
            ],
            Self::Fuse => &[(None, "fuse_file_ioctl", "driver_ioctl"), (None, "fuse_release", "driver_release")],
            Self::Libc | Self::Syscall => &[],
        }
    }
}

impl fmt::Display for DriverHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Libc => "libc ioctl",
            Self::Module => "nvidia_unlocked_ioctl",
            Self::Fuse => "fuse_file_ioctl",
            Self::Syscall => "sys_exit",
        })
    }
}

impl std::str::FromStr for DriverHook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "libc" => Ok(Self::Libc),
            "module" => Ok(Self::Module),
            "fuse" => Ok(Self::Fuse),
            "syscall" => Ok(Self::Syscall),
            other => Err(format!("unknown driver hook {other:?} (libc, module, fuse, syscall)")),
        }
    }
}

/// Attaches the kernel functions of a hook; [`DriverHook::Libc`] is placed library by library, as libcs are met.
pub(super) fn attach(programs: &Programs, vmlinux: &Arc<Btf>, hook: DriverHook) -> Result<Vec<OwnedFd>, Error> {
    hook.rows().iter().map(|row| attach_row(programs, vmlinux, *row)).collect()
}

fn attach_row(programs: &Programs, vmlinux: &Arc<Btf>, (module, function, program): Row) -> Result<OwnedFd, Error> {
    let Some(module) = module else { return programs.attach(program, vmlinux, None, function) };
    let failed = |source| Error::Program { name: format!("{program} on {module}:{function}"), source };
    let btf = Btf::module(module, vmlinux).map_err(failed)?;
    let fd = sys::module_btf(module).map_err(failed)?;
    programs.attach(program, &btf, Some(fd.as_fd()), function)
}

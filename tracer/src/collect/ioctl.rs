//! Driver ioctls to operations: pure, no guessing.
//!
//! # What the kernel side must pass on
//!
//! - From `/dev/nvidiactl` and `/dev/nvidiaN` (`_IOC_TYPE` `'F'`): [`RM_ALLOC_MEMORY`], [`RM_FREE`], [`RM_ALLOC`],
//!   [`RM_DUP_OBJECT`] and [`RM_VID_HEAP_CONTROL`] always; [`RM_CONTROL`] only with the commands
//!   [`CMD_GPU_GET_ID_INFO_V2`] and those of [`FD_CONTROLS`].
//! - From `/dev/nvidia-uvm` (raw numbers): [`UVM_REGISTER_GPU_VASPACE`], [`UVM_MAP_EXTERNAL_ALLOCATION`], [`UVM_FREE`],
//!   [`UVM_UNMAP_EXTERNAL`]. `UVM_REGISTER_GPU` (37) adds nothing that `UVM_REGISTER_GPU_VASPACE` does not say better.
//! - `arg` is the argument struct as the driver left it; `params` what it points to (`pAllocParms` of an RM alloc, the
//!   parameters of a control), its first 128 bytes. For a control with a `tail` in [`FD_CONTROLS`], the last four bytes
//!   of `params` are those found at `tail` instead.
//! - An `NV_ESC_IOCTL_XFER_CMD` is passed on as the request it carries: `cmd` rebuilt by [`request`], `arg` read from
//!   the inner pointer.
//!
//! Offsets come from the public headers of open-gpu-kernel-modules (`nvos.h`, `nv_escape.h`, `ctrl0000gpu.h`,
//! `ctrl0000unix.h`, `uvm_ioctl.h`), compared from 515.43.04 to 595.45.04; later branches up to [`LAST_BRANCH`] carry no
//! change to them in gVisor's `nvproxy` tables.

use tracer_ebpf::{IOCTL_PARAMS, Ioctl};

use super::{rm, uvm};
use crate::trace::record::Op;

/// `NV_ESC_RM_ALLOC_MEMORY`.
pub const RM_ALLOC_MEMORY: u32 = 0x27;
/// `NV_ESC_RM_FREE`.
pub const RM_FREE: u32 = 0x29;
/// `NV_ESC_RM_CONTROL`.
pub const RM_CONTROL: u32 = 0x2a;
/// `NV_ESC_RM_ALLOC`.
pub const RM_ALLOC: u32 = 0x2b;
/// `NV_ESC_RM_DUP_OBJECT`.
pub const RM_DUP_OBJECT: u32 = 0x34;
/// `NV_ESC_RM_VID_HEAP_CONTROL`.
pub const RM_VID_HEAP_CONTROL: u32 = 0x4a;
/// `UVM_REGISTER_GPU_VASPACE`.
pub const UVM_REGISTER_GPU_VASPACE: u32 = 25;
/// `UVM_MAP_EXTERNAL_ALLOCATION`.
pub const UVM_MAP_EXTERNAL_ALLOCATION: u32 = 33;
/// `UVM_FREE`.
pub const UVM_FREE: u32 = 34;
/// `UVM_UNMAP_EXTERNAL`.
pub const UVM_UNMAP_EXTERNAL: u32 = 66;

/// `NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2`.
pub const CMD_GPU_GET_ID_INFO_V2: u32 = 0x205;
/// `NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD`.
pub const CMD_EXPORT_OBJECT_TO_FD: u32 = 0x3d05;
/// `NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD`.
pub const CMD_IMPORT_OBJECT_FROM_FD: u32 = 0x3d06;
/// `NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD`: what libcuda 580 uses.
pub const CMD_EXPORT_OBJECTS_TO_FD: u32 = 0x3d0b;
/// `NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD`: what libcuda 580 uses.
pub const CMD_IMPORT_OBJECTS_FROM_FD: u32 = 0x3d0c;

/// A control whose parameters name a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdControl {
    /// Control command.
    pub cmd: u32,
    /// Byte offset of the descriptor (`NvS32`) in the parameters: the kernel side resolves it to `Ioctl::other_file`.
    pub fd: u32,
    /// Size of the parameters, bytes.
    pub size: u32,
    /// Byte offset of `numObjects` and `index` (two `NvU16`), where they lie beyond what `params` holds: the kernel side
    /// puts these four bytes at the end of `params`. 0: none.
    pub tail: u32,
}

/// Controls that tie objects to file descriptors (`ctrl0000unix.h`, unchanged from 515 to 595).
pub const FD_CONTROLS: [FdControl; 4] = [
    FdControl { cmd: CMD_EXPORT_OBJECT_TO_FD, fd: 16, size: 24, tail: 0 },
    FdControl { cmd: CMD_IMPORT_OBJECT_FROM_FD, fd: 0, size: 20, tail: 0 },
    FdControl { cmd: CMD_EXPORT_OBJECTS_TO_FD, fd: 0, size: 2128, tail: 2124 },
    FdControl { cmd: CMD_IMPORT_OBJECTS_FROM_FD, fd: 0, size: 652, tail: 648 },
];

/// Where `params` holds an [`FdControl`]'s `tail`.
pub const PARAMS_TAIL: usize = IOCTL_PARAMS - 4;

/// Oldest driver branch whose layouts were compared.
pub const FIRST_BRANCH: u32 = 515;
/// Newest driver branch whose layouts are known.
pub const LAST_BRANCH: u32 = 620;

/// Status given where the system call failed before the driver could write one: `NV_ERR_GENERIC`.
pub const STATUS_UNKNOWN: u32 = 0xffff;

/// The request value of an RM ioctl: `_IOWR('F', nr, size)`.
#[must_use]
pub const fn request(nr: u32, size: u32) -> u32 {
    0xc000_4600 | (size << 16) | nr
}

/// What decides struct layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// Driver branch (580 of 580.159.04), if known.
    pub branch: Option<u32>,
}

impl Abi {
    /// From a driver version such as `580.159.04` (`/proc/driver/nvidia/version`, `/sys/module/nvidia/version`).
    #[must_use]
    pub fn of(version: &str) -> Self {
        Self { branch: version.trim().split('.').next().and_then(|major| major.parse().ok()) }
    }

    /// True when this driver's requests can be decoded.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.unknown().is_none()
    }

    /// Why nothing can be decoded for this driver, if so.
    pub(super) fn unknown(self) -> Option<String> {
        match self.branch {
            None => Some("the driver's version is unknown".to_owned()),
            Some(FIRST_BRANCH..=LAST_BRANCH) => None,
            Some(branch) => Some(format!("driver branch {branch} is not known")),
        }
    }
}

/// Where `gpuAttributesCount` sits in `UVM_MAP_EXTERNAL_ALLOCATION_PARAMS`, for the kernel side's configuration: after
/// 32 mapping attributes of 36 bytes, or 256 since 550.54.14. `None` where the version does not tell.
#[must_use]
pub fn uvm_map_tail(version: &str) -> Option<u32> {
    let mut numbers = version.trim().split('.').map(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next().flatten());
    match (major, minor) {
        (FIRST_BRANCH..550, _) => Some(1176),
        (551..=LAST_BRANCH, _) => Some(9240),
        // 550.40.07 had 32 GPUs, 550.54.14 has 256.
        (550, Some(minor)) => Some(if minor < 54 { 1176 } else { 9240 }),
        _ => None,
    }
}

/// A decoded ioctl.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Driver's status: 0 is success. A failed operation has no effect.
    pub status: u32,
    /// What was asked for: one operation, except where a control handles several objects.
    pub ops: Vec<Op>,
}

impl Decoded {
    pub(super) fn one(status: u32, op: Op) -> Self {
        Self { status, ops: vec![op] }
    }

    pub(super) fn unknown(cmd: u32, why: impl Into<String>) -> Self {
        Self::one(0, Op::Unknown { cmd, why: why.into() })
    }
}

/// Decodes one ioctl. `None` for those that neither own, move nor name memory.
#[must_use]
pub fn decode(ioctl: &Ioctl, abi: Abi) -> Option<Decoded> {
    // UVM numbers are plain; RM requests carry direction, size and 'F'.
    let is_rm = ioctl.cmd & 0xc000_ff00 == 0xc000_4600;
    let mut decoded = match (is_rm, ioctl.cmd) {
        (true, _) => rm::decode(ioctl, abi)?,
        (false, 0..=0xff) => uvm::decode(ioctl, abi)?,
        (false, _) => return None,
    };
    // A failed system call may have left the struct as it was.
    if ioctl.ret != 0 && decoded.status == 0 && !matches!(decoded.ops[..], [Op::Unknown { .. }]) {
        decoded.status = STATUS_UNKNOWN;
    }
    Some(decoded)
}

/// Reads little-endian fields at byte offsets; `None` beyond what was captured.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// The valid part of the argument struct.
    pub(super) fn arg(ioctl: &'a Ioctl) -> Self {
        Self(&ioctl.arg[..(ioctl.arg_len as usize).min(ioctl.arg.len())])
    }

    /// The valid part of what the argument points to.
    pub(super) fn params(ioctl: &'a Ioctl) -> Self {
        Self(&ioctl.params[..(ioctl.params_len as usize).min(ioctl.params.len())])
    }

    pub(super) fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests;

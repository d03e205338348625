//! Numbers and byte offsets of NVIDIA's kernel interface.
//!
//! From open-gpu-kernel-modules 580.95.05: `nv_escape.h`, `nv-ioctl-numbers.h`, `nvos.h`, `nvstatuscodes.h`,
//! `ctrl0000gpu.h`, `ctrl0000unix.h`, `ctrl2080fb.h`. Offsets of the structs used here are the same from 535 to 595.

/// ioctl magic of the resource manager (`NV_IOCTL_MAGIC`).
pub const MAGIC: u32 = 0x46;
/// ioctl magic of the simulation's own requests (`tests/cuda/include/sim_private.h`).
pub const PRIVATE_MAGIC: u32 = 0x56;

/// Request numbers.
pub mod nr {
    /// `NV_ESC_RM_ALLOC_MEMORY`, `nv_ioctl_nvos02_parameters_with_fd`.
    pub const ALLOC_MEMORY: u32 = 0x27;
    /// `NV_ESC_RM_FREE`, `NVOS00_PARAMETERS`.
    pub const FREE: u32 = 0x29;
    /// `NV_ESC_RM_CONTROL`, `NVOS54_PARAMETERS`.
    pub const CONTROL: u32 = 0x2a;
    /// `NV_ESC_RM_ALLOC`, `NVOS64_PARAMETERS` (48 bytes) or `NVOS21_PARAMETERS` (32 bytes).
    pub const ALLOC: u32 = 0x2b;
    /// `NV_ESC_RM_DUP_OBJECT`, `NVOS55_PARAMETERS`.
    pub const DUP_OBJECT: u32 = 0x34;
    /// `NV_ESC_RM_SHARE`, `NVOS57_PARAMETERS`.
    pub const SHARE: u32 = 0x35;
    /// `NV_ESC_RM_VID_HEAP_CONTROL`, `NVOS32_PARAMETERS`.
    pub const VID_HEAP_CONTROL: u32 = 0x4a;
    /// `NV_ESC_IOCTL_XFER_CMD`, `nv_ioctl_xfer_t`.
    pub const XFER_CMD: u32 = 0xd3;
}

/// `RM_CONTROL` commands.
pub mod control {
    /// `NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2`.
    pub const GPU_GET_ID_INFO_V2: u32 = 0x205;
    /// `NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD`.
    pub const EXPORT_OBJECT_TO_FD: u32 = 0x3d05;
    /// `NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD`.
    pub const IMPORT_OBJECT_FROM_FD: u32 = 0x3d06;
    /// `NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO`.
    pub const GET_EXPORT_OBJECT_INFO: u32 = 0x3d08;
    /// `NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD`, the one libcuda 580 uses.
    pub const EXPORT_OBJECTS_TO_FD: u32 = 0x3d0b;
    /// `NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD`, the one libcuda 580 uses.
    pub const IMPORT_OBJECTS_FROM_FD: u32 = 0x3d0c;
    /// `NV2080_CTRL_CMD_FB_GET_INFO_V2`.
    pub const FB_GET_INFO_V2: u32 = 0x2080_1303;
    /// `NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE`, KiB.
    pub const FB_HEAP_SIZE: u32 = 0x9;
    /// `NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE`, KiB.
    pub const FB_HEAP_FREE: u32 = 0x16;
}

/// Object classes.
pub mod class {
    /// `NV01_ROOT`: a client.
    pub const ROOT: u32 = 0x0;
    /// `NV01_ROOT_CLIENT`: a client, the other name.
    pub const ROOT_CLIENT: u32 = 0x41;
    /// `NV01_DEVICE_0`.
    pub const DEVICE: u32 = 0x80;
    /// `NV01_MEMORY_LOCAL_USER`: video memory.
    pub const MEMORY_LOCAL_USER: u32 = 0x40;
    /// `NV01_MEMORY_SYSTEM`: pinned host memory.
    pub const MEMORY_SYSTEM: u32 = 0x3e;
    /// `NV01_MEMORY_SYSTEM_OS_DESCRIPTOR`: pages of the caller.
    pub const OS_DESCRIPTOR: u32 = 0x71;
    /// `NV50_MEMORY_VIRTUAL`: addresses only.
    pub const MEMORY_VIRTUAL: u32 = 0x50a0;
}

/// `NV_STATUS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// `NV_OK`.
    pub const OK: Self = Self(0);
    /// `NV_ERR_INSERT_DUPLICATE_NAME`: the handle is taken.
    pub const DUPLICATE: Self = Self(0x19);
    /// `NV_ERR_INSUFFICIENT_PERMISSIONS`.
    pub const PERMISSION: Self = Self(0x1b);
    /// `NV_ERR_INVALID_ARGUMENT`.
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    /// `NV_ERR_INVALID_CLIENT`.
    pub const INVALID_CLIENT: Self = Self(0x23);
    /// `NV_ERR_INVALID_DEVICE`.
    pub const INVALID_DEVICE: Self = Self(0x26);
    /// `NV_ERR_INVALID_FUNCTION`.
    pub const INVALID_FUNCTION: Self = Self(0x2a);
    /// `NV_ERR_INVALID_OBJECT_PARENT`.
    pub const INVALID_PARENT: Self = Self(0x36);
    /// `NV_ERR_INVALID_PARAM_STRUCT`.
    pub const INVALID_PARAMS: Self = Self(0x3a);
    /// `NV_ERR_INVALID_PARAMETER`.
    pub const INVALID_PARAMETER: Self = Self(0x3b);
    /// `NV_ERR_NO_MEMORY`.
    pub const NO_MEMORY: Self = Self(0x51);
    /// `NV_ERR_OBJECT_NOT_FOUND`.
    pub const NOT_FOUND: Self = Self(0x57);
}

/// Byte offset of the in-struct status of a request, or `None` for a request that has none.
#[must_use]
pub fn status_offset(number: u32, len: usize) -> Option<usize> {
    match (number, len) {
        (nr::ALLOC, 48) | (nr::ALLOC_MEMORY, 56) => Some(40),
        (nr::ALLOC | nr::CONTROL, 32) => Some(28),
        (nr::FREE, 16) => Some(12),
        (nr::DUP_OBJECT, 28) => Some(24),
        (nr::SHARE, 24) | (nr::VID_HEAP_CONTROL, 184) => Some(20),
        _ => None,
    }
}

/// A struct as bytes: little-endian words at byte offsets. Reads past the end give 0, writes past it are dropped, as a
/// struct of an older, shorter ABI would have it.
pub struct Words<'a>(pub &'a mut [u8]);

impl Words<'_> {
    /// Word of 4 bytes.
    #[must_use]
    pub fn u32(&self, offset: usize) -> u32 {
        self.0.get(offset..offset + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Word of 2 bytes.
    #[must_use]
    pub fn u16(&self, offset: usize) -> u16 {
        self.0.get(offset..offset + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    /// Word of 8 bytes.
    #[must_use]
    pub fn u64(&self, offset: usize) -> u64 {
        u64::from(self.u32(offset)) | u64::from(self.u32(offset + 4)) << 32
    }

    /// Stores 4 bytes.
    pub fn set_u32(&mut self, offset: usize, value: u32) {
        if let Some(b) = self.0.get_mut(offset..offset + 4) {
            b.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Stores 8 bytes.
    pub fn set_u64(&mut self, offset: usize, value: u64) {
        if let Some(b) = self.0.get_mut(offset..offset + 8) {
            b.copy_from_slice(&value.to_le_bytes());
        }
    }
}

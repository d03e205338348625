//! Driver ioctls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{is_zero, is_zero_u64};

/// A driver ioctl.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rm {
    /// When it returned.
    pub t: u64,
    /// When it began; 0 where only its end was seen.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub start: u64,
    /// True when the thread was killed inside it: the driver finished it, the process never saw the result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Driver's status (`NV_STATUS`, 0 = `NV_OK`); absent when 0. A failed operation has no effect.
    #[serde(skip_serializing_if = "is_zero")]
    pub status: u32,
    /// Probed API calls in progress on the thread, outermost first. Shared where a trace is read.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub calls: Arc<[String]>,
    /// Entry time of the outermost of `calls`: joins this with its [`Call`].
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub outer: u64,
    /// Call stack number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
    /// What was done.
    #[serde(flatten)]
    pub op: Op,
}

/// A resource-manager or UVM operation. Handles are per client; `(client, object)` is unique on the system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// An object was made (`NV_ESC_RM_ALLOC`, `NV_ESC_RM_ALLOC_MEMORY`, `NV_ESC_RM_VID_HEAP_CONTROL`).
    Alloc(Alloc),
    /// An object and all below it was freed (`NV_ESC_RM_FREE`, heap control `FREE`).
    Free {
        /// Client handle.
        client: u32,
        /// Object handle; equal to `client` when the whole client goes.
        object: u32,
    },
    /// A second handle was made for an object (`NV_ESC_RM_DUP_OBJECT`).
    Dup {
        /// Client of the new handle.
        client: u32,
        /// Parent of the new handle.
        parent: u32,
        /// New handle.
        object: u32,
        /// Client of the source.
        source_client: u32,
        /// Source handle.
        source_object: u32,
    },
    /// An object was put behind a file descriptor (`NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD` and kin).
    Export {
        /// Client handle.
        client: u32,
        /// Object handle.
        object: u32,
        /// Identity of the open file.
        file: u64,
        /// Slot of the object in the file (the plural form keeps several).
        #[serde(default, skip_serializing_if = "is_zero")]
        index: u32,
    },
    /// A handle was made from a file descriptor (`NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD` and kin).
    Import {
        /// Client of the new handle.
        client: u32,
        /// Parent of the new handle.
        parent: u32,
        /// New handle.
        object: u32,
        /// Identity of the open file.
        file: u64,
        /// Slot of the object in the file (the plural form keeps several).
        #[serde(default, skip_serializing_if = "is_zero")]
        index: u32,
    },
    /// A client's address space was tied to a GPU (`UVM_REGISTER_GPU_VASPACE`).
    RegisterVaspace {
        /// `GPU-xxxxxxxx-…`.
        uuid: String,
        /// Client handle.
        client: u32,
        /// Address space handle, a child of the device object.
        vaspace: u32,
    },
    /// GPU identity (`NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2`).
    GpuId {
        /// Driver's GPU id (PCI domain, bus, slot).
        gpu_id: u32,
        /// Device instance: the `device_id` of device objects.
        instance: u32,
    },
    /// A range of GPU addresses was mapped to an object (`UVM_MAP_EXTERNAL_ALLOCATION`).
    Map {
        /// First address.
        base: u64,
        /// Bytes.
        length: u64,
        /// Offset into the object.
        offset: u64,
        /// Client handle.
        client: u32,
        /// Object handle.
        object: u32,
    },
    /// A range of GPU addresses was given back (`UVM_FREE`, `UVM_UNMAP_EXTERNAL`).
    Unmap {
        /// First address.
        base: u64,
    },
    /// A driver file was closed: its clients go.
    Close {
        /// Identity of the open file.
        file: u64,
    },
    /// A request that may own bytes but whose layout is unknown: counted, never guessed.
    Unknown {
        /// Request value.
        cmd: u32,
        /// Why it could not be decoded.
        why: String,
    },
}

impl Default for Op {
    fn default() -> Self {
        Self::Close { file: 0 }
    }
}

/// An object was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alloc {
    /// Client handle (the new client's own, for a client).
    pub client: u32,
    /// Parent handle.
    pub parent: u32,
    /// New handle.
    pub object: u32,
    /// Class number (`cl*.h`): 0x40 owns video memory.
    pub class: u32,
    /// Bytes the driver gave (memory classes; rounded up by the driver).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes asked for, where the hook saw the entry too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Device instance (class 0x80).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<u32>,
    /// `attr` of `NV_MEMORY_ALLOCATION_PARAMS` (memory classes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attr: Option<u32>,
    /// `flags` of `NV_MEMORY_ALLOCATION_PARAMS` (memory classes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<u32>,
    /// Identity of the open file the request went through (0: unknown): closing it frees the client.
    pub file: u64,
}

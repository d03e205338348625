//! Resource-manager ioctls (`nvos.h`, `nv_escape.h`).

use tracer_ebpf::Ioctl;

use super::ioctl::{
    Abi, Bytes, CMD_EXPORT_OBJECT_TO_FD, CMD_EXPORT_OBJECTS_TO_FD, CMD_GPU_GET_ID_INFO_V2, CMD_IMPORT_OBJECT_FROM_FD,
    CMD_IMPORT_OBJECTS_FROM_FD, Decoded, PARAMS_TAIL, RM_ALLOC, RM_ALLOC_MEMORY, RM_CONTROL, RM_DUP_OBJECT, RM_FREE,
    RM_VID_HEAP_CONTROL,
};
use crate::trace::record::{Alloc, Op};

/// `NV01_ROOT`, `NV01_ROOT_NON_PRIV`, `NV01_ROOT_CLIENT`: the driver turns all into the last.
const CLASS_ROOT: [u32; 3] = [0x0, 0x1, 0x41];
/// `NV01_DEVICE_0`.
const CLASS_DEVICE: u32 = 0x80;
/// `NV01_MEMORY_SYSTEM`.
const CLASS_MEMORY_SYSTEM: u32 = 0x3e;
/// `NV01_MEMORY_LOCAL_USER`.
const CLASS_MEMORY_LOCAL_USER: u32 = 0x40;
/// `NV_MEMORY_EXTENDED_USER`.
const CLASS_MEMORY_EXTENDED_USER: u32 = 0x42;
/// `NV01_MEMORY_SYSTEM_OS_DESCRIPTOR`.
const CLASS_OS_DESCRIPTOR: u32 = 0x71;
/// `NV50_MEMORY_VIRTUAL`.
const CLASS_MEMORY_VIRTUAL: u32 = 0x50a0;
/// Classes made with `NV_MEMORY_ALLOCATION_PARAMS`.
const CLASS_MEMORY: [u32; 4] =
    [CLASS_MEMORY_SYSTEM, CLASS_MEMORY_LOCAL_USER, CLASS_MEMORY_EXTENDED_USER, CLASS_MEMORY_VIRTUAL];

/// `NVOS64_FLAGS_FINN_SERIALIZED`: `pAllocParms` is not the plain struct.
const ALLOC_FINN_SERIALIZED: u32 = 1;
/// `NVOS54_FLAGS_FINN_SERIALIZED`.
const CONTROL_FINN_SERIALIZED: u32 = 4;
/// `NVOS32_ALLOC_FLAGS_VIRTUAL`.
const FLAG_VIRTUAL: u32 = 0x0008_0000;
/// `NVOS32_ATTR_LOCATION`, bits 26:25; 0 is video memory.
const ATTR_LOCATION: u32 = 3 << 25;
/// `NVOS32_ATTR2_USE_EGM`, bit 24.
const ATTR2_USE_EGM: u32 = 1 << 24;

pub(super) fn decode(ioctl: &Ioctl, abi: Abi) -> Option<Decoded> {
    let read = match ioctl.cmd & 0xff {
        RM_ALLOC => alloc,
        RM_FREE => free,
        RM_DUP_OBJECT => dup,
        RM_VID_HEAP_CONTROL => vid_heap,
        RM_ALLOC_MEMORY => alloc_memory,
        RM_CONTROL => control,
        _ => return None,
    };
    if let Some(why) = abi.unknown() {
        return Some(Decoded::unknown(ioctl.cmd, why));
    }
    let size = (ioctl.cmd >> 16) & 0x3fff;
    match read(ioctl, size, abi) {
        Ok(decoded) => decoded,
        Err(why) => Some(Decoded::unknown(ioctl.cmd, why)),
    }
}

/// A decoded request, nothing of interest, or why it cannot be read.
type Outcome = Result<Option<Decoded>, String>;

const SHORT: &str = "its argument is shorter than the struct";

fn one(status: u32, op: Op) -> Outcome {
    Ok(Some(Decoded::one(status, op)))
}

fn expect_size(size: u32, known: u32) -> Result<(), String> {
    if size == known { Ok(()) } else { Err(format!("its size is {size} bytes, {known} are known")) }
}

/// `NVOS64_PARAMETERS` (or `NVOS21_PARAMETERS`): hRoot@0 hObjectParent@4 hObjectNew@8 hClass@12, then by form:
/// paramsSize, flags, status.
fn alloc(ioctl: &Ioctl, size: u32, abi: Abi) -> Outcome {
    let branch = abi.branch.unwrap_or_default();
    let (params_size, flags, status) = match size {
        48 => (Some(32), Some(36), 40),
        32 => (Some(24), None, 28),
        // NVOS64 before paramsSize came in 535; before flags came in 525.
        40 if branch < 525 => (None, None, 32),
        40 if branch < 535 => (None, Some(32), 36),
        _ => return Err(format!("its size is {size} bytes, unknown for driver branch {branch}")),
    };
    let arg = Bytes::arg(ioctl);
    let read = |at: Option<usize>| at.map_or(Some(0), |at| arg.u32(at)).ok_or(SHORT);
    let word = |at| arg.u32(at).ok_or(SHORT);
    let (class, object, status) = (word(12)?, word(8)?, word(status)?);
    let mut alloc = Alloc { client: word(0)?, parent: word(4)?, object, class, file: ioctl.file, ..Alloc::default() };
    if CLASS_ROOT.contains(&class) {
        alloc.client = object;
        alloc.parent = object;
    }
    if CLASS_MEMORY.contains(&class) || class == CLASS_DEVICE {
        let plain = read(flags)? & ALLOC_FINN_SERIALIZED == 0;
        let wanted = if class == CLASS_DEVICE { &[56][..] } else { &[120, 128] };
        match (plain, read(params_size)?) {
            (false, _) => return Err(format!("parameters of class {class:#x} are serialised (FINN)")),
            // Callers may leave the size out: the driver knows it from the class.
            (true, 0) => {}
            (true, size) if wanted.contains(&size) => {}
            (true, size) => return Err(format!("parameters of class {class:#x} have {size} bytes: unknown")),
        }
        class_params(&mut alloc, Bytes::params(ioctl))
            .ok_or_else(|| format!("parameters of class {class:#x} could not be read"))?;
    }
    one(status, Op::Alloc(alloc))
}

/// `NV0080_ALLOC_PARAMETERS`: deviceId@0. `NV_MEMORY_ALLOCATION_PARAMS`: flags@8 attr@24 size@64.
fn class_params(alloc: &mut Alloc, params: Bytes<'_>) -> Option<()> {
    if alloc.class == CLASS_DEVICE {
        alloc.device_id = Some(params.u32(0)?);
    } else {
        alloc.flags = Some(params.u32(8)?);
        alloc.attr = Some(params.u32(24)?);
        alloc.size = Some(params.u64(64)?);
    }
    Some(())
}

/// `NVOS00_PARAMETERS`: hRoot@0 hObjectParent@4 hObjectOld@8 status@12.
fn free(ioctl: &Ioctl, size: u32, _: Abi) -> Outcome {
    expect_size(size, 16)?;
    let word = |at| Bytes::arg(ioctl).u32(at).ok_or(SHORT);
    one(word(12)?, Op::Free { client: word(0)?, object: word(8)? })
}

/// `NVOS55_PARAMETERS`: hClient@0 hParent@4 hObject@8 hClientSrc@12 hObjectSrc@16 flags@20 status@24.
fn dup(ioctl: &Ioctl, size: u32, _: Abi) -> Outcome {
    expect_size(size, 28)?;
    let word = |at| Bytes::arg(ioctl).u32(at).ok_or(SHORT);
    let (client, parent, object) = (word(0)?, word(4)?, word(8)?);
    let (source_client, source_object) = (word(12)?, word(16)?);
    one(word(24)?, Op::Dup { client, parent, object, source_client, source_object })
}

/// Where a `NVOS32` function keeps its fields.
struct Heap {
    object: usize,
    flags: usize,
    attr: usize,
    attr2: usize,
    size: usize,
}

/// `NVOS32_PARAMETERS`: hRoot@0 hObjectParent@4 function@8 status@20 data@40.
fn vid_heap(ioctl: &Ioctl, size: u32, _: Abi) -> Outcome {
    expect_size(size, 184)?;
    let arg = Bytes::arg(ioctl);
    let word = |at| arg.u32(at).ok_or(SHORT);
    let (client, status) = (word(0)?, word(20)?);
    let layout = match word(8)? {
        // NVOS32_FUNCTION_ALLOC_SIZE, ALLOC_TILED_PITCH_HEIGHT, ALLOC_SIZE_RANGE
        2 => Heap { object: 44, flags: 52, attr: 56, attr2: 144, size: 88 },
        6 => Heap { object: 44, flags: 52, attr: 64, attr2: 144, size: 88 },
        14 => Heap { object: 44, flags: 52, attr: 56, attr2: 136, size: 80 },
        // FREE
        3 => return one(status, Op::Free { client, object: word(44)? }),
        // ALLOC_OS_DESCRIPTOR: a handle for pages the process has already.
        27 => {
            let size = arg.u64(72).ok_or(SHORT)?.checked_add(1);
            let (parent, object, class) = (word(4)?, word(40)?, CLASS_OS_DESCRIPTOR);
            let file = ioctl.file;
            return one(status, Op::Alloc(Alloc { client, parent, object, class, size, file, ..Alloc::default() }));
        }
        // INFO, REACQUIRE_COMPR, RELEASE_COMPR, GET_MEM_ALIGNMENT, HW_ALLOC, HW_FREE: no object.
        5 | 15 | 16 | 18 | 19 | 20 => return Ok(None),
        function => return Err(format!("heap control function {function} is unknown")),
    };
    let (flags, attr, attr2) = (word(layout.flags)?, word(layout.attr)?, word(layout.attr2)?);
    one(
        status,
        Op::Alloc(Alloc {
            client,
            parent: word(4)?,
            object: word(layout.object)?,
            class: heap_class(flags, attr, attr2),
            size: Some(arg.u64(layout.size).ok_or(SHORT)?),
            attr: Some(attr),
            flags: Some(flags),
            file: ioctl.file,
            ..Alloc::default()
        }),
    )
}

/// As `_rmVidHeapControlAllocCommon` chooses (`rmapi_deprecated_vidheapctrl.c`, 580.142).
fn heap_class(flags: u32, attr: u32, attr2: u32) -> u32 {
    if flags & FLAG_VIRTUAL != 0 {
        CLASS_MEMORY_VIRTUAL
    } else if attr2 & ATTR2_USE_EGM != 0 {
        CLASS_MEMORY_EXTENDED_USER
    } else if attr & ATTR_LOCATION == 0 {
        CLASS_MEMORY_LOCAL_USER
    } else {
        CLASS_MEMORY_SYSTEM
    }
}

/// `nv_ioctl_nvos02_parameters_with_fd`: hRoot@0 hObjectParent@4 hObjectNew@8 hClass@12 flags@16 pMemory@24 limit@32
/// status@40 fd@48.
fn alloc_memory(ioctl: &Ioctl, size: u32, _: Abi) -> Outcome {
    expect_size(size, 56)?;
    let arg = Bytes::arg(ioctl);
    let word = |at| arg.u32(at).ok_or(SHORT);
    let class = word(12)?;
    let limit = arg.u64(32).ok_or(SHORT)?;
    // Here class 0x40 is a query of the heap's size that makes a dummy handle (`_rmAllocMemoryLocalUser`).
    let size = if class == CLASS_MEMORY_LOCAL_USER { Some(0) } else { limit.checked_add(1) };
    let (client, parent, object, file) = (word(0)?, word(4)?, word(8)?, ioctl.file);
    one(word(40)?, Op::Alloc(Alloc { client, parent, object, class, size, file, ..Alloc::default() }))
}

/// `NVOS54_PARAMETERS`: hClient@0 hObject@4 cmd@8 flags@12 params@16 paramsSize@24 status@28.
fn control(ioctl: &Ioctl, size: u32, _: Abi) -> Outcome {
    expect_size(size, 32)?;
    let word = |at| Bytes::arg(ioctl).u32(at).ok_or(SHORT);
    let (client, cmd, status) = (word(0)?, word(8)?, word(28)?);
    let read = match cmd {
        CMD_GPU_GET_ID_INFO_V2 => gpu_id,
        CMD_EXPORT_OBJECT_TO_FD => export_one,
        CMD_IMPORT_OBJECT_FROM_FD => import_one,
        CMD_EXPORT_OBJECTS_TO_FD => export_many,
        CMD_IMPORT_OBJECTS_FROM_FD => import_many,
        _ => return Ok(None),
    };
    if word(12)? & CONTROL_FINN_SERIALIZED != 0 {
        return Err(format!("parameters of control {cmd:#x} are serialised (FINN)"));
    }
    let ops = read(Bytes::params(ioctl), client, ioctl.other_file)
        .ok_or_else(|| format!("parameters of control {cmd:#x} could not be read"))?;
    Ok((!ops.is_empty()).then_some(Decoded { status, ops }))
}

/// `NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS`: gpuId@0 deviceInstance@8.
fn gpu_id(params: Bytes<'_>, _: u32, _: u64) -> Option<Vec<Op>> {
    Some(vec![Op::GpuId { gpu_id: params.u32(0)?, instance: params.u32(8)? }])
}

/// `NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS`: type@0 hDevice@4 hParent@8 hObject@12 fd@16 flags@20.
fn export_one(params: Bytes<'_>, client: u32, file: u64) -> Option<Vec<Op>> {
    // EMPTY_FD: a file that holds nothing yet.
    let empty = params.u32(20)? & 1 != 0;
    let op = Op::Export { client, object: params.u32(12)?, file, index: 0 };
    Some(if empty { Vec::new() } else { vec![op] })
}

/// `NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS`: fd@0 type@4 hDevice@8 hParent@12 hObject@16.
fn import_one(params: Bytes<'_>, client: u32, file: u64) -> Option<Vec<Op>> {
    Some(vec![Op::Import { client, parent: params.u32(12)?, object: params.u32(16)?, file, index: 0 }])
}

/// `NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS`: fd@0 hDevice@4 maxObjects@8 metadata@10 objects@76[512]
/// numObjects@2124 index@2126. A handle of 0 takes an object out of the file; no ledger needs that.
fn export_many(params: Bytes<'_>, client: u32, file: u64) -> Option<Vec<Op>> {
    many(params, 76, CMD_EXPORT_OBJECTS_TO_FD, |index, object| Op::Export { client, object, file, index })
}

/// `NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS`: fd@0 hParent@4 objects@8[128] objectTypes@520 numObjects@648
/// index@650.
fn import_many(params: Bytes<'_>, client: u32, file: u64) -> Option<Vec<Op>> {
    let parent = params.u32(4)?;
    many(params, 8, CMD_IMPORT_OBJECTS_FROM_FD, |index, object| Op::Import { client, parent, object, file, index })
}

/// One operation an object handle of a plural control, whose handles begin at `first`, as far as they were captured.
fn many(params: Bytes<'_>, first: usize, cmd: u32, op: impl Fn(u32, u32) -> Op) -> Option<Vec<Op>> {
    let (count, index) = (usize::from(params.u16(PARAMS_TAIL)?), u32::from(params.u16(PARAMS_TAIL + 2)?));
    let captured = (PARAMS_TAIL - first) / 4;
    let mut ops = Vec::new();
    for (at, index) in (first..).step_by(4).zip(index..).take(count.min(captured)) {
        match params.u32(at)? {
            0 => {}
            object => ops.push(op(index, object)),
        }
    }
    if count > captured {
        ops.push(Op::Unknown { cmd, why: format!("it handles {count} objects, {captured} were captured") });
    }
    Some(ops)
}

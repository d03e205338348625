//! NVIDIA's ioctls: from bytes to the resource manager and back.

use nix::errno::Errno;

use super::abi::{Status, Words, class, control, nr};
use super::caller;
use super::rm::{Caller, NewObject, Rm};

/// Largest struct an ioctl may point to; more is refused as the real driver refuses nonsense.
const PARAMS_LIMIT: usize = 64 << 10;
const HEAP_ALLOC_SIZE: u32 = 2;
const HEAP_FREE: u32 = 3;

/// True for a request that names a file descriptor of the caller in its parameters.
#[must_use]
pub fn names_a_file(number: u32, arg: &[u8]) -> bool {
    let cmd = arg.get(8..12).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let with_file = [
        control::EXPORT_OBJECT_TO_FD,
        control::IMPORT_OBJECT_FROM_FD,
        control::EXPORT_OBJECTS_TO_FD,
        control::IMPORT_OBJECTS_FROM_FD,
        control::GET_EXPORT_OBJECT_INFO,
    ];
    number == nr::CONTROL && with_file.contains(&cmd)
}

/// The descriptor that such a request names.
///
/// # Errors
/// `EFAULT` when its parameters cannot be read.
pub fn named_fd(pid: u32, arg: &[u8]) -> Result<i32, Errno> {
    let mut arg = arg.to_vec();
    let arg = Words(&mut arg);
    let at = if arg.u32(8) == control::EXPORT_OBJECT_TO_FD { 16 } else { 0 };
    let mut fd = caller::copy_from(pid, arg.u64(16) + at, 4)?;
    Ok(Words(&mut fd).u32(0).cast_signed())
}

/// Carries out one request; `named` is the open file that it names by a descriptor, if it does. `arg` is the caller's struct, changed as the driver would.
///
/// # Errors
/// `errno` of the system call. A refusal by the resource manager is none: it is the status in `arg`.
pub fn handle(rm: &mut Rm, caller: &Caller, number: u32, arg: &mut [u8], named: Option<u64>) -> Result<(), Errno> {
    let status = match (number, arg.len()) {
        (nr::ALLOC, 48) => alloc(rm, caller, arg, 32)?,
        (nr::ALLOC, 32) => alloc(rm, caller, arg, 24)?,
        (nr::ALLOC_MEMORY, 56) => alloc_memory(rm, caller, arg),
        (nr::FREE, 16) => {
            let arg = Words(arg);
            rm.free(caller, arg.u32(0), arg.u32(8)).err()
        }
        (nr::DUP_OBJECT, 28) => dup(rm, caller, arg),
        (nr::SHARE, 24) => {
            let arg = Words(arg);
            rm.share((arg.u32(0), arg.u32(4))).err()
        }
        (nr::VID_HEAP_CONTROL, 184) => heap(rm, caller, arg),
        (nr::CONTROL, 32) => run_control(rm, caller, arg, named)?,
        // The rest of the interface (card info, version check, CPU mappings, …) has no effect on memory.
        _ => return Ok(()),
    };
    if let Some(at) = super::abi::status_offset(number, arg.len()) {
        Words(arg).set_u32(at, status.unwrap_or(Status::OK).0);
    }
    Ok(())
}

/// `RM_ALLOC`: `NVOS64_PARAMETERS` and `NVOS21_PARAMETERS` differ in where `paramsSize` is.
fn alloc(rm: &mut Rm, caller: &Caller, arg: &mut [u8], size_at: usize) -> Result<Option<Status>, Errno> {
    let mut arg = Words(arg);
    let (class, address) = (arg.u32(12), arg.u64(16));
    let mut new =
        NewObject { client: arg.u32(0), parent: arg.u32(4), object: arg.u32(8), class, ..NewObject::default() };
    let wanted = match class {
        class::DEVICE => 56,
        class::MEMORY_LOCAL_USER | class::MEMORY_SYSTEM | class::MEMORY_VIRTUAL => 128,
        _ => 0,
    };
    // paramsSize 0 means "what the class says" (`NVOS64_PARAMETERS` comment in nvos.h).
    let len = match arg.u32(size_at) as usize {
        0 => wanted,
        len if len <= PARAMS_LIMIT => len,
        _ => return Ok(Some(Status::INVALID_PARAMS)),
    };
    let mut params = match (wanted, address) {
        (0, _) => vec![],
        (_, 0) => return Ok(Some(Status::INVALID_PARAMS)),
        _ => caller::copy_from(caller.pid, address, len)?,
    };
    let mut fields = Words(&mut params);
    if class == class::DEVICE {
        new.device = fields.u32(0);
    } else {
        (new.attr, new.size) = (fields.u32(24), fields.u64(64));
    }
    Ok(match rm.alloc(caller, &new) {
        Ok((object, bytes)) => {
            arg.set_u32(8, object);
            if wanted == 128 {
                fields.set_u64(64, bytes);
                caller::copy_to(caller.pid, address, &params)?;
            }
            None
        }
        Err(status) => Some(status),
    })
}

/// `RM_ALLOC_MEMORY`: wraps pages of the caller (class 0x71); owns no GPU memory.
fn alloc_memory(rm: &mut Rm, caller: &Caller, arg: &mut [u8]) -> Option<Status> {
    let mut arg = Words(arg);
    // Even class 0x40 owns nothing here: it is a query of the heap's size that leaves a dummy handle
    // (rmapi_deprecated_allocmemory.c).
    let class = class::OS_DESCRIPTOR;
    let new = NewObject { client: arg.u32(0), parent: arg.u32(4), object: arg.u32(8), class, ..NewObject::default() };
    match rm.alloc(caller, &new) {
        Ok((object, _)) => {
            arg.set_u32(8, object);
            None
        }
        Err(status) => Some(status),
    }
}

fn dup(rm: &mut Rm, caller: &Caller, arg: &mut [u8]) -> Option<Status> {
    let mut arg = Words(arg);
    let new = NewObject { client: arg.u32(0), parent: arg.u32(4), object: arg.u32(8), ..NewObject::default() };
    match rm.dup(caller, (arg.u32(12), arg.u32(16)), &new) {
        Ok(object) => {
            arg.set_u32(8, object);
            None
        }
        Err(status) => Some(status),
    }
}

/// `RM_VID_HEAP_CONTROL`: how older libcuda allocates.
fn heap(rm: &mut Rm, caller: &Caller, arg: &mut [u8]) -> Option<Status> {
    let mut arg = Words(arg);
    let (client, parent) = (arg.u32(0), arg.u32(4));
    match arg.u32(8) {
        HEAP_FREE => rm.free(caller, client, arg.u32(44)).err(),
        HEAP_ALLOC_SIZE => {
            let (object, flags, attr, size) = (arg.u32(44), arg.u32(52), arg.u32(56), arg.u64(88));
            // NVOS32_ALLOC_FLAGS_VIRTUAL, then the location, decide the class (vidHeapControl in vid_heap_ctrl.c).
            let class = match (flags & 0x0008_0000, attr & (3 << 25)) {
                (0, 0) => class::MEMORY_LOCAL_USER,
                (0, _) => class::MEMORY_SYSTEM,
                _ => class::MEMORY_VIRTUAL,
            };
            match rm.alloc(caller, &NewObject { client, parent, object, class, device: 0, size, attr }) {
                Ok((object, bytes)) => {
                    arg.set_u32(44, object);
                    arg.set_u64(88, bytes);
                    None
                }
                Err(status) => Some(status),
            }
        }
        _ => Some(Status::INVALID_FUNCTION),
    }
}

fn run_control(rm: &mut Rm, caller: &Caller, arg: &mut [u8], named: Option<u64>) -> Result<Option<Status>, Errno> {
    let arg = Words(arg);
    let (client, cmd, address, len) = (arg.u32(0), arg.u32(8), arg.u64(16), arg.u32(24) as usize);
    if len > PARAMS_LIMIT {
        return Ok(Some(Status::INVALID_PARAMS));
    }
    let wanted = [control::GPU_GET_ID_INFO_V2, control::FB_GET_INFO_V2];
    if !wanted.contains(&cmd) && !names_a_file(nr::CONTROL, arg.0) {
        // Commands without effect on memory; libcuda sends many.
        return Ok(None);
    }
    let mut bytes = caller::copy_from(caller.pid, address, len)?;
    let mut params = Words(&mut bytes);
    let done = match cmd {
        control::GPU_GET_ID_INFO_V2 => gpu_info(rm, &mut params),
        control::FB_GET_INFO_V2 => memory_info(rm, rm.gpu_of((client, arg.u32(4))), &mut params),
        _ => named
            .ok_or(Status::INVALID_PARAMETER)
            .and_then(|file| through_file(rm, caller, (client, cmd), file, &mut params)),
    };
    if done.is_ok() {
        caller::copy_to(caller.pid, address, &bytes)?;
    }
    Ok(done.err())
}

/// `NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS`: gpuId in; deviceInstance at 8, gpuInstance at 24.
fn gpu_info(rm: &Rm, params: &mut Words) -> Result<(), Status> {
    let id = params.u32(0);
    let gpu = (0..rm.gpus.len()).find(|&g| gpu_id(g) == id).ok_or(Status::INVALID_ARGUMENT)?;
    params.set_u32(8, rm.gpus[gpu].instance);
    params.set_u32(12, 0);
    params.set_u32(24, rm.gpus[gpu].instance);
    Ok(())
}

/// `NV2080_CTRL_FB_GET_INFO_V2_PARAMS`: a count, then pairs of index (in) and KiB (out).
fn memory_info(rm: &Rm, gpu: Option<usize>, params: &mut Words) -> Result<(), Status> {
    let gpu = gpu.ok_or(Status::NOT_FOUND)?;
    let kib = |bytes: u64| u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    for entry in 0..params.u32(0).min(128) as usize {
        let at = 4 + entry * 8;
        match params.u32(at) {
            control::FB_HEAP_SIZE => params.set_u32(at + 4, kib(rm.gpus[gpu].bytes)),
            control::FB_HEAP_FREE => params.set_u32(at + 4, kib(rm.free_bytes(gpu))),
            _ => {}
        }
    }
    Ok(())
}

/// Exports to and imports from a file descriptor.
fn through_file(
    rm: &mut Rm,
    caller: &Caller,
    (client, cmd): (u32, u32),
    file: u64,
    params: &mut Words,
) -> Result<(), Status> {
    match cmd {
        control::EXPORT_OBJECT_TO_FD => rm.export(caller, (client, params.u32(12)), file, 0),
        control::EXPORT_OBJECTS_TO_FD => export_many(rm, caller, client, file, params),
        control::IMPORT_OBJECT_FROM_FD => {
            let new = NewObject { client, parent: params.u32(12), object: params.u32(16), ..NewObject::default() };
            rm.import(caller, file, 0, &new).map(|object| params.set_u32(16, object))
        }
        control::IMPORT_OBJECTS_FROM_FD => import_many(rm, caller, client, file, params),
        _ => {
            // NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS: instance at 4, metadata from 14.
            let export = rm.exported(file).ok_or(Status::NOT_FOUND)?;
            params.set_u32(4, export.instance);
            if let (Some(to), true) = (params.0.get_mut(14..78), export.metadata.len() == 64) {
                to.copy_from_slice(&export.metadata);
            }
            Ok(())
        }
    }
}

/// `NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS`: metadata from 10, handles from 76, count at 2124, first slot at 2126.
fn export_many(rm: &mut Rm, caller: &Caller, client: u32, file: u64, params: &Words) -> Result<(), Status> {
    let (count, first) = (u32::from(params.u16(2124)).min(512), u32::from(params.u16(2126)));
    for i in 0..count {
        let object = params.u32(76 + 4 * i as usize);
        if object != 0 {
            rm.export(caller, (client, object), file, first + i)?;
        }
    }
    rm.annotate(file, params.0.get(10..74).unwrap_or_default());
    Ok(())
}

/// `NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS`: parent at 4, handles from 8, count at 648, first index at 650.
fn import_many(rm: &mut Rm, caller: &Caller, client: u32, file: u64, params: &mut Words) -> Result<(), Status> {
    let (parent, count, first) = (params.u32(4), u32::from(params.u16(648)), u32::from(params.u16(650)));
    let mut done = Vec::new();
    for i in 0..count.min(128) {
        let at = 8 + 4 * i as usize;
        let new = NewObject { client, parent, object: params.u32(at), ..NewObject::default() };
        match rm.import(caller, file, first + i, &new) {
            Ok(object) => {
                params.set_u32(at, object);
                done.push(object);
            }
            Err(status) => {
                for object in done {
                    rm.free(caller, client, object)?;
                }
                return Err(status);
            }
        }
    }
    Ok(())
}

/// RM's id of a GPU: its PCI domain, bus and slot. The simulated ones sit in slot 0 of buses 0x0f, 0x10, ….
#[must_use]
pub fn gpu_id(gpu: usize) -> u32 {
    u32::from(pci_bus(gpu)) << 8
}

/// PCI bus of a simulated GPU.
#[must_use]
pub fn pci_bus(gpu: usize) -> u8 {
    u8::try_from(0x0f + gpu).unwrap_or(u8::MAX)
}

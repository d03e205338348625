//! `/dev/nvidia-uvm` ioctls (`kernel-open/nvidia-uvm/uvm_ioctl.h`).

use std::fmt::Write as _;

use tracer_ebpf::Ioctl;

use super::ioctl::{
    Abi, Bytes, Decoded, UVM_FREE, UVM_MAP_EXTERNAL_ALLOCATION, UVM_REGISTER_GPU_VASPACE, UVM_UNMAP_EXTERNAL,
};
use crate::trace::record::Op;

/// Head bytes of `UVM_MAP_EXTERNAL_ALLOCATION_PARAMS` that the kernel side passes on; its tail follows.
const MAP_HEAD: usize = 24;

pub(super) fn decode(ioctl: &Ioctl, abi: Abi) -> Option<Decoded> {
    let read = match ioctl.cmd {
        UVM_REGISTER_GPU_VASPACE => register_vaspace,
        UVM_MAP_EXTERNAL_ALLOCATION => map,
        UVM_FREE => free,
        UVM_UNMAP_EXTERNAL => unmap,
        _ => return None,
    };
    if let Some(why) = abi.unknown() {
        return Some(Decoded::unknown(ioctl.cmd, why));
    }
    let decoded = read(Bytes::arg(ioctl), abi);
    Some(decoded.unwrap_or_else(|| Decoded::unknown(ioctl.cmd, "its argument is shorter than the struct")))
}

/// `UVM_REGISTER_GPU_VASPACE_PARAMS`: gpuUuid@0 rmCtrlFd@16 hClient@20 hVaSpace@24 rmStatus@28.
fn register_vaspace(arg: Bytes<'_>, _: Abi) -> Option<Decoded> {
    let op = Op::RegisterVaspace { uuid: uuid(arg.array(0)?), client: arg.u32(20)?, vaspace: arg.u32(24)? };
    Some(Decoded::one(arg.u32(28)?, op))
}

/// Head: base@0 length@8 offset@16. Tail: gpuAttributesCount@0 rmCtrlFd@8 hClient@12 hMemory@16 rmStatus@20.
fn map(arg: Bytes<'_>, _: Abi) -> Option<Decoded> {
    let (base, length, offset) = (arg.u64(0)?, arg.u64(8)?, arg.u64(16)?);
    let (client, object) = (arg.u32(MAP_HEAD + 12)?, arg.u32(MAP_HEAD + 16)?);
    Some(Decoded::one(arg.u32(MAP_HEAD + 20)?, Op::Map { base, length, offset, client, object }))
}

/// `UVM_FREE_PARAMS`: base@0 length@8 rmStatus@16; since 590 base@0 rmStatus@8.
fn free(arg: Bytes<'_>, abi: Abi) -> Option<Decoded> {
    let status = if abi.branch >= Some(590) { 8 } else { 16 };
    Some(Decoded::one(arg.u32(status)?, Op::Unmap { base: arg.u64(0)? }))
}

/// `UVM_UNMAP_EXTERNAL_PARAMS`: base@0 length@8 gpuUuid@16 rmStatus@32.
fn unmap(arg: Bytes<'_>, _: Abi) -> Option<Decoded> {
    Some(Decoded::one(arg.u32(32)?, Op::Unmap { base: arg.u64(0)? }))
}

/// NVML's spelling of a GPU's UUID: the bytes in order, grouped 4-2-2-2-6.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

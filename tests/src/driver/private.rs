//! The simulation's own requests (`tests/cuda/include/sim_private.h`): what a real driver has other ways for.

use super::abi::Words;
use super::ioctl::{gpu_id, pci_bus};
use super::rm::Rm;
use crate::truth::What;

/// Say what the thread's coming allocations are for: `char kind[32]`.
pub const KIND: u32 = 1;
/// Note a named point of the program: `char name[48]; u32 gpu; u32 has_expected; u64 expected`.
pub const MARK: u32 = 2;
/// Describe a GPU: `u32 index; u32 count; …`, see `struct sim_gpu`.
pub const GPU: u32 = 3;
/// List processes with memory on a GPU: `u32 index; u32 count; struct {u32 pid, pad; u64 bytes} [512]`.
pub const PROCESSES: u32 = 4;
/// Number of the open file: `u64`.
pub const WHO: u32 = 5;

/// Memory that driver and firmware keep to themselves (an H200 showed 616 MiB); NVML's total has it, CUDA's has not.
pub const RESERVED: u64 = 616 << 20;

/// Text of a NUL-terminated field.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Notes a mark in the truth log.
pub fn mark(rm: &mut Rm, pid: u32, tid: u32, arg: &mut [u8]) {
    let name = text(arg.get(..48).unwrap_or_default());
    let arg = Words(arg);
    let gpu = arg.u32(48);
    let expected = (arg.u32(52) != 0).then(|| arg.u64(56));
    let live = rm.accounts.live(gpu as usize, pid);
    rm.log(pid, tid, What::Mark { name, gpu, expected, live });
}

/// Fills `struct sim_gpu`. False: no such GPU.
pub fn describe(rm: &Rm, arg: &mut [u8]) -> bool {
    let mut arg = Words(arg);
    let index = arg.u32(0) as usize;
    arg.set_u32(4, u32::try_from(rm.gpus.len()).unwrap_or(0));
    let Some(gpu) = rm.gpus.get(index) else { return false };
    arg.set_u32(8, gpu.instance);
    arg.set_u32(12, gpu_id(index));
    arg.set_u32(16, u32::from(pci_bus(index)));
    arg.set_u64(24, gpu.bytes + RESERVED);
    arg.set_u64(32, RESERVED);
    arg.set_u64(40, rm.free_bytes(index));
    arg.set_u64(48, u64::from_le_bytes(*b"vramsim\0"));
    arg.set_u64(56, 0xa0_0000 | index as u64);
    true
}

/// Fills `struct sim_processes`. False: no such GPU.
pub fn processes(rm: &Rm, arg: &mut [u8]) -> bool {
    let mut arg = Words(arg);
    let index = arg.u32(0) as usize;
    if index >= rm.gpus.len() {
        return false;
    }
    // Memory that an exported object's file keeps alive is nobody's: NVML does not list the driver's own client.
    let list: Vec<(u32, u64)> = rm.accounts.of_gpu(index).filter(|&(pid, _)| pid != 0).take(512).collect();
    arg.set_u32(4, u32::try_from(list.len()).unwrap_or(0));
    for (i, (pid, bytes)) in list.into_iter().enumerate() {
        arg.set_u32(8 + 16 * i, pid);
        arg.set_u64(16 + 16 * i, bytes);
    }
    true
}

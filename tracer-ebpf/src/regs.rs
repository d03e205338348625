//! Registers by what the calling convention uses them for, a table an architecture.
//!
//! x86-64: System V ABI §3.2, `struct pt_regs` of arch/x86/include/asm/ptrace.h. arm64: AAPCS64 §6.1, `struct user_pt_regs`
//! of arch/arm64/include/uapi/asm/ptrace.h; programs for it are built and checked, and have run nowhere yet.

use aya_ebpf::bindings::pt_regs;

/// Registers that pass arguments and are kept.
pub const ARGUMENTS: usize = 6;

/// Where the kernel keeps a thread's user registers: offsets in bytes.
pub struct Saved {
    pub ip: u32,
    pub sp: u32,
    pub bp: u32,
    /// Number of the system call, 4 bytes.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u32; 3],
}

#[cfg(bpf_target_arch = "aarch64")]
mod layout {
    use super::{ARGUMENTS, Saved, pt_regs};

    /// Bytes of stack that a return takes off: the return address is in a register.
    pub const POPPED: u64 = 0;
    /// include/uapi/asm-generic/unistd.h.
    pub const SYS_IOCTL: u32 = 29;
    /// Offsets in `struct pt_regs` of arch/arm64/include/asm/ptrace.h: `pc`, `sp`, `regs[29]`; `syscallno`; `orig_x0`
    /// (the register itself has the result by the time of the call's end), `regs[1]`, `regs[2]`.
    pub const SAVED: Saved = Saved { ip: 256, sp: 248, bp: 232, number: 280, arguments: [272, 8, 16] };

    #[inline(always)]
    pub fn arguments(regs: &pt_regs) -> [u64; ARGUMENTS] {
        let [a, b, c, d, e, f, ..] = regs.regs;
        [a, b, c, d, e, f]
    }

    #[inline(always)]
    pub fn places(regs: &pt_regs) -> [u64; 3] {
        // Program counter, stack pointer, frame pointer (x29).
        [regs.pc, regs.sp, regs.regs[29]]
    }

    #[inline(always)]
    pub fn result(regs: &pt_regs) -> u64 {
        regs.regs[0]
    }

    /// The link register (x30), at a function's first instruction.
    #[inline(always)]
    pub fn return_address(regs: &pt_regs) -> u64 {
        regs.regs[30]
    }
}

#[cfg(not(bpf_target_arch = "aarch64"))]
mod layout {
    use aya_ebpf::helpers::bpf_probe_read_user;

    use super::{ARGUMENTS, Saved, pt_regs};

    /// Bytes of stack that a return takes off: the return address.
    pub const POPPED: u64 = 8;
    /// arch/x86/entry/syscalls/syscall_64.tbl.
    pub const SYS_IOCTL: u32 = 16;

    /// Offsets in `struct pt_regs`: `ip`, `sp`, `bp`; `orig_ax`; `di`, `si`, `dx`.
    pub const SAVED: Saved = Saved { ip: 128, sp: 152, bp: 32, number: 120, arguments: [112, 104, 96] };

    #[inline(always)]
    pub fn arguments(regs: &pt_regs) -> [u64; ARGUMENTS] {
        [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9]
    }

    #[inline(always)]
    pub fn places(regs: &pt_regs) -> [u64; 3] {
        [regs.rip, regs.rsp, regs.rbp]
    }

    #[inline(always)]
    pub fn result(regs: &pt_regs) -> u64 {
        regs.rax
    }

    /// On top of the stack, at a function's first instruction.
    #[inline(always)]
    pub fn return_address(regs: &pt_regs) -> u64 {
        // SAFETY: a helper that fails rather than faults.
        unsafe { bpf_probe_read_user(regs.rsp as *const u64) }.unwrap_or(0)
    }
}

pub use layout::{POPPED, SAVED, SYS_IOCTL, arguments, places, result, return_address};

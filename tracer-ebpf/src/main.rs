//! BPF programs: what the kernel side sees and sends.
//!
//! One file a concern. Programs only observe, filter by process and copy; every conclusion is drawn in user space.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(unreachable_pub, reason = "programs and maps are exported by their sections, not by Rust paths")]

mod code;
mod cuda;
mod hold;
mod linker;
mod log;
mod maps;
mod process;
mod python;
mod read;
mod regs;
mod request;
mod rm;
mod stack;
mod torch;
mod transfers;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: nothing in the programs panics; the verifier would reject a reachable loop here.
    unsafe { core::hint::unreachable_unchecked() }
}

/// The helpers used (probe reads, ring buffer, cookies) are GPL-only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

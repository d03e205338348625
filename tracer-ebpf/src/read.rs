//! Reads of user memory, and arithmetic, without a branch: in a loop the verifier would follow every combination of them.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_probe_read_user as read_user};

/// Reads plain integers; what cannot be read is 0, as the helper leaves it.
#[inline(always)]
pub fn user<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all of `value`, also when it fails; all uses are plain integers.
    unsafe {
        read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        value.assume_init()
    }
}

#[inline(always)]
pub fn word(base: u64, offset: u32) -> u64 {
    user(base + offset as u64)
}

/// All ones if `x` is negative, else 0. In assembly, because the compiler would make a branch of it.
#[inline(always)]
pub fn negative(x: i64) -> u64 {
    let mut mask = x as u64;
    // SAFETY: arithmetic on a register.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{mask} s>>= 63", mask = inout(reg) mask);
    }
    mask
}

/// 1 if `x` is not zero, else 0; as [`negative`].
#[inline(always)]
pub fn nonzero(x: u64) -> u32 {
    // Highest bit set unless `x` is 0.
    let mut bit = x | x.wrapping_neg();
    // SAFETY: arithmetic on a register.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{bit} >>= 63", bit = inout(reg) bit);
    }
    bit as u32
}

/// The smaller of `len` and `room` - 1, where `room` is a power of two.
#[inline(always)]
pub fn at_most(len: u64, room: u64) -> u64 {
    // A huge length would pass for a negative one.
    let more = negative((room - 1).wrapping_sub(len) as i64) | negative(len as i64);
    (len | more) & (room - 1)
}

/// `len` modulo `room`, a power of two: for the verifier, where `len` is less. In assembly, because the compiler would leave
/// out what it knows to change nothing.
#[inline(always)]
pub fn below(len: u64, room: u64) -> u64 {
    let mut masked = len;
    // SAFETY: arithmetic on registers.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{len} &= {mask}", len = inout(reg) masked, mask = in(reg) room - 1);
    }
    masked
}

/// The same number, of which the verifier knows nothing: not what it was set to, nor what branches told. The ways out of a
/// branch come together again where they differ in such numbers alone; else all that follows is looked at for each.
#[inline(always)]
pub fn forget(x: u64) -> u64 {
    let (mut x, noise) = (x, bpf_get_current_pid_tgid());
    // SAFETY: arithmetic on registers.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{x} ^= {noise}", "{x} ^= {noise}", x = inout(reg) x, noise = in(reg) noise);
    }
    x
}

/// Copies user memory; gives the bytes copied, all or none.
///
/// # Safety
/// `to` must have room for `len` bytes.
#[inline(always)]
pub unsafe fn copy(to: *mut u8, len: u64, from: u64) -> u32 {
    // SAFETY: the caller's promise; the helper fails rather than faults.
    let result = unsafe { read_user(to.cast(), len as u32, from as *const _) };
    len as u32 & !(negative(result) as u32)
}

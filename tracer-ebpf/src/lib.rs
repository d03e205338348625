//! Wire types: what the BPF programs and user space say to each other.
//!
//! Everything here is `repr(C)`, free of padding and valid for any bit pattern, so that user space can
//! read a ring-buffer record without `unsafe`. A change here needs `cargo xtask ebpf`.
#![no_std]

mod config;
mod interpreter;
mod loss;
mod object;
mod output;

use bytemuck::{Pod, Zeroable};

pub use config::*;
pub use interpreter::*;
pub use loss::*;
pub use object::*;
pub use output::*;

/// Arguments kept of a probed call: what x86-64 passes in registers.
pub const ARGS: usize = 6;
/// Words a probe may read from the target's memory, at entry or return ([`Read`]).
pub const READS: usize = 8;
/// Nested probed calls followed on one thread (runtime → driver is 2; NCCL and torch add a few).
pub const DEPTH: usize = 8;
/// Bytes of an ioctl argument kept: the largest that matters is `NVOS32_PARAMETERS`, 184 bytes.
pub const IOCTL_ARG: usize = 192;
/// Bytes of `pAllocParms` kept: `NV_MEMORY_ALLOCATION_PARAMS` is 128 bytes since driver 545.
pub const IOCTL_PARAMS: usize = 128;
/// Bytes of user stack copied with an event that asks for it.
pub const STACK_BYTES: usize = 32 * 1024;

/// First bytes of every record in the ring buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    /// What follows: one of the `KIND_*` constants.
    pub kind: u32,
    /// `FLAG_*` bits.
    pub flags: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Process (thread group) id in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
}

/// A probed function returned: [`Call`].
pub const KIND_CALL: u32 = 1;
/// A driver ioctl returned: [`Ioctl`].
pub const KIND_IOCTL: u32 = 2;
/// User registers and a slice of stack: [`Stack`], then its bytes. Belongs to the same thread's next record.
pub const KIND_STACK: u32 = 3;
/// A tracked process forked: [`Process`], `other` is the child.
pub const KIND_FORK: u32 = 4;
/// A process executed a new image: [`Process`].
pub const KIND_EXEC: u32 = 5;
/// The last thread of a tracked process began to exit: [`Process`], `value` is the kernel's exit code.
pub const KIND_EXIT: u32 = 6;
/// A library of interest was loaded whose path the kernel side does not know: [`LibraryLoaded`].
pub const KIND_LIBRARY: u32 = 7;
/// The last reference to a driver file went away: [`FileReleased`].
pub const KIND_RELEASE: u32 = 8;
/// An object that the dynamic linker of a tracked process mapped: [`Object`], then its path.
pub const KIND_OBJECT: u32 = 13;
/// Python frames of the calling thread: [`PythonStack`]. Belongs to the same thread's next record with [`FLAG_PYTHON`].
pub const KIND_PYTHON: u32 = 9;
/// A Python code object met for the first time: [`PythonCode`]. Precedes the record whose Python frames name it.
pub const KIND_CODE: u32 = 10;
/// `PyTorch`'s caching allocator handed a block out or took one back: [`Block`].
pub const KIND_BLOCK: u32 = 12;

/// A [`Stack`] record of this thread precedes this one.
pub const FLAG_STACK: u32 = 1;
/// The process was stopped (SIGSTOP) and waits for user space to place probes and continue it.
pub const FLAG_HELD: u32 = 2;
/// The process is not traced: it is reported because it may be one day.
pub const FLAG_UNTRACKED: u32 = 8;
/// In [`Header::flags`] of a [`Stack`]: its instruction pointer stands after a call that has just returned.
pub const FLAG_RETURNED: u32 = 16;
/// A [`PythonStack`] record of this thread precedes this one.
pub const FLAG_PYTHON: u32 = 4;

/// One probed call in progress on a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Frame {
    /// Probe id: row of the probe table.
    pub probe: u32,
    /// Library the probe sits in: user space's number for it.
    pub library: u32,
    /// When it was entered.
    pub enter_ns: u64,
}

/// A probed function returned.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Call {
    /// Kind [`KIND_CALL`].
    pub header: Header,
    /// The call itself.
    pub frame: Frame,
    /// The probed call that encloses it; `enter_ns` is 0 when there is none.
    pub parent: Frame,
    /// Entry time of the outermost probed call on the thread: equal for all that nest in it.
    pub outer_ns: u64,
    /// Return register.
    pub ret: u64,
    /// Argument registers at entry.
    pub args: [u64; ARGS],
    /// What the probe's [`Read`]s gave.
    pub values: [u64; READS],
    /// Probed calls that enclose this one.
    pub depth: u32,
    /// Bit n: `values[n]` could not be read.
    pub unreadable: u32,
}

/// `PyTorch`'s caching allocator handed a block out or took one back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Kind [`KIND_BLOCK`].
    pub header: Header,
    /// Address of the block.
    pub address: u64,
    /// Its bytes; negative when it is taken back.
    pub bytes: i64,
    /// Bytes of all blocks of the device, after this.
    pub allocated: u64,
    /// Bytes of all segments of the device, after this.
    pub reserved: u64,
    /// CUDA device ordinal.
    pub device: u32,
    /// Unused.
    pub pad: u32,
}

/// A driver ioctl returned.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Ioctl {
    /// Kind [`KIND_IOCTL`].
    pub header: Header,
    /// Request value as the caller passed it (of the inner request, after `NV_ESC_IOCTL_XFER_CMD`).
    pub cmd: u32,
    /// File descriptor, or `u32::MAX` where the hook does not know it.
    pub fd: u32,
    /// System call result.
    pub ret: i64,
    /// Address of the kernel's `struct file`: identity of the open file.
    pub file: u64,
    /// Bytes valid in `arg`.
    pub arg_len: u32,
    /// Bytes valid in `params`.
    pub params_len: u32,
    /// Probed calls in progress on the thread, outermost first.
    pub calls: [Frame; DEPTH],
    /// Valid entries of `calls`.
    pub depth: u32,
    /// 1 when the thread died inside the request: the driver may or may not have done it.
    pub unfinished: u32,
    /// When the request began; 0 where the hook sees only its end.
    pub enter_ns: u64,
    /// `struct file` of the descriptor that a control's parameters name (object export and import); 0: none.
    pub other_file: u64,
    /// Inode number of `file` (`ino` in `/proc/PID/fdinfo/FD`); 0: not known.
    pub inode: u64,
    /// The argument struct, as the driver left it. For UVM map-external: the head (24 bytes), then the tail from
    /// `gpuAttributesCount` on (24 bytes).
    pub arg: [u8; IOCTL_ARG],
    /// What the argument struct points to (`pAllocParms`, control parameters), as the driver left it.
    pub params: [u8; IOCTL_PARAMS],
}

/// A return address that a uretprobe replaced on the stack.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Patched {
    /// Where on the stack the return address sits.
    pub sp: u64,
    /// What was there before the kernel put its trampoline.
    pub address: u64,
}

/// User registers and stack. The slice (`len` bytes from `sp` up) follows in the record.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Stack {
    /// Kind [`KIND_STACK`].
    pub header: Header,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
    /// Bytes of stack that follow.
    pub len: u32,
    /// Valid entries of `patched`.
    pub patched_len: u32,
    /// Return addresses to put back before unwinding.
    pub patched: [Patched; DEPTH],
}

/// A step in a process's life.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Process {
    /// Kind `KIND_FORK`, `KIND_EXEC` or `KIND_EXIT`.
    pub header: Header,
    /// Other process: the child of a fork.
    pub other: u32,
    /// Exit code as the kernel keeps it (`wait` status format).
    pub value: u32,
    /// Identity of the executable (exec): device in the high half of the second word.
    pub exe: FileKey,
}

/// Of an executable: user space was told of it.
pub const EXE_SEEN: u32 = 1;
/// Of an executable: its dynamic linker is probed.
pub const EXE_PROBED: u32 = 2;

/// Identity of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct FileKey {
    /// Inode number.
    pub inode: u64,
    /// Kernel's `dev_t` (major << 20 | minor).
    pub device: u64,
}

/// A driver file was closed for good.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct FileReleased {
    /// Kind [`KIND_RELEASE`].
    pub header: Header,
    /// Address of the kernel's `struct file`.
    pub file: u64,
}

/// Read at the probed function's entry.
pub const AT_ENTRY: u8 = 1;
/// Read at its return.
pub const AT_RETURN: u8 = 2;
/// `base` of a [`Read`] relative to the stack pointer at entry (arguments passed by value in memory).
pub const BASE_STACK: u8 = 0xff;

/// One word a probe reads from the target's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Read {
    /// [`AT_ENTRY`], [`AT_RETURN`], or 0 for an unused slot.
    pub when: u8,
    /// Argument index that holds the base address, or [`BASE_STACK`].
    pub base: u8,
    /// Bytes to read: 1 to 8, zero-extended.
    pub len: u8,
    /// Unused.
    pub pad: u8,
    /// Added to the base address.
    pub offset: u32,
}

/// What the kernel side does for one row of the probe table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Spec {
    /// Memory reads.
    pub reads: [Read; READS],
    /// `SPEC_*` bits.
    pub flags: u32,
    /// Unused.
    pub pad: u32,
}

/// Copy the user stack when the call returns with a failure (non-zero result).
pub const SPEC_STACK_ON_FAILURE: u32 = 1;
/// Copy the user stack at entry, if it is the outermost probed call.
pub const SPEC_STACK: u32 = 2;
/// Keep the frame for nesting, but send no record when the call succeeds.
pub const SPEC_QUIET: u32 = 4;

/// Highest probe id.
pub const PROBES: u32 = 1024;

/// A driver control to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Control {
    /// Offset of a file descriptor in its parameters; [`Control::NO_FD`] for none.
    pub fd: u32,
    /// Offset of four bytes of its parameters that are put at the end of `params`; 0 for none.
    pub tail: u32,
}

impl Control {
    /// No descriptor in the parameters.
    pub const NO_FD: u32 = u32::MAX;
}

/// Cookie of an attached probe: library number above, probe id below.
#[must_use]
pub const fn cookie(library: u32, probe: u32) -> u64 {
    ((library as u64) << 32) | probe as u64
}

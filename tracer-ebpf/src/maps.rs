//! Maps, and the small functions that read them.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_kernel},
    macros::map,
    maps::{Array, HashMap, LruHashMap, RingBuf},
};
use tracer_ebpf::{ARGS, Config, Control, DEPTH, FileKey, Frame, Header, LOSSES, Loss, NameKey, PROBES, READS, Spec};

/// One probed call in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Active {
    pub frame: Frame,
    /// Stack pointer at entry: where the return address sits. Tells which frame a return belongs to.
    pub sp: u64,
    /// Return address before a return probe replaced it.
    pub address: u64,
    /// Argument registers; slots 6 and 7 hold the stack pointer and 0 so that a read's base is always an index.
    pub args: [u64; ARGS + 2],
    pub values: [u64; READS],
    pub unreadable: u32,
    /// `FLAG_STACK` and `FLAG_PYTHON` when stacks were sent at entry.
    pub flags: u32,
}

/// Probed calls in progress on one thread, outermost first.
#[repr(C)]
pub struct Thread {
    pub depth: u32,
    pub pad: u32,
    pub calls: [Active; DEPTH],
}

/// Arguments of an ioctl in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pending {
    pub cmd: u32,
    pub fd: u32,
    pub arg: u64,
    pub enter_ns: u64,
}

/// Files watched at a time. They are closed soon after they have crossed.
pub const TRANSFER_SLOTS: usize = 32;

/// Files that carry objects: `struct file`, its inode, the process that was seen to have it. A slot is free where `files`
/// is 0.
#[repr(C)]
pub struct Transfers {
    pub files: [u64; TRANSFER_SLOTS],
    pub inodes: [u64; TRANSFER_SLOTS],
    pub tgids: [u32; TRANSFER_SLOTS],
}

/// All records to user space. User space sets the size.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 26, 0);
#[map]
pub static CONFIG: Array<Config> = Array::with_max_entries(1, 0);
/// Per row of the probe table.
#[map]
pub static SPECS: Array<Spec> = Array::with_max_entries(PROBES, 0);
/// Traced processes.
#[map]
pub static TRACKED: HashMap<u32, u32> = HashMap::with_max_entries(65536, 1 /* BPF_F_NO_PREALLOC */);
/// Processes whose writes are probed, or never will be: user space adds them.
#[map]
pub static FOLLOWED: HashMap<u32, u32> = HashMap::with_max_entries(65536, 1);
/// Processes held for user space, with the time at which they were. User space removes what it continues.
#[map]
pub static HELD: HashMap<u32, u64> = HashMap::with_max_entries(65536, 1);
/// Paths of libraries that user space has looked at.
#[map]
pub static KNOWN: HashMap<NameKey, u32> = HashMap::with_max_entries(16384, 1);
/// Executables: [`tracer_ebpf::EXE_SEEN`], [`tracer_ebpf::EXE_PROBED`].
#[map]
pub static EXES: HashMap<FileKey, u32> = HashMap::with_max_entries(65536, 1);
/// Last `link_map` looked at, by process.
#[map]
pub static TAILS: LruHashMap<u32, u64> = LruHashMap::with_max_entries(8192, 0);
/// ioctl in progress, by thread.
#[map]
pub static PENDING: HashMap<u32, Pending> = HashMap::with_max_entries(65536, 1);
/// Controls (`NVOS54.cmd`) to pass on.
#[map]
pub static CONTROLS: HashMap<u32, Control> = HashMap::with_max_entries(64, 0);
/// Driver files seen in use by tracked processes.
#[map]
pub static FILES: HashMap<u64, u32> = HashMap::with_max_entries(65536, 1);
#[map]
pub static TRANSFERS: Array<Transfers> = Array::with_max_entries(1, 0);
#[map]
pub static THREADS: HashMap<u32, Thread> = HashMap::with_max_entries(65536, 1);
/// A thread with no calls: too large for the BPF stack.
#[map]
pub static EMPTY: Array<Thread> = Array::with_max_entries(1, 0);
#[map]
pub static LOST: Array<u64> = Array::with_max_entries(LOSSES as u32, 0);

/// Counts a loss.
#[inline(always)]
pub fn lose(why: Loss) {
    if let Some(counter) = LOST.get_ptr_mut(why as u32) {
        // An atomic add: these programs can be preempted, and Rust offers no `fetch_add` on this target.
        // SAFETY: a map value is 8-byte aligned and lives as long as the map.
        #[cfg(target_arch = "bpf")]
        unsafe {
            core::arch::asm!("lock *(u64 *)({at} + 0) += {one}", at = in(reg) counter, one = in(reg) 1u64);
        }
    }
}

/// Fill of the ring buffer, in eighths, from which on API calls and blocks of PyTorch's allocator are refused.
const LABELS_UP_TO: u64 = 7;
/// The same for stacks and output, which are large: what is left of 64 MiB holds some 20,000 driver requests.
const STACKS_UP_TO: u64 = 6;

/// True when stacks and output must leave the rest of the ring buffer to what carries bytes.
#[inline(always)]
pub fn no_room_for_stacks() -> bool {
    fill() >= STACKS_UP_TO
}

/// True when calls and blocks must leave the rest of the ring buffer to what carries bytes.
#[inline(always)]
pub fn no_room_for_labels() -> bool {
    fill() >= LABELS_UP_TO
}

/// Eighths of the ring buffer that user space has not read yet. A snapshot, which is enough: the sizes are limits, not sums.
#[inline(always)]
fn fill() -> u64 {
    EVENTS.query(BPF_RB_AVAIL_DATA as u64) / (EVENTS.query(BPF_RB_RING_SIZE as u64) / 8 + 1)
}

#[inline(always)]
pub fn config() -> Option<&'static Config> {
    CONFIG.get(0)
}

/// Thread group and thread id of the caller.
#[inline(always)]
pub fn ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    ((both >> 32) as u32, both as u32)
}

#[inline(always)]
pub fn tracked(tgid: u32) -> bool {
    TRACKED.get_ptr(tgid).is_some()
}

#[inline(always)]
pub fn header(kind: u32, flags: u32, tgid: u32, tid: u32) -> Header {
    // SAFETY: no arguments.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    Header { kind, flags, time_ns, tgid, tid }
}

/// A word of kernel memory.
#[inline(always)]
pub fn kernel_word(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper fails rather than faults.
    unsafe { bpf_probe_read_kernel((base + offset as u64) as *const u64) }.ok()
}

/// Identity of a `struct file`.
#[inline(always)]
pub fn identify(file: u64, config: &Config) -> Option<FileKey> {
    identify_inode(kernel_word(file, config.file_inode)?, config)
}

/// Inode number of a `struct file`.
#[inline(always)]
pub fn inode_number(file: u64) -> Option<u64> {
    let config = config()?;
    kernel_word(kernel_word(file, config.file_inode)?, config.inode_ino)
}

/// Identity of a `struct inode`.
#[inline(always)]
pub fn identify_inode(inode: u64, config: &Config) -> Option<FileKey> {
    let device = kernel_word(kernel_word(inode, config.inode_sb)?, config.sb_dev)? & 0xffff_ffff;
    Some(FileKey { inode: kernel_word(inode, config.inode_ino)?, device })
}

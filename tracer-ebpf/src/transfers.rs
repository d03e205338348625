//! Open files that carry objects from one process to another. When one is closed for good, another process may begin to
//! pay for memory.
//!
//! A hook on every close would cost every process. Memory changes hands at driver requests and exits alone, so it is
//! enough to look at each of those whether the files are still open: in the kernel, because a file in a socket is in no
//! descriptor table.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use tracer_ebpf::{CONFIG_PLAIN_COUNT, Config, FileReleased, Header, KIND_RELEASE, Loss};

use crate::maps::{EVENTS, TRANSFER_SLOTS, TRANSFERS, config, header, kernel_word, lose};

/// Watches a file from now on; `tgid` is the process that has it.
#[inline(always)]
pub fn watch(file: u64, tgid: u32) -> Option<()> {
    let transfers = transfers()?;
    let inode = kernel_word(file, config()?.file_inode)?;
    for i in 0..TRANSFER_SLOTS {
        if transfers.files[i] == 0 || transfers.files[i] == file {
            transfers.inodes[i] = inode;
            transfers.tgids[i] = tgid;
            transfers.files[i] = file;
            return Some(());
        }
    }
    lose(Loss::MapFull);
    None
}

/// Reports files that are closed. Two threads may both report one: the second time means nothing.
#[inline(always)]
pub fn check() -> Option<()> {
    let transfers = transfers()?;
    let config = config()?;
    for i in 0..TRANSFER_SLOTS {
        let file = transfers.files[i];
        if file == 0 || is_open(file, transfers.inodes[i], config) {
            continue;
        }
        transfers.files[i] = 0;
        let tgid = transfers.tgids[i];
        release(header(KIND_RELEASE, 0, tgid, tgid), file);
    }
    Some(())
}

/// Never attached: user space runs it where no request comes by for a while.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn check_transfers(_: RawTracePointContext) -> i32 {
    check();
    0
}

#[inline(always)]
pub fn release(header: Header, file: u64) {
    let Some(mut entry) = EVENTS.reserve::<FileReleased>(0) else {
        lose(Loss::RingFull);
        return;
    };
    entry.write(FileReleased { header, file });
    entry.submit(0);
}

/// Whether a `struct file` is in use, for the same file. Its memory may have been freed and used again: it can be read all
/// the same, and another file of the same inode in its place is all that can deceive.
#[inline(always)]
fn is_open(file: u64, inode: u64, config: &Config) -> bool {
    let (Some(now), Some(count)) = (kernel_word(file, config.file_inode), kernel_word(file, config.file_count)) else {
        return false;
    };
    // include/linux/file_ref.h (6.13): from 0 for one reference, negative when there is none.
    let least = if config.flags & CONFIG_PLAIN_COUNT != 0 { 1 } else { 0 };
    now == inode && count as i64 >= least
}

#[inline(always)]
fn transfers() -> Option<&'static mut crate::maps::Transfers> {
    // SAFETY: a map value, which lives as long as the map. Threads write words of it; a torn update costs one file's
    // record.
    unsafe { TRANSFERS.get_ptr_mut(0)?.as_mut() }
}

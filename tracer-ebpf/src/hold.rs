//! Holding a process until user space has placed probes in it.

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_uid_gid, bpf_send_signal},
};
use tracer_ebpf::{CONFIG_HOLD, CONFIG_HOLD_ALL};

use crate::maps::{HELD, config};

const SIGSTOP: u32 = 19;

/// Stops the current process. True when user space will continue it: it must be told after this, and be allowed to
/// (kill(2)). The map says who is held to whoever is left to continue them, should user space end.
#[inline(always)]
pub fn hold(tgid: u32) -> bool {
    let Some(config) = config() else { return false };
    // SAFETY: a plain helper call; the user id is in the low half.
    let ours = unsafe { bpf_get_current_uid_gid() } as u32 == config.uid;
    if config.flags & CONFIG_HOLD == 0 || (!ours && config.flags & CONFIG_HOLD_ALL == 0) {
        return false;
    }
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    if HELD.insert(tgid, now, 0).is_err() {
        return false;
    }
    // SAFETY: a plain helper call.
    let stopped = unsafe { bpf_send_signal(SIGSTOP) } == 0;
    if !stopped {
        let _ = HELD.remove(tgid);
    }
    stopped
}

//! System calls that tracing makes and a filter (seccomp) may refuse, as those of container engines do.

use std::{io, ptr};

/// A system call, tried with arguments that make it do nothing.
struct Tried {
    name: &'static str,
    number: libc::c_long,
    arguments: [libc::c_long; 4],
}

/// What a kernel answers to arguments that make no sense tells whether it got to look at them.
const TRIED: [Tried; 5] = [
    // A command that there is not: EINVAL.
    Tried { name: "bpf", number: libc::SYS_bpf, arguments: [0x7fff_ffff, 0, 0, 0] },
    // No attributes: EFAULT.
    Tried { name: "perf_event_open", number: libc::SYS_perf_event_open, arguments: [0, 0, -1, -1] },
    // No process has this id: ESRCH.
    Tried { name: "process_vm_readv", number: libc::SYS_process_vm_readv, arguments: [0x7fff_ffff, 0, 0, 0] },
    Tried { name: "pidfd_open", number: libc::SYS_pidfd_open, arguments: [0x7fff_ffff, 0, 0, 0] },
    // No structure of this size: EINVAL.
    Tried { name: "openat2", number: libc::SYS_openat2, arguments: [-1, 0, 0, 0] },
];

/// Names of those that this process may not make, though its capabilities (`has_bpf`) would allow them. Without a filter
/// none is tried.
pub(super) fn refused(status: &str, has_bpf: bool) -> Vec<&'static str> {
    // 2 is SECCOMP_MODE_FILTER (proc_pid_status(5)).
    let filtered = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    // Without the capability the kernel itself says EPERM.
    let told = |tried: &&Tried| has_bpf || !matches!(tried.name, "bpf" | "perf_event_open");
    let tried = TRIED.iter().filter(|tried| filtered && told(tried));
    tried.filter(|tried| tried.is_refused()).map(|tried| tried.name).collect()
}

impl Tried {
    /// Engines answer EPERM or ENOSYS.
    fn is_refused(&self) -> bool {
        let [a, b, c, d] = self.arguments;
        // SAFETY: no pointer among the arguments leads anywhere, so nothing is read or written; no call with them succeeds.
        let result = unsafe { libc::syscall(self.number, a, b, c, d, ptr::null::<u8>(), 0_usize) };
        let error = io::Error::last_os_error().raw_os_error();
        result < 0 && matches!(error, Some(libc::EPERM | libc::ENOSYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_tried_without_a_filter() {
        assert_eq!(refused("Name:\tx\nSeccomp:\t0\n", true), [""; 0]);
        assert_eq!(refused("", true), [""; 0]);
    }

    #[test]
    fn what_no_filter_refuses_is_not_refused() {
        // Whoever runs this may run in a container: of the calls, these are let through by every engine's default.
        let refused = refused("Seccomp:\t2\n", false);
        assert!(!refused.contains(&"bpf") && !refused.contains(&"perf_event_open"), "{refused:?}");
    }
}

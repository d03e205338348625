//! The scenarios of `tests/programs`, and how each ends.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A scenario program.
pub(crate) struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// GPUs it needs.
    pub gpus: u32,
    /// Also run with the static runtime.
    pub static_too: bool,
    /// Exit code, or the signal that kills it.
    pub end: End,
}

/// How a program ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It exits.
    Code(i32),
    /// A signal kills it.
    Signal(i32),
}

impl Scenario {
    /// True when the program ended as it must.
    pub(crate) fn ended_as_it_must(&self, status: ExitStatus) -> bool {
        match self.end {
            End::Code(code) => status.code() == Some(code),
            End::Signal(signal) => status.signal() == Some(signal),
        }
    }
}

const fn on(gpus: u32, name: &'static str) -> Scenario {
    Scenario { name, gpus, static_too: false, end: End::Code(0) }
}

const fn plain(name: &'static str) -> Scenario {
    on(1, name)
}

const fn both(name: &'static str) -> Scenario {
    Scenario { static_too: true, ..on(1, name) }
}

const fn ends(name: &'static str, end: End) -> Scenario {
    Scenario { end, ..on(1, name) }
}

/// Every scenario, in the program's order.
pub(crate) const SCENARIOS: &[Scenario] = &[
    both("small"),
    both("large"),
    plain("pitch"),
    both("arrays"),
    plain("managed"),
    plain("host"),
    plain("wrong_arguments"),
    plain("out_of_memory"),
    plain("mem_info"),
    both("async_pool"),
    plain("own_pool"),
    plain("pool_threshold"),
    plain("vmm"),
    plain("vmm_orders"),
    plain("vmm_retain"),
    plain("expandable_segments"),
    plain("ipc_closed_first"),
    plain("ipc_owner_first"),
    ends("ipc_owner_exits", End::Code(3)),
    plain("ipc_two_importers"),
    plain("share_closed_first"),
    plain("share_owner_first"),
    plain("share_file_last"),
    both("graph_capture"),
    plain("graph_nodes"),
    both("local_memory"),
    plain("side_streams"),
    plain("modules"),
    plain("eager_modules"),
    plain("context_create"),
    plain("context_reset"),
    on(2, "two_gpus"),
    plain("threads"),
    plain("fork_exec"),
    plain("fork_idle"),
    plain("reopened"),
    plain("exec_again"),
    ends("killed_in_call", End::Signal(9)),
    ends("killed_in_driver", End::Signal(9)),
    ends("exits_with_7", End::Code(7)),
    plain("ioctl_errors"),
    plain("slow_call"),
    plain("late_library"),
    on(2, "nccl"),
    plain("c10"),
    plain("memory_saver"),
];

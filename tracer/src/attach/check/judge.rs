//! Judging the host: what each fact means for tracing.

use super::{Line, Status, Typed};
use std::path::PathBuf;

use crate::attach::{
    arch,
    host::{
        Capability, Host, Lockdown,
        driver::{Driver, KNOWN_BRANCHES},
        kernel::Feature,
    },
};

/// Memory that maps and the tracer's own tables may take, bytes.
const MEMORY_NEEDED: u64 = 512 << 20;

/// All findings about the host.
pub(super) fn host(host: &Host, typed: &Typed) -> Vec<Line> {
    let mut lines = vec![Line::new("kernel", Status::Ok, "Linux", known_by(host))];
    lines.extend(processor(arch::object_here()));
    lines.extend(FEATURES.iter().map(|needed| feature(host, needed, typed)));
    lines.extend([types(host), lockdown(host), namespace(host)]);
    lines.extend(calls(host));
    lines.push(memory(host));
    lines.extend(Capability::ALL.into_iter().map(|needed| capability(host, needed, typed)));
    lines.push(settings(host));
    lines.extend(driver(host));
    lines
}

/// A line for a processor that tracing was not tried on.
fn processor(object: Result<Option<PathBuf>, arch::Refusal>) -> Option<Line> {
    const WHAT: &str = "processor";
    match object {
        Ok(None) => None,
        Ok(Some(path)) => {
            let told = format!("untested; the object is {}", path.display());
            Some(Line::new("kernel", Status::Degraded, WHAT, told).fix("tell how it went, in an issue"))
        }
        Err(refusal) => Some(Line::new("kernel", Status::Missing, WHAT, refusal.to_string()).fix("see there")),
    }
}

fn known_by(host: &Host) -> String {
    let how = if host.features.by_symbols { "its symbols" } else { "its version alone: its symbols are hidden" };
    format!("{}; features told by {how}", host.release)
}

/// A kernel feature and what its absence means.
struct Needed {
    feature: Feature,
    name: &'static str,
    /// Status without it.
    lack: Status,
    without: &'static str,
    fix: &'static str,
}

const FEATURES: [Needed; 5] = [
    Needed {
        feature: Feature::Uprobes,
        name: "uprobes",
        lack: Status::Missing,
        without: "API calls cannot be probed",
        fix: "a kernel with CONFIG_UPROBES and CONFIG_BPF_EVENTS",
    },
    Needed {
        feature: Feature::RingBuffer,
        name: "BPF ring buffer",
        lack: Status::Missing,
        without: "events cannot leave the kernel",
        fix: "Linux 5.15 or newer",
    },
    Needed {
        feature: Feature::AttachCookie,
        name: "attach cookies",
        lack: Status::Missing,
        without: "the one program behind all probes cannot tell them apart",
        fix: "Linux 5.15 or newer",
    },
    Needed {
        feature: Feature::UprobeMulti,
        name: "uprobe_multi links",
        lack: Status::Degraded,
        without: "probes are placed one by one through perf: this needs CAP_SYS_ADMIN, and the kernel takes seconds \
                  to remove them at the end",
        fix: "Linux 6.6 or newer",
    },
    Needed {
        feature: Feature::Fentry,
        name: "fentry",
        lack: Status::Ok,
        without: "not here: the driver is hooked at libc's ioctl or at the system call, not in its own module",
        fix: "",
    },
];

fn feature(host: &Host, needed: &Needed, typed: &Typed) -> Line {
    if host.features.has(needed.feature) {
        // Symbols do not tell whether the kernel takes such programs: some are built without what patches functions.
        let untried = "its symbols are here; not tried, since only the driver hook `module` would use it";
        let told = if needed.feature == Feature::Fentry { untried } else { "here" };
        return Line::new("kernel", Status::Ok, needed.name, told);
    }
    // perf is the fallback for uprobe_multi, and wants more rights.
    if needed.feature == Feature::UprobeMulti && !host.may(Capability::SysAdmin) {
        let fix = how_to_get(host, &[Capability::SysAdmin], typed);
        return Line::new("kernel", Status::Missing, needed.name, needed.without).fix(fix);
    }
    let line = Line::new("kernel", needed.lack, needed.name, needed.without);
    if needed.fix.is_empty() { line } else { line.fix(needed.fix) }
}

fn types(host: &Host) -> Line {
    const WHAT: &str = "types (BTF)";
    if !host.sysfs {
        let told = "/sys is not there: where kernel structures hold process and file cannot be known";
        return Line::new("kernel", Status::Missing, WHAT, told).fix("mount -t sysfs sys /sys");
    }
    if !host.has_btf("vmlinux") {
        let told = "the kernel does not describe its types: where its structures hold process and file cannot be known";
        return Line::new("kernel", Status::Missing, WHAT, told).fix("a kernel with CONFIG_DEBUG_INFO_BTF");
    }
    let (here, lacking): (Vec<_>, Vec<_>) =
        ["vmlinux", "nvidia", "nvidia_uvm"].into_iter().partition(|name| host.has_btf(name));
    let mut told = here.join(", ");
    if host.driver.is_some() && !lacking.is_empty() {
        told += &format!("; not {}: the driver is hooked at libc's ioctl, not in its own module", lacking.join(" or "));
    }
    Line::new("kernel", Status::Ok, WHAT, told)
}

fn lockdown(host: &Host) -> Line {
    const WHAT: &str = "lockdown";
    match host.lockdown {
        Lockdown::None => Line::new("kernel", Status::Ok, WHAT, "none"),
        Lockdown::Integrity => Line::new("kernel", Status::Ok, WHAT, "integrity: reading is allowed"),
        Lockdown::Confidentiality => {
            let told =
                "confidentiality: BPF programs may not read kernel memory, so neither files nor processes can be told";
            Line::new("kernel", Status::Missing, WHAT, told).fix("boot with lockdown=integrity, or without")
        }
    }
}

fn namespace(host: &Host) -> Line {
    const WHAT: &str = "PID namespace";
    if host.initial_pid_namespace {
        return Line::new("kernel", Status::Ok, WHAT, "the host's own");
    }
    let told = "a container's: the kernel reports the host's process ids, which mean nothing in here";
    Line::new("kernel", Status::Missing, WHAT, told)
        .fix("run vramtrace on the host, or start the container with --pid=host (Kubernetes: hostPID: true)")
}

/// A line where a filter refuses system calls. perf's is of no use where probes go in by links.
fn calls(host: &Host) -> Option<Line> {
    let needless = |name: &str| name == "perf_event_open" && host.features.has(Feature::UprobeMulti);
    let refused: Vec<_> = host.refused_calls.iter().copied().filter(|name| !needless(name)).collect();
    (!refused.is_empty()).then(|| {
        let told = format!("a filter (seccomp), as container engines set it, refuses {}", refused.join(", "));
        let fix = "start the container with --security-opt seccomp=unconfined (Kubernetes: securityContext: \
                   {seccompProfile: {type: Unconfined}})";
        Line::new("kernel", Status::Missing, "system calls", told).fix(fix)
    })
}

fn memory(host: &Host) -> Line {
    const WHAT: &str = "memory";
    match host.memory_available {
        None => Line::new("kernel", Status::Ok, WHAT, "free memory unknown"),
        Some(bytes) if bytes >= MEMORY_NEEDED => {
            Line::new("kernel", Status::Ok, WHAT, format!("{} MiB free", bytes >> 20))
        }
        Some(bytes) => {
            let told = format!("{} MiB free: buffers may not fit, and events would be lost", bytes >> 20);
            Line::new("kernel", Status::Degraded, WHAT, told).fix(format!("free {} MiB", MEMORY_NEEDED >> 20))
        }
    }
}

fn capability(host: &Host, capability: Capability, typed: &Typed) -> Line {
    let (name, without) = (capability.name(), capability.without());
    let status = match capability {
        _ if !host.rights.initial_user_namespace => Status::Missing,
        _ if host.may(capability) => return Line::new("rights", Status::Ok, name, "held"),
        Capability::DacReadSearch => Status::Degraded,
        Capability::SysAdmin if host.features.has(Feature::UprobeMulti) => {
            let told = "not held, nor needed: probes go in by uprobe_multi links; the driver is hooked at libc's ioctl";
            return Line::new("rights", Status::Ok, name, told);
        }
        _ => Status::Missing,
    };
    if host.rights.initial_user_namespace {
        return Line::new("rights", status, name, without).fix(how_to_get(host, &[capability], typed));
    }
    let told = format!("counts in this user namespace only: {without}");
    Line::new("rights", status, name, told).fix(OUT_OF_THE_NAMESPACE)
}

/// Remedy for a user namespace.
pub(super) const OUT_OF_THE_NAMESPACE: &str = "run vramtrace on the host, not in a rootless container";

/// What to type for more rights: sudo for a user; for root without capabilities, what its container must be given.
pub(super) fn how_to_get(host: &Host, lacking: &[Capability], typed: &Typed) -> String {
    if host.rights.uid != 0 && !host.rights.no_new_privileges {
        return typed.with_sudo();
    }
    let mut flags: Vec<_> = lacking.iter().map(|capability| format!("--cap-add={}", capability.short())).collect();
    let names: Vec<_> = lacking.iter().map(|capability| capability.short()).collect();
    let mut kubernetes = format!("securityContext: {{capabilities: {{add: [{}]}}}}", names.join(", "));
    // Whoever starts it anew wants to do so once.
    if !host.initial_pid_namespace {
        flags.push("--pid=host".to_owned());
        kubernetes += ", hostPID: true";
    }
    format!("start the container (or service) with {} (Kubernetes: {kubernetes})", flags.join(" "))
}

fn settings(host: &Host) -> Line {
    let shown = |value: Option<i64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    let told = format!(
        "perf_event_paranoid {}, unprivileged_bpf_disabled {}: without effect on a process that holds the capabilities",
        shown(host.perf_event_paranoid),
        shown(host.unprivileged_bpf_disabled)
    );
    Line::new("rights", Status::Ok, "kernel settings", told)
}

fn driver(host: &Host) -> Vec<Line> {
    let Some(driver) = &host.driver else {
        let told = "no NVIDIA driver is loaded: nothing here uses a GPU through it";
        return vec![
            Line::new("driver", Status::Missing, "NVIDIA driver", told)
                .fix("sudo modprobe nvidia && sudo modprobe nvidia_uvm"),
        ];
    };
    vec![branch(driver), uvm(driver), gpus(host)]
}

fn branch(driver: &Driver) -> Line {
    const WHAT: &str = "NVIDIA driver";
    if driver.is_known() {
        return Line::new("driver", Status::Ok, WHAT, driver.to_string());
    }
    let told = format!(
        "{driver}: its ioctl layouts are not known (only branches {} to {} are), so bytes come from driver API calls, \
         without contexts, modules and other memory that no call shows",
        KNOWN_BRANCHES.start(),
        KNOWN_BRANCHES.end()
    );
    Line::new("driver", Status::Degraded, WHAT, told).fix("a driver of a known branch, or a newer vramtrace")
}

fn uvm(driver: &Driver) -> Line {
    if driver.uvm {
        return Line::new("driver", Status::Ok, "nvidia_uvm", "loaded");
    }
    let told = "not loaded: CUDA programs need it, and load it at first use where they may";
    Line::new("driver", Status::Degraded, "nvidia_uvm", told).fix("sudo modprobe nvidia_uvm")
}

fn gpus(host: &Host) -> Line {
    let Some(first) = host.gpus.first() else {
        return Line::new(
            "driver",
            Status::Degraded,
            "GPUs",
            "the driver lists none: there is nothing to hold memory on",
        );
    };
    let same = host.gpus.iter().all(|gpu| gpu.model == first.model);
    let names: Vec<_> = host.gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    let told = if same { format!("{} × {}", names.len(), first.model) } else { names.join(", ") };
    Line::new("driver", Status::Ok, "GPUs", told)
}

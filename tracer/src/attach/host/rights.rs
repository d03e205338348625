//! What this process may do: capabilities, and whether they count.

use super::Root;

/// A capability that tracing uses (capabilities(7)); the value is its bit in include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// `CAP_DAC_READ_SEARCH`.
    DacReadSearch = 2,
    /// `CAP_SYS_PTRACE`.
    SysPtrace = 19,
    /// `CAP_SYS_ADMIN`.
    SysAdmin = 21,
    /// `CAP_PERFMON`.
    Perfmon = 38,
    /// `CAP_BPF`.
    Bpf = 39,
}

impl Capability {
    /// All of them, most needed first.
    pub const ALL: [Self; 5] = [Self::Bpf, Self::Perfmon, Self::SysPtrace, Self::DacReadSearch, Self::SysAdmin];

    /// Name without `CAP_`, as container tools take it.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::DacReadSearch => "DAC_READ_SEARCH",
            Self::SysPtrace => "SYS_PTRACE",
            Self::SysAdmin => "SYS_ADMIN",
            Self::Perfmon => "PERFMON",
            Self::Bpf => "BPF",
        }
    }

    /// Full name.
    #[must_use]
    pub fn name(self) -> String {
        format!("CAP_{}", self.short())
    }

    /// What fails without it.
    #[must_use]
    pub const fn without(self) -> &'static str {
        match self {
            Self::DacReadSearch => "libraries in private directories of other users cannot be opened",
            Self::SysPtrace => "memory, maps and files of other users' processes cannot be read",
            Self::SysAdmin => {
                "probes cannot be placed through perf, nor functions of the driver's module hooked by type"
            }
            Self::Perfmon => "probes cannot be attached and programs cannot read memory",
            Self::Bpf => "BPF programs and maps cannot be loaded",
        }
    }
}

/// Rights of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Effective user id.
    pub uid: u32,
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// True outside user namespaces: in one, capabilities do not count for BPF.
    pub initial_user_namespace: bool,
    /// True when sudo and file capabilities are without effect (`no_new_privs`).
    pub no_new_privileges: bool,
}

/// `PROC_USER_INIT_INO` (`include/linux/proc_ns.h`): inode of the first user namespace.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

impl Rights {
    /// From `/proc/self`; `None` when it cannot be read.
    #[must_use]
    pub fn read(root: &Root) -> Option<Self> {
        let status = root.text("proc/self/status")?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        Some(Self {
            // Real, effective, saved, file system.
            uid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            effective: u64::from_str_radix(field("CapEff")?, 16).ok()?,
            initial_user_namespace: root.link("proc/self/ns/user").is_none_or(|ns| ns == INITIAL_USER_NAMESPACE),
            no_new_privileges: field("NoNewPrivs") == Some("1"),
        })
    }

    /// True when the process may do what `capability` permits. `CAP_SYS_ADMIN` stands in for `CAP_BPF` and `CAP_PERFMON`
    /// (`bpf_capable`, `perfmon_capable` in include/linux/capability.h), which kernels before 5.8 do not have.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        let bit = |capability: Capability| self.effective & (1 << capability as u8) != 0;
        let by_admin = matches!(capability, Capability::Bpf | Capability::Perfmon) && bit(Capability::SysAdmin);
        bit(capability) || by_admin
    }
}

/// True when this program has rights that its caller lacks (file capabilities): the caller's environment must then not
/// choose what code runs with them.
pub(crate) fn privileged_by_file() -> bool {
    // SAFETY: reads a word that the kernel put beside the environment (getauxval(3)).
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::Tree, *};

    #[test]
    fn effective_capabilities_count_not_permitted_ones() {
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nCapPrm:\t000001ffffffffff\nCapEff:\t000000c000080000\n";
        let rights = Tree::server().file("proc/self/status", status).read().rights;
        let held: Vec<_> = Capability::ALL.into_iter().filter(|c| rights.has(*c)).map(Capability::name).collect();
        assert_eq!(held, ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert_eq!(rights.uid, 1000);
    }

    #[test]
    fn sys_admin_stands_in_for_the_newer_two() {
        let rights = Rights { effective: 1 << 21, ..Rights::default() };
        assert!(rights.has(Capability::Bpf) && rights.has(Capability::Perfmon) && !rights.has(Capability::SysPtrace));
    }

    #[test]
    fn a_damaged_status_is_not_taken_for_no_rights() {
        for text in ["", "CapEff:\tzz\nUid:\t0\t0\t0\t0\n", "CapEff:\t0\nUid:\t\n", "Uid:\t0\t0\t0\t0\n"] {
            let tree = Tree::server().file("proc/self/status", text);
            assert_eq!(Rights::read(&tree.root()), None, "{text:?}");
        }
    }
}

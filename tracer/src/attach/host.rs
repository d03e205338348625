//! Facts about the machine that tracing depends on. Reading only; [`super::check`] judges them.

mod calls;
pub mod driver;
pub mod kernel;
pub mod rights;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use self::{
    driver::{Driver, Gpu},
    kernel::{Features, Lockdown, Version},
    rights::{Capability, Rights},
};

/// Where `/proc` and `/sys` are read. Tests lay out a tree of their own.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// Files under `dir` instead of `/`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// `path`, given relative to the root.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Contents of a small text file, trimmed; `None` when it is not there or may not be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A whole number that is all a file holds.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// True when there is such a file, readable or not.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Where a symbolic link leads, as text.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        fs::read_link(self.path(path)).ok().map(|to| to.to_string_lossy().into_owned())
    }

    /// Names in a directory, sorted; none when it is not there.
    #[must_use]
    pub fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        names
    }
}

/// What the machine is and what this process may do on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Kernel release (`uname -r`).
    pub release: String,
    /// Kernel version.
    pub version: Version,
    /// Kernel features that tracing uses.
    pub features: Features,
    /// Kernel modules, and `vmlinux` itself, whose types (BTF) the kernel offers.
    pub btf: Vec<String>,
    /// Lockdown mode.
    pub lockdown: Lockdown,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i64>,
    /// Rights of this process.
    pub rights: Rights,
    /// True when this process sees the process ids that the kernel reports.
    pub initial_pid_namespace: bool,
    /// True when `/sys` is there.
    pub sysfs: bool,
    /// System calls that a filter (seccomp) refuses to this process.
    pub refused_calls: Vec<&'static str>,
    /// NVIDIA driver, if one is loaded.
    pub driver: Option<Driver>,
    /// GPUs that the driver lists.
    pub gpus: Vec<Gpu>,
    /// Memory that is free to use, bytes.
    pub memory_available: Option<u64>,
}

/// `PROC_PID_INIT_INO` (`include/linux/proc_ns.h`): inode of the first PID namespace.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

impl Host {
    /// Reads all facts.
    ///
    /// # Errors
    ///
    /// When `/proc` is not mounted: without it nothing can be told, or traced.
    pub fn read(root: &Root) -> io::Result<Self> {
        let missing = |path: &str| io::Error::other(format!("{} cannot be read", root.path(path).display()));
        let release = root.text("proc/sys/kernel/osrelease").ok_or_else(|| missing("proc/sys/kernel/osrelease"))?;
        let version = Version::parse(&release);
        let rights = Rights::read(root).ok_or_else(|| missing("proc/self/status"))?;
        let status = root.text("proc/self/status").unwrap_or_default();
        Ok(Self {
            sysfs: root.exists("sys/kernel"),
            refused_calls: calls::refused(&status, rights.has(Capability::Bpf) && rights.has(Capability::Perfmon)),
            version,
            features: Features::read(root, version),
            btf: root.names("sys/kernel/btf"),
            lockdown: Lockdown::read(root),
            perf_event_paranoid: root.number("proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: root.number("proc/sys/kernel/unprivileged_bpf_disabled"),
            rights,
            initial_pid_namespace: root.link("proc/self/ns/pid").is_none_or(|ns| ns == INITIAL_PID_NAMESPACE),
            driver: Driver::read(root),
            gpus: driver::gpus(root),
            memory_available: memory_available(root),
            release,
        })
    }

    /// True when the kernel offers the types of `module` (or of `vmlinux`).
    #[must_use]
    pub fn has_btf(&self, module: &str) -> bool {
        self.btf.iter().any(|name| name == module)
    }

    /// True when this process may do what `capability` permits.
    #[must_use]
    pub fn may(&self, capability: Capability) -> bool {
        self.rights.has(capability)
    }
}

/// `MemAvailable`, in bytes.
fn memory_available(root: &Root) -> Option<u64> {
    let text = root.text("proc/meminfo")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// True when `path` is a directory that sudo searches by default (`secure_path` of the usual sudoers files).
#[must_use]
pub fn sudo_finds(path: &Path) -> bool {
    const SEARCHED: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    path.parent().is_some_and(|dir| SEARCHED.iter().any(|searched| dir == Path::new(searched)))
}

#[cfg(test)]
pub(crate) mod tree;

#[cfg(test)]
mod tests {
    use super::{tree::Tree, *};

    #[test]
    fn this_machine_can_be_read() {
        let host = Host::read(&Root::default()).unwrap();
        assert!(host.version > Version { major: 3, minor: 0 }, "{host:?}");
        assert!(host.memory_available.is_some());
    }

    #[test]
    fn without_proc_the_error_names_the_file() {
        let error = Host::read(&Root::at("/nonexistent")).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/proc/sys/kernel/osrelease cannot be read");
    }

    #[test]
    fn a_server_with_a_gpu_is_read_whole() {
        let host = Tree::server().read();
        assert_eq!((host.release.as_str(), host.version), ("6.8.0-45-generic", Version { major: 6, minor: 8 }));
        assert!(host.has_btf("vmlinux") && host.has_btf("nvidia") && !host.has_btf("nvidia_modeset"));
        assert_eq!(host.driver.as_ref().map(|driver| driver.branch), Some(Some(580)));
        assert_eq!(host.gpus.len(), 2);
        assert_eq!(host.memory_available, Some(64 << 30));
        assert!(host.initial_pid_namespace && host.rights.initial_user_namespace);
    }

    #[test]
    fn a_container_is_told_by_its_namespaces() {
        let host = Tree::server().link("proc/self/ns/pid", "pid:[4026532448]").read();
        assert!(!host.initial_pid_namespace);
    }

    #[test]
    fn odd_memory_figures_are_unknown() {
        for text in [
            "",
            "MemAvailable: lots kB",
            "MemAvailable: 99999999999999999999 kB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(Tree::server().file("proc/meminfo", text).read().memory_available, None, "{text}");
        }
    }

    #[test]
    fn sudo_searches_system_directories_only() {
        assert!(sudo_finds(Path::new("/usr/local/bin/vramtrace")));
        assert!(!sudo_finds(Path::new("/home/ada/.cargo/bin/vramtrace")));
    }
}

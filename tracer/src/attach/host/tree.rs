//! A made-up `/proc` and `/sys` for tests.

use std::{fs, os::unix::fs::symlink, path::Path};

use tempfile::TempDir;

use super::{Features, Host, Root, Version};

/// A directory that stands in for `/`.
pub(crate) struct Tree(TempDir);

impl Tree {
    /// A root shell on a server with two GPUs where everything works.
    pub(crate) fn server() -> Self {
        let gpu = |n: u32| {
            format!(
                "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t GPU-a29eb67b-0000-0000-0000-{n:012}\nBus Type: \t PCIe\n"
            )
        };
        let symbols = [
            "uprobe_register",
            "bpf_ringbuf_reserve",
            "bpf_get_attach_cookie_trace",
            "bpf_uprobe_multi_link_attach",
            "register_ftrace_direct",
        ];
        Self(TempDir::new().unwrap())
            .file("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
            .file("proc/sys/kernel/perf_event_paranoid", "2\n")
            .file("proc/sys/kernel/unprivileged_bpf_disabled", "2\n")
            .file("proc/kallsyms", &symbols.map(|name| format!("0000000000000000 T {name}\n")).concat())
            .file("proc/meminfo", "MemTotal:  1 kB\nMemAvailable:   67108864 kB\n")
            .rights(0, 0x1ff_ffff_ffff)
            .link("proc/self/ns/pid", "pid:[4026531836]")
            .link("proc/self/ns/user", "user:[4026531837]")
            .file("sys/kernel/btf/vmlinux", "")
            .file("sys/kernel/btf/nvidia", "")
            .file("sys/kernel/btf/nvidia_uvm", "")
            .file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
            .file("sys/module/nvidia/version", "580.95.05\n")
            .file("sys/module/nvidia_uvm/refcnt", "2\n")
            .file(
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (build@host)\n",
            )
            .file("proc/driver/nvidia/gpus/0000:10:00.0/information", &gpu(2))
            .file("proc/driver/nvidia/gpus/0000:0f:00.0/information", &gpu(1))
    }

    /// Adds or replaces a file.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds or replaces a symbolic link.
    pub(crate) fn link(self, path: &str, to: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
        self
    }

    /// Takes a file or directory away.
    pub(crate) fn without(self, path: &str) -> Self {
        let path = self.0.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// Sets user and effective capabilities of this process.
    pub(crate) fn rights(self, uid: u32, capabilities: u64) -> Self {
        let status = format!(
            "Name:\tvramtrace\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\nNoNewPrivs:\t0\n"
        );
        self.file("proc/self/status", &status)
    }

    /// The root to read from.
    pub(crate) fn root(&self) -> Root {
        Root::at(self.path())
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The facts it tells.
    pub(crate) fn read(&self) -> Host {
        Host::read(&self.root()).unwrap()
    }

    /// The features it shows for a kernel release.
    pub(crate) fn features(&self, release: &str) -> Features {
        Features::read(&self.root(), Version::parse(release))
    }
}

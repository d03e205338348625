//! The NVIDIA driver and its GPUs, as the driver's own files tell.

use std::{fmt, ops::RangeInclusive};

use super::Root;

/// Driver branches whose ioctl layouts were checked against their headers.
pub const KNOWN_BRANCHES: RangeInclusive<u32> = 525..=595;

/// Which of the two kernel modules is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The open one (MIT or GPL).
    Open,
    /// The proprietary one.
    Proprietary,
    /// The driver does not say.
    Unknown,
}

/// A loaded driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Version, such as `580.95.05`.
    pub version: String,
    /// First number of the version: the branch.
    pub branch: Option<u32>,
    /// Which kernel module.
    pub flavour: Flavour,
    /// True when the module for unified memory, which CUDA needs, is loaded.
    pub uvm: bool,
}

impl Driver {
    /// From `/proc/driver/nvidia/version` and `/sys/module`; `None` when no driver is loaded.
    #[must_use]
    pub fn read(root: &Root) -> Option<Self> {
        let told = root.text("proc/driver/nvidia/version");
        let line = told.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("NVRM version:")));
        let version = line.and_then(version_in).or_else(|| root.text("sys/module/nvidia/version"))?;
        let flavour = match line {
            Some(line) if line.contains("Open Kernel Module") => Flavour::Open,
            Some(line) if line.contains("Kernel Module") => Flavour::Proprietary,
            _ => Flavour::Unknown,
        };
        let branch = version.split('.').next().and_then(|number| number.parse().ok());
        Some(Self { version, branch, flavour, uvm: root.exists("sys/module/nvidia_uvm") })
    }

    /// True when the decoder knows the layouts of this branch.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.branch.is_some_and(|branch| KNOWN_BRANCHES.contains(&branch))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavour = match self.flavour {
            Flavour::Open => " (open kernel module)",
            Flavour::Proprietary => " (proprietary kernel module)",
            Flavour::Unknown => "",
        };
        write!(f, "{}{flavour}", self.version)
    }
}

/// The version in a line such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023`:
/// the first word that is nothing but numbers and dots (`x86_64` is not).
fn version_in(line: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// A GPU that the driver lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// PCI address.
    pub pci: String,
    /// Product name.
    pub model: String,
    /// `GPU-xxxxxxxx-…`; question marks until the GPU was first used.
    pub uuid: String,
}

/// GPUs in order of PCI address (`/proc/driver/nvidia/gpus/*/information`).
pub(super) fn gpus(root: &Root) -> Vec<Gpu> {
    const DIR: &str = "proc/driver/nvidia/gpus";
    let gpu = |pci: String| {
        let text = root.text(&format!("{DIR}/{pci}/information")).unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            value.unwrap_or_default().trim().to_owned()
        };
        Gpu { model: field("Model"), uuid: field("GPU UUID"), pci }
    };
    root.names(DIR).into_iter().map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::Tree, *};

    const VERSION: &str = "proc/driver/nvidia/version";

    #[test]
    fn both_flavours_are_told_apart() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (build@host)\n\
                    GCC version:  gcc version 12.3.0\n";
        let driver = Tree::server().file(VERSION, open).read().driver.unwrap();
        assert_eq!((driver.to_string().as_str(), driver.branch), ("580.95.05 (open kernel module)", Some(580)));

        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
        let driver = Tree::server().file(VERSION, closed).read().driver.unwrap();
        assert_eq!(driver.to_string(), "535.104.05 (proprietary kernel module)");
        assert!(driver.is_known() && driver.uvm);
    }

    #[test]
    fn the_module_tells_where_the_driver_does_not() {
        let tree = Tree::server().without(VERSION).file("sys/module/nvidia/version", "610.11\n");
        let driver = tree.read().driver.unwrap();
        assert_eq!((driver.flavour, driver.branch, driver.is_known()), (Flavour::Unknown, Some(610), false));
        assert_eq!(tree.without("sys/module/nvidia/version").read().driver, None);
    }

    #[test]
    fn gpus_come_in_pci_order_and_may_say_nothing() {
        let gpus = Tree::server().file("proc/driver/nvidia/gpus/0000:01:00.0/information", "junk").read().gpus;
        let seen: Vec<_> = gpus.iter().map(|gpu| (gpu.pci.as_str(), gpu.model.as_str())).collect();
        assert_eq!(seen, [("0000:01:00.0", ""), ("0000:0f:00.0", "NVIDIA H200"), ("0000:10:00.0", "NVIDIA H200")]);
        assert_eq!(gpus[1].uuid, "GPU-a29eb67b-0000-0000-0000-000000000001");
    }
}

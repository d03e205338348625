//! The kernel: its version, and the features that tracing uses.

use std::{collections::HashSet, fmt, fs};

use super::Root;

/// A kernel version, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Version {
    /// From a release such as `6.1.0-37-amd64`; 0.0 when it does not begin with a version.
    #[must_use]
    pub fn parse(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok()).fuse();
        Self { major: numbers.next().unwrap_or(0), minor: numbers.next().unwrap_or(0) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A kernel feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// User-space probes.
    Uprobes,
    /// The BPF ring buffer.
    RingBuffer,
    /// A number of one's own with each attached probe.
    AttachCookie,
    /// Many probes by one link.
    UprobeMulti,
    /// Programs on function entry and exit, by BTF.
    Fentry,
}

/// How a feature shows.
struct Sign {
    feature: Feature,
    /// Kernel function that exists only with it. Unlike a version, it also tells what a distribution backported and
    /// what a configuration left out.
    symbol: &'static str,
    /// First version with it.
    since: Version,
}

const fn sign(feature: Feature, symbol: &'static str, major: u32, minor: u32) -> Sign {
    Sign { feature, symbol, since: Version { major, minor } }
}

/// Symbols from `kernel/{trace/bpf_trace,trace/ftrace,bpf/ringbuf,events/uprobes}.c` of Linux 5.8 to 6.18.
const SIGNS: [Sign; 5] = [
    sign(Feature::Uprobes, "uprobe_register", 3, 5),
    sign(Feature::RingBuffer, "bpf_ringbuf_reserve", 5, 8),
    sign(Feature::AttachCookie, "bpf_get_attach_cookie_trace", 5, 15),
    sign(Feature::UprobeMulti, "bpf_uprobe_multi_link_attach", 6, 6),
    sign(Feature::Fentry, "register_ftrace_direct", 5, 5),
];

/// Which features the kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    present: HashSet<Feature>,
    /// True when the kernel's symbols told, false when only its version did.
    pub by_symbols: bool,
}

impl Features {
    /// From the kernel's symbols, or its version where they are hidden.
    #[must_use]
    pub fn read(root: &Root, version: Version) -> Self {
        let symbols = fs::read(root.path("proc/kallsyms")).map(|text| known_symbols(&text)).unwrap_or_default();
        let has = |sign: &Sign| if symbols.is_empty() { version >= sign.since } else { symbols.contains(sign.symbol) };
        Self {
            present: SIGNS.iter().filter(|sign| has(sign)).map(|sign| sign.feature).collect(),
            by_symbols: !symbols.is_empty(),
        }
    }

    /// True when the kernel has `feature`.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.present.contains(&feature)
    }
}

/// The functions of [`SIGNS`] that `/proc/kallsyms` (`address type name [module]`) lists. Names are there for everyone;
/// only addresses are hidden from some.
fn known_symbols(kallsyms: &[u8]) -> HashSet<&'static str> {
    let wanted: HashSet<&'static str> = SIGNS.iter().map(|sign| sign.symbol).collect();
    let names = kallsyms.split(|byte| *byte == b'\n').filter_map(|line| {
        let text = str::from_utf8(line).ok()?;
        text.split_ascii_whitespace().nth(2)
    });
    names.filter_map(|name| wanted.get(name).copied()).collect()
}

/// How far the kernel is closed to its administrator (`kernel_lockdown(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lockdown {
    /// Not at all.
    #[default]
    None,
    /// It may not be changed; reading stays allowed.
    Integrity,
    /// It may not be read either: BPF programs lose `bpf_probe_read_kernel`, kprobes are refused.
    Confidentiality,
}

impl Lockdown {
    /// `none [integrity] confidentiality`: the mode in force stands in brackets. No file: no lockdown.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let text = root.text("sys/kernel/security/lockdown").unwrap_or_default();
        if text.contains("[integrity]") {
            Self::Integrity
        } else if text.contains("[confidentiality]") {
            Self::Confidentiality
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::Tree, *};

    #[test]
    fn versions_are_read_from_any_release() {
        let parsed = |release| Version::parse(release).to_string();
        assert_eq!(parsed("6.1.0-37-amd64"), "6.1");
        assert_eq!(parsed("5.14.0-427.el9.x86_64"), "5.14");
        assert_eq!(parsed("6.18-rc1"), "6.18");
        assert_eq!(parsed("unknown"), "0.0");
        assert_eq!(parsed("99999999999.1"), "0.0");
    }

    #[test]
    fn symbols_outrank_the_version() {
        // A distribution's 5.14 that backported the ring buffer's successor; a 6.18 without fentry.
        let backport = "0000000000000000 T bpf_ringbuf_reserve\n0000000000000000 T bpf_uprobe_multi_link_attach\n";
        let features = Tree::server().file("proc/kallsyms", backport).features("5.14.0");
        assert!(features.by_symbols && features.has(Feature::UprobeMulti) && !features.has(Feature::Fentry));
        // A longer name is another function.
        let other = "0 T bpf_ringbuf_reserve_dynptr\n0 t register_ftrace_direct\n";
        let features = Tree::server().file("proc/kallsyms", other).features("6.18.0");
        assert!(features.has(Feature::Fentry) && !features.has(Feature::RingBuffer));
    }

    #[test]
    fn without_symbols_the_version_tells() {
        for text in ["", "\0\u{fffd} T\n"] {
            let features = Tree::server().file("proc/kallsyms", text).features("5.15.3");
            assert!(!features.by_symbols && features.has(Feature::AttachCookie));
            assert!(!features.has(Feature::UprobeMulti));
        }
    }

    #[test]
    fn the_lockdown_mode_in_force_is_the_bracketed_one() {
        let mode = |text| Tree::server().file("sys/kernel/security/lockdown", text).read().lockdown;
        assert_eq!(mode("[none] integrity confidentiality\n"), Lockdown::None);
        assert_eq!(mode("none [integrity] confidentiality\n"), Lockdown::Integrity);
        assert_eq!(mode("none integrity [confidentiality]\n"), Lockdown::Confidentiality);
    }
}

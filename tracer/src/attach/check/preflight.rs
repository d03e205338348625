//! The same judgement before tracing begins: one error that names what is missing and the line to type.

use std::io;

use super::{
    Check, Line, Status, Typed,
    judge::{OUT_OF_THE_NAMESPACE, how_to_get},
};
use crate::attach::{
    arch,
    host::{Capability, Host, Root, kernel::Feature},
};

/// Why tracing cannot begin. Each is one line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// Facts about the host cannot be read.
    #[error("cannot read what this host allows: {0}")]
    Unreadable(#[from] io::Error),
    /// Tracing is not for this processor.
    #[error(transparent)]
    Arch(#[from] arch::Refusal),
    /// This process lacks capabilities.
    #[error("{} missing: {means}. {fix}{}", names(.capabilities), or_once(.once.as_deref()))]
    Capabilities {
        /// Which ones.
        capabilities: Vec<Capability>,
        /// What fails without the first of them.
        means: &'static str,
        /// The line to type, or what else to do.
        fix: String,
        /// What spares typing it each time, where that works.
        once: Option<String>,
    },
    /// Capabilities do not count here.
    #[error("capabilities do not count in a user namespace, so BPF programs cannot be loaded: {OUT_OF_THE_NAMESPACE}")]
    UserNamespace,
    /// The kernel does not allow or offer what tracing needs.
    #[error("{what}: {told}. Needed: {fix}")]
    Kernel {
        /// What was looked at.
        what: String,
        /// What was found, and what that means.
        told: String,
        /// What to do about it.
        fix: String,
    },
}

/// Fails where this process cannot trace, with the line to type.
///
/// # Errors
///
/// [`Missing`].
pub fn preflight() -> Result<(), Missing> {
    arch::object_here()?;
    preflight_on(&Host::read(&Root::default())?, &Typed::here())
}

/// [`preflight`] on given facts.
///
/// # Errors
///
/// [`Missing`].
pub fn preflight_on(host: &Host, typed: &Typed) -> Result<(), Missing> {
    if !host.rights.initial_user_namespace {
        return Err(Missing::UserNamespace);
    }
    let capabilities: Vec<_> = needed(host).into_iter().filter(|capability| !host.may(*capability)).collect();
    if let Some(first) = capabilities.first() {
        let fix = how_to_get(host, &capabilities, typed);
        let fix = if fix.starts_with("sudo ") { format!("Type: {fix}") } else { format!("Fix: {fix}") };
        return Err(Missing::Capabilities { means: first.without(), fix, once: file_capabilities(host), capabilities });
    }
    // A driver may still be loaded, or be simulated; all else that is missing stays so.
    let kernel = Check::new(host, None, typed).lines.into_iter();
    match kernel.filter(|line| line.group == "kernel").find(|line| line.status == Status::Missing) {
        None => Ok(()),
        Some(Line { what, told, fix, .. }) => Err(Missing::Kernel { what, told, fix: fix.unwrap_or_default() }),
    }
}

/// Capabilities without which tracing does not begin. perf probes want `CAP_SYS_ADMIN`; `uprobe_multi` links do not.
fn needed(host: &Host) -> Vec<Capability> {
    let mut needed = vec![Capability::Bpf, Capability::Perfmon, Capability::SysPtrace];
    if !host.features.has(Feature::UprobeMulti) {
        needed.push(Capability::SysAdmin);
    }
    needed
}

/// Giving the program file its capabilities; not where it would need all of root's, nor where they have no effect.
fn file_capabilities(host: &Host) -> Option<String> {
    let works = host.rights.uid != 0 && !host.rights.no_new_privileges && host.features.has(Feature::UprobeMulti);
    works.then(|| "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep $(command -v vramtrace)".to_owned())
}

fn names(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(|capability| capability.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last} are", rest.join(", ")),
        _ => format!("{} is", names.concat()),
    }
}

fn or_once(once: Option<&str>) -> String {
    once.map(|line| format!(" (or, once and for all: {line})")).unwrap_or_default()
}

//! Why the kernel side could not be set up.

use std::io;

use aya::programs::ProgramError;

use crate::attach::arch;

/// Why the kernel side could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no type information.
    #[error("this kernel has no BTF (/sys/kernel/btf/vmlinux: {0}); one built with CONFIG_DEBUG_INFO_BTF is needed")]
    NoBtf(io::Error),
    /// A kernel structure looks unlike any known one.
    #[error("kernel structure {0} has no member {1}: this kernel is newer than vramtrace knows")]
    NoMember(&'static str, &'static str),
    /// This processor.
    #[error(transparent)]
    Arch(#[from] arch::Refusal),
    /// An object for it cannot be read.
    #[error("{0}")]
    Object(String),
    /// The object was refused.
    #[error("the kernel refused to load the eBPF object: {0}")]
    Load(#[from] aya::EbpfError),
    /// A program was refused.
    #[error("the kernel refused program {name}: {source}")]
    Program {
        /// Program name.
        name: String,
        /// Cause, with what the verifier said last.
        source: io::Error,
    },
    /// A map is missing or could not be written.
    #[error("eBPF map {0}: {1}")]
    Map(&'static str, String),
    /// aya could not load or attach a program.
    #[error("the kernel refused program {name}: {}", brief(.source))]
    Attach {
        /// Program name.
        name: &'static str,
        /// Cause.
        source: ProgramError,
    },
}

/// A cause in one line.
fn brief(source: &ProgramError) -> String {
    match source {
        ProgramError::LoadError { io_error, verifier_log } => {
            format!("{io_error}; verifier: {}", verdict(&verifier_log.to_string()))
        }
        other => other.to_string(),
    }
}

/// What a verifier's log says at its end, above its statistics (`print_verification_stats` in kernel/bpf/verifier.c).
pub(super) fn verdict(log: &str) -> &str {
    const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let is_reason = |line: &&str| !line.trim().is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    log.lines().rev().find(is_reason).unwrap_or("nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_stands_above_the_statistics() {
        // Of Linux 6.1.
        let log = "12: (85) call pc+7\ncombined stack size of 3 calls is 704. Too large\nverification time 57635463 usec\n\
                   stack depth 416+8\nprocessed 562919 insns (limit 1000000) max_states_per_insn 24\n";
        assert_eq!(verdict(log), "combined stack size of 3 calls is 704. Too large");
        assert_eq!(verdict("\nprocessed 0 insns\n"), "nothing");
    }
}

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
        /// Cause, with the end of the verifier's log.
        source: io::Error,
    },
    /// A map is missing or could not be written.
    #[error("eBPF map {0}: {1}")]
    Map(&'static str, String),
    /// aya could not load or attach a program.
    #[error("program {name}: {source}")]
    Attach {
        /// Program name.
        name: &'static str,
        /// Cause.
        source: ProgramError,
    },
}

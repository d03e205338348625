//! Processors: what of them tracing must know, and on which it was tried. Reading traces is the same on all.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use object::elf;

use super::host::rights::privileged_by_file;

/// Facts about a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// As Rust and the kernel name it.
    pub name: &'static str,
    /// `e_machine` of its ELF files.
    pub machine: u16,
    /// What names its libraries in `ld.so.cache` (`FLAG_X8664_LIB64`, `FLAG_AARCH64_LIB64`, glibc's
    /// sysdeps/generic/ldconfig.h).
    pub cache: u32,
    /// Member of `task_struct` that holds the thread pointer (`arch/*/include/asm/processor.h`).
    pub thread_pointer: &'static str,
}

/// Those known, the one that vramtrace was tried on first. Registers: `tracer-ebpf/src/regs.rs`. Native stacks are unwound by
/// x86-64's rules alone.
const KNOWN: [Arch; 2] = [
    Arch { name: "x86_64", machine: elf::EM_X86_64, cache: 0x0300, thread_pointer: "thread.fsbase" },
    Arch { name: "aarch64", machine: elf::EM_AARCH64, cache: 0x0a00, thread_pointer: "thread.uw.tp_value" },
];

/// Names the eBPF object to load on a processor that nobody tried.
pub const OBJECT_ENV: &str = "VRAMTRACE_UNTESTED_OBJECT";

/// Tracing is not for this processor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is built for, but nobody ran it.
    #[error(
        "tracing on {0} is untested: nobody has run vramtrace's probes there yet. Reading traces works; to try tracing, \
         build the object with `cargo xtask ebpf --arch {0}` and set {OBJECT_ENV} to its path"
    )]
    Untested(&'static str),
    /// It is not known.
    #[error(
        "tracing on {0} does not work: vramtrace knows the registers of x86-64 and aarch64 alone. Reading traces works"
    )]
    Unknown(String),
}

/// What tracing on a processor of this name takes: nothing, or the object that `given` names.
///
/// # Errors
/// [`Refusal`].
pub fn object(name: &str, given: Option<&OsStr>) -> Result<Option<PathBuf>, Refusal> {
    let given = given.filter(|path| !path.is_empty()).map(PathBuf::from);
    match KNOWN.iter().position(|arch| arch.name == name) {
        Some(0) => Ok(None),
        Some(at) => given.map(Some).ok_or(Refusal::Untested(KNOWN[at].name)),
        None => Err(Refusal::Unknown(name.to_owned())),
    }
}

/// [`object`] for this processor, as the environment has it; where rights come from the program's file, it has none to say.
///
/// # Errors
/// [`Refusal`].
pub fn object_here() -> Result<Option<PathBuf>, Refusal> {
    object(env::consts::ARCH, env::var_os(OBJECT_ENV).filter(|_| !privileged_by_file()).as_deref())
}

/// This processor; x86-64 where it is none that is known, for there nothing is traced.
#[must_use]
pub fn here() -> Arch {
    KNOWN.into_iter().find(|arch| arch.name == env::consts::ARCH).unwrap_or(KNOWN[0])
}

/// The object at `path`.
///
/// # Errors
/// One sentence.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}, which {OBJECT_ENV} names: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_nobody_tried_are_refused_with_what_to_do() {
        assert_eq!(object("x86_64", None), Ok(None));
        assert_eq!(object("x86_64", Some(OsStr::new("/x.o"))), Ok(None), "its own is built in");
        assert_eq!(object("aarch64", Some(OsStr::new("/x.o"))), Ok(Some("/x.o".into())));
        for given in [None, Some(OsStr::new(""))] {
            let line = object("aarch64", given).unwrap_err().to_string();
            assert!(line.starts_with("tracing on aarch64 is untested: ") && !line.contains('\n'), "{line}");
            assert!(line.contains("--arch aarch64") && line.contains("VRAMTRACE_UNTESTED_OBJECT"), "{line}");
        }
        let line = object("riscv64", Some(OsStr::new("/x.o"))).unwrap_err().to_string();
        assert!(line.starts_with("tracing on riscv64 does not work: "), "{line}");
    }

    #[test]
    fn this_processors_files_are_its_own() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert_eq!(u16::from_le_bytes([own[18], own[19]]), here().machine);
    }
}

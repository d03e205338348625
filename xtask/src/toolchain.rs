//! What builds the eBPF object: a compiler with `core` for `bpfel-unknown-none`, bpf-linker and llvm-objcopy.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::command::{found, output, root, target, which};

/// The Rust target of the object.
pub(crate) const TARGET: &str = "bpfel-unknown-none";
/// The bpf-linker version that the object is built with.
pub(crate) const LINKER_VERSION: &str = "0.13.0";
/// LLVM's major version in bpf-linker and llvm-objcopy: at least the compiler's own.
pub(crate) const LLVM: &str = "22";

/// A Rust compiler that can build for [`TARGET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compiler {
    /// Debian's rustc-web with libstd-rust-web-dev-bpf: `core` comes compiled.
    Debian,
    /// rustup's nightly with rust-src: `core` is built on the way.
    Nightly,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debian => "Debian rustc-web with libstd-rust-web-dev-bpf (compiled core)",
            Self::Nightly => "rustup nightly with rust-src (-Z build-std=core)",
        })
    }
}

impl Compiler {
    /// The compiler this machine has; Debian's first, for the committed object is built with it.
    pub(crate) fn detect() -> Result<Self> {
        [Self::Debian, Self::Nightly].into_iter().find(|compiler| compiler.is_there()).with_context(|| {
            format!(
                "no Rust compiler here can build for {TARGET}. On Debian: `cargo xtask setup` (or `apt-get install \
                 rustc-web cargo-web libstd-rust-web-dev-bpf`). Elsewhere: `rustup toolchain install nightly \
                 --component rust-src`"
            )
        })
    }

    fn is_there(self) -> bool {
        match self {
            Self::Debian => {
                let core = Path::new("/usr/lib/rustlib").join(TARGET).join("lib");
                ["/usr/bin/rustc", "/usr/bin/cargo"].iter().all(|path| Path::new(path).is_file()) && core.is_dir()
            }
            Self::Nightly => self.sysroot().is_ok_and(|sysroot| sysroot.join("lib/rustlib/src/rust/library").is_dir()),
        }
    }

    /// `cargo` of this toolchain, free of what the calling cargo and the user's environment would change in the object.
    pub(crate) fn cargo(self) -> Command {
        let mut cargo = self.tool("cargo");
        if self == Self::Debian {
            // Both crates use `feature(asm_experimental_arch)`. By name: with the value 1, build scripts of other crates
            // would take this compiler for a nightly one.
            cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "aya_ebpf,vramtrace_bpf");
        }
        cargo
    }

    /// Arguments that `cargo build` needs with this toolchain.
    pub(crate) fn build_args(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &[],
            Self::Nightly => &["-Z", "build-std=core"],
        }
    }

    /// The compiler's own library directory.
    pub(crate) fn sysroot(self) -> Result<PathBuf> {
        output(self.tool("rustc").args(["--print", "sysroot"])).map(PathBuf::from)
    }

    fn tool(self, name: &str) -> Command {
        let mut command = match self {
            Self::Debian => Command::new(Path::new("/usr/bin").join(name)),
            Self::Nightly => {
                let mut rustup = Command::new("rustup");
                rustup.args(["run", "nightly", name]);
                rustup
            }
        };
        for (key, _) in std::env::vars_os() {
            if changes_the_build(&key.to_string_lossy()) {
                command.env_remove(key);
            }
        }
        command.current_dir(root());
        command
    }

    /// `rustc` and `cargo` by their own words.
    pub(crate) fn versions(self) -> Result<(String, String)> {
        let rustc = output(self.tool("rustc").arg("-vV"))?;
        let llvm = rustc.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap_or("unknown");
        let rustc = format!("{}, LLVM {llvm}", rustc.lines().next().unwrap_or("unknown"));
        Ok((rustc, output(self.tool("cargo").arg("--version"))?))
    }
}

/// Variables of an outer cargo, rustup or user that would leak into the object or pick another compiler.
fn changes_the_build(key: &str) -> bool {
    const NAMES: [&str; 8] = [
        "CARGO",
        "LD_LIBRARY_PATH",
        "RUSTC",
        "RUSTC_BOOTSTRAP",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ];
    const PREFIXES: [&str; 5] = ["CARGO_BUILD_", "CARGO_ENCODED_", "CARGO_PKG_", "CARGO_PROFILE_", "CARGO_TARGET_"];
    NAMES.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Where `cargo xtask setup` puts programs it builds.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// A bpf-linker of the wanted version on the wanted LLVM: built by `cargo xtask setup`, or the user's own.
pub(crate) fn linker() -> Result<PathBuf> {
    let own = Some(tools().join("bin/bpf-linker")).filter(|path| path.is_file());
    own.into_iter().chain(which("bpf-linker")).find(|path| linker_fits(path)).with_context(|| {
        format!("no bpf-linker {LINKER_VERSION} on LLVM {LLVM} here: `cargo xtask setup` builds it under target/tools")
    })
}

fn linker_fits(path: &Path) -> bool {
    let version = output(Command::new(path).arg("--version"));
    version.is_ok_and(|version| version == format!("bpf-linker {LINKER_VERSION}"))
        && linker_llvm(path).is_ok_and(|llvm| llvm.contains(&format!("libLLVM.so.{LLVM}.")))
}

/// The LLVM library that a bpf-linker uses; the program itself does not say.
pub(crate) fn linker_llvm(path: &Path) -> Result<String> {
    let libraries = output(Command::new("ldd").arg(path))?;
    let name = libraries.split_whitespace().find(|word| word.starts_with("libLLVM"));
    Ok(name.unwrap_or("LLVM inside").to_owned())
}

/// llvm-objcopy, whose `--strip-debug` keeps BTF (GNU objcopy's does not know BPF).
pub(crate) fn objcopy() -> Result<String> {
    let names = [format!("llvm-objcopy-{LLVM}"), "llvm-objcopy".to_owned()];
    let Some(name) = names.into_iter().find(|name| found(name)) else {
        bail!("no llvm-objcopy here: on Debian, `apt-get install llvm-{LLVM}`");
    };
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_flags_and_the_outer_cargo_stay_out() {
        for key in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PROFILE_RELEASE_LTO", "RUSTUP_TOOLCHAIN", "CARGO"] {
            assert!(changes_the_build(key), "{key}");
        }
        // What reaches the registry must stay.
        for key in ["CARGO_HOME", "CARGO_HTTP_CAINFO", "CARGO_NET_OFFLINE", "PATH", "HOME", "https_proxy"] {
            assert!(!changes_the_build(key), "{key}");
        }
    }
}

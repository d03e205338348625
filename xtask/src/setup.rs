//! `cargo xtask setup`: what the tests need on a machine that has only rustup. Quick when all is there.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{
    command::{as_root, cargo, found, output, run},
    pythons, qemu, readers, real_libs,
    toolchain::{LINKER_VERSION, LLVM, linker, tools},
};

/// Debian packages, and what each is for.
const PACKAGES: [(&str, &str); 18] = [
    ("gcc", "linking; simulated libraries"),
    ("libc6-dev", "linking; simulated libraries"),
    ("make", "build scripts"),
    ("pkg-config", "build scripts"),
    ("rustc-web", "eBPF compiler"),
    ("cargo-web", "eBPF compiler"),
    ("libstd-rust-web-dev-bpf", "eBPF compiler"),
    ("llvm-22", "llvm-objcopy"),
    ("llvm-22-dev", "bpf-linker"),
    ("libpolly-22-dev", "bpf-linker"),
    ("libzstd-dev", "bpf-linker"),
    ("python3-pip", "real CUDA runtime libraries; readers of exports"),
    ("golang-go", "readers of exports: pprof"),
    ("fuse3", "simulated driver"),
    ("chromium", "tests of HTML reports"),
    ("gdb", "native stacks to compare with"),
    ("xz-utils", "modules in virtual machines"),
    ("patchelf", "a newer CPython"),
];

/// Installs whatever is missing.
pub(crate) fn main() -> Result<()> {
    components()?;
    packages(&PACKAGES)?;
    bpf_linker()?;
    real_libs::fetch()?;
    pythons::fetch()?;
    readers::fetch()?;
    qemu::fetch()?;
    println!("set up: packages, bpf-linker {LINKER_VERSION}, real libraries in {}", real_libs::dir().display());
    Ok(())
}

/// Installs what the demo takes: a C compiler and FUSE.
pub(crate) fn demo() -> Result<()> {
    if found("cc") && found("fusermount3") {
        return Ok(());
    }
    let wanted: Vec<_> = PACKAGES.into_iter().filter(|(_, why)| why.contains("simulated")).collect();
    packages(&wanted)
}

/// Installs what virtual machines of other kernels take.
pub(crate) fn machines() -> Result<()> {
    if !found("xz") || !found("cc") {
        let is_wanted = |why: &str| why.contains("virtual machines") || why.contains("simulated");
        let wanted: Vec<_> = PACKAGES.into_iter().filter(|(_, why)| is_wanted(why)).collect();
        packages(&wanted)?;
    }
    qemu::fetch()
}

/// Installs what reads exports back.
pub(crate) fn readers() -> Result<()> {
    let wanted: Vec<_> = PACKAGES.into_iter().filter(|(_, why)| why.contains("readers")).collect();
    if !found("go") || !found("python3") {
        packages(&wanted)?;
    }
    readers::fetch()
}

/// rustfmt and clippy, which a minimal rustup profile lacks.
fn components() -> Result<()> {
    for (component, command) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if output(cargo().args([command, "--version"])).is_err() {
            ensure!(found("rustup"), "no `cargo {command}` and no rustup: install {component} for this toolchain");
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

pub(crate) fn packages(wanted: &[(&str, &str)]) -> Result<()> {
    if !found("apt-get") || !found("dpkg-query") {
        bail!("set-up knows Debian only; install the counterparts of: {}", named(wanted));
    }
    let missing: Vec<_> = wanted.iter().copied().filter(|(name, _)| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", named(&missing));
    let apt = || -> Result<Command> {
        let mut apt = as_root("env")?;
        apt.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet", "--quiet"]);
        Ok(apt)
    };
    run(apt()?.arg("update"))?;
    // Rather stop than take something away from this machine (rustc-web and rustc exclude each other).
    let names = missing.iter().map(|(name, _)| name);
    run(apt()?.args(["install", "--yes", "--no-remove", "--no-install-recommends"]).args(names))
        .with_context(|| format!("cannot install {}", named(&missing)))
}

fn is_installed(name: &str) -> bool {
    let status = output(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Abbrev}", name]));
    status.is_ok_and(|status| status.starts_with("ii"))
}

fn named(packages: &[(&str, &str)]) -> String {
    packages.iter().map(|(name, why)| format!("{name} ({why})")).collect::<Vec<_>>().join(", ")
}

fn bpf_linker() -> Result<()> {
    if linker().is_ok() {
        return Ok(());
    }
    println!("building bpf-linker {LINKER_VERSION} on LLVM {LLVM} (a minute or two)");
    let mut install = cargo();
    install.args([
        "install",
        "bpf-linker",
        "--version",
        LINKER_VERSION,
        "--locked",
        "--force",
        "--no-default-features",
    ]);
    install.args(["--features", &format!("llvm-{LLVM}"), "--root"]).arg(tools());
    // Its build script looks in LLVM_PREFIX for the libraries; llvm-sys in the other, for the headers.
    let prefix = format!("/usr/lib/llvm-{LLVM}");
    install.env("LLVM_PREFIX", &prefix).env("LLVM_SYS_221_PREFIX", &prefix);
    install.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    run(&mut install).context("cannot build bpf-linker")?;
    linker().map(|_| ())
}

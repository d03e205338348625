//! QEMU where the host has none: as Debian packages it, unpacked under `target/qemu` with all that it links with.
//!
//! Not installed: Debian's `qemu-system-x86` excludes the `qemu-utils` of another release, which a host may have from its
//! backports and keep.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    apt::extract,
    command::{as_root, found, output, run, target},
};

const PROGRAM: &str = "qemu-system-x86_64";
/// Where packages have libraries, in the order of the search.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// Where it is.
pub(crate) struct Qemu {
    /// Directory that stands for `/`; none where the host's own is used.
    root: Option<PathBuf>,
}

impl Qemu {
    /// The host's, or the one that [`fetch`] unpacked.
    pub(crate) fn get() -> Self {
        Self { root: (!found(PROGRAM)).then(directory) }
    }

    /// Path of a file of its packages, such as `/usr/lib/qemu/virtiofsd`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.as_ref().map_or_else(|| path.into(), |root| root.join(path.trim_start_matches('/')))
    }

    /// The emulator. Firmware and modules it finds by its own path.
    pub(crate) fn emulator(&self) -> PathBuf {
        if self.root.is_some() { self.path(&format!("/usr/bin/{PROGRAM}")) } else { PROGRAM.into() }
    }

    /// One of its programs, to be run as root with low priority: the machine is not in a hurry, and others may be.
    pub(crate) fn command(&self, program: &Path) -> Result<Command> {
        let mut command = as_root("nice")?;
        command.args(["-n", "10"]);
        if let Some(root) = &self.root {
            // Beyond sudo, which drops such variables.
            command.arg("env").arg(format!("LD_LIBRARY_PATH={}", libraries(root)));
        }
        command.arg(program);
        Ok(command)
    }
}

fn directory() -> PathBuf {
    target().join("qemu")
}

fn libraries(root: &Path) -> String {
    LIBRARIES.map(|place| root.join(place).display().to_string()).join(":")
}

/// Fetches it unless it is there.
pub(crate) fn fetch() -> Result<()> {
    let home = directory();
    if found(PROGRAM) || works() {
        return Ok(());
    }
    println!("fetching {}", home.display());
    let scratch = target().join("qemu.new");
    for old in [&home, &scratch] {
        _ = fs::remove_dir_all(old);
    }
    let packages = scratch.join("cache/archives");
    fs::create_dir_all(packages.join("partial")).with_context(|| format!("cannot create {}", packages.display()))?;
    run(as_root("apt-get")?.args(["--quiet", "--quiet", "update"]))?;
    // All that is not installed here. Nothing is: what apt would have to take away for it stays.
    let mut apt = Command::new("apt-get");
    apt.arg(format!("-oDir::Cache={}", scratch.join("cache").display()));
    apt.args(["-oAPT::Sandbox::User=root", "-oDebug::NoLocking=true", "--quiet", "--quiet"]);
    apt.args(["install", "--download-only", "--yes", "--no-install-recommends", "qemu-system-x86"]);
    run(&mut apt).context("cannot download QEMU")?;
    extract(&packages, &scratch.join("root"))?;
    fs::rename(scratch.join("root"), &home).context("no packages came")?;
    fs::remove_dir_all(&scratch).context("cannot clean up")?;
    ensure!(works(), "{} does not run", Qemu::get().emulator().display());
    Ok(())
}

fn works() -> bool {
    let mut emulator = Command::new(Qemu::get().emulator());
    output(emulator.arg("--version").env("LD_LIBRARY_PATH", libraries(&directory()))).is_ok()
}

//! A CPython newer than the machine's, for tests of stacks: Debian's of the suite that has it, under `target/pythons`.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{
    apt::unpack,
    command::{output, run, target},
};

/// Suite with [`PACKAGES`].
const SUITE: &str = "sid";
/// The newest version whose frames vramtrace reads.
const VERSION: &str = "3.14";
/// The interpreter, and all that it and `ctypes` link with: it gets a C library of its own.
const PACKAGES: [&str; 12] = [
    "python3.14-minimal",
    "libpython3.14-minimal",
    "libpython3.14-stdlib",
    "libc6",
    "libgcc-s1",
    "libexpat1",
    "libffi8",
    "libssl3t64",
    "libuuid1",
    "libzstd1",
    "zlib1g",
    "liblzma5",
];

/// Fetches what is not there yet.
pub(crate) fn fetch() -> Result<()> {
    let dir = target().join("pythons");
    let (home, scratch) = (dir.join(VERSION), dir.join(".scratch"));
    let program = home.join("bin/python3");
    if works(&program) {
        return Ok(());
    }
    println!("fetching {}", home.display());
    for old in [&home, &scratch] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let unpacked = scratch.join("unpacked");
    unpack(&scratch, Some(SUITE), "main", &PACKAGES, &unpacked)
        .with_context(|| format!("cannot get CPython {VERSION} from Debian {SUITE}"))?;
    fs::rename(unpacked.join("usr"), &home).context("the packages have no usr")?;
    fs::rename(home.join(format!("bin/python{VERSION}")), &program).context("the packages have no interpreter")?;
    // A start by `ld.so python3` would serve too, but then the process's executable is ld.so. DT_RPATH, for DT_RUNPATH does
    // not count for what extension modules load.
    let mut patch = Command::new("patchelf");
    patch.arg("--set-interpreter").arg(home.join("lib64/ld-linux-x86-64.so.2"));
    patch.args(["--force-rpath", "--set-rpath"]).arg(home.join("lib/x86_64-linux-gnu"));
    run(patch.arg(&program))?;
    fs::remove_dir_all(&scratch).context("cannot clean up")?;
    anyhow::ensure!(works(&program), "{} does not run", program.display());
    Ok(())
}

/// True for an interpreter of [`VERSION`] with `ctypes`.
fn works(program: &PathBuf) -> bool {
    let code = "import sys, ctypes; print('%d.%d' % sys.version_info[:2])";
    output(Command::new(program).args(["-c", code])).is_ok_and(|version| version == VERSION)
}

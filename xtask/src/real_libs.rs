//! Real CUDA libraries and headers for symbol and attach checks, unpacked under `target/real-libs`, never installed.
//!
//! The runtime and `torch_memory_saver` come from Python wheels, the driver library from Debian's non-free: all by name, through
//! their own clients.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    apt::unpack,
    command::{output, run, target},
};

/// A runtime library in a wheel.
struct Wheel {
    package: &'static str,
    version: &'static str,
    folder: &'static str,
    library: &'static str,
}

const WHEELS: [Wheel; 3] = [
    Wheel {
        package: "nvidia-cuda-runtime-cu11",
        version: "11.8.89",
        folder: "cudart-11.8",
        library: "libcudart.so.11.0",
    },
    Wheel {
        package: "nvidia-cuda-runtime-cu12",
        version: "12.9.79",
        folder: "cudart-12.9",
        library: "libcudart.so.12",
    },
    Wheel { package: "nvidia-cuda-runtime", version: "13.0.96", folder: "cudart-13", library: "libcudart.so.13" },
];

/// `torch_memory_saver`, and its hook for CUDA 13 that takes no `LD_PRELOAD`.
const SAVER: (&str, &str) = ("torch-memory-saver", "0.0.10");
const SAVER_HOOK: &str = "torch_memory_saver_hook_mode_torch_cu13.abi3.so";

/// Debian package with `libcuda.so.1`.
const DRIVER: &str = "libcuda1";

/// Where they lie: `cudart-11.8/libcudart.so.11.0` with its headers in `cudart-11.8/include`, …, `libcuda/libcuda.so.1`.
pub(crate) fn dir() -> PathBuf {
    target().join("real-libs")
}

/// Fetches what is not there yet.
pub(crate) fn fetch() -> Result<()> {
    for wheel in &WHEELS {
        install(&dir().join(wheel.folder), &["include", wheel.library], |scratch| unpack_wheel(wheel, scratch))
            .with_context(|| format!("cannot get {} {} as a Python wheel", wheel.package, wheel.version))?;
    }
    install(&dir().join("memory-saver"), &["torch_memory_saver_hook_mode_torch.abi3.so"], |scratch| {
        Ok(vec![find(&unpack_package(SAVER.0, SAVER.1, scratch)?, SAVER_HOOK)?])
    })
    .with_context(|| format!("cannot get {} {} as a Python wheel", SAVER.0, SAVER.1))?;
    install(&dir().join("libcuda"), &["libcuda.so.1"], unpack_driver)
        .with_context(|| format!("cannot get {DRIVER} from Debian's non-free"))
}

/// Puts what `unpack` finds in a scratch directory, in the order of `names`, into `folder`. The folder appears at once:
/// what is in it is whole.
fn install(folder: &Path, names: &[&str], unpack: impl Fn(&Path) -> Result<Vec<PathBuf>>) -> Result<()> {
    if names.iter().all(|name| folder.join(name).exists()) {
        return Ok(());
    }
    println!("fetching {}", folder.display());
    let scratch = dir().join(".scratch");
    let _ = fs::remove_dir_all(&scratch);
    let new = scratch.join("new");
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    for (found, name) in unpack(&scratch)?.iter().zip(names) {
        fs::rename(found, new.join(name)).with_context(|| format!("cannot move {}", found.display()))?;
    }
    // Left by an older version of this program, or by hand.
    let _ = fs::remove_dir_all(folder);
    fs::rename(&new, folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::remove_dir_all(&scratch).context("cannot clean up")
}

/// Headers and library of a runtime.
fn unpack_wheel(wheel: &Wheel, scratch: &Path) -> Result<Vec<PathBuf>> {
    let unpacked = unpack_package(wheel.package, wheel.version, scratch)?;
    let header = find(&unpacked, "/include/cuda_runtime_api.h")?;
    let headers = header.parent().context("a file lies in a directory")?.to_path_buf();
    Ok(vec![headers, find(&unpacked, wheel.library)?])
}

/// Where the files of a package's wheel lie.
fn unpack_package(package: &str, version: &str, scratch: &Path) -> Result<PathBuf> {
    let wanted = format!("{package}=={version}");
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", "."];
    run(Command::new(python()?).args(pip).arg(wanted).current_dir(scratch))?;
    let file = find(scratch, ".whl")?;
    run(Command::new(python()?).args(["-m", "zipfile", "-e"]).arg(file).arg("unpacked").current_dir(scratch))?;
    Ok(scratch.join("unpacked"))
}

/// A Python with pip: the one on PATH, else the system's.
fn python() -> Result<&'static str> {
    let has_pip = |python: &&str| output(Command::new(python).args(["-m", "pip", "--version"])).is_ok();
    ["python3", "/usr/bin/python3"].into_iter().find(has_pip).context("no python3 with pip: install python3-pip")
}

fn unpack_driver(scratch: &Path) -> Result<Vec<PathBuf>> {
    unpack(scratch, None, "non-free", &[DRIVER], &scratch.join("unpacked"))?;
    let link = find(&scratch.join("unpacked"), "/libcuda.so.1")?;
    Ok(vec![link.canonicalize().with_context(|| format!("{} leads nowhere", link.display()))?])
}

/// The file under `dir` whose path ends with `end`.
fn find(dir: &Path, end: &str) -> Result<PathBuf> {
    let listed = output(Command::new("find").arg(dir).args(["-not", "-type", "d"]))?;
    let found = listed.lines().find(|path| path.ends_with(end)).map(PathBuf::from);
    found.with_context(|| format!("nothing named *{end} in {}", dir.display()))
}

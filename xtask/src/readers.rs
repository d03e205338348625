//! Programs of others that read exports back in tests: Go's pprof from Debian (see `setup`), `DuckDB` from `PyPI` under
//! `target/readers`.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::command::{output, run, target};

/// Python packages, with versions: their files are read by others, so any would do, but CI should not change by itself.
const PACKAGES: [&str; 1] = ["duckdb==2.0.1"];

/// Where the Python packages lie: a directory for `PYTHONPATH`.
pub(crate) fn dir() -> PathBuf {
    target().join("readers")
}

/// Fetches what is not there yet, or was made for another Python.
pub(crate) fn fetch() -> Result<()> {
    if output(Command::new("python3").args(["-c", "import duckdb"]).env("PYTHONPATH", dir())).is_ok() {
        return Ok(());
    }
    println!("fetching {}", dir().display());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args(["--root-user-action=ignore", "--upgrade", "--target"]).arg(dir()).args(PACKAGES);
    run(&mut pip).context("cannot install what reads exports back")
}

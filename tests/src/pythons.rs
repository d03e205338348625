//! The CPython interpreters of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The program.
    pub program: PathBuf,
    /// Major and minor version.
    pub version: (u8, u8),
}

/// All interpreters found: Debian's, pyenv's, those in `target/pythons`, and those named in `VRAMTRACE_PYTHONS` (paths
/// with `:` between).
///
/// # Errors
/// When the target directory is not known.
pub fn all() -> Result<Vec<Python>> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut programs: Vec<PathBuf> =
        std::env::var_os("VRAMTRACE_PYTHONS").map(|list| std::env::split_paths(&list).collect()).unwrap_or_default();
    programs.push("/usr/bin/python3".into());
    for folder in [home.join(".pyenv/versions"), crate::sim::target_directory()?.join("pythons")] {
        let Ok(entries) = folder.read_dir() else { continue };
        programs.extend(entries.flatten().map(|entry| entry.path().join("bin/python3")));
    }
    let mut found: Vec<Python> = programs.iter().filter_map(|program| python(program)).collect();
    found.sort_by(|a, b| (a.version, &a.program).cmp(&(b.version, &b.program)));
    found.dedup();
    Ok(found)
}

fn python(program: &Path) -> Option<Python> {
    let code = "import sys, ctypes; print(*sys.version_info[:2])";
    let output = Command::new(program).args(["-c", code]).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().split_once(' ')?;
    Some(Python { program: program.to_owned(), version: (major.parse().ok()?, minor.parse().ok()?) })
}

//! Debian packages unpacked into a folder, never installed: with lists, cache and sources apart from the machine's, and
//! without root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{output, run},
    sources::{Sources, Wanted},
};

/// Downloads packages (not what they depend on) from the archive that this machine uses and unpacks them into `to`. `suite`
/// is the machine's own when `None`; `scratch` is an empty folder.
pub(crate) fn unpack(scratch: &Path, suite: Option<&str>, component: &str, packages: &[&str], to: &Path) -> Result<()> {
    let codename = output(Command::new("sh").args(["-c", ". /etc/os-release && echo \"$VERSION_CODENAME\""]))?;
    let suite = suite.unwrap_or(&codename);
    let sources = machine_sources(&codename, Wanted { suite, component })?;
    ensure!(!sources.is_empty(), "no package source of this machine names main of `{codename}`");
    for made in ["sources", "lists/partial", "cache/archives/partial", "packages"] {
        fs::create_dir_all(scratch.join(made))?;
    }
    fs::write(scratch.join("sources/wanted.list"), sources.list)?;
    fs::write(scratch.join("sources/wanted.sources"), sources.stanzas)?;
    run(apt(scratch).arg("update"))?;
    run(apt(scratch).arg("download").args(packages.iter().map(|package| format!("{package}/{suite}"))))?;
    for package in fs::read_dir(scratch.join("packages"))? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package?.path()).arg(to))?;
    }
    Ok(())
}

fn apt(scratch: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    let option = |key: &str, path: &str| format!("-oDir::{key}={}", scratch.join(path).display());
    apt.args([option("Etc::SourceParts", "sources"), option("State::Lists", "lists"), option("Cache", "cache")]);
    // As root, apt would fetch as its own user, who cannot write here.
    apt.args(["-oDir::Etc::SourceList=/dev/null", "-oAPT::Sandbox::User=root", "--quiet", "--quiet"]);
    apt.current_dir(scratch.join("packages"));
    apt
}

fn machine_sources(codename: &str, wanted: Wanted<'_>) -> Result<Sources> {
    let mut found = Sources::default();
    let parts =
        fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    for path in parts.chain([PathBuf::from("/etc/apt/sources.list")]).filter(|path| path.is_file()) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        found.add(&path.to_string_lossy(), &text, codename, wanted);
    }
    Ok(found)
}

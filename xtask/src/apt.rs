//! Debian packages unpacked into a folder, never installed: with lists, cache and sources apart from the machine's, and
//! without root.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{output, run},
    sources::{Sources, Wanted},
};

/// apt with lists, cache and sources in a folder of its own.
pub(crate) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Of what `sources` name; reads their lists of packages.
    pub(crate) fn new(dir: &Path, sources: &Sources) -> Result<Self> {
        for made in ["sources", "lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(made))?;
        }
        fs::write(dir.join("sources/wanted.list"), &sources.list)?;
        fs::write(dir.join("sources/wanted.sources"), &sources.stanzas)?;
        let apt = Self { dir: dir.to_path_buf() };
        run(apt.command("apt-get").arg("update")).context("cannot read the lists of packages")?;
        Ok(apt)
    }

    /// A program of apt's.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        let option = |key: &str, path: &str| format!("-oDir::{key}={}", self.dir.join(path).display());
        apt.args([option("Etc::SourceParts", "sources"), option("State::Lists", "lists"), option("Cache", "cache")]);
        // As root, apt would fetch as its own user, who cannot write here.
        apt.args(["-oDir::Etc::SourceList=/dev/null", "-oAPT::Sandbox::User=root", "-oAcquire::Languages=none"]);
        apt.args(["--quiet", "--quiet"]);
        apt
    }

    /// Downloads packages (not what they depend on) and unpacks them into `to`.
    pub(crate) fn unpack<T: AsRef<OsStr>>(&self, packages: impl IntoIterator<Item = T>, to: &Path) -> Result<()> {
        let debs = self.dir.join("packages");
        // What an interrupted call left.
        _ = fs::remove_dir_all(&debs);
        fs::create_dir_all(&debs)?;
        run(self.command("apt-get").arg("download").args(packages).current_dir(&debs))?;
        extract(&debs, to)?;
        fs::remove_dir_all(&debs).context("cannot clean up")
    }
}

/// Unpacks packages from the archive that this machine uses into `to`. `suite` is the machine's own when `None`; `scratch` is
/// an empty folder.
pub(crate) fn unpack(scratch: &Path, suite: Option<&str>, component: &str, packages: &[&str], to: &Path) -> Result<()> {
    let codename = output(Command::new("sh").args(["-c", ". /etc/os-release && echo \"$VERSION_CODENAME\""]))?;
    let suite = suite.unwrap_or(&codename);
    let sources = machine_sources(&codename, Wanted { suite, component })?;
    ensure!(!sources.is_empty(), "no package source of this machine names main of `{codename}`");
    Apt::new(scratch, &sources)?.unpack(packages.iter().map(|package| format!("{package}/{suite}")), to)
}

/// Unpacks the packages that lie in a folder into `to`.
pub(crate) fn extract(packages: &Path, to: &Path) -> Result<()> {
    for package in fs::read_dir(packages)? {
        let package = package?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(to))?;
        }
    }
    Ok(())
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

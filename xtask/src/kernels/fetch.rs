//! Kernels to test on: found by apt in Debian's suites, downloaded and unpacked, never installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::directory;
use crate::{apt::Apt, command::output, sources::Sources};

/// A kernel and the Debian suite that has it. Suites of updates: their lists are small.
struct Kernel {
    name: &'static str,
    suite: &'static str,
}

const KERNELS: [Kernel; 5] = [
    Kernel { name: "5.10", suite: "bullseye-security" },
    Kernel { name: "6.1", suite: "bookworm-security" },
    Kernel { name: "6.12", suite: "bookworm-security" },
    Kernel { name: "6.18", suite: "trixie-backports" },
    Kernel { name: "7.3", suite: "trixie-backports" },
];

/// Packages of one kernel: newer ones come in three.
const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// Images for virtual machines: a third of the size, and all that is needed here.
const FLAVOUR: &str = "-cloud-amd64";

/// Names of the kernels.
pub(super) fn names() -> Vec<&'static str> {
    KERNELS.iter().map(|kernel| kernel.name).collect()
}

/// Directory of an unpacked kernel; fetches the newest package of it the first time.
pub(super) fn kernel(name: &str) -> Result<PathBuf> {
    let kernel = KERNELS.iter().find(|kernel| kernel.name == name).context("no such kernel")?;
    let tree = directory().join(name);
    if tree.exists() {
        return Ok(tree);
    }
    let apt = apt(kernel.suite)?;
    let packages = output(apt.command("apt-cache").args(["pkgnames", "linux-"]))?;
    let release = newest(&packages, name).with_context(|| format!("{} has no kernel {name}", kernel.suite))?;
    println!("fetching Linux {release} from {}", kernel.suite);
    let wanted: Vec<String> = PARTS.iter().map(|part| format!("{part}{release}")).collect();
    let there: Vec<&String> = wanted.iter().filter(|name| packages.lines().any(|line| line == **name)).collect();
    let new = directory().join(format!("{name}.new"));
    // What an interrupted call left.
    _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new)?;
    apt.unpack(there, &new)?;
    // The finished tree appears at once.
    fs::rename(&new, &tree).with_context(|| format!("cannot make {}", tree.display()))?;
    Ok(tree)
}

/// The newest release of a version among package names, such as `6.1.0-57-cloud-amd64` for `6.1`.
fn newest<'a>(packages: &'a str, version: &str) -> Option<&'a str> {
    let releases = packages.lines().filter_map(|name| name.strip_prefix(PARTS[0])).filter(|r| r.ends_with(FLAVOUR));
    releases.filter(|release| numbers(release).starts_with(&numbers(version))).max_by_key(|r| numbers(r))
}

/// The numbers in a release, in order. The names of packages that hold no kernel (`6.1-cloud-amd64`) have fewer.
fn numbers(release: &str) -> Vec<u64> {
    release.trim_end_matches(FLAVOUR).split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// apt for a suite.
fn apt(suite: &str) -> Result<Apt> {
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let list = format!("deb [signed-by={keys}] {} {suite} main\n", archive(suite)?);
    Apt::new(&directory().join("apt").join(suite), &Sources { list, stanzas: String::new() })
}

/// The archive that holds a suite: where this machine's own apt gets the like from.
fn archive(suite: &str) -> Result<String> {
    let format = "$(REPO_URI) $(RELEASE)";
    let targets = output(Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let security = suite.ends_with("-security");
    let alike = |release: &str| match security {
        true => release.ends_with("-security"),
        // Debian's own suites, not others' archives.
        false => ["bullseye", "bookworm", "trixie", "forky", "sid"].contains(&release),
    };
    let found = targets.lines().filter_map(|line| line.split_once(' ')).find(|(_, release)| alike(release));
    let (uri, _) = found.with_context(|| format!("apt knows no Debian archive like that of {suite}"))?;
    ensure!(uri.contains("://"), "apt gives {uri:?} as an archive");
    Ok(uri.to_owned())
}

/// The kernel's image in its tree.
pub(super) fn image(tree: &Path) -> Result<PathBuf> {
    let mut images = Vec::new();
    for entry in fs::read_dir(tree.join("boot")).with_context(|| format!("no kernel in {}", tree.display()))? {
        images.push(entry?.path());
    }
    let is_image = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    images.into_iter().find(is_image).with_context(|| format!("no vmlinuz in {}/boot", tree.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_is_found_by_its_numbers() {
        let packages = "linux-image-6.1-cloud-amd64\nlinux-image-6.1.0-9-cloud-amd64\nlinux-image-6.1.0-57-cloud-amd64\n\
                        linux-image-6.1.0-58-cloud-amd64-dbg\nlinux-image-6.12.9+deb12-cloud-amd64\n\
                        linux-image-6.12.117+deb12-cloud-amd64\nlinux-image-6.12.117+deb12-amd64";
        assert_eq!(newest(packages, "6.1"), Some("6.1.0-57-cloud-amd64"));
        assert_eq!(newest(packages, "6.12"), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest(packages, "5.10"), None);
    }
}

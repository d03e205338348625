//! The machine's initial file system: a first process (tests/vm/init.c) and the modules it takes to reach the host's files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::command::{root, run};

/// Modules in the order in which they need each other. One that a kernel has built in, or not at all, is left out.
const MODULES: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "fuse",
    "virtiofs",
    "overlay",
];

/// Modes of a file and a directory (inode(7)).
const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// Writes the file system of a kernel to `place`.
pub(super) fn make(tree: &Path, place: &Path) -> Result<PathBuf> {
    let init = place.join("init");
    run(Command::new("cc").args(["-O1", "-static", "-o"]).arg(&init).arg(root().join("tests/vm/init.c")))?;
    let mut archive = Vec::new();
    add(&mut archive, "init", FILE, &fs::read(&init)?);
    add(&mut archive, "dev", DIRECTORY, &[]);
    add(&mut archive, "modules", DIRECTORY, &[]);
    let mut modules = Vec::new();
    // Newer packages have them below usr.
    for dir in ["lib/modules", "usr/lib/modules"] {
        collect(&tree.join(dir), &mut modules)?;
    }
    for (n, module) in MODULES.iter().enumerate() {
        let is_it = |path: &&PathBuf| name(path) == Some(module);
        if let Some(path) = modules.iter().find(is_it) {
            add(&mut archive, &format!("modules/{n}-{module}.ko"), FILE, &unpacked(path)?);
        }
    }
    add(&mut archive, "TRAILER!!!", 0, &[]);
    let path = place.join("initramfs");
    fs::write(&path, archive).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// A module's name, from a path such as `…/fuse.ko.xz`.
fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.split_once(".ko").map(|(name, _)| name)
}

/// Files below a directory, if there is one.
fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() { collect(&entry.path(), into)? } else { into.push(entry.path()) }
    }
    Ok(())
}

/// A module as the kernel takes it.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).with_context(|| path.display().to_string()),
    };
    let output =
        Command::new(program).arg("-dc").arg(path).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} cannot unpack {}", path.display());
    Ok(output.stdout)
}

/// Appends an entry of a cpio archive in `newc` format (Documentation/driver-api/early-userspace/buffer-format.rst).
fn add(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let (name_len, data_len) = (name.len() as u32 + 1, data.len() as u32);
    // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check.
    let fields = [0, mode, 0, 0, 1, 0, data_len, 0, 0, 0, 0, name_len, 0];
    archive.extend(b"070701");
    for field in fields {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(name.bytes().chain([0]));
    pad(archive);
    archive.extend(data);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_headed_named_and_aligned() {
        let mut archive = Vec::new();
        add(&mut archive, "init", FILE, b"hello");
        assert_eq!(archive.len(), 110 + 6 + 8);
        assert_eq!(&archive[..22], b"07070100000000000081ed");
        assert_eq!(&archive[110..121], b"init\0\0hello");
    }

    #[test]
    fn modules_are_named_whatever_they_are_packed_with() {
        assert_eq!(name(Path::new("/a/fuse.ko.xz")), Some("fuse"));
        assert_eq!(name(Path::new("/a/virtio_pci.ko")), Some("virtio_pci"));
        assert_eq!(name(Path::new("/a/modules.order")), None);
    }
}

//! Paths inside another root directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Links followed before a path is taken for a loop, as in the kernel.
const LINKS: usize = 40;

/// Resolves `path` as a process with the root directory `root` would, every link included: an absolute link leads to
/// `root`'s tree, not ours, and `..` does not leave it. Gives the path inside the root; none when it leads nowhere.
pub(super) fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut todo: Vec<OsString> = components(path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        let here = inside(root, &next);
        if !fs::symlink_metadata(&here).ok()?.file_type().is_symlink() {
            done = next;
            continue;
        }
        links += 1;
        if links > LINKS {
            return None;
        }
        let target = fs::read_link(&here).ok()?;
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        todo.extend(components(&target));
    }
    Some(done)
}

/// `path` of the tree below `root` as it is reached from here.
pub(super) fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Names on the path, last first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("usr/lib");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("libcuda.so.535"), "x").unwrap();
        symlink("/usr/lib/libcuda.so.535", dir.join("libcuda.so.1")).unwrap();
        symlink("../../../../usr/lib", root.path().join("up")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let resolved = |path: &str| resolve(root.path(), Path::new(path));
        assert_eq!(resolved("/usr/lib/libcuda.so.1"), Some("/usr/lib/libcuda.so.535".into()));
        assert_eq!(resolved("/up/libcuda.so.1"), Some("/usr/lib/libcuda.so.535".into()));
        assert_eq!(resolved("/usr/lib/loop"), None);
        assert_eq!(resolved("/etc/passwd"), None, "ours is out of reach");
    }
}

//! Where a Python program's interpreter and packages are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::walk::Walk;
use crate::attach::files::read_head;

/// Links and interpreters followed from one command.
const STEPS: usize = 16;
/// Bytes of a script that may hold its interpreter: the kernel reads 256, pip's two-line form can be longer.
const SHEBANG: u64 = 1024;
/// Bytes of a `pyvenv.cfg`.
const CONFIG: u64 = 16 << 10;
/// `nvidia/cu13/lib` is two levels below `site-packages/nvidia`; layouts with one or two more are known.
const NVIDIA_DEPTH: u32 = 4;

/// The program, what its links lead to, and the interpreters of scripts on the way. `which` finds a bare name.
pub(super) fn interpreters(program: PathBuf, which: impl Fn(&OsStr) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut chain = vec![program];
    for step in 0..STEPS {
        let Some(path) = chain.get(step) else { break };
        let next = match fs::read_link(path) {
            Ok(target) => Some(path.parent().unwrap_or(path).join(target)),
            Err(_) => {
                shebang(path).and_then(|name| if name.is_absolute() { Some(name) } else { which(name.as_os_str()) })
            }
        };
        chain.extend(next.filter(|next| !chain.contains(next)));
    }
    chain
}

/// The interpreter a script names; a bare name when it is to be looked up (`/usr/bin/env python3`).
fn shebang(path: &Path) -> Option<PathBuf> {
    interpreter(&read_head(path, SHEBANG).ok()?)
}

/// The same of the beginning of its text.
pub(super) fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let mut lines = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n');
    let mut words = words(lines.next()?);
    let interpreter = words.next()?;
    if interpreter.ends_with(b"/env") {
        return words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).map(to_path);
    }
    // pip's form for paths that are too long or hold spaces: `#!/bin/sh`, then `'''exec' "/path/python" "$0" "$@"`.
    let second = lines.next().and_then(|line| line.strip_prefix(b"'''exec' "));
    match second {
        Some(line) if line.starts_with(b"\"") => line[1..].split(|&byte| byte == b'"').next().map(to_path),
        Some(line) => self::words(line).next().map(to_path),
        None => Some(to_path(interpreter)),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Installation prefixes an executable belongs to: that of its `bin`, the one its virtual environment was made from,
/// and for a pyenv shim every version it may choose.
pub(super) fn prefixes(executable: &Path, walk: &mut Walk) -> Vec<PathBuf> {
    let Some(prefix) = executable.parent().and_then(Path::parent) else { return Vec::new() };
    if executable.parent().and_then(Path::file_name).is_some_and(|dir| dir == "shims") {
        return walk.entries(&prefix.join("versions"));
    }
    let mut prefixes = vec![prefix.to_owned()];
    if let Ok(config) = read_head(&prefix.join("pyvenv.cfg"), CONFIG) {
        let home = config.split(|&byte| byte == b'\n').find_map(|line| {
            let (key, value) = line.split_at(line.iter().position(|&byte| byte == b'=')?);
            (key.trim_ascii() == b"home").then(|| to_path(value[1..].trim_ascii()))
        });
        prefixes.extend(home.and_then(|home| home.parent().map(Path::to_owned)));
    }
    prefixes
}

/// Searches a prefix: its libraries (conda keeps CUDA there) and its `site-packages`.
pub(super) fn search_prefix(prefix: &Path, walk: &mut Walk) {
    for lib in ["lib", "lib64", "local/lib"].map(|lib| prefix.join(lib)) {
        walk.search(&lib, 0);
        for python in walk.entries(&lib) {
            if python.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python")) {
                search_site(&python.join("site-packages"), walk);
                search_site(&python.join("dist-packages"), walk);
            }
        }
    }
}

/// Searches a directory of packages: NVIDIA's wheels, torch, and what other wheels bundle (`torchvision.libs`).
pub(super) fn search_site(site: &Path, walk: &mut Walk) {
    walk.search(&site.join("nvidia"), NVIDIA_DEPTH);
    walk.search(&site.join("torch/lib"), 0);
    for bundled in walk.entries(site) {
        if bundled.extension().is_some_and(|extension| extension == "libs") {
            walk.search(&bundled, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shebang_of(script: &str) -> Option<PathBuf> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), script).unwrap();
        shebang(file.path())
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(shebang_of("#!/opt/venv/bin/python3\nimport x"), Some("/opt/venv/bin/python3".into()));
        assert_eq!(shebang_of("#! /usr/bin/python3 -E\n"), Some("/usr/bin/python3".into()));
        assert_eq!(shebang_of("#!/usr/bin/env python3\n"), Some("python3".into()));
        assert_eq!(shebang_of("#!/usr/bin/env -S A=1 python3 -u\n"), Some("python3".into()));
        assert_eq!(
            shebang_of("#!/bin/sh\n'''exec' \"/a b/python\" \"$0\" \"$@\"\n' '''\n"),
            Some("/a b/python".into())
        );
        assert_eq!(shebang_of("#!/bin/sh\n'''exec' /long/python \"$0\" \"$@\"\n"), Some("/long/python".into()));
        assert_eq!(shebang_of("#!/bin/bash\nexec foo\n"), Some("/bin/bash".into()));
        assert_eq!(shebang_of("\x7fELF"), None);
        assert_eq!(shebang_of("#!"), None);
    }

    #[test]
    fn a_chain_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::os::unix::fs::symlink("b", &a).unwrap();
        std::os::unix::fs::symlink("a", &b).unwrap();
        assert_eq!(interpreters(a.clone(), |_| None), [a, b]);
    }

    proptest::proptest! {
        #[test]
        fn any_script_is_survived(script: Vec<u8>) {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), [b"#!".as_slice(), &script].concat()).unwrap();
            let _ = shebang(file.path());
        }
    }
}

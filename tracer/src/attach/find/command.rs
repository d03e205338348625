//! Libraries a command is likely to open.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Found, python, walk::Walk};

/// Where distributions, containers and NVIDIA's installers put libraries: directory and depth.
const SYSTEM: &[(&str, u32)] = &[
    ("/usr/lib/x86_64-linux-gnu", 0),
    ("/usr/lib/x86_64-linux-gnu/nvidia/current", 0),
    ("/usr/lib64", 0),
    ("/usr/lib64/nvidia", 0),
    ("/usr/lib/wsl/lib", 0),
    ("/usr/local/nvidia/lib64", 0),
    ("/usr/local/nvidia/lib", 0),
    ("/opt/cuda/lib64", 0),
];

/// Variables that lead to a Python installation: an environment's or installation's prefix.
const PREFIXES: &[&str] = &["VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONUSERBASE", "UV_PROJECT_ENVIRONMENT"];

/// Libraries of interest that `argv0`, run with `env` in `cwd`, is likely to open: those of its Python interpreter's
/// packages (virtual environments, pyenv, conda and system installations, found through links and `#!` lines; also
/// of the `python` on its `PATH`, for commands that only start one), of `LD_LIBRARY_PATH`, and of CUDA installations.
/// The search is bounded; what it misses is caught when it is mapped.
#[must_use]
pub fn near_command(argv0: &OsStr, env: &[(OsString, OsString)], cwd: &Path) -> Found {
    let command = Command { env, cwd };
    let mut walk = Walk::default();
    command.search_loader_paths(&mut walk);
    for prefix in command.prefixes(argv0, &mut walk) {
        python::search_prefix(&prefix, &mut walk);
    }
    for site in command.list("PYTHONPATH") {
        python::search_site(&site, &mut walk);
    }
    command.search_cuda(&mut walk);
    for (dir, depth) in SYSTEM {
        walk.search(Path::new(dir), *depth);
    }
    walk.finish()
}

struct Command<'a> {
    env: &'a [(OsString, OsString)],
    cwd: &'a Path,
}

impl Command<'_> {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.env.iter().rev().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// Paths of a `:`-separated variable, absolute. An empty entry is the working directory.
    fn list(&self, name: &str) -> Vec<PathBuf> {
        let value = self.variable(name).unwrap_or_default().as_bytes();
        // The loader takes `;` too.
        let entries =
            value.split(|byte| matches!(byte, b':' | b';')).map(|entry| self.cwd.join(OsStr::from_bytes(entry)));
        if value.is_empty() { Vec::new() } else { entries.collect() }
    }

    /// The file a name on the command line runs.
    fn which(&self, name: &OsStr) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            return Some(self.cwd.join(name));
        }
        self.list("PATH").into_iter().map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    fn search_loader_paths(&self, walk: &mut Walk) {
        for file in self.list("LD_PRELOAD") {
            walk.file(&file);
        }
        for dir in self.list("LD_LIBRARY_PATH") {
            walk.search(&dir, 0);
        }
    }

    /// Python prefixes, the command's own first.
    fn prefixes(&self, argv0: &OsStr, walk: &mut Walk) -> Vec<PathBuf> {
        let mut prefixes = Vec::new();
        for name in [argv0, OsStr::new("python3"), OsStr::new("python")] {
            let Some(program) = self.which(name) else { continue };
            for executable in python::interpreters(program, |name| self.which(name)) {
                prefixes.extend(python::prefixes(&executable, walk));
            }
        }
        prefixes.extend(PREFIXES.iter().filter_map(|name| self.variable(name)).map(|prefix| self.cwd.join(prefix)));
        // uv and many a script use the project's environment without activating it.
        prefixes.push(self.cwd.join(".venv"));
        prefixes.extend(self.variable("HOME").map(|home| Path::new(home).join(".local")));
        prefixes.extend([PathBuf::from("/usr/local"), PathBuf::from("/usr")]);
        let mut seen = std::collections::HashSet::new();
        prefixes.retain(|prefix| seen.insert(prefix.clone()));
        prefixes
    }

    /// CUDA toolkits: those the environment names and those under `/usr/local`.
    fn search_cuda(&self, walk: &mut Walk) {
        let named = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| self.variable(name));
        let mut toolkits: Vec<PathBuf> = named.map(|dir| self.cwd.join(dir)).collect();
        let local = walk.entries(Path::new("/usr/local"));
        toolkits.extend(
            local.into_iter().filter(|dir| dir.file_name().is_some_and(|name| name.as_bytes().starts_with(b"cuda"))),
        );
        for toolkit in toolkits {
            walk.search(&toolkit.join("lib64"), 0);
            walk.search(&toolkit.join("compat"), 1);
            walk.search(&toolkit.join("targets/x86_64-linux/lib"), 0);
        }
    }
}

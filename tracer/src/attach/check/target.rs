//! Judging a target: a running process, or a command to be started.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::{Line, Status, Typed};
use crate::{
    attach::{
        elf::ElfFile,
        find::{self, Library},
        host::{Capability, Host, Root},
        plan::Plan,
    },
    lifecycle::{self, Rules, Selection},
    probe,
};

/// Why a target cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No such process.
    #[error("no process {0}: it has ended, or lives in another PID namespace")]
    NoProcess(u32),
    /// No such program.
    #[error("no program `{0}`: not a file that may be executed, nor found through PATH")]
    NoProgram(String),
}

/// A library of interest that a target has or will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetLibrary {
    /// Path as the target sees it.
    pub path: PathBuf,
    /// Functions that would be probed, and rows of the probe table whose symbol it lacks; or why it cannot be read.
    pub probes: Result<(usize, usize), String>,
}

impl TargetLibrary {
    /// What the probe table finds in a library.
    #[must_use]
    pub fn new(library: &Library) -> Self {
        let plan = ElfFile::open(&library.path).and_then(|file| Plan::new(&file, probe::of(library.lib)));
        let probes = plan.map(|plan| (plan.points.len(), plan.missing.len())).map_err(|error| error.to_string());
        Self { path: PathBuf::from(&library.shown), probes }
    }
}

/// What is to be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How a person would name it.
    pub name: String,
    /// Its process id, when it runs.
    pub pid: Option<u32>,
    /// Its owner's user id, when it runs.
    pub uid: Option<u32>,
    /// True when it runs and its memory map can be read.
    pub readable: bool,
    /// True when its files lie elsewhere than ours: a container.
    pub own_files: bool,
    /// Libraries that probes would go into.
    pub libraries: Vec<TargetLibrary>,
    /// Python packages that lifecycle rules are about, with their versions.
    pub packages: Vec<(String, String)>,
}

impl Target {
    /// A running process.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn of_pid(root: &Root, pid: u32) -> Result<Self, TargetError> {
        let dir = format!("proc/{pid}");
        let owner = fs::metadata(root.path(&dir)).map_err(|_| TargetError::NoProcess(pid))?;
        let name = root.text(&format!("{dir}/comm")).unwrap_or_default();
        let mounts = root.link(&format!("{dir}/ns/mnt"));
        let found = find::mapped_by(pid);
        Ok(Self {
            name: format!("process {pid} ({name})"),
            pid: Some(pid),
            uid: Some(owner.uid()),
            readable: fs::read(root.path(&format!("{dir}/maps"))).is_ok(),
            own_files: mounts.is_some() && mounts != root.link("proc/self/ns/mnt"),
            libraries: found.libraries.iter().map(TargetLibrary::new).collect(),
            packages: packages(&found.libraries),
        })
    }

    /// A command to be started.
    ///
    /// # Errors
    ///
    /// When its program is not found.
    pub fn of_command(program: &OsStr) -> Result<Self, TargetError> {
        let no_program = || TargetError::NoProgram(program.to_string_lossy().into_owned());
        let name = find_program(program).ok_or_else(no_program)?.display().to_string();
        let environment: Vec<_> = env::vars_os().collect();
        let mut found = find::near_command(program, &environment, &env::current_dir().unwrap_or_default());
        found.merge(find::ld_so_cache(Path::new("/")));
        let libraries = found.libraries.iter().map(TargetLibrary::new).collect();
        let packages = packages(&found.libraries);
        Ok(Self { name, pid: None, uid: None, readable: true, own_files: false, libraries, packages })
    }

    /// Findings about it.
    pub(super) fn lines(&self, host: &Host, typed: &Typed) -> Vec<Line> {
        let mut lines = vec![self.access(host, typed)];
        if self.own_files {
            let told = "its own (a container): libraries are found through /proc/PID/root";
            lines.push(Line::new("target", Status::Ok, "files", told));
        }
        lines.extend(self.libraries.iter().map(library));
        if self.libraries.is_empty() && self.readable {
            let told = "none yet: each is probed when it is opened, and the process held for that moment";
            lines.push(Line::new("target", Status::Ok, "CUDA libraries", told));
        }
        lines.extend(lifecycle::select(Rules::standard(), &self.packages).iter().map(rules));
        lines
    }

    fn access(&self, host: &Host, typed: &Typed) -> Line {
        if self.readable {
            return Line::new("target", Status::Ok, "access", self.name.clone());
        }
        let owner = self.uid.map_or("another user".to_owned(), |uid| format!("user {uid}"));
        let told = format!("the memory map of {}, which belongs to {owner}, cannot be read", self.name);
        let fix = if host.may(Capability::SysPtrace) {
            // Root may be kept out too: by a security module, or because the process is just ending.
            "see whether it still runs, and what the system's security module (SELinux, AppArmor) forbids".to_owned()
        } else {
            typed.with_sudo()
        };
        Line::new("target", Status::Missing, "access", told).fix(fix)
    }
}

fn library(library: &TargetLibrary) -> Line {
    let path = library.path.display();
    let what = library.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match &library.probes {
        Err(error) => Line::new("target", Status::Degraded, what, format!("its calls stay unseen: {error}")),
        Ok((0, _)) => {
            let told = format!("its calls stay unseen: none of its functions are known in {path}");
            Line::new("target", Status::Degraded, what, told)
        }
        Ok((found, 0)) => Line::new("target", Status::Ok, what, format!("{found} functions to probe in {path}")),
        Ok((found, lacking)) => {
            let told = format!("{found} functions to probe in {path} ({lacking} others are not in this version)");
            Line::new("target", Status::Ok, what, told)
        }
    }
}

/// Packages with rules, installed beside the libraries.
fn packages(libraries: &[Library]) -> Vec<(String, String)> {
    let paths: Vec<PathBuf> = libraries.iter().map(|library| library.path.clone()).collect();
    lifecycle::versions_beside(Rules::standard(), &paths)
}

/// Which lifecycle rules a package's version selects.
fn rules(selection: &Selection<'_>) -> Line {
    let what = format!("{} {}", selection.package, selection.version);
    let (count, left_out) = (selection.selected.len(), selection.left_out.len());
    let told = format!("{count} rules for phases, roles and owners ({left_out} are for other versions)");
    if selection.is_covered {
        return Line::new("target", Status::Ok, what, told);
    }
    let covers = selection.covers.map(|covers| covers.versions.to_string()).unwrap_or_default();
    let told = format!("{told}; they were written for {covers}: phases may stay unattributed");
    let fix = "update vramtrace, or give rules of your own (--rules; see docs/rules.md)";
    Line::new("target", Status::Degraded, what, told).fix(fix)
}

/// As a shell would find it.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return is_program(Path::new(program)).then(|| PathBuf::from(program));
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    let may_run =
        |meta: fs::Metadata| -> io::Result<bool> { Ok(meta.is_file() && meta.permissions().mode() & 0o111 != 0) };
    fs::metadata(path).and_then(may_run).unwrap_or(false)
}

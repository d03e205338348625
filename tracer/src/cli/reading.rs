//! Options of the commands that read a trace.

use std::path::{Path, PathBuf};

use tracer::lifecycle::{Axis, Rules};

/// Options of the commands that read a trace.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reading {
    /// Rules of your own for phase, role and owner, before the built-in ones (docs/rules.md); may be given again
    #[arg(long = "rules", value_name = "FILE")]
    rules: Vec<PathBuf>,
}

impl Reading {
    /// The rules to go by.
    pub(super) fn rules(&self) -> anyhow::Result<Rules> {
        if self.rules.is_empty() { Ok(Rules::standard().clone()) } else { Ok(Rules::with_files(&self.rules)?) }
    }
}

/// Axes as typed, without repeats.
pub(super) fn distinct(typed: &[Axis]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for axis in typed {
        if !axes.contains(axis) {
            axes.push(*axis);
        }
    }
    axes
}

/// What two runs are called: their files, without folders unless these alone tell them apart.
pub(super) fn names(runs: [&Path; 2]) -> [String; 2] {
    let text = |path: &std::ffi::OsStr| path.to_string_lossy().into_owned();
    let files = runs.map(|path| text(path.file_name().unwrap_or(path.as_os_str())));
    if files[0] == files[1] { runs.map(|path| text(path.as_os_str())) } else { files }
}

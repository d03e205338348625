//! `vramtrace check`: what this host, kernel, driver and target allow, what each gap means, and how to close it.

mod judge;
mod preflight;
mod target;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

pub use self::{
    preflight::{Missing, preflight, preflight_on},
    target::{Target, TargetError, TargetLibrary},
};
use super::host::{Host, sudo_finds};
use crate::report::text::plain::plain;

/// How well something is provided for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Tracing works, but slower or with less to show.
    Degraded,
    /// Tracing does not work.
    Missing,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        })
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it belongs to: `kernel`, `rights`, `driver`, `target`.
    pub group: &'static str,
    /// How well it is provided for.
    pub status: Status,
    /// What was looked at.
    pub what: String,
    /// What was found, and what that means.
    pub told: String,
    /// What to type or do about it.
    pub fix: Option<String>,
}

impl Line {
    fn new(group: &'static str, status: Status, what: impl Into<String>, told: impl Into<String>) -> Self {
        Self { group, status, what: what.into(), told: told.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// All findings, in the order in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// One a thing looked at.
    pub lines: Vec<Line>,
}

impl Check {
    /// Judges a host and, when one is named, a target. `typed` is the command line that fixes repeat.
    #[must_use]
    pub fn new(host: &Host, target: Option<&Target>, typed: &Typed) -> Self {
        let mut lines = judge::host(host, typed);
        lines.extend(target.into_iter().flat_map(|target| target.lines(host, typed)));
        Self { lines }
    }

    /// The worst status among the findings.
    #[must_use]
    pub fn worst(&self) -> Status {
        self.lines.iter().map(|line| line.status).max().unwrap_or(Status::Ok)
    }
}

/// Columns of the text, the name's column, and where what was found begins.
const WIDTH: usize = 100;
const NAME: usize = 22;
const TOLD: usize = 12 + NAME + 1;

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut group = "";
        for (n, line) in self.lines.iter().enumerate() {
            if line.group != group {
                group = line.group;
                writeln!(f, "{group}")?;
            }
            // Names and paths of a target may hold anything.
            let told = wrap(&plain(&line.told), WIDTH - TOLD).join(&format!("\n{:TOLD$}", ""));
            writeln!(f, "  {:<9} {:<NAME$} {told}", line.status, plain(&line.what))?;
            // Neighbours with one and the same remedy show it once.
            let next = self.lines.get(n + 1).and_then(|line| line.fix.as_ref());
            if let Some(fix) = line.fix.as_ref().filter(|fix| Some(*fix) != next) {
                writeln!(f, "            fix: {fix}")?;
            }
        }
        f.write_str(match self.worst() {
            Status::Ok => "Everything that tracing needs is here.",
            Status::Degraded => "Tracing works here, with less than it could show: see `degraded`.",
            Status::Missing => "Tracing does not work here yet: see `missing`.",
        })
    }
}

/// Breaks `text` between words into lines of at most `width` characters; a longer word stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().filter(|last| !last.is_empty());
        match last {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) => lines.push(word.to_owned()),
            None => lines = vec![word.to_owned()],
        }
    }
    lines
}

/// The command line that was typed, so that a fix can repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// This program's file.
    pub exe: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<String>,
}

impl Typed {
    /// This process's own.
    #[must_use]
    pub fn here() -> Self {
        let args = std::env::args_os().skip(1).map(|arg: OsString| arg.to_string_lossy().into_owned()).collect();
        Self { exe: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("vramtrace")), args }
    }

    /// The same with root's rights. sudo searches system directories only, so elsewhere the file is named in full.
    #[must_use]
    pub fn with_sudo(&self) -> String {
        let name = if sudo_finds(&self.exe) { self.exe.file_name().map_or(&*self.exe, Path::new) } else { &self.exe };
        let words = std::iter::once(name.to_string_lossy().into_owned()).chain(self.args.iter().cloned());
        words.fold("sudo".to_owned(), |line, word| line + " " + &quote(&word))
    }
}

/// `word` as a shell takes it whole.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;

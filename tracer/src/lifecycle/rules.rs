//! Rules: which evidence tells which phase, role or owner. Data, in TOML (docs/rules.md).

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

use regex::RegexSet;

use super::phase;
use crate::trace::record::{Frame, FrameKind};

mod build;
mod pattern;
mod rule;
mod text;
mod version;

use build::Builder;
pub(super) use pattern::glob;
use pattern::last_part;
pub(super) use rule::{LogRule, Says};
pub use rule::{Role, Rule};
pub use version::{Range, Version};

/// The rules that come with the program, those that go first above.
const BUILT_IN: [(&str, &str); 3] = [
    ("sglang", include_str!("rules/sglang.toml")),
    ("vllm", include_str!("rules/vllm.toml")),
    ("torch", include_str!("rules/torch.toml")),
];

/// Largest rules file read, bytes.
const MAX_FILE: u64 = 1 << 20;

/// A rules file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {}{problem}", .rule.as_ref().map(|name| format!("rule `{name}`: ")).unwrap_or_default())]
pub struct RulesError {
    /// The file.
    pub file: String,
    /// The rule, by name or number.
    pub rule: Option<String>,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

/// Versions of a package that a file's rules were written for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covers {
    /// Python package.
    pub package: String,
    /// Its versions.
    pub versions: Range,
}

/// Rules of one or more files, in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) rules: Vec<Rule>,
    covers: Vec<Covers>,
    /// Phases in the order of a server's life, sub-phases in that of the rules.
    phases: Vec<String>,
    owners: Vec<String>,
    /// Rules on Python functions by name, and those on any function of a file.
    functions: HashMap<String, Vec<u16>>,
    any_function: Vec<u16>,
    /// Rules on native functions; those on a library alone look at the caller of each stack.
    native: Vec<u16>,
    /// Rules on windows alone, for phases.
    pub(super) windows: Vec<u16>,
    /// Rules on owners.
    pub(super) by_owner: Vec<u16>,
    pub(super) titles: Vec<u16>,
    pub(super) commands: Vec<u16>,
    logs: Vec<LogRule>,
    /// Those of `logs` that have a line that ends them.
    ends: Vec<u16>,
    /// Lines of `logs`, then those of `ends`.
    lines: RegexSet,
}

static STANDARD: LazyLock<Rules> = LazyLock::new(standard);

#[expect(clippy::expect_used, reason = "constant rules: a test reads them")]
fn standard() -> Rules {
    Rules::merge(&[]).expect("the standard rules are rules")
}

impl Rules {
    /// The rules that come with the program.
    #[must_use]
    pub fn standard() -> &'static Self {
        &STANDARD
    }

    /// Those of a user's files, then the standard ones.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is no rules file: names file, rule and fix.
    pub fn with_files<P: AsRef<Path>>(paths: &[P]) -> Result<Self, RulesError> {
        let mut texts = Vec::new();
        for path in paths {
            let file = path.as_ref().display().to_string();
            let error = |problem| RulesError { file: file.clone(), rule: None, problem };
            let mut text = String::new();
            let opened = fs::File::open(path).map_err(|e| error(format!("cannot be read: {e}")))?;
            let read = opened.take(MAX_FILE + 1).read_to_string(&mut text);
            read.map_err(|e| error(format!("cannot be read: {e}; rules are UTF-8 text in TOML (docs/rules.md)")))?;
            if text.len() as u64 > MAX_FILE {
                return Err(error(format!("is larger than {MAX_FILE} bytes: give the rules alone")));
            }
            texts.push((file.clone(), text));
        }
        let texts: Vec<_> = texts.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
        Self::merge(&texts)
    }

    /// Rules of `files` (name and text), then the standard ones.
    ///
    /// # Errors
    ///
    /// When one is no rules file.
    pub fn merge(files: &[(&str, &str)]) -> Result<Self, RulesError> {
        let mut builder = Builder::default();
        for (name, text) in files.iter().chain(&BUILT_IN) {
            builder.file(name, text)?;
        }
        builder.finish()
    }

    /// Rules of one file alone: the standard ones take most of the time that it takes to read any.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn alone(text: &str) -> Result<Self, RulesError> {
        let mut builder = Builder::default();
        builder.file("fuzzed", text)?;
        builder.finish()
    }

    /// All rules, in order of precedence.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// What each file was written for.
    #[must_use]
    pub fn covers(&self) -> &[Covers] {
        &self.covers
    }

    /// Phases that rules name, in the order of a server's life.
    #[must_use]
    pub fn phases(&self) -> &[String] {
        &self.phases
    }

    /// Owners that rules name.
    #[must_use]
    pub fn owners(&self) -> &[String] {
        &self.owners
    }

    pub(super) fn rule(&self, number: u16) -> &Rule {
        &self.rules[usize::from(number)]
    }

    /// Phase that a rule tells, by number.
    pub(super) fn phase_of(&self, rule: u16) -> Option<u16> {
        match self.rule(rule).says {
            Says::Phase(phase) => Some(phase),
            _ => None,
        }
    }

    /// What a rule says, in words: `phase weights`.
    #[must_use]
    pub fn says(&self, rule: &Rule) -> String {
        match rule.says {
            Says::Phase(n) => format!("phase {}", self.phases[usize::from(n)]),
            Says::Role(role) => format!("role {}", role.name()),
            Says::Owner(n) => format!("owner {}", self.owners[usize::from(n)]),
        }
    }

    /// Rules one of whose functions `frame` is, in order.
    pub(crate) fn of_frame(&self, frame: &Frame) -> Vec<u16> {
        if frame.kind == FrameKind::Native {
            let fits = |rule: &&u16| {
                let functions = self.rule(**rule).native.iter().filter(|pattern| !pattern.is_any_function());
                functions.into_iter().any(|pattern| pattern.is_native(frame))
            };
            return self.native.iter().filter(fits).copied().collect();
        }
        let by_name = self.functions.get(last_part(&frame.function)).map_or(&[][..], Vec::as_slice);
        let candidates = by_name.iter().chain(&self.any_function);
        let fits = |rule: &&u16| self.rule(**rule).python.iter().any(|pattern| pattern.is_python(frame));
        let mut rules: Vec<u16> = candidates.filter(fits).copied().collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// The rule whose state a line begins, and those whose state it ends.
    pub(super) fn of_line(&self, message: &str) -> (Option<&LogRule>, Vec<u16>) {
        let (mut begins, mut ends) = (None, Vec::new());
        for number in self.lines.matches(message) {
            match self.logs.get(number) {
                Some(log) => begins = begins.or(Some(log)),
                None => ends.extend(self.ends.get(number - self.logs.len())),
            }
        }
        (begins, ends)
    }
}

impl Rules {
    /// Files a rule under what it is looked up by.
    fn index(&mut self, number: u16, rule: &Rule) {
        for pattern in &rule.python {
            match pattern.plain_functions() {
                Some(names) => {
                    for name in names {
                        self.functions.entry(name.to_owned()).or_default().push(number);
                    }
                }
                None => self.any_function.push(number),
            }
        }
        if rule.native.iter().any(|pattern| !pattern.is_any_function()) {
            self.native.push(number);
        }
        match rule.says {
            Says::Phase(_) if rule.is_window() => self.windows.push(number),
            Says::Owner(_) => self.by_owner.push(number),
            _ => {}
        }
        if rule.title.is_some() {
            self.titles.push(number);
        }
        if rule.command.is_some() {
            self.commands.push(number);
        }
    }
}

#[cfg(test)]
mod tests;

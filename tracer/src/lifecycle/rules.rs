//! Rules: which evidence tells which phase, role or owner. Data, in TOML (docs/rules.md).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde::Serialize;

use super::phase;
use crate::ledger::Kind;
use crate::trace::record::{Frame, FrameKind};

mod pattern;
mod text;
mod version;

pub(super) use pattern::glob;
use pattern::{FramePattern, last_part};
use text::{FORMAT, File, RuleText};
pub use version::{Range, Version};

/// The rules that come with the program, those that go first above.
const BUILT_IN: [(&str, &str); 3] = [
    ("sglang", include_str!("rules/sglang.toml")),
    ("vllm", include_str!("rules/vllm.toml")),
    ("torch", include_str!("rules/torch.toml")),
];

/// Largest rules file read, bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most rules in all: their numbers are 16 bits wide.
const MAX_RULES: usize = 4096;
/// Largest compiled regular expression, bytes.
const MAX_REGEX: usize = 1 << 20;

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

/// What a process or a piece of work does in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The model that is served.
    Target,
    /// The draft model of speculative decoding.
    Draft,
    /// A multimodal encoder.
    Encoder,
    /// Tokenizing and preprocessing: no rank.
    Tokenizer,
    /// Anything else.
    Other,
}

impl Role {
    /// All, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Target, Self::Draft, Self::Encoder, Self::Tokenizer, Self::Other];

    /// Name in rules and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Draft => "draft",
            Self::Encoder => "encoder",
            Self::Tokenizer => "tokenizer",
            Self::Other => "other",
        }
    }
}

/// What a rule says. Phases and owners by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Phase(u16),
    Role(Role),
    Owner(u16),
}

/// A rule on a line of a log.
#[derive(Clone, Debug)]
pub(super) struct LogRule {
    /// Number of the rule.
    pub(super) rule: u16,
    /// It has a line that ends it.
    pub(super) ends: bool,
    /// It tells of the process's descendants too.
    pub(super) tree: bool,
    /// It counts only where no other line has told.
    pub(super) weak: bool,
}

/// A rule, ready to be applied.
#[derive(Clone, Debug)]
pub struct Rule {
    /// File it stands in: `sglang`, `vllm`, `torch`, or the user's.
    pub file: String,
    /// Its name there.
    pub name: String,
    /// Python package that `versions` are of.
    pub package: Option<String>,
    /// Versions that have what it looks for; `None`: all.
    pub versions: Option<Range>,
    pub(super) says: Says,
    pub(super) python: Vec<FramePattern>,
    pub(super) native: Vec<FramePattern>,
    pub(super) calls: Vec<String>,
    pub(super) capture: bool,
    pub(super) kinds: Vec<Kind>,
    pub(super) during: Vec<String>,
    pub(super) fallback: bool,
    pub(super) title: Option<Regex>,
    pub(super) command: Option<Regex>,
    is_log: bool,
}

impl Rule {
    /// True when what it asks of calls, captures and kinds is all there is to it.
    pub(super) fn is_window(&self) -> bool {
        self.python.is_empty()
            && self.native.is_empty()
            && self.title.is_none()
            && self.command.is_none()
            && !self.is_log
    }
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
    pub(super) fn of_frame(&self, frame: &Frame) -> Vec<u16> {
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

/// Reads files one after the other.
#[derive(Default)]
struct Builder {
    /// Rules, and the phase each tells.
    rules: Vec<(Rule, Option<String>)>,
    logs: Vec<(LogRule, String, Option<String>)>,
    covers: Vec<Covers>,
    owners: Vec<String>,
}

impl Builder {
    fn file(&mut self, name: &str, text: &str) -> Result<(), RulesError> {
        let error = |rule: Option<String>, problem: String| RulesError { file: name.to_owned(), rule, problem };
        let file: File = toml::from_str(text).map_err(|e| error(None, describe(&e, text)))?;
        if file.format != FORMAT {
            let problem =
                format!("is of format {}, this program reads {FORMAT}: write `format = {FORMAT}`", file.format);
            return Err(error(None, problem));
        }
        if let (Some(package), Some(covers)) = (&file.package, &file.covers) {
            let versions = Range::from_str(covers).map_err(|problem| error(None, format!("`covers`: {problem}")))?;
            self.covers.push(Covers { package: package.clone(), versions });
        }
        let mut names = HashSet::new();
        for (n, rule) in file.rules.iter().enumerate() {
            let shown = if rule.name.is_empty() { format!("number {}", n + 1) } else { rule.name.clone() };
            let fail = |problem| error(Some(shown.clone()), problem);
            if rule.name.is_empty() {
                return Err(fail("has no name: give it a `name` of its own".to_owned()));
            }
            if !names.insert(rule.name.as_str()) {
                return Err(fail("another rule of this file has the same name: give it one of its own".to_owned()));
            }
            if self.rules.len() == MAX_RULES {
                return Err(fail(format!("there are more than {MAX_RULES} rules: take some out")));
            }
            self.rule(name, &file, rule).map_err(fail)?;
        }
        Ok(())
    }

    fn rule(&mut self, file: &str, of: &File, text: &RuleText) -> Result<(), String> {
        text.check()?;
        let versions = text.versions.as_deref().map(Range::from_str).transpose()?;
        if versions.is_some() && of.package.is_none() {
            return Err("`versions` of what? Write `package = \"…\"` at the top of the file".to_owned());
        }
        for phase in text.during.iter().chain(&text.phase) {
            phase::check(phase)?;
        }
        let says = match (&text.role, &text.owner) {
            (Some(role), _) => Says::Role(read_role(role)?),
            (_, Some(owner)) => Says::Owner(self.owner(owner)?),
            // The number is known when all phases are.
            _ => Says::Phase(0),
        };
        let frames = |texts: &[String]| texts.iter().map(|text| FramePattern::new(text)).collect::<Result<_, _>>();
        let read = |text: &Option<String>| text.as_deref().map(regex).transpose();
        let number = self.rules.len() as u16;
        if let Some(begins) = &text.log {
            for line in [Some(begins), text.until.as_ref()].into_iter().flatten() {
                regex(line)?;
            }
            let log = LogRule { rule: number, ends: text.until.is_some(), tree: text.tree, weak: text.weak };
            self.logs.push((log, begins.clone(), text.until.clone()));
        }
        let rule = Rule {
            file: file.to_owned(),
            name: text.name.clone(),
            package: of.package.clone(),
            versions,
            says,
            python: frames(&text.python)?,
            native: frames(&text.native)?,
            calls: text.calls.clone(),
            capture: text.capture,
            kinds: text.kinds.clone(),
            during: text.during.clone(),
            fallback: text.fallback,
            title: read(&text.title)?,
            command: read(&text.command)?,
            is_log: text.log.is_some(),
        };
        self.rules.push((rule, text.phase.clone()));
        Ok(())
    }

    fn owner(&mut self, owner: &str) -> Result<u16, String> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if owner.is_empty() || owner.len() > 64 || !owner.chars().all(fits) {
            return Err(format!("`{owner}` is no owner: write lower-case letters, digits and `_`, like `nccl`"));
        }
        let known = self.owners.iter().position(|known| known == owner);
        Ok(known.unwrap_or_else(|| {
            self.owners.push(owner.to_owned());
            self.owners.len() - 1
        }) as u16)
    }

    fn finish(self) -> Result<Rules, RulesError> {
        let mut rules = Rules { covers: self.covers, owners: self.owners, ..Rules::default() };
        let mut phases: Vec<&String> = Vec::new();
        for phase in self.rules.iter().filter_map(|(_, phase)| phase.as_ref()) {
            if !phases.contains(&phase) {
                phases.push(phase);
            }
        }
        // Stable: sub-phases stay in the order of the rules, behind the whole.
        phases.sort_by_key(|phase| (phase::order(phase), phase.contains('.')));
        rules.phases = phases.into_iter().cloned().collect();
        for (number, (mut rule, phase)) in (0_u16..).zip(self.rules) {
            if let Some(phase) = phase {
                let at = rules.phases.iter().position(|known| *known == phase).unwrap_or_default();
                rule.says = Says::Phase(at as u16);
            }
            rules.index(number, &rule);
            rules.rules.push(rule);
        }
        let (begins, ends): (Vec<_>, Vec<_>) =
            self.logs.iter().map(|(_, begins, ends)| (begins, ends.as_ref())).unzip();
        let lines = RegexSetBuilder::new(begins.into_iter().chain(ends.into_iter().flatten()))
            .size_limit(64 * MAX_REGEX)
            .build();
        let error = |e: regex::Error| RulesError {
            file: "rules".to_owned(),
            rule: None,
            problem: format!("the `log` expressions together are too large ({e}): simplify them"),
        };
        rules.lines = lines.map_err(error)?;
        rules.ends = self.logs.iter().filter(|(log, ..)| log.ends).map(|(log, ..)| log.rule).collect();
        rules.logs = self.logs.into_iter().map(|(log, ..)| log).collect();
        Ok(rules)
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

fn read_role(text: &str) -> Result<Role, String> {
    let names: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
    let role = Role::ALL.into_iter().find(|role| role.name() == text);
    role.ok_or_else(|| format!("`{text}` is no role: write one of {}", names.join(", ")))
}

fn regex(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(MAX_REGEX).build();
    built.map_err(|e| {
        let why = e.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("`{text}` is no regular expression ({why}): see https://docs.rs/regex/#syntax")
    })
}

/// A parser's error on one line.
fn describe(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{line}{}; the format is in docs/rules.md", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests;

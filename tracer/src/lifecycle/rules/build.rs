//! Reading rules files into rules.

use std::collections::HashSet;
use std::str::FromStr as _;

use regex::{Regex, RegexBuilder, RegexSetBuilder};

use super::pattern::FramePattern;
use super::text::{FORMAT, File, RuleText};
use super::version::Range;
use super::{Covers, LogRule, Role, Rule, Rules, RulesError, Says, phase};

/// Most rules in all: their numbers are 16 bits wide.
const MAX_RULES: usize = 4096;
/// Largest compiled regular expression, bytes.
const MAX_REGEX: usize = 1 << 20;

/// Reads files one after the other.
#[derive(Default)]
pub(super) struct Builder {
    /// Rules, and the phase each tells.
    rules: Vec<(Rule, Option<String>)>,
    logs: Vec<(LogRule, String, Option<String>)>,
    covers: Vec<Covers>,
    owners: Vec<String>,
}

impl Builder {
    pub(super) fn file(&mut self, name: &str, text: &str) -> Result<(), RulesError> {
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

    pub(super) fn finish(self) -> Result<Rules, RulesError> {
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

//! The rules file as it is written: TOML, format 1 (docs/rules.md).

use serde::{Deserialize, Serialize};

use crate::ledger::Kind;

/// Version of the format that this program reads.
pub(super) const FORMAT: u32 = 1;

/// A rules file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// [`FORMAT`].
    pub(super) format: u32,
    /// Python package that `versions` are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<String>,
    /// Versions of it that the rules were written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) covers: Option<String>,
    /// The rules, those that go first above.
    #[serde(default, rename = "rule")]
    pub(super) rules: Vec<RuleText>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleText {
    /// Name, unlike any other in the file.
    pub(super) name: String,
    /// Versions of the file's package that have what the rule looks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) versions: Option<String>,
    /// What the rule says: exactly one of these three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// Frames of the stack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) python: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) native: Vec<String>,
    /// Windows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) capture: bool,
    /// What the ledger concluded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kinds: Vec<Kind>,
    /// Regular expressions on what a process is called or writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<String>,
    /// With `log`: the line that ends the state it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// With `log`: the state is that of the process's descendants too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) tree: bool,
    /// With `log`: only where no other line has told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) weak: bool,
    /// Only while the process is in one of these phases, as far as other evidence tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) during: Vec<String>,
    /// Only where nothing else decides.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) fallback: bool,
}

impl RuleText {
    /// Names of the evidence that the rule uses.
    pub(super) fn evidence(&self) -> Vec<&'static str> {
        let used = [
            ("python", !self.python.is_empty()),
            ("native", !self.native.is_empty()),
            ("calls", !self.calls.is_empty()),
            ("capture", self.capture),
            ("kinds", !self.kinds.is_empty()),
            ("title", self.title.is_some()),
            ("command", self.command.is_some()),
            ("log", self.log.is_some()),
        ];
        used.into_iter().filter(|(_, used)| *used).map(|(name, _)| name).collect()
    }

    /// Judges which fields stand together. Gives what is wrong and what to do.
    pub(super) fn check(&self) -> Result<(), String> {
        let says = [&self.phase, &self.role, &self.owner].into_iter().flatten().count();
        if says != 1 {
            return Err("write exactly one of `phase`, `role` and `owner`".to_owned());
        }
        let evidence = self.evidence();
        let within = |allowed: &[&str]| evidence.iter().all(|name| allowed.contains(name));
        let fits = if self.phase.is_some() {
            let one_of = [&["python"][..], &["native"], &["calls", "capture", "kinds"], &["log"]];
            let hint = "evidence of a phase is `python`, or `native`, or `calls`, `capture` and `kinds`, or `log`";
            (one_of.iter().any(|allowed| within(allowed)), hint)
        } else if self.role.is_some() {
            (
                evidence.len() == 1 && within(&["python", "title", "command"]),
                "evidence of a role is one of `python`, `title`, `command`",
            )
        } else {
            let allowed = ["python", "native", "calls", "capture", "kinds"];
            (
                within(&allowed),
                "evidence of an owner is `python`, `native`, `calls`, `capture`, `kinds`, all of which must hold",
            )
        };
        if evidence.is_empty() || !fits.0 {
            let has = if evidence.is_empty() { "none".to_owned() } else { format!("`{}`", evidence.join("`, `")) };
            return Err(format!("{}; this rule has {has}", fits.1));
        }
        let is_log = self.log.is_some();
        if !is_log && (self.until.is_some() || self.tree || self.weak) {
            return Err("`until`, `tree` and `weak` go with `log`: give it, or take them out".to_owned());
        }
        if is_log && (!self.during.is_empty() || self.fallback) {
            return Err("`during` and `fallback` do not go with `log`: take them out".to_owned());
        }
        if self.phase.is_none() && (!self.during.is_empty() || self.fallback) {
            return Err("`during` and `fallback` go with `phase`: take them out".to_owned());
        }
        if self.fallback && self.python.is_empty() && self.native.is_empty() {
            return Err("`fallback` goes with `python` and `native`: take it out".to_owned());
        }
        if self.phase.is_some() && self.native.iter().any(|pattern| !pattern.contains(": ")) {
            return Err("a library alone tells no phase: name functions, like `libx.so*: *Class::method*`".to_owned());
        }
        Ok(())
    }
}

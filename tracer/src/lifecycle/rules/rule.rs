//! A rule, ready to be applied.

use regex::Regex;
use serde::Serialize;

use super::pattern::FramePattern;
use super::version::Range;
use crate::ledger::Kind;

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
pub(in crate::lifecycle) enum Says {
    Phase(u16),
    Role(Role),
    Owner(u16),
}

/// A rule on a line of a log.
#[derive(Clone, Debug)]
pub(in crate::lifecycle) struct LogRule {
    /// Number of the rule.
    pub(in crate::lifecycle) rule: u16,
    /// It has a line that ends it.
    pub(in crate::lifecycle) ends: bool,
    /// It tells of the process's descendants too.
    pub(in crate::lifecycle) tree: bool,
    /// It counts only where no other line has told.
    pub(in crate::lifecycle) weak: bool,
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
    pub(in crate::lifecycle) says: Says,
    pub(in crate::lifecycle) python: Vec<FramePattern>,
    pub(in crate::lifecycle) native: Vec<FramePattern>,
    pub(in crate::lifecycle) calls: Vec<String>,
    pub(in crate::lifecycle) capture: bool,
    pub(in crate::lifecycle) kinds: Vec<Kind>,
    pub(in crate::lifecycle) during: Vec<String>,
    pub(in crate::lifecycle) fallback: bool,
    pub(in crate::lifecycle) title: Option<Regex>,
    pub(in crate::lifecycle) command: Option<Regex>,
    pub(super) is_log: bool,
}

impl Rule {
    /// True when what it asks of calls, captures and kinds is all there is to it.
    pub(in crate::lifecycle) fn is_window(&self) -> bool {
        self.python.is_empty()
            && self.native.is_empty()
            && self.title.is_none()
            && self.command.is_none()
            && !self.is_log
    }
}

//! Losses, notices and how a file ends.

use serde::{Deserialize, Serialize};

use super::Source;

/// Events were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When it was noticed.
    pub t: u64,
    /// Why: `ring_full` (driver requests, closed files, libraries), `ring_full_process`, `ring_full_call`, `ring_full_block`,
    /// `ring_full_stack` (each what found no room; before 1.3 all but stacks are `ring_full`), `missed_return`, `unknown_return`, `too_deep`,
    /// `unreadable_ioctl`, `map_full`, `unreadable_stack`, `malformed`, `unread` (tracing ended in a hurry); the ledger adds
    /// `undecoded_ioctl`, `unsized_allocation` and `impossible_figure`.
    pub why: String,
    /// How many.
    pub count: u64,
    /// When that was last looked at before: they were lost after it. Since 1.3; 0 before.
    #[serde(default, skip_serializing_if = "super::is_zero_u64")]
    pub since: u64,
}

impl Loss {
    /// True when it can cost bytes: a lost driver event always, a lost API call where calls are the ledger.
    #[must_use]
    pub fn costs_bytes(&self, ledger: Source) -> bool {
        let costs_labels_only = matches!(
            self.why.as_str(),
            "unreadable_stack" | "ring_full_stack" | "ring_full_block" | "python_code" | "output" | "unfollowed"
        );
        self.is_event() || (ledger == Source::DriverApi && !costs_labels_only)
    }

    /// True when an event that could carry bytes is gone (a missing stack or label loses none).
    #[must_use]
    pub fn is_event(&self) -> bool {
        matches!(
            self.why.as_str(),
            "ring_full"
                | "ring_full_process"
                | "unread"
                | "unreadable_ioctl"
                | "undecoded_ioctl"
                | "unsized_allocation"
                | "impossible_figure"
        )
    }
}

/// Something is degraded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When.
    pub t: u64,
    /// One sentence: what, why, and what it means for the figures.
    pub text: String,
}

/// Last line of a complete file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// When tracing ended.
    pub t: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Events seen.
    pub events: u64,
}

/// How tracing ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The traced command exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal killed it.
    Killed {
        /// Signal number.
        signal: i32,
    },
    /// It still ran when tracing ended.
    Running {
        /// Why tracing ended: `interrupted`, `terminated`, `until`.
        why: String,
    },
}

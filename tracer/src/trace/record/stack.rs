//! Call stacks and their frames.

use serde::{Deserialize, Serialize};

/// A stack frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Number of this frame.
    pub id: u32,
    /// Function, demangled; empty when unknown.
    pub function: String,
    /// Library or executable path (native), or empty.
    pub module: String,
    /// Offset into `module`'s image (native): shown when `function` is empty.
    pub offset: u64,
    /// Source file, where known.
    pub file: Option<String>,
    /// Source line, where known.
    pub line: Option<u32>,
    /// What kind of frame it is.
    pub kind: FrameKind,
}

/// Kind of a stack frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// Machine code.
    #[default]
    Native,
    /// A Python function.
    Python,
    /// A marker: the unwinder had to stop here (slice too short, no unwind information).
    Cut,
}

/// A call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Number of this stack.
    pub id: u32,
    /// [`Frame`] numbers, outermost (`main`) first.
    pub frames: Vec<u32>,
}

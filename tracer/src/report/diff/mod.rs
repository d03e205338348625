//! Two runs compared: configuration, signed bytes by rank and phase, stacks.

mod model;

pub use model::{
    CellChange, Change, Compared, Diff, Finding, PhaseChange, RankChange, RunFacts, SCHEMA, Setting, Source,
    StackChange, canonical,
};

use crate::lifecycle::Axes;

/// A run to compare: what its file is called, and its memory with the rules to go by.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a, 'b> {
    /// Name of its trace file, for people.
    pub name: &'a str,
    /// Its book and rules. Both runs must be read by the same rules.
    pub axes: &'a Axes<'b>,
}

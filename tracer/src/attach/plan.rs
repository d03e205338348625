//! Which probes go where in a library.

use std::collections::BTreeMap;

use super::elf::{ElfFile, Error, Refusal};
use crate::probe::{self, Probe};

/// One place to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Probe id: index into [`probe::table`].
    pub probe: u32,
    /// File offset of the instruction.
    pub offset: u64,
}

/// Where the probes of a library go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Places, by offset, each offset once.
    pub points: Vec<Point>,
    /// Symbols of the table that the library does not define.
    pub missing: Vec<&'static str>,
    /// Names of one function: `(name left out, name probed)`. One address gets one probe, or every call would count
    /// twice; the row that comes first in the table names it (the newest ABI, the plain form before `_ptsz`).
    pub aliases: Vec<(&'static str, &'static str)>,
    /// Symbols that are there but cannot be probed.
    pub refused: Vec<(&'static str, Refusal)>,
}

impl Plan {
    /// Resolves `probes` (ids with their rows, as [`probe::of`] gives them) in a file.
    ///
    /// # Errors
    /// When the file's symbol tables are damaged or cannot be read.
    pub fn new(file: &ElfFile, probes: impl Iterator<Item = (u32, &'static Probe)>) -> Result<Self, Error> {
        let mut ids: BTreeMap<&'static str, u32> = probes.map(|(id, probe)| (probe.symbol, id)).collect();
        let definitions = file.resolve(ids.keys().copied())?;
        let mut plan = Self::default();
        let mut by_offset: BTreeMap<u64, Vec<(u32, &'static str)>> = BTreeMap::new();
        for definition in definitions {
            match definition.offset {
                Ok(offset) => by_offset.entry(offset).or_default().push((ids[definition.name], definition.name)),
                Err(refusal) => plan.refused.push((definition.name, refusal)),
            }
        }
        for (offset, mut names) in by_offset {
            names.sort_unstable();
            let (probe, kept) = names[0];
            plan.points.push(Point { probe, offset });
            plan.aliases.extend(names[1..].iter().map(|(_, name)| (*name, kept)));
            names.iter().for_each(|(_, name)| _ = ids.remove(name));
        }
        plan.refused.iter().for_each(|(name, _)| _ = ids.remove(name));
        plan.missing = ids.into_keys().collect();
        Ok(plan)
    }

    /// Resolves every row of the table, for a file that may hold several libraries: a program with a static runtime.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of_everything(file: &ElfFile) -> Result<Self, Error> {
        Self::new(file, (0..).zip(probe::table()))
    }
}

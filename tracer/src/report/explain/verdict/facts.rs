//! What judges look at: the live memory of a run by all that tells a cause.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ledger::{Book, Kind};
use crate::lifecycle::{Axes, Axis, RankEvidence, root};
use crate::report::errors::{self, ProcessError};
use crate::report::explain::kv_budget::{self, KvBudget};
use crate::report::query::Moments;

/// Memory of one process on one GPU that is alike in all other respects.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) process: usize,
    pub(super) gpu: usize,
    /// With its sub-phase.
    pub(super) phase: String,
    pub(super) kind: Kind,
    pub(super) owner: String,
    pub(super) role: String,
    /// On a GPU that is not the process's own: see [`Facts::strays`].
    pub(super) is_stray: bool,
    pub(super) bytes: u64,
}

impl Held {
    /// Phase without its sub-phase.
    pub(super) fn root(&self) -> &str {
        root(&self.phase)
    }

    /// Taken by NCCL, or by the driver for it: code of its kernels, channels.
    pub(super) fn is_nccl(&self) -> bool {
        self.owner == "nccl" || self.phase.ends_with(".nccl")
    }

    /// NCCL's memory of a communicator that was made once the server ran.
    pub(super) fn is_late_nccl(&self) -> bool {
        self.owner == "nccl" && matches!(self.root(), "warmup" | "serving")
    }
}

/// A run at the moments looked at.
pub struct Facts<'a, 'b> {
    /// Name of its trace, for sentences about two runs.
    pub(super) name: &'a str,
    pub(super) axes: &'a Axes<'b>,
    pub(super) moments: &'a Moments,
    pub(super) held: Vec<Held>,
    pub(super) budgets: Vec<KvBudget>,
    pub(super) errors: Vec<ProcessError>,
}

impl<'a, 'b> Facts<'a, 'b> {
    /// Gathers them.
    #[must_use]
    pub fn new(name: &'a str, axes: &'a Axes<'b>, moments: &'a Moments) -> Self {
        let (budgets, errors) = (kv_budget::kv_budgets(axes), errors::errors(axes));
        Self::with(name, axes, moments, budgets, errors)
    }

    /// The same, with what was worked out before.
    pub(in crate::report) fn with(
        name: &'a str,
        axes: &'a Axes<'b>,
        moments: &'a Moments,
        budgets: Vec<KvBudget>,
        errors: Vec<ProcessError>,
    ) -> Self {
        let mut facts = Self { name, axes, moments, held: held(axes, moments), budgets, errors };
        let strays = facts.strays();
        for held in &mut facts.held {
            held.is_stray = strays.contains(&(held.process, held.gpu));
        }
        facts
    }

    pub(super) fn book(&self) -> &Book {
        self.axes.book()
    }

    /// True for a rank of a server or a distributed program.
    pub(super) fn is_rank(&self, process: usize) -> bool {
        self.axes.ranks()[process].evidence != RankEvidence::None
    }

    /// Bytes of each process on each GPU.
    pub(super) fn by_place(&self) -> BTreeMap<(usize, usize), u64> {
        let mut places: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for held in &self.held {
            *places.entry((held.process, held.gpu)).or_default() += held.bytes;
        }
        places
    }

    /// The GPU on which each process holds most, where one is.
    pub(super) fn homes(&self) -> BTreeMap<usize, usize> {
        let mut homes: BTreeMap<usize, (u64, Option<usize>)> = BTreeMap::new();
        for ((process, gpu), bytes) in self.by_place() {
            let (most, home) = homes.entry(process).or_insert((0, None));
            match bytes.cmp(most) {
                std::cmp::Ordering::Greater => (*most, *home) = (bytes, Some(gpu)),
                std::cmp::Ordering::Equal => *home = None,
                std::cmp::Ordering::Less => {}
            }
        }
        homes.into_iter().filter_map(|(process, (_, home))| Some((process, home?))).collect()
    }

    /// Places (process and GPU) where a process has a context beside its own GPU: a rank's on the GPU of another or with
    /// little else there, and one of a process that is no rank on a GPU of ranks.
    pub(super) fn strays(&self) -> BTreeSet<(usize, usize)> {
        let homes = self.homes();
        let of_ranks: BTreeSet<usize> =
            homes.iter().filter(|(process, _)| self.is_rank(**process)).map(|(_, gpu)| *gpu).collect();
        let places = self.by_place();
        let contexts = self.held.iter().filter(|held| held.kind == Kind::Context).map(|held| (held.process, held.gpu));
        let is_stray = |&(process, gpu): &(usize, usize)| match homes.get(&process) {
            Some(home) if *home != gpu => {
                let is_others = homes.iter().any(|(other, theirs)| *other != process && *theirs == gpu);
                is_others || places[&(process, gpu)] < places[&(process, *home)] / 4
            }
            // A tie tells no home.
            None => of_ranks.contains(&gpu),
            Some(_) => !self.is_rank(process) && of_ranks.contains(&gpu),
        };
        contexts.filter(is_stray).collect()
    }

    /// Ranks' labels, in order.
    pub(super) fn ranks(&self) -> Vec<String> {
        let ranks = self.axes.order().iter().filter(|process| self.is_rank(**process));
        ranks.map(|process| self.axes.rank(*process).to_owned()).collect()
    }
}

/// Axes that tell a cause.
const AXES: [Axis; 3] = [Axis::Phase, Axis::Owner, Axis::Role];

/// Process, GPU, kind, and cells of [`AXES`].
type Key = (usize, usize, Kind, [u32; 3]);

fn held(axes: &Axes<'_>, moments: &Moments) -> Vec<Held> {
    let mut sums: HashMap<Key, u64> = HashMap::new();
    let live = axes.sums(|row| moments.is_live(row));
    for (row, (bytes, _)) in axes.firsts().zip(live).filter(|(_, (_, count))| *count > 0) {
        let cells = AXES.map(|axis| axes.cell(axis, row));
        let sum = sums.entry((row.process, row.gpu, row.kind, cells)).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let mut sums: Vec<(Key, u64)> = sums.into_iter().collect();
    sums.sort_unstable();
    let held = |((process, gpu, kind, cells), bytes): (Key, u64)| {
        let [phase, owner, role] = [0, 1, 2].map(|n| axes.label(AXES[n], cells[n]).into_owned());
        Held { process, gpu, phase, kind, owner, role, is_stray: false, bytes }
    };
    sums.into_iter().map(held).collect()
}

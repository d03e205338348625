//! Which process of one run is which of the other.

use std::collections::{BTreeSet, HashMap};

use super::Run;
use crate::lifecycle::{Axes, RankEvidence, Role};
use crate::map::Map;

/// A rank or another process, in either run or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What it is matched by.
    pub(super) label: String,
    pub(super) is_rank: bool,
    /// Its process in BASE and in OTHER.
    pub(super) processes: [Option<usize>; 2],
}

/// Places of all processes that hold memory in either run.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Ranks first, in the order of reports.
    pub(super) places: Vec<Place>,
    /// Place of each process of BASE and of OTHER.
    of: [HashMap<usize, usize>; 2],
}

impl Pairs {
    pub(super) fn new(runs: [&Run<'_, '_>; 2]) -> Self {
        let [base, other] = runs.map(members);
        let mut places: Vec<Place> = Vec::new();
        let mut known: Map<String, usize> = Map::default();
        for (side, members) in [base, other].into_iter().enumerate() {
            for member in members {
                let free = known.get(&member.label).filter(|at| places[**at].processes[side].is_none());
                let at = free.copied().unwrap_or(places.len());
                if at == places.len() {
                    known.insert(member.label.clone(), at);
                    places.push(Place { label: member.label, is_rank: false, processes: [None; 2] });
                }
                places[at].processes[side] = Some(member.process);
                places[at].is_rank |= member.is_rank;
            }
        }
        match_rest(runs, &mut places);
        places.sort_by_key(|place| !place.is_rank);
        let of = [0, 1].map(|side| {
            let pair = |(at, place): (usize, &Place)| Some((place.processes[side]?, at));
            places.iter().enumerate().filter_map(pair).collect()
        });
        Self { places, of }
    }

    /// Place of a process of BASE (`side` 0) or OTHER (1).
    pub(super) fn of(&self, side: usize, process: usize) -> Option<usize> {
        self.of[side].get(&process).copied()
    }
}

struct Member {
    label: String,
    is_rank: bool,
    process: usize,
}

/// Processes of a run that hold or map memory, in the order of reports, each with a label of its own that no pid is in.
fn members(run: &Run<'_, '_>) -> Vec<Member> {
    let holding = holding(run.axes);
    let mut same: HashMap<String, usize> = HashMap::new();
    let member = |process: &usize| {
        let is_rank = run.axes.ranks()[*process].evidence != RankEvidence::None;
        let name = name(run, *process, is_rank);
        let nth = same.entry(name.clone()).and_modify(|n| *n += 1).or_insert(1);
        let label = if *nth > 1 { format!("{name} #{nth}") } else { name };
        Member { label, is_rank, process: *process }
    };
    run.axes.order().iter().filter(|process| holding.contains(process)).map(member).collect()
}

/// Processes that hold or map memory at some time.
pub(super) fn holding(axes: &Axes<'_>) -> BTreeSet<usize> {
    let book = axes.book();
    axes.firsts().chain(&book.host).chain(&book.imports).map(|row| row.process).collect()
}

/// A process's label without its pid.
fn name(run: &Run<'_, '_>, process: usize, is_rank: bool) -> String {
    let label = run.axes.rank(process);
    let pid = run.axes.book().processes[process].pid.to_string();
    // `TP0 (4101)` where two processes are TP0, `tokenizer 1203`, `490 python3 train.py`, `490#2 python3`.
    let bare = if is_rank {
        label.rsplit_once(" (").filter(|(_, end)| end.starts_with(&pid)).map_or(label, |(bare, _)| bare)
    } else if run.axes.role(process) == Role::Other {
        label.split_once(' ').map_or("process", |(_, title)| title)
    } else {
        run.axes.role(process).name()
    };
    bare.to_owned()
}

/// Pairs what no label pairs: two processes of one role that are alone with it on their GPU, then, alone in their run. A
/// process that died before it gave itself its title is found so, and a script that was renamed.
fn match_rest(runs: [&Run<'_, '_>; 2], places: &mut Vec<Place>) {
    let gpus = runs.map(|run| gpus(run.axes));
    let on_gpu = |side: usize, process: usize| {
        let used = gpus[side].get(&process)?;
        (used.len() == 1).then(|| used.first().cloned().unwrap_or_default())
    };
    let role = |side: usize, process: usize| runs[side].axes.role(process);
    join(places, |side, process| Some((role(side, process), on_gpu(side, process)?)));
    join(places, |side, process| Some((role(side, process), String::new())));
}

/// Labels of the GPUs that each process has memory on.
fn gpus(axes: &Axes<'_>) -> HashMap<usize, BTreeSet<String>> {
    let pairs: BTreeSet<(usize, usize)> = axes.firsts().map(|row| (row.process, row.gpu)).collect();
    let mut gpus: HashMap<usize, BTreeSet<String>> = HashMap::new();
    for (process, gpu) in pairs {
        let label = axes.book().gpus.get(gpu).map(crate::lifecycle::gpu_label).unwrap_or_default();
        gpus.entry(process).or_default().insert(label);
    }
    gpus
}

/// Joins places of one side each whose processes have the same key, which no other such place of their side has.
fn join(places: &mut Vec<Place>, key: impl Fn(usize, usize) -> Option<(Role, String)>) {
    let single = |place: &Place| match place.processes {
        [Some(process), None] => key(0, process).map(|key| (0, key)),
        [None, Some(process)] => key(1, process).map(|key| (1, key)),
        _ => None,
    };
    let keys: Vec<Option<(usize, (Role, String))>> = places.iter().map(single).collect();
    let mut with: Map<&(usize, (Role, String)), Vec<usize>> = Map::default();
    keys.iter().enumerate().for_each(|(at, key)| key.iter().for_each(|key| with.entry(key).or_default().push(at)));
    let mut gone = BTreeSet::new();
    for (at, key) in keys.iter().enumerate() {
        let Some((0, wanted)) = key else { continue };
        let same = [0, 1].map(|side| with.get(&(side, wanted.clone())).map_or(&[][..], Vec::as_slice));
        if let [&[_], &[second]] = same {
            let (process, label, is_rank) = {
                let second = &places[second];
                (second.processes[1], second.label.clone(), second.is_rank)
            };
            let place = &mut places[at];
            place.processes[1] = process;
            place.label = match (place.is_rank, is_rank) {
                (true, false) => place.label.clone(),
                (false, true) => label,
                _ => format!("{} → {label}", place.label),
            };
            place.is_rank |= is_rank;
            gone.insert(second);
        }
    }
    let mut at = 0..;
    places.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));
}

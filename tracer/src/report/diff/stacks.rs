//! Call stacks whose bytes changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::model::StackChange;
use super::stack_key::StackKeys;
use super::sums::{Both, Held};
use crate::lifecycle::{Axes, Axis};
use crate::report::frames;

/// Frames kept of each.
const FRAMES: usize = 12;
/// What tells stacks apart beside their frames, and whose process it is.
const BY: [Axis; 6] = [Axis::Phase, Axis::Owner, Axis::Kind, Axis::Api, Axis::Stack, Axis::Process];

/// Labels of phase, owner, kind and call, and the frames.
type Key = ([Rc<str>; 4], Rc<str>);

#[derive(Default)]
struct Group {
    held: Held,
    by_place: BTreeMap<Option<usize>, Held>,
    /// A stack of it in each run.
    stacks: [Option<u32>; 2],
}

/// Stacks of both runs whose bytes differ, the largest change first.
pub(super) fn stacks(both: &Both<'_, '_, '_>, keys: &mut [StackKeys<'_>; 2]) -> Vec<StackChange> {
    let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
    for side in [0, 1] {
        let axes = both.runs[side].axes;
        let mut labels: HashMap<(usize, u32), Rc<str>> = HashMap::new();
        for (cells, (bytes, count)) in both.numbers(side, &BY) {
            let label = |n: usize| -> Rc<str> {
                labels.entry((n, cells[n])).or_insert_with(|| axes.label(BY[n], cells[n]).into()).clone()
            };
            let stack = Axes::stack_of(cells[4]);
            let group = groups.entry(([0, 1, 2, 3].map(label), keys[side].key(stack))).or_default();
            group.held.add(side, bytes, count);
            let place = both.pairs.of(side, cells[5] as usize);
            group.by_place.entry(place).or_default().add(side, bytes, count);
            // The lowest of several, so that equal traces give equal reports.
            group.stacks[side] = group.stacks[side].into_iter().chain(stack).min();
        }
    }
    let mut changes: Vec<StackChange> = groups
        .into_iter()
        .filter(|(_, group)| group.held.change().delta_bytes != 0)
        .map(|(key, group)| change(both, key, &group))
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.bytes.delta_bytes.unsigned_abs()));
    changes
}

fn change(both: &Both<'_, '_, '_>, ([phase, owner, kind, api], _): Key, group: &Group) -> StackChange {
    let bytes = group.held.change();
    let changed = group.by_place.iter().filter(|(_, held)| held.change().delta_bytes != 0);
    let ranks: BTreeSet<usize> = changed.filter_map(|(place, _)| *place).collect();
    let shown = [1, 0].into_iter().find_map(|side| Some((side, group.stacks[side]?)));
    StackChange {
        change: match (bytes.base_bytes, bytes.other_bytes) {
            (0, _) => "appeared",
            (_, 0) => "vanished",
            (base, other) if other > base => "grew",
            _ => "shrank",
        },
        phase: phase.to_string(),
        owner: owner.to_string(),
        kind: kind.to_string(),
        api: api.to_string(),
        bytes,
        base_count: group.held.count[0],
        other_count: group.held.count[1],
        ranks: ranks.into_iter().map(|place| both.pairs.places[place].label.clone()).collect(),
        frames: shown
            .map(|(side, stack)| frames::who_asked(both.runs[side].axes.book(), stack))
            .map(|asked| asked.into_iter().take(FRAMES).map(frames::describe).collect())
            .unwrap_or_default(),
    }
}

//! Ranks that are shown together.

use crate::report::diff::{Diff, RankChange};

/// Ranks that are in the same runs, or one other process.
#[derive(Debug)]
pub(super) struct Group {
    /// `TP0…TP7`, `python3 train.py`.
    pub(super) label: String,
    /// Positions in [`Diff::ranks`].
    pub(super) members: Vec<usize>,
}

/// All ranks of both runs, those of BASE alone, those of OTHER alone, then each other process.
pub(super) fn groups(diff: &Diff) -> Vec<Group> {
    let presence = |rank: &RankChange| (rank.base_pid.is_some(), rank.other_pid.is_some());
    let all = || diff.ranks.iter().enumerate();
    let mut groups = Vec::new();
    for (runs, note) in [((true, true), ""), ((true, false), " (BASE only)"), ((false, true), " (OTHER only)")] {
        let members: Vec<usize> =
            all().filter(|(_, rank)| rank.is_rank && presence(rank) == runs).map(|(n, _)| n).collect();
        if !members.is_empty() {
            let names: Vec<&str> = members.iter().map(|n| diff.ranks[*n].rank.as_str()).collect();
            groups.push(Group { label: span(&names) + note, members });
        }
    }
    let single = |(n, rank): (usize, &RankChange)| {
        let note = match presence(rank) {
            (true, false) => " (BASE only)",
            (false, true) => " (OTHER only)",
            _ => "",
        };
        (!rank.is_rank).then(|| Group { label: format!("{}{note}", rank.rank), members: vec![n] })
    };
    groups.extend(all().filter_map(single));
    groups
}

/// `TP0`, `TP0, TP1`, `TP0…TP7`.
pub(super) fn span(names: &[&str]) -> String {
    match names {
        [first, .., last] if names.len() > 2 => format!("{first}…{last}"),
        names => names.join(", "),
    }
}

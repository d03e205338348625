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
            groups.push(Group { label: span(diff, &members) + note, members });
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

/// Names of some of the ranks and other processes, by their positions in order: `TP0, TP1`, `TP0…TP7`, `5 ranks, tokenizer`.
pub(super) fn span(diff: &Diff, members: &[usize]) -> String {
    let name = |n: &usize| diff.ranks[*n].rank.as_str();
    let (ranks, others): (Vec<usize>, Vec<usize>) = members.iter().partition(|n| diff.ranks[**n].is_rank);
    let are_adjacent = ranks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let mut parts: Vec<String> = match &ranks[..] {
        [first, _, .., last] if are_adjacent && ranks.len() > 2 => vec![format!("{}…{}", name(first), name(last))],
        [_, _, _, _, ..] => vec![format!("{} ranks", ranks.len())],
        few => few.iter().map(|n| name(n).to_owned()).collect(),
    };
    match &others[..] {
        [_, _, _, ..] => parts.push(format!("{} processes", others.len())),
        few => parts.extend(few.iter().map(|n| name(n).to_owned())),
    }
    parts.join(", ")
}

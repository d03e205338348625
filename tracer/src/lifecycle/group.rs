//! NCCL communicators across processes.

use std::collections::HashMap;

use serde::Serialize;

use super::rank::Rank;
use crate::ledger::Book;

/// A communicator: the processes that gave the same unique id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// First eight bytes of the unique id, hexadecimal.
    pub id: String,
    /// Size that its members were told.
    pub size: u32,
    /// Members seen: rank in the communicator, and rank label of the process.
    pub members: Vec<(u32, String)>,
    /// Members that the trace does not show.
    pub missing: u32,
}

/// Members of a communicator: rank in it, and process.
type Members = Vec<(u32, usize)>;

/// Communicators across processes, in order of the first member's.
pub(super) fn groups(book: &Book, ranks: &[Rank]) -> Vec<Group> {
    let mut numbers: HashMap<(u64, u32), usize> = HashMap::new();
    let mut groups: Vec<(u64, u32, Members)> = Vec::new();
    for made in book.communicators.iter().filter(|made| made.result == 0) {
        let (Some(id), Some(size), Some(rank)) = (made.id, made.size, made.rank) else { continue };
        let number = *numbers.entry((id, size)).or_insert_with(|| {
            groups.push((id, size, Vec::new()));
            groups.len() - 1
        });
        let members = &mut groups[number].2;
        if !members.contains(&(rank, made.process)) {
            members.push((rank, made.process));
        }
    }
    let group = |(id, size, mut members): (u64, u32, Members)| {
        members.sort_unstable();
        let missing = size.saturating_sub(u32::try_from(members.len()).unwrap_or(u32::MAX));
        let members = members.into_iter().map(|(rank, process)| (rank, ranks[process].label.clone())).collect();
        Group { id: format!("{id:016x}"), size, members, missing }
    };
    groups.into_iter().map(group).collect()
}

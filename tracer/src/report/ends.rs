//! When each process is looked at, at the end: what a server's ranks held while it lived, not what they left each other.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::ledger::{Book, Kind};

/// Processes that begin to die within this time of each other are taken to end together, nanoseconds: a server's main
/// process kills the others once it has seen one fail.
const TOGETHER: u64 = 30_000_000_000;

/// The last moment of each process: before it begins to exit; before the first of the ranks it shares a communicator with
/// does; before it inherits what another left at its death.
pub(super) fn ends(book: &Book) -> Vec<u64> {
    let mut deaths: Vec<Option<u64>> = book.processes.iter().map(|process| process.died).collect();
    for members in communicators(book).values() {
        let mut died: Vec<u64> = members.iter().filter_map(|&process| book.processes[process].died).collect();
        died.sort_unstable();
        for &process in members {
            let Some(own) = book.processes[process].died else { continue };
            let first = died.iter().find(|first| first.saturating_add(TOGETHER) >= own);
            deaths[process] = deaths[process].min(first.copied());
        }
    }
    let moments: HashSet<u64> = book.processes.iter().filter_map(|process| process.died).collect();
    for row in book.allocations.iter().filter(|row| row.kind == Kind::IpcImport && moments.contains(&row.born)) {
        if book.processes[row.process]
            .died
            .is_some_and(|own| (row.born..=row.born.saturating_add(TOGETHER)).contains(&own))
        {
            deaths[row.process] = deaths[row.process].min(Some(row.born));
        }
    }
    deaths.into_iter().map(|died| died.map_or(book.end, |died| died.saturating_sub(1))).collect()
}

/// Members of each communicator, by its id.
fn communicators(book: &Book) -> BTreeMap<u64, BTreeSet<usize>> {
    let mut members: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for made in book.communicators.iter().filter(|made| made.result == 0) {
        if let Some(id) = made.id {
            members.entry(id).or_default().insert(made.process);
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Axes;
    use crate::report::query::{At, Moments};
    use crate::report::testbook::TestBook;

    fn live(book: &Book) -> u64 {
        let moments = Moments::new(&Axes::new(book), At::End).unwrap();
        book.allocations.iter().filter(|row| moments.is_live(row)).map(|row| row.bytes).sum()
    }

    #[test]
    fn ranks_of_a_communicator_end_together() {
        let mut t = TestBook::new();
        let (first, second, other, gpu) = (t.process(1, "a"), t.process(2, "b"), t.process(3, "c"), t.gpu(0));
        for process in [first, second] {
            t.join(process, 77);
        }
        t.allocate(first, gpu, 100);
        t.allocate(second, gpu, 70);
        t.exit(first, None);
        // It takes over what the first one had shared with it.
        t.allocate(second, gpu, 7);
        t.allocate(other, gpu, 3);
        t.exit(second, None);
        t.exit(other, None);
        assert_eq!(live(&t.book), 173);
        // One that lives on for long ends for itself.
        t.book.processes[second].died = t.book.processes[second].died.map(|t| t + 2 * TOGETHER);
        for row in t.book.allocations.iter_mut().filter(|row| row.process == second) {
            row.died = None;
        }
        assert_eq!(live(&t.book), 180);
    }

    /// Two ranks map a buffer of each other's and are killed a moment apart: the second one inherits the first one's.
    #[test]
    fn what_the_first_to_be_killed_leaves_is_not_the_others_end() {
        for (apart, held) in [(1_000_000, 170), (31_000_000_000, 170 + 30)] {
            let mut t = TestBook::new();
            let (first, second, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
            t.allocate(first, gpu, 100);
            t.allocate(second, gpu, 70);
            t.at(1000).exit(first, None);
            t.at(1000).allocate_kind(second, gpu, 30, Kind::IpcImport);
            t.at(1000 + apart).exit(second, None);
            assert_eq!(live(&t.book), held);
        }
    }
}

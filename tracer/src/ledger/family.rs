//! Which process started which.

use super::{Book, ProcessInfo};
use crate::map::Map;

/// Length of a line of ancestors at most; what lies beyond is a damaged trace.
const LINE: usize = 16;

/// The parents of all processes of a book.
#[derive(Clone, Debug)]
pub struct Family(Vec<Option<usize>>);

impl Family {
    /// Of a book's processes. A parent is on the same host.
    #[must_use]
    pub fn of(book: &Book) -> Self {
        let mut lives: Map<(usize, u32), Vec<usize>> = Map::default();
        for (number, process) in book.processes.iter().enumerate() {
            lives.entry((book.host_of(number), process.pid)).or_default().push(number);
        }
        let parent = |(number, child): (usize, &ProcessInfo)| {
            let lives = lives.get(&(book.host_of(number), child.parent?))?;
            // A pid may have had earlier lives, over before the child began.
            let is_over = |&life: &usize| book.processes[life].died.is_some_and(|died| died < child.born);
            lives.get(lives.partition_point(is_over)).copied()
        };
        Self(book.processes.iter().enumerate().map(parent).collect())
    }

    /// A process, its parent, and so on: indices into [`Book::processes`].
    #[must_use]
    pub fn line(&self, process: usize) -> Vec<usize> {
        let mut line = vec![process];
        while let Some(parent) = line.last().and_then(|&child| *self.0.get(child)?) {
            if line.len() == LINE || line.contains(&parent) {
                break;
            }
            line.push(parent);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::model::Host;

    fn book(processes: &[(u32, u32, u64, Option<u64>)]) -> Book {
        let process = |&(pid, parent, born, died)| ProcessInfo {
            pid,
            parent: Some(parent),
            born,
            died,
            ..ProcessInfo::default()
        };
        Book { processes: processes.iter().map(process).collect(), ..Book::default() }
    }

    #[test]
    fn a_parent_lived_when_its_child_began() {
        let book = book(&[(1, 0, 0, None), (2, 1, 5, Some(10)), (2, 1, 20, None), (3, 2, 8, None), (4, 2, 25, None)]);
        let family = Family::of(&book);
        assert_eq!([3, 4, 0, 9].map(|n| family.line(n)), [vec![3, 1, 0], vec![4, 2, 0], vec![0], vec![9]]);
    }

    #[test]
    fn circles_and_endless_lines_end() {
        let circle = Family::of(&book(&[(1, 2, 0, None), (2, 1, 0, None), (3, 3, 0, None)]));
        assert_eq!([circle.line(0), circle.line(2)], [vec![0, 1], vec![2]]);
        let line: Vec<_> = (0..50_u32).map(|pid| (pid, pid.saturating_sub(1), 0, None)).collect();
        assert_eq!(Family::of(&book(&line)).line(40).len(), LINE);
    }

    #[test]
    fn a_number_on_another_host_is_another_process() {
        let mut book = book(&[(1, 0, 0, None), (1, 0, 0, None), (2, 1, 5, None)]);
        let host = |name: &str, processes| Host { name: name.into(), processes, gpus: 0..0 };
        book.hosts = vec![host("one", 0..1), host("two", 1..3)];
        assert_eq!(Family::of(&book).line(2), [2, 1]);
    }
}

//! Which ranks make up one server, and the arguments it runs with.

use std::collections::BTreeMap;

use super::figure::Found;
use super::lines::Said;
use crate::ledger::Book;
use crate::lifecycle::{Axes, logs};

/// Ancestors asked; what lies beyond is a damaged trace.
const ANCESTORS: usize = 16;

/// The process and its ancestors, nearest first.
pub(in crate::report) fn ancestry(book: &Book, process: usize) -> Vec<usize> {
    let mut line = vec![process];
    while line.len() < ANCESTORS {
        let Some(child) = book.processes.get(line[line.len() - 1]) else { break };
        // A pid may have had an earlier life, over before the child began.
        let is_parent = |candidate: &crate::ledger::ProcessInfo| {
            Some(candidate.pid) == child.parent && candidate.died.is_none_or(|died| died >= child.born)
        };
        match book.processes.iter().position(is_parent) {
            Some(parent) if !line.contains(&parent) => line.push(parent),
            _ => break,
        }
    }
    line
}

/// What a rank was started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// The process that printed them, if one did.
    pub(super) root: Option<usize>,
    printed: BTreeMap<String, String>,
    commands: Vec<Vec<String>>,
}

impl Arguments {
    /// Those of a rank: what it or the nearest ancestor printed, and the command lines of all.
    pub(super) fn of(book: &Book, lines: &[Vec<Said<'_>>], process: usize) -> Self {
        let line = ancestry(book, process);
        let printed = line.iter().find_map(|&n| {
            let mut arguments = lines[n].iter().filter_map(|said| logs::arguments(said.message));
            let mut all = arguments.next()?;
            // vLLM prints several lines: what one leaves out another may have.
            for (name, value) in arguments.flatten() {
                all.entry(name).or_insert(value);
            }
            Some((n, all))
        });
        let commands = line.iter().map(|&n| book.processes[n].command.clone()).collect();
        let root = printed.as_ref().map(|(root, _)| *root);
        Self { root, printed: printed.map(|(_, arguments)| arguments).unwrap_or_default(), commands }
    }

    /// Value of an argument by its Python name: as printed (defaults worked out), else as given on the command line.
    pub(super) fn get(&self, name: &str) -> Option<(&str, Found)> {
        let printed = self.printed.get(name).map(|value| (value.as_str(), Found::Printed));
        let flag = format!("--{}", name.replace('_', "-"));
        let given = || self.commands.iter().find_map(|command| of_flag(command, &flag));
        printed.filter(|(value, _)| *value != "None").or_else(|| Some((given()?, Found::CommandLine)))
    }

    /// The same as a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.0.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// True when it is switched on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.printed.get(name).is_some_and(|value| value == "True")
    }
}

/// Value behind a flag: `--flag value` or `--flag=value`.
fn of_flag<'c>(command: &'c [String], flag: &str) -> Option<&'c str> {
    command.iter().enumerate().find_map(|(n, word)| match word.strip_prefix(flag)? {
        "" => command.get(n + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

/// Which ranks take the least of their readings together: those of one server, and of one replica where replicas do not share
/// a process group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Team {
    root: Option<usize>,
    replica: Option<u32>,
}

impl Team {
    pub(super) fn of(axes: &Axes<'_>, arguments: &Arguments, process: usize) -> Self {
        let coordinates = &axes.ranks()[process].coordinates;
        let replica = coordinates.iter().find(|(dimension, _)| dimension == "DP").map(|(_, n)| *n);
        Self { root: arguments.root, replica: replica.filter(|_| !arguments.is_on("enable_dp_attention")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::explain::lines;
    use crate::report::testbook::TestBook;

    #[test]
    fn what_is_printed_counts_before_what_is_given() {
        let mut t = TestBook::new();
        let (main, rank) = (t.process(1, ""), t.process(2, ""));
        t.book.processes[rank].parent = Some(1);
        t.book.processes[main].command = ["--mem-fraction-static=0.9", "--page-size", "16"].map(str::to_owned).to_vec();
        let given = Arguments::of(&t.book, &lines::by_process(&t.book), rank);
        assert_eq!(given.get("mem_fraction_static"), Some(("0.9", Found::CommandLine)));
        assert_eq!((given.number("page_size"), given.number("tp_size"), given.root), (Some(16.0), None, None));
        t.log(main, "server_args=ServerArgs(mem_fraction_static=0.55, page_size=None, enable_dp_attention=True)");
        let printed = Arguments::of(&t.book, &lines::by_process(&t.book), rank);
        assert_eq!(printed.get("mem_fraction_static"), Some(("0.55", Found::Printed)));
        assert_eq!((printed.number("page_size"), printed.root), (Some(16.0), Some(main)));
        assert!(printed.is_on("enable_dp_attention"));
    }

    #[test]
    fn a_pid_that_came_back_and_a_circle_end_the_search() {
        let mut t = TestBook::new();
        let (a, b) = (t.process(1, ""), t.process(2, ""));
        (t.book.processes[a].parent, t.book.processes[b].parent) = (Some(2), Some(1));
        assert_eq!(ancestry(&t.book, a), [a, b]);
        t.book.processes[b].died = Some(0);
        assert_eq!(ancestry(&t.book, a), [a]);
    }
}

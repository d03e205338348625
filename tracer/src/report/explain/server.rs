//! Which ranks make up one server, and the arguments it runs with.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::figure::Found;
use super::lines::Said;
use crate::lifecycle::{Axes, logs};
use crate::map::Map;

/// What each process was given and printed, looked at once however many ranks it started.
pub(super) struct Servers<'a, 'b> {
    axes: &'a Axes<'b>,
    lines: &'a [Vec<Said<'b>>],
    told: Vec<OnceCell<Told<'b>>>,
}

/// What one process tells of its arguments.
#[derive(Debug)]
struct Told<'b> {
    printed: Option<BTreeMap<String, String>>,
    /// Values of the flags of its command line.
    given: Map<&'b str, &'b str>,
}

impl<'a, 'b> Servers<'a, 'b> {
    /// `lines` are those of each process.
    pub(super) fn of(axes: &'a Axes<'b>, lines: &'a [Vec<Said<'b>>]) -> Self {
        let told = axes.book().processes.iter().map(|_| OnceCell::new()).collect();
        Self { axes, lines, told }
    }

    /// The arguments of a rank: what it or the nearest ancestor printed, and the command lines of all.
    pub(super) fn arguments(&self, process: usize) -> Arguments<'_> {
        let line = self.axes.family().line(process);
        let told: Vec<&Told<'_>> = line.iter().map(|&n| self.told(n)).collect();
        let printed = || line.iter().zip(&told).find_map(|(&n, told)| Some((n, told.printed.as_ref()?)));
        let (root, printed) = printed().unzip();
        Arguments { root, printed, given: told.iter().map(|told| &told.given).collect() }
    }

    fn told(&self, process: usize) -> &Told<'b> {
        self.told[process].get_or_init(|| Told {
            printed: printed(&self.lines[process]),
            given: given(&self.axes.book().processes[process].command),
        })
    }
}

/// The arguments that lines state.
fn printed(lines: &[Said<'_>]) -> Option<BTreeMap<String, String>> {
    let mut arguments = lines.iter().filter_map(|said| logs::arguments(said.message));
    let mut all = arguments.next()?;
    // vLLM prints several lines: what one leaves out another may have.
    for (name, value) in arguments.flatten() {
        all.entry(name).or_insert(value);
    }
    Some(all)
}

/// Values behind the flags of a command line, the first of each: `--flag value` or `--flag=value`.
fn given(command: &[String]) -> Map<&str, &str> {
    let mut given = Map::default();
    let words = command.iter().map(String::as_str);
    let next = words.clone().skip(1).map(Some).chain([None]);
    for (word, next) in words.zip(next).filter(|(word, _)| word.starts_with("--")) {
        let (flag, value) = word.split_once('=').map_or((word, next), |(flag, value)| (flag, Some(value)));
        value.into_iter().for_each(|value| _ = given.entry(flag).or_insert(value));
    }
    given
}

/// What a rank was started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments<'s> {
    /// The process that printed them, if one did.
    pub(super) root: Option<usize>,
    printed: Option<&'s BTreeMap<String, String>>,
    /// Of the command lines of the rank and its ancestors, nearest first.
    given: Vec<&'s Map<&'s str, &'s str>>,
}

impl<'s> Arguments<'s> {
    /// Value of an argument by its Python name: as printed (defaults worked out), else as given on the command line.
    pub(super) fn get(&self, name: &str) -> Option<(&'s str, Found)> {
        let printed = self.printed.and_then(|all| all.get(name)).map(|value| (value.as_str(), Found::Printed));
        let flag = format!("--{}", name.replace('_', "-"));
        let given = || self.given.iter().find_map(|given| given.get(flag.as_str()).copied());
        printed.filter(|(value, _)| *value != "None").or_else(|| Some((given()?, Found::CommandLine)))
    }

    /// The same as a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.0.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// True when it is switched on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.printed.and_then(|all| all.get(name)).is_some_and(|value| value == "True")
    }
}

/// Which ranks take the least of their readings together: those of one server, and of one replica where replicas do not share
/// a process group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Team {
    root: Option<usize>,
    replica: Option<u32>,
}

impl Team {
    pub(super) fn of(axes: &Axes<'_>, arguments: &Arguments<'_>, process: usize) -> Self {
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
        let command = ["--mem-fraction-static=0.9", "--page-size", "16", "--page-size=32", "--tp-size"];
        t.book.processes[main].command = command.map(str::to_owned).to_vec();
        let lines = lines::by_process(&t.book);
        let axes = Axes::new(&t.book);
        let servers = Servers::of(&axes, &lines);
        let given = servers.arguments(rank);
        assert_eq!(given.get("mem_fraction_static"), Some(("0.9", Found::CommandLine)));
        assert_eq!((given.number("page_size"), given.number("tp_size"), given.root), (Some(16.0), None, None));

        t.log(main, "server_args=ServerArgs(mem_fraction_static=0.55, page_size=None, enable_dp_attention=True)");
        let lines = lines::by_process(&t.book);
        let axes = Axes::new(&t.book);
        let servers = Servers::of(&axes, &lines);
        let printed = servers.arguments(rank);
        assert_eq!(printed.get("mem_fraction_static"), Some(("0.55", Found::Printed)));
        assert_eq!((printed.number("page_size"), printed.root), (Some(16.0), Some(main)));
        assert!(printed.is_on("enable_dp_attention"));
    }
}

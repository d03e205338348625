//! Environment variables of a run's processes.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ProcessInfo;

/// Values shown of a variable that is not the same in all processes.
const VALUES: usize = 4;

/// Variables of some processes that a trace kept. One that has other values in other processes has all of them.
pub(super) fn variables<'b>(processes: impl IntoIterator<Item = &'b ProcessInfo>) -> BTreeMap<String, String> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for process in processes {
        for (name, value) in process.env.iter().filter_map(|variable| variable.split_once('=')) {
            values.entry(name).or_default().insert(value);
        }
    }
    let joined = |(name, values): (&str, BTreeSet<&str>)| (name.to_owned(), join(&values));
    values.into_iter().map(joined).collect()
}

/// `0, 1, 2 and 5 more`.
pub(super) fn join(values: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> = values.iter().copied().take(VALUES).collect();
    let more = values.len().saturating_sub(VALUES);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_all_processes_are_gathered() {
        let process = |env: &[&str]| ProcessInfo {
            env: env.iter().map(|&variable| variable.to_owned()).collect(),
            ..ProcessInfo::default()
        };
        let mut processes = vec![process(&["A=1", "NO_VALUE"]), process(&["A=1", "B=x=y"])];
        processes.extend((0..6).map(|n| process(&[&format!("RANK={n}")])));
        let variables = variables(&processes);
        let expected = [("A", "1"), ("B", "x=y"), ("RANK", "0, 1, 2, 3 and 2 more")];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}

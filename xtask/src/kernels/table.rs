//! The table of kernels: read from what each machine said on its console.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;

/// A kernel's line.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// As it was asked for.
    name: String,
    how: &'static str,
    release: String,
    /// How uprobes are placed, or why tracing does not begin.
    probes: String,
    /// Kernel features that are missing or degraded, by the tracer's own word.
    lacks: Vec<String>,
    failures: Vec<String>,
    pub(super) tests: Tally,
}

impl Row {
    /// Reads `vm: …` lines; an error when the machine did not come to its end.
    pub(super) fn read(name: &str, how: &'static str, console: &str) -> Result<Self> {
        let mut row = Self { name: name.to_owned(), how, ..Self::default() };
        let mut ended = false;
        for said in console.lines().filter_map(|line| line.strip_prefix("vm: ")) {
            match said.split_once(' ') {
                Some(("release", release)) => release.clone_into(&mut row.release),
                Some(("probes", probes)) => probes.clone_into(&mut row.probes),
                Some(("refused", why)) => row.probes = format!("none ({})", why.trim_start_matches("vramtrace: ")),
                Some(("check", line)) => row.lacks.extend(lacking(line)),
                Some(("test", test)) => row.count(test)?,
                Some(("ended", code)) => {
                    ended = true;
                    ensure!(code == "0", "its script ended with {code}");
                }
                _ => {}
            }
        }
        ensure!(ended, "no end on the console");
        ensure!(row.tests.passed > 0, "no test passed");
        Ok(row)
    }

    fn count(&mut self, test: &str) -> Result<()> {
        let (name, result) = test.rsplit_once(' ').with_context(|| format!("no result: {test}"))?;
        match result {
            "ok" => self.tests.passed += 1,
            "ignored" => self.tests.ignored += 1,
            _ => {
                self.tests.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
        Ok(())
    }
}

/// The name in a line of `vramtrace check` that tells of something missing or degraded: it is 22 columns wide.
fn lacking(line: &str) -> Option<String> {
    let rest = line.strip_prefix("missing").or_else(|| line.strip_prefix("degraded"))?;
    let name: String = rest.trim_start().chars().take(22).collect();
    Some(name.trim_end().to_owned())
}

/// The table, with the tests that failed below it.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| kernel | release | run by | probes | lacks | passed | failed |\n");
    text += "| --- | --- | --- | --- | --- | ---: | ---: |\n";
    for row in rows {
        let Row { name, how, release, probes, lacks, tests, .. } = row;
        let lacks = if lacks.is_empty() { "nothing".to_owned() } else { lacks.join(", ") };
        let (passed, failed) = (tests.passed, tests.failed);
        // Writing to a string cannot fail.
        _ = writeln!(text, "| {name} | {release} | {how} | {probes} | {lacks} | {passed} | {failed} |");
    }
    for row in rows {
        for failure in &row.failures {
            _ = writeln!(text, "{}: {failure} failed", row.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "[ 1.0] Linux\nvm: release 6.1.0-57-cloud-amd64\nvm: check ok        uprobes                here\n\
        vm: check degraded  uprobe_multi links     probes are placed one by one\nvm: probes perf\n\
        vm: test live::small ok\nvm: test live::large FAILED\nvm: suite live 12 s\nvm: ended 0\n";

    #[test]
    fn a_console_becomes_a_row() {
        let row = Row::read("6.1", "KVM", CONSOLE).unwrap();
        assert_eq!(row.tests, Tally { passed: 1, failed: 1, ignored: 0 });
        let table = table(&[row]);
        assert!(table.contains("| 6.1 | 6.1.0-57-cloud-amd64 | KVM | perf | uprobe_multi links | 1 | 1 |"), "{table}");
        assert!(table.ends_with("6.1: live::large failed\n"), "{table}");
    }

    #[test]
    fn a_machine_that_stops_half_way_is_no_row() {
        let half = CONSOLE.replace("vm: ended 0\n", "");
        assert_eq!(Row::read("6.1", "KVM", &half).unwrap_err().to_string(), "no end on the console");
        let none = "vm: release 6.1\nvm: ended 0\n";
        assert_eq!(Row::read("6.1", "KVM", none).unwrap_err().to_string(), "no test passed");
    }
}

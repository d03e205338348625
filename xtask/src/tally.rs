//! Counting tests: the result lines of `cargo test`, summed over all test programs.

use std::{
    io::{BufRead, BufReader},
    ops::AddAssign,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::command::line;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// Tests that did not run because they are marked `#[ignore]`.
    pub(crate) ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Tally {
    /// From a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`.
    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut tally = Self::default();
        for count in counts.split("; ") {
            match count.split_once(' ') {
                Some((number, "passed")) => tally.passed = number.parse().ok()?,
                Some((number, "failed")) => tally.failed = number.parse().ok()?,
                Some((number, "ignored")) => tally.ignored = number.parse().ok()?,
                _ => {}
            }
        }
        Some(tally)
    }
}

/// Runs `command`, passing on what it prints; its tests, and whether it succeeded.
pub(crate) fn run(command: &mut Command) -> Result<(Tally, bool)> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run `{}`", line(command)))?;
    let mut tally = Tally::default();
    let mut output = BufReader::new(child.stdout.take().context("no output to read")?);
    let mut bytes = Vec::new();
    // Bytes, not strings: a test may print anything.
    while output.read_until(b'\n', &mut bytes)? > 0 {
        let text = String::from_utf8_lossy(&bytes);
        print!("{text}");
        tally += Tally::parse(text.trim_end()).unwrap_or_default();
        bytes.clear();
    }
    Ok((tally, child.wait()?.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";
        assert_eq!(Tally::parse(line), Some(Tally { passed: 12, failed: 3, ignored: 1 }));
        assert_eq!(Tally::parse("test parses ... ok"), None);
        assert_eq!(Tally::parse("test result: "), None);
    }

    #[test]
    fn the_lines_of_all_programs_add_up_whatever_else_is_printed() {
        let script = "printf 'test result: ok. 2 passed; 0 failed; 0 ignored\\n\\377\\n'
                      echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101";
        let (tally, succeeded) = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!((tally, succeeded), (Tally { passed: 3, failed: 1, ignored: 0 }, false));
    }
}

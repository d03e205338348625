//! Free memory as a server printed it, beside what it read of its GPU at that moment.

use crate::ledger::{Book, Reading};

use super::logs;

/// A reading tells of a line only if it is this near in time, nanoseconds: a server reads, then prints.
const NEAR: u64 = 10_000_000_000;

/// A line that prints free memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// When it was written.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// The line up to the figure: `Load weight begin`.
    pub mark: String,
    /// The figure, hundredths of a GiB.
    pub centi_gib: u64,
    /// The process's own reading nearest in time.
    pub reading: Option<Reading>,
}

impl Printed {
    /// True when the figure is the reading, rounded; `None` without a reading. `SGLang` prints the least over all ranks in
    /// places, so that a difference need not be an error.
    #[must_use]
    pub fn agrees(&self) -> Option<bool> {
        // Half a hundredth either way, and one byte for Python's rounding of halves to even.
        let twice = |free: u64| u128::from(free) * 200;
        let figure = u128::from(self.centi_gib) << 31;
        self.reading.map(|reading| twice(reading.free).abs_diff(figure) <= (1 << 30) + 200)
    }
}

/// Lines that print free memory, in order.
#[must_use]
pub fn printed(book: &Book) -> Vec<Printed> {
    let mut by_process: Vec<Vec<&Reading>> = vec![Vec::new(); book.processes.len()];
    for reading in &book.readings {
        if let Some(readings) = by_process.get_mut(reading.process) {
            readings.push(reading);
        }
    }
    by_process.iter_mut().for_each(|readings| readings.sort_by_key(|reading| reading.t));
    let line = |log: &crate::ledger::LogLine| {
        let message = logs::pieces(&log.text).last().map(|piece| logs::parse(piece).message)?;
        let centi_gib = logs::printed_memory(message)?;
        let mark = message.split(['.', ',', '=']).next().unwrap_or_default().to_owned();
        let reading = nearest(by_process.get(log.process)?, log.t);
        Some(Printed { t: log.t, process: log.process, mark, centi_gib, reading })
    };
    book.logs.iter().filter_map(line).collect()
}

fn nearest(readings: &[&Reading], t: u64) -> Option<Reading> {
    let after = readings.partition_point(|reading| reading.t <= t);
    let around = readings[after.saturating_sub(1)..].iter().take(2);
    let near = around.filter(|reading| reading.t.abs_diff(t) <= NEAR);
    near.min_by_key(|reading| reading.t.abs_diff(t)).map(|reading| **reading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{LogLine, ProcessInfo};

    fn book(lines: &[(u64, &str)], readings: &[(u64, u64)]) -> Book {
        let logs = lines.iter().map(|(t, text)| LogLine { t: *t, process: 0, fd: 2, text: (*text).to_owned() });
        let readings = readings.iter().map(|&(t, free)| Reading { t, process: 0, free, total: None, stack: None });
        Book {
            processes: vec![ProcessInfo::default()],
            logs: logs.collect(),
            readings: readings.collect(),
            ..Book::default()
        }
    }

    #[test]
    fn a_printed_figure_stands_beside_the_nearest_reading() {
        let prefix = "[2026-11-29 14:56:37 TP0]";
        let begin = format!("{prefix} Load weight begin. avail mem=139.13 GB");
        let end = format!("{prefix} Memory pool end. avail mem=97.35 GB");
        let (before, after) = (149_389_000_000, 104_529_000_000);
        let book = book(&[(100, &begin), (200, &end)], &[(90, before), (95, before), (190, after), (900, 5)]);
        let printed = printed(&book);
        let seen: Vec<_> = printed.iter().map(|p| (p.mark.as_str(), p.reading.unwrap().t, p.agrees())).collect();
        assert_eq!(seen, [("Load weight begin", 95, Some(true)), ("Memory pool end", 190, Some(true))]);
    }

    #[test]
    fn a_figure_that_is_not_the_reading_does_not_agree() {
        let line = "max_total_num_tokens=5, available_gpu_mem=1.00 GB";
        let agrees = |free: u64| printed(&book(&[(10, line)], &[(9, free)]))[0].agrees();
        assert_eq!(agrees(1 << 30), Some(true));
        assert_eq!(agrees((1 << 30) + (1 << 30) / 200), Some(true));
        assert_eq!(agrees((1 << 30) + (1 << 30) / 100), Some(false));
        assert_eq!(printed(&book(&[(10, line)], &[]))[0].agrees(), None);
        let far = printed(&book(&[(NEAR + 10, line)], &[(9, 1 << 30)]));
        assert_eq!(far[0].reading, None);
    }
}

//! What a report is asked for: how to divide memory, and at which moment to look.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::clock;
use super::ends;
use crate::ledger::{Allocation, Peak};
use crate::lifecycle::{Axes, Axis};
use crate::map::Map;

/// Moment to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// Last moment before a process begins to exit: what it held, not what the driver took back. For a process that
    /// still ran, the trace's last record. Ranks of one communicator that die together are looked at together, before the
    /// first of them: what one takes over from another that dies is no part of what it held.
    #[default]
    End,
    /// When the process held most on that GPU.
    Peak,
    /// The process's last failure for want of memory (an allocator retries after it freed its cache); for a process
    /// without one, the first such failure of the trace.
    Oom,
    /// A time since tracing began.
    Time(Duration),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "end" => Ok(Self::End),
            "peak" => Ok(Self::Peak),
            "oom" => Ok(Self::Oom),
            time => clock::parse_duration(time)
                .map(Self::Time)
                .map_err(|_| "give end, peak, oom or a time since tracing began, like 12.5s".to_owned()),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("end"),
            Self::Peak => f.write_str("peak"),
            Self::Oom => f.write_str("oom"),
            Self::Time(time) => write!(f, "{}s", time.as_secs_f64()),
        }
    }
}

/// A question to a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Axes that divide the table of cells, outermost first, without repeats.
    pub by: Vec<Axis>,
    /// Axes that divide a second table of the text report; empty: there is none.
    pub then: Vec<Axis>,
    /// Moment to look at.
    pub at: At,
}

impl Default for Query {
    fn default() -> Self {
        Self { by: vec![Axis::Rank, Axis::Device, Axis::Kind], then: Vec::new(), at: At::End }
    }
}

impl Query {
    /// The question that suits a trace: by rank and phase, then by rank and kind; where no phase is known, by rank, device
    /// and kind.
    #[must_use]
    pub fn suiting(axes: &Axes<'_>, at: At) -> Self {
        if !axes.has_phases() {
            return Self { at, ..Self::default() };
        }
        Self { by: vec![Axis::Rank, Axis::Phase], then: vec![Axis::Rank, Axis::Kind], at }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `--at oom` without such a failure.
    #[error("no call failed for want of memory in this trace, so there is no such moment: use --at peak or --at end")]
    NoOom,
    /// `--at TIME` past the last record.
    #[error("the trace ends {} after it began, before the moment asked for ({})", clock::format(*.0), clock::format(*.1))]
    PastEnd(u64, u64),
}

/// The moment at which each process is looked at on each GPU, on the trace's clock.
#[derive(Clone, Debug)]
pub struct Moments {
    at: At,
    processes: Vec<u64>,
    /// Moments of their own, by process and GPU.
    pairs: Map<(usize, usize), u64>,
}

impl Moments {
    /// Finds the moments that `at` means in the book of `axes`.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment.
    pub fn new(axes: &Axes<'_>, at: At) -> Result<Self, Error> {
        let book = axes.book();
        let all = |t| vec![t; book.processes.len()];
        let ends = ends::ends(book);
        Ok(match at {
            At::End => Self { at, processes: ends, pairs: Map::default() },
            At::Peak => {
                let rows = &book.allocations;
                let peaks = axes.changes().peaks(rows, |row| (row.process, row.gpu));
                Self { at, processes: ends, pairs: peaks.into_iter().map(|(pair, peak)| (pair, peak.t)).collect() }
            }
            At::Oom => {
                let failures: Vec<_> = book.failures.iter().filter(|f| f.out_of_memory).collect();
                let mut processes = all(failures.first().ok_or(Error::NoOom)?.t);
                for failure in failures {
                    processes[failure.process] = failure.t;
                }
                Self { at, processes, pairs: Map::default() }
            }
            At::Time(time) => {
                let (since, lasted) = (time.as_nanos() as u64, book.end.saturating_sub(book.header.t));
                if since > lasted {
                    return Err(Error::PastEnd(lasted, since));
                }
                Self { at, processes: all(book.header.t + since), pairs: Map::default() }
            }
        })
    }

    /// A moment of its own for each process, by its number in the book.
    #[must_use]
    pub fn of_processes(processes: Vec<u64>) -> Self {
        Self { at: At::End, processes, pairs: Map::default() }
    }

    /// The moment of each process, whatever the GPU.
    #[must_use]
    pub fn processes(&self) -> &[u64] {
        &self.processes
    }

    /// The moment for a process on a GPU.
    #[must_use]
    pub fn of(&self, process: usize, gpu: usize) -> u64 {
        self.pairs.get(&(process, gpu)).or_else(|| self.processes.get(process)).copied().unwrap_or(u64::MAX)
    }

    /// True when what `rows` hold at their moments was ever held at one moment.
    #[must_use]
    pub fn is_one(&self, rows: &[Allocation]) -> bool {
        let mut moments = rows.iter().filter(|row| self.is_live(row)).map(|row| self.of(row.process, row.gpu));
        let first = moments.next();
        moments.all(|t| Some(t) == first)
    }

    /// One moment for all that the rows of each GPU hold: that of the process that is looked at last of those that hold
    /// something then; when most was held at once (`peaks`), where the peak is asked for.
    #[must_use]
    pub fn common(&self, rows: &[Allocation], peaks: &Map<usize, Peak>) -> Map<usize, u64> {
        if self.at == At::Peak {
            return peaks.iter().map(|(gpu, peak)| (*gpu, peak.t)).collect();
        }
        // Of those that hold something, then of any: `None` comes before all times.
        let mut latest: Map<usize, (Option<u64>, u64)> = Map::default();
        for row in rows {
            let t = self.of(row.process, row.gpu);
            let (live, any) = latest.entry(row.gpu).or_default();
            *any = t.max(*any);
            *live = (*live).max(row.live_at(t).then_some(t));
        }
        latest.into_iter().map(|(gpu, (live, any))| (gpu, live.unwrap_or(any))).collect()
    }

    /// True when `row` is live at its process's moment.
    #[must_use]
    pub fn is_live(&self, row: &Allocation) -> bool {
        row.live_at(self.of(row.process, row.gpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Book, Death};
    use crate::report::testbook::TestBook;

    fn live(book: &Book, at: At) -> u64 {
        let moments = Moments::new(&Axes::new(book), at).unwrap();
        book.allocations.iter().filter(|row| moments.is_live(row)).map(|row| row.bytes).sum()
    }

    #[test]
    fn the_end_is_what_a_process_held_before_it_died() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "server"), t.gpu(0));
        t.allocate(process, gpu, 100);
        let freed = t.allocate(process, gpu, 50);
        t.free(freed);
        t.exit(process, Some(0));
        assert_eq!(t.book.allocations[0].died.unwrap().1, Death::Reclaimed);
        assert_eq!(live(&t.book, At::End), 100);
    }

    #[test]
    fn the_peak_is_each_processs_own() {
        let mut t = TestBook::new();
        let (first, second, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
        let row = t.allocate(first, gpu, 100);
        t.free(row);
        t.allocate(second, gpu, 70);
        t.allocate(first, gpu, 30);
        assert_eq!(live(&t.book, At::End), 100);
        assert_eq!(live(&t.book, At::Peak), 170);
    }

    #[test]
    fn out_of_memory_looks_at_each_processs_last_failure() {
        let mut t = TestBook::new();
        let (first, second, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
        let cache = t.allocate(first, gpu, 10);
        t.allocate(second, gpu, 5);
        t.fail(first, gpu, 1000);
        t.free(cache);
        t.allocate(second, gpu, 7);
        t.fail(first, gpu, 1000);
        t.allocate(first, gpu, 1);
        // `a` at its second failure (nothing left), `b` at the trace's first one.
        assert_eq!(live(&t.book, At::Oom), 5);
        assert_eq!(Moments::new(&Axes::new(&TestBook::new().book), At::Oom).unwrap_err(), Error::NoOom);
    }

    #[test]
    fn times_count_from_the_start_of_tracing() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        t.at(2_000_000_000).allocate(process, gpu, 10);
        t.at(5_000_000_000).allocate(process, gpu, 20);
        assert_eq!(live(&t.book, "1s".parse().unwrap()), 0);
        assert_eq!(live(&t.book, "2.5".parse().unwrap()), 10);
        assert_eq!(live(&t.book, "5s".parse().unwrap()), 30);
        let error = Moments::new(&Axes::new(&t.book), "9s".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the trace ends 5.000 s after it began, before the moment asked for (9.000 s)");
    }

    #[test]
    fn moments_are_read_as_typed() {
        for text in ["end", "peak", "oom", "12.5s"] {
            assert_eq!(text.parse::<At>().unwrap().to_string(), text);
        }
        assert!("later".parse::<At>().unwrap_err().contains("end, peak, oom"));
    }
}

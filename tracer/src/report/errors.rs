//! Failures that are no failed CUDA call: what processes wrote before they gave up, and which were killed.

use serde::Serialize;

use super::explain::lines::{self, Said};
use super::summary::since_start;
use super::trust::signal_name;
use crate::ledger::Book;
use crate::lifecycle::{Axes, RankEvidence};
use crate::map::Map;

/// Lines after which a server ends its own processes: what signals do then is no failure.
const SHUTDOWN: [&str; 3] = ["SIGTERM received", "Gracefully exiting", "Shutting down"];

/// An error that a process wrote, or its death by a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessError {
    /// `message` or `signal`.
    pub kind: &'static str,
    /// Process id.
    pub pid: u32,
    /// Rank label.
    pub rank: String,
    /// When it first came, since tracing began.
    pub time_ns: u64,
    /// How often.
    pub count: u64,
    /// The line, or the signal's name.
    pub text: String,
    /// Lifecycle phase.
    pub phase: String,
    /// Memory that `PyTorch` had reserved and not handed out, as its error says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_slack_bytes: Option<u64>,
    /// Memory that it had handed out, as its error says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_allocated_bytes: Option<u64>,
}

/// Errors in order of time: the first is what the others follow from.
pub(super) fn errors(axes: &Axes<'_>) -> Vec<ProcessError> {
    let book = axes.book();
    let lines = lines::by_process(book);
    let mut errors: Vec<(u64, ProcessError)> = Vec::new();
    let mut known: Map<(u32, &str), usize> = Map::default();
    for (process, said) in lines.iter().enumerate().flat_map(|(n, lines)| lines.iter().map(move |said| (n, said))) {
        if !said.is_memory_error() {
            continue;
        }
        let (pid, text) = (book.processes[process].pid, said.message.trim());
        let number = *known.entry((pid, text)).or_insert(errors.len());
        match errors.get_mut(number) {
            Some((_, error)) => error.count += 1,
            None => errors.push((said.t, message(axes, process, said))),
        }
    }
    errors.extend(killed(axes, &lines));
    errors.sort_by_key(|(t, error)| (*t, error.pid));
    errors.into_iter().map(|(_, error)| error).collect()
}

fn message(axes: &Axes<'_>, process: usize, said: &Said<'_>) -> ProcessError {
    let torch = said.torch_memory();
    let text = said.message.trim().to_owned();
    ProcessError {
        torch_allocated_bytes: torch.map(|torch| torch.0),
        torch_slack_bytes: torch.map(|torch| torch.1),
        ..error(axes, "message", process, said.t, text)
    }
}

fn error(axes: &Axes<'_>, kind: &'static str, process: usize, t: u64, text: String) -> ProcessError {
    ProcessError {
        kind,
        pid: axes.book().processes[process].pid,
        rank: axes.rank(process).to_owned(),
        time_ns: since_start(axes.book(), t),
        count: 1,
        text,
        phase: axes.phase_at(process, t, None).to_owned(),
        torch_slack_bytes: None,
        torch_allocated_bytes: None,
    }
}

/// Ranks and holders of GPU memory that a signal killed while no shutdown was under way.
fn killed(axes: &Axes<'_>, lines: &[Vec<Said<'_>>]) -> Vec<(u64, ProcessError)> {
    let book = axes.book();
    let holds = holders(book);
    let is_shutdown = |said: &&Said<'_>| SHUTDOWN.iter().any(|begin| said.message.starts_with(begin));
    let shut_down = |lines: &Vec<Said<'_>>| lines.iter().filter(is_shutdown).map(|said| said.t).min();
    let shut_down: Vec<Option<u64>> = lines.iter().map(shut_down).collect();
    let death = |(process, info): (usize, &crate::ledger::ProcessInfo)| {
        let (t, signal) = (info.died?, info.exit_signal?);
        let matters = holds[process] || axes.ranks()[process].evidence != RankEvidence::None;
        let is_expected = axes.family().line(process).into_iter().any(|n| shut_down[n].is_some_and(|since| since <= t));
        (matters && !is_expected).then(|| {
            let text = format!("killed by {}", signal_name(signal));
            (t, error(axes, "signal", process, t, text))
        })
    };
    book.processes.iter().enumerate().filter_map(death).collect()
}

fn holders(book: &Book) -> Vec<bool> {
    let mut holds = vec![false; book.processes.len()];
    book.allocations.iter().for_each(|row| holds[row.process] = true);
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    fn texts(t: &TestBook) -> Vec<(String, u64)> {
        errors(&Axes::new(&t.book)).into_iter().map(|error| (error.text, error.count)).collect()
    }

    #[test]
    fn what_was_written_and_who_was_killed() {
        let mut t = TestBook::new();
        let (main, rank, gpu) = (t.process(1, ""), t.process(2, "sglang::scheduler_TP0"), t.gpu(0));
        t.book.processes[rank].parent = Some(1);
        t.allocate(rank, gpu, 1 << 30);
        let line = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.";
        t.log(rank, &format!("[2026-11-29 15:12:32 TP0] {line}"));
        t.log(rank, line);
        t.log(main, "[2026-11-29 15:12:33] Load weight begin. avail mem=1.00 GB");
        t.exit(rank, None);
        t.book.processes[rank].exit_signal = Some(9);
        assert_eq!(texts(&t), [(line.to_owned(), 2), ("killed by SIGKILL (9)".to_owned(), 1)]);
        // The same death in a shutdown is none.
        t.at(1).log(main, "[2026-11-29 15:12:33] SIGTERM received. signum=None");
        t.book.logs.retain(|log| !log.text.contains("Not enough"));
        assert!(texts(&t).is_empty());
    }

    #[test]
    fn torch_says_what_it_did_not_use() {
        let mut t = TestBook::new();
        let process = t.process(1, "");
        t.log(
            process,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 79.10 \
             GiB of which 100.00 MiB is free. Including non-PyTorch memory, this process has 78.90 GiB memory in use. Of the \
             allocated memory 70.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated.",
        );
        let error = errors(&Axes::new(&t.book)).remove(0);
        assert_eq!((error.torch_allocated_bytes, error.torch_slack_bytes), (Some(70 << 30), Some(3 << 29)));
    }

    #[test]
    fn a_run_that_is_well_has_none() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, ""), t.gpu(0));
        t.allocate(process, gpu, 5);
        t.log(process, "The server is fired up and ready to roll!");
        t.exit(process, Some(0));
        assert!(texts(&t).is_empty());
    }
}

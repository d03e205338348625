//! What a reader must know before he believes the figures: how the run ended and what was not seen.

use serde::Serialize;

use super::{bytes, clock, failures};
use crate::ledger::{Book, Failure};
use crate::lifecycle::Axes;
use crate::trace::record::{self, Loss};

/// How a traced run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// `exited`, `killed`, `oom`, `running` or `truncated`.
    pub kind: &'static str,
    /// One sentence, without its full stop.
    pub detail: String,
}

/// How the run of `book` ended.
pub(super) fn outcome(book: &Book, axes: &Axes<'_>) -> Outcome {
    use record::Outcome::{Exited, Killed, Running};
    let lasted = clock::format(book.end.saturating_sub(book.header.t));
    let (kind, how, failed) = match &book.outcome {
        None => {
            let detail = format!(
                "the file breaks off {lasted} after tracing began (tracer killed, disk full or still writing); \
                 figures hold up to there"
            );
            return Outcome { kind: "truncated", detail };
        }
        Some(Running { why }) => {
            return Outcome {
                kind: "running",
                detail: format!("still running when tracing ended after {lasted} ({why})"),
            };
        }
        Some(Exited { code }) => ("exited", format!("exited with code {code}"), *code != 0),
        Some(Killed { signal }) => ("killed", format!("was killed by {}", signal_name(*signal)), true),
    };
    match fatal_failure(book).filter(|_| failed) {
        Some(failure) => {
            let before = clock::format(book.end.saturating_sub(failure.t));
            let detail = format!("{}; {before} later the command {how}", describe_failure(failure, axes));
            Outcome { kind: "oom", detail }
        }
        None => Outcome { kind, detail: format!("the command {how} after {lasted}") },
    }
}

/// `SIGKILL (9)`.
pub(super) fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |known| format!("{} ({signal})", known.as_str()))
}

/// The last failure for want of memory that its process did not get over: it got no such amount afterwards, and ended badly.
pub(super) fn fatal_failure(book: &Book) -> Option<&Failure> {
    let is_fatal = |failure: &&Failure| {
        let process = &book.processes[failure.process];
        let later = book.allocations.iter().rev().take_while(|row| row.born > failure.t);
        let recovered = later
            .filter(|row| row.process == failure.process && failure.gpu.is_none_or(|gpu| row.gpu == gpu))
            .any(|row| row.bytes >= failure.requested.unwrap_or(0));
        !recovered && process.died.is_some() && process.exit_code != Some(0)
    };
    let mut processes = std::collections::HashSet::new();
    let last_of_each = book.failures.iter().rev().filter(|f| f.out_of_memory && processes.insert(f.process));
    last_of_each.filter(is_fatal).max_by_key(|failure| failure.t)
}

fn describe_failure(failure: &Failure, axes: &Axes<'_>) -> String {
    let of = failure.requested.map_or(String::new(), |size| format!(" of {}", bytes::human(size)));
    let gpu = failure.gpu.map_or(String::new(), |gpu| format!(" on {}", axes.gpu(gpu)));
    let free = failures::free(axes.book(), failure).map_or(String::new(), |free| {
        let most = if free.is_bound { "at most " } else { "" };
        format!(", {most}{} free", bytes::human(free.bytes))
    });
    format!("{}{of} failed in {}{gpu}{free}", failure.api, axes.rank(failure.process))
}

/// True when a loss for this reason can cost bytes: a lost driver event always, a lost API call where calls are the ledger.
pub(super) fn costs_bytes(book: &Book, why: &str) -> bool {
    Loss { why: why.to_owned(), ..Loss::default() }.costs_bytes(book.header.ledger)
}

/// What a loss means, in a few words.
#[must_use]
pub fn loss_meaning(why: &str) -> &str {
    match why {
        "impossible_figure" => "figures left out that no machine can have: the trace is damaged, or what it is of lied",
        "ring_full" => "events dropped, the ring buffer was full",
        "ring_full_process" => "starts, execs and ends of processes dropped, the ring buffer was full",
        "ring_full_call" => "API calls dropped to leave room for driver requests",
        "ring_full_block" => "blocks of PyTorch's allocator dropped to leave room for driver requests",
        "ring_full_stack" => "call stacks dropped to leave room for driver requests",
        "unread" => "events not looked at, tracing was ended in a hurry",
        "missed_return" => "calls whose return was not seen",
        "unknown_return" => "calls that were already under way when their probe was placed",
        "too_deep" => "calls nested too deep to follow",
        "unreadable_ioctl" => "driver requests whose argument could not be read",
        "map_full" => "calls that could not be followed, a kernel map was full",
        "unreadable_stack" => "call stacks that could not be copied",
        "python_code" => "Python functions whose names could not be sent",
        "output" => "writes to standard output or error of which log lines may be missing or cut",
        "unfollowed" => "processes that ended before log lines of theirs could be seen",
        other => other,
    }
}

/// Probes that were placed and that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Probes {
    /// Libraries probed.
    pub libraries: u64,
    /// Entry probes placed.
    pub placed: u64,
    /// Known functions that these libraries' versions do not have.
    pub missing: u64,
    /// `library: symbol, reason` of functions that are there but could not be probed.
    pub failed: Vec<String>,
    /// Libraries that were in use before their probes were placed.
    pub late: Vec<String>,
}

pub(super) fn probes(book: &Book) -> Probes {
    let mut probes = Probes { libraries: book.libraries.len() as u64, ..Probes::default() };
    for library in &book.libraries {
        probes.placed += u64::from(library.placed);
        probes.missing += library.missing.len() as u64;
        probes.failed.extend(library.failed.iter().map(|symbol| format!("{}: {symbol}", library.path)));
        if library.late {
            probes.late.push(library.path.clone());
        }
    }
    probes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;
    use crate::trace::record::Source;

    fn outcome_of(t: &TestBook) -> Outcome {
        outcome(&t.book, &Axes::new(&t.book))
    }

    /// A process that fails to get 1000 bytes, then does `after`, then exits with code 1 as does the command.
    fn after_failure(after: impl Fn(&mut TestBook, usize, usize)) -> Outcome {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(41, "scheduler_TP0"), t.gpu(0));
        t.fail(process, gpu, 1 << 40);
        after(&mut t, process, gpu);
        t.at(2_000_000_000).exit(process, Some(1));
        t.book.outcome = Some(record::Outcome::Exited { code: 1 });
        outcome_of(&t)
    }

    #[test]
    fn a_failure_not_got_over_is_what_the_run_died_of() {
        let outcome = after_failure(|t, process, gpu| {
            t.allocate(process, gpu, 8);
        });
        let detail = "cudaMalloc of 1.00 TiB failed in 41 scheduler_TP0 on GPU 0, 1.00 GiB free; \
                      1.999 s later the command exited with code 1";
        assert_eq!(outcome, Outcome { kind: "oom", detail: detail.to_owned() });
    }

    #[test]
    fn a_failure_got_over_is_not() {
        let outcome = after_failure(|t, process, gpu| {
            t.allocate(process, gpu, 1 << 40);
        });
        let detail = "the command exited with code 1 after 2.000 s".to_owned();
        assert_eq!(outcome, Outcome { kind: "exited", detail });
    }

    #[test]
    fn a_run_that_exits_well_is_no_out_of_memory() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(41, "a"), t.gpu(0));
        t.fail(process, gpu, 1000);
        t.exit(process, Some(1));
        assert_eq!(outcome_of(&t).kind, "exited");
    }

    #[test]
    fn other_ends_are_named() {
        let mut t = TestBook::new();
        t.process(1, "a");
        t.book.outcome = Some(record::Outcome::Killed { signal: 9 });
        assert_eq!(outcome_of(&t).detail, "the command was killed by SIGKILL (9) after 0 ms");
        t.book.outcome = Some(record::Outcome::Killed { signal: 99 });
        assert!(outcome_of(&t).detail.contains("signal 99"));
        t.book.outcome = Some(record::Outcome::Running { why: "interrupted".to_owned() });
        assert_eq!(outcome_of(&t).kind, "running");
        t.book.outcome = None;
        assert_eq!(outcome_of(&t).kind, "truncated");
    }

    #[test]
    fn what_a_loss_costs_depends_on_the_ledger() {
        let mut t = TestBook::new();
        assert!(costs_bytes(&t.book, "ring_full") && !costs_bytes(&t.book, "missed_return"));
        t.book.header.ledger = Source::DriverApi;
        assert!(costs_bytes(&t.book, "missed_return") && !costs_bytes(&t.book, "unreadable_stack"));
    }
}

//! What a trace tells beside bytes: memory readings, communicators, captures. Attribution reads them.

use std::collections::HashMap;

use super::{Book, Capture, Communicator, Reading, api};
use crate::probe::Effect;
use crate::trace::record::Call;

/// Captures that have begun, by process and thread.
#[derive(Clone, Default)]
pub(super) struct Witness {
    capturing: HashMap<(usize, u32), u64>,
}

impl Witness {
    /// Takes what a call tells.
    pub(super) fn call(&mut self, call: &Call, process: usize, book: &mut Book) {
        if let (0, 0, Some(free)) = (call.depth, call.result, call.free) {
            book.readings.push(Reading { t: call.t, process, free, total: call.total, stack: call.stack });
        }
        if is_communicator(&call.api) {
            let value = |name: &str| call.more.get(name).copied();
            // An `int` in a register: -1 says that the caller has no rank to give.
            let int = |name: &str| value(name).map(|n| n as u32).filter(|&n| n <= i32::MAX as u32);
            book.communicators.push(Communicator {
                start: call.start,
                end: call.t,
                process,
                tid: call.tid,
                api: call.api.clone(),
                result: call.result,
                id: value("id").filter(|&id| id != 0),
                size: int("nranks"),
                rank: int("rank"),
                stack: call.stack,
            });
        }
        let thread = (process, call.tid);
        match api::effect(&call.api) {
            // Runtime and driver both tell: the first of them is the driver.
            Some(Effect::Capture) if call.result == 0 => drop(self.capturing.entry(thread).or_insert(call.t)),
            // A failed end ends it too: the capture is invalid.
            Some(Effect::CaptureEnd) => {
                if let Some(start) = self.capturing.remove(&thread) {
                    book.captures.push(Capture { start, end: call.t, process, tid: call.tid });
                }
            }
            _ => {}
        }
    }

    /// Captures that never ended.
    pub(super) fn finish(self, book: &mut Book) {
        let open = self.capturing.into_iter();
        let mut open: Vec<_> =
            open.map(|((process, tid), start)| Capture { start, end: u64::MAX, process, tid }).collect();
        open.sort_by_key(|capture| (capture.start, capture.process, capture.tid));
        book.captures.extend(open);
    }
}

/// True for calls that make communicators.
fn is_communicator(name: &str) -> bool {
    ["ncclCommInit", "ncclCommSplit", "ncclCommShrink", "ncclCommGrow"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::trace::record::{Log, Record};

    fn call(api: &str, t: u64) -> Call {
        Call { api: api.to_owned(), t, start: t - 5, pid: 7, tid: 8, outer: t - 5, ..Call::default() }
    }

    fn book(calls: impl IntoIterator<Item = Call>) -> Book {
        let mut ledger = Ledger::new();
        calls.into_iter().for_each(|call| ledger.push(Record::Call(call)));
        ledger.finish()
    }

    #[test]
    fn communicators_are_windows_with_a_rank() {
        let more = [("id", 77), ("nranks", 8), ("rank", 3)].map(|(name, value)| (name.to_owned(), value)).into();
        let init = Call { more, ..call("ncclCommInitRankConfig", 20) };
        let grown = Call { more: [("rank".to_owned(), u64::from(u32::MAX))].into(), ..call("ncclCommGrow", 30) };
        let book = book([init, grown, call("ncclCommDestroy", 40)]);
        let seen: Vec<_> = book.communicators.iter().map(|c| (c.start, c.end, c.id, c.size, c.rank)).collect();
        assert_eq!(seen, [(15, 20, Some(77), Some(8), Some(3)), (25, 30, None, None, None)]);
    }

    #[test]
    fn captures_last_from_the_drivers_begin_to_the_first_end() {
        let nested = |api: &str, t| Call { depth: 1, ..call(api, t) };
        let failed = Call { result: 1, ..call("cuStreamBeginCapture_v2", 50) };
        let invalid = Call { result: 901, ..call("cudaStreamEndCapture", 70) };
        let book = book([
            nested("cuStreamBeginCapture_v2", 10),
            call("cudaStreamBeginCapture", 11),
            nested("cuStreamEndCapture", 30),
            call("cudaStreamEndCapture", 31),
            failed,
            call("cuStreamBeginCapture_v2", 60),
            invalid,
            call("cuStreamBeginCapture_v2", 80),
        ]);
        let seen: Vec<_> = book.captures.iter().map(|c| (c.start, c.end)).collect();
        assert_eq!(seen, [(10, 30), (60, 70), (80, u64::MAX)]);
    }

    #[test]
    fn a_reading_counts_once() {
        let driver = Call { depth: 1, free: Some(5), total: Some(9), ..call("cuMemGetInfo_v2", 10) };
        let runtime = Call { free: Some(5), total: Some(9), stack: Some(4), ..call("cudaMemGetInfo", 11) };
        let failed = Call { result: 2, free: Some(0), ..call("cudaMemGetInfo", 12) };
        let book = book([driver, runtime, failed]);
        assert_eq!(book.readings, [Reading { t: 11, process: 0, free: 5, total: Some(9), stack: Some(4) }]);
    }

    #[test]
    fn lines_belong_to_the_process_that_had_the_pid() {
        let mut ledger = Ledger::new();
        ledger.push(Record::Log(Log { t: 5, pid: 7, fd: 2, text: "ready".to_owned() }));
        let book = ledger.finish();
        assert_eq!((book.logs.len(), book.logs[0].process, book.processes[0].pid, book.end), (1, 0, 7, 5));
    }
}

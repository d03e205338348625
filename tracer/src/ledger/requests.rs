//! Driver requests apart from what they did: when one was in flight, what a death cut short, which calls it belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Book, api, objects::CLASS_MEMORY_LOCAL_USER};
use crate::map::Map;
use crate::trace::record::{Loss, Op, Rm, Source};

/// Requests shorter than this are not kept, nanoseconds: their end alone tells that the process was busy.
pub(super) const SHORT: u64 = 10_000_000;

/// What requests tell beside their effect.
#[derive(Clone, Default)]
pub(super) struct Requests {
    /// By process: times during which long requests that change memory were in flight, merged, in order.
    in_flight: HashMap<usize, Vec<(u64, u64)>>,
    /// Times in which requests of any process may have been lost, in order.
    blind: Vec<(u64, u64)>,
    unfinished: u64,
    /// API calls by the stack that shows them.
    called: Map<u32, Arc<[String]>>,
}

impl Requests {
    /// Notes a request of `process`.
    pub(super) fn add(&mut self, process: usize, rm: &Rm) {
        let changes_memory = match &rm.op {
            Op::Alloc(alloc) => alloc.class == CLASS_MEMORY_LOCAL_USER,
            Op::Free { .. } | Op::Dup { .. } | Op::Import { .. } | Op::Export { .. } => true,
            _ => false,
        };
        if !changes_memory {
            return;
        }
        self.unfinished += u64::from(rm.unfinished);
        if rm.start != 0 {
            self.busy(process, rm.start, rm.t);
        }
    }

    /// Notes that from `start` to `end` the driver's books and NVML's may differ. Given in order of the ends.
    ///
    /// Beside long requests, that is while a context is made: its memory comes piece by piece over a tenth of a second and
    /// more, and NVML does not list the process at first (H200, driver 580).
    pub(super) fn busy(&mut self, process: usize, mut start: u64, end: u64) {
        if end.saturating_sub(start) < SHORT {
            return;
        }
        let times = self.in_flight.entry(process).or_default();
        while let Some(last) = times.pop_if(|last| last.1 >= start) {
            start = start.min(last.0);
        }
        times.push((start, end));
    }

    /// Notes when requests may have been lost: what NVML said then cannot be held against what was seen.
    pub(super) fn lost(&mut self, loss: &Loss, ledger: Source) {
        if loss.since != 0 && loss.costs_bytes(ledger) {
            self.blind.push((loss.since, loss.t));
        }
    }

    /// Forgets requests that ended before `t`.
    pub(super) fn fold(&mut self, t: u64) {
        self.blind.retain(|&(_, end)| end >= t);
        self.in_flight.retain(|_, times| {
            times.retain(|&(_, end)| end >= t);
            !times.is_empty()
        });
    }

    /// True when a long request of `process` was in flight at any time from `from` to `to`, or one may have been lost.
    pub(super) fn in_flight(&self, process: usize, from: u64, to: u64) -> bool {
        let lost = self.blind.partition_point(|&(_, end)| end < from);
        if self.blind.get(lost).is_some_and(|&(since, _)| since <= to) {
            return true;
        }
        let times = self.in_flight.get(&process).map_or(&[][..], Vec::as_slice);
        let first = times.partition_point(|&(_, end)| end < from);
        times.get(first).is_some_and(|&(start, _)| start <= to)
    }

    /// What to say about requests that a death cut short.
    pub(super) fn notice(&self) -> Option<String> {
        let requests = match self.unfinished {
            0 => return None,
            1 => "1 driver request".to_owned(),
            n => format!("{n} driver requests"),
        };
        Some(format!(
            "{requests} for memory ended with the death of the calling thread; counted as done, which the driver may not \
             have come to"
        ))
    }

    /// API calls around a request without any that was probed, outermost first: those that its stack shows.
    pub(super) fn shown(&mut self, rm: &Rm, book: &Book) -> Option<Arc<[String]>> {
        let stack = rm.stack.filter(|_| rm.calls.is_empty())?;
        let read = || {
            let numbers = book.stacks.get(stack as usize).map_or(&[][..], Vec::as_slice);
            api::on_stack(numbers.iter().filter_map(|&number| book.frames.get(number as usize))).into()
        };
        Some(Arc::clone(self.called.entry(stack).or_insert_with(read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn free(start: u64, t: u64) -> Rm {
        Rm { start: start * MS, t: t * MS, op: Op::Free { client: 1, object: 2 }, ..Rm::default() }
    }

    #[test]
    fn long_requests_are_in_flight_from_begin_to_end() {
        let mut requests = Requests::default();
        // Of two threads; one that is short, one whose begin is not known.
        for rm in [free(100, 300), free(250, 400), free(1000, 1005), free(0, 2000), free(3000, 3100)] {
            requests.add(0, &rm);
        }
        let busy = |from: u64, to: u64| requests.in_flight(0, from * MS, to * MS);
        assert!(busy(99, 100) && busy(200, 201) && busy(310, 320) && busy(400, 401) && busy(0, 5000));
        assert!(!busy(98, 99) && !busy(401, 2999) && !busy(3101, 9000) && !requests.in_flight(1, 0, u64::MAX));
    }

    #[test]
    fn a_context_in_the_making_is_in_flight() {
        let mut requests = Requests::default();
        requests.busy(0, 100 * MS, 400 * MS);
        // One that was there already is had at once.
        requests.busy(0, 600 * MS, 600 * MS + 1000);
        assert!(requests.in_flight(0, 250 * MS, 251 * MS));
        assert!(!requests.in_flight(0, 500 * MS, 900 * MS));
    }

    #[test]
    fn nothing_is_quiet_while_events_are_lost() {
        let mut requests = Requests::default();
        let lost = |why: &str, since, t| Loss { why: why.to_owned(), since, t, count: 1 };
        requests.lost(&lost("ring_full", 100, 200), Source::Ioctl);
        requests.lost(&lost("ring_full_stack", 300, 400), Source::Ioctl);
        requests.lost(&lost("ring_full", 0, 500), Source::Ioctl);
        assert!(requests.in_flight(0, 50, 100) && requests.in_flight(7, 150, 160) && requests.in_flight(0, 200, 900));
        assert!(!requests.in_flight(0, 0, 99) && !requests.in_flight(0, 201, 900));
        requests.fold(201);
        assert!(!requests.in_flight(0, 0, 300));
    }

    #[test]
    fn requests_cut_short_are_counted() {
        let mut requests = Requests::default();
        requests.add(0, &free(1, 2));
        assert_eq!(requests.notice(), None);
        requests.add(0, &Rm { unfinished: true, ..free(1, 2) });
        requests.add(0, &Rm { unfinished: true, op: Op::GpuId { gpu_id: 1, instance: 0 }, ..free(1, 2) });
        assert!(requests.notice().is_some_and(|text| text.starts_with("1 driver request for memory")));
    }
}

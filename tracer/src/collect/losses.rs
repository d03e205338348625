//! The kernel side's loss counters, turned into records.

use tracer_ebpf::LOSSES;

use crate::trace::record::{Loss, Record};

/// Names by [`tracer_ebpf::Loss`].
const NAMES: [&str; LOSSES] = [
    "ring_full",
    "missed_return",
    "unknown_return",
    "too_deep",
    "unreadable_ioctl",
    "map_full",
    "unreadable_stack",
    "python_code",
    "output",
    "unfollowed",
    "ring_full_process",
    "ring_full_call",
    "ring_full_block",
    "ring_full_stack",
    "malformed",
];
/// Slot of records that this program could not read: no kernel counter uses it.
const MALFORMED: usize = LOSSES - 1;

/// What was reported so far.
#[derive(Debug, Default)]
pub(super) struct Losses {
    reported: [u64; LOSSES],
    /// When the counters were last looked at.
    looked: u64,
}

impl Losses {
    /// Records for what was lost since the last call.
    pub(super) fn update(&mut self, t: u64, counters: &[u64; LOSSES], malformed: u64) -> Vec<Record> {
        let mut now = *counters;
        now[MALFORMED] = malformed;
        let (mut records, since) = (Vec::new(), std::mem::replace(&mut self.looked, t));
        for ((why, &now), reported) in NAMES.iter().zip(&now).zip(&mut self.reported) {
            let count = now.saturating_sub(*reported);
            if count > 0 {
                records.push(Record::Loss(Loss { t, why: (*why).to_owned(), count, since }));
                *reported = now;
            }
        }
        records
    }

    /// Lost events that could carry bytes.
    #[must_use]
    pub(super) fn events(&self) -> u64 {
        let loss = |why: &str, count| Loss { why: why.to_owned(), count, ..Loss::default() };
        NAMES.iter().zip(self.reported).map(|(why, n)| loss(why, n)).filter(Loss::is_event).map(|l| l.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new() {
        let mut losses = Losses::default();
        let mut counters = [0; LOSSES];
        assert!(losses.update(1, &counters, 0).is_empty());
        counters[tracer_ebpf::Loss::RingFull as usize] = 3;
        counters[tracer_ebpf::Loss::UnreadableStack as usize] = 2;
        assert_eq!(losses.update(2, &counters, 0).len(), 2);
        assert!(losses.update(3, &counters, 0).is_empty());
        counters[0] = 5;
        let Record::Loss(loss) = &losses.update(4, &counters, 0)[0] else { panic!("a loss") };
        assert_eq!((loss.why.as_str(), loss.count, loss.since, loss.t), ("ring_full", 2, 3, 4));
        assert_eq!(losses.events(), 5, "a missing stack loses no event");
    }
}

//! Births and deaths in order of time: the order is worked out once, whatever is then summed over it.

use std::hash::Hash;

use super::{Allocation, Peak};
use crate::map::Map;

/// What happens to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is made.
    Birth,
    /// It goes.
    Death,
}

impl Change {
    /// Changes a sum of live bytes. Saturates: a damaged trace may claim more bytes than there can be.
    pub fn apply(self, live: &mut u64, bytes: u64) {
        *live = match self {
            Self::Birth => live.saturating_add(bytes),
            Self::Death => live.saturating_sub(bytes),
        };
    }
}

/// The order in which rows are born and die.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Row numbers by time of birth; `None`: as the rows stand.
    births: Option<Vec<u32>>,
    /// Row numbers by time of death, of those that died.
    deaths: Vec<u32>,
}

impl Changes {
    /// Of these rows.
    #[must_use]
    pub fn of(rows: &[Allocation]) -> Self {
        let numbered = || (0..).zip(rows);
        let births = numbered().map(|(n, row): (u32, _)| (row.born, n));
        let deaths = numbered().filter_map(|(n, row)| Some((row.died?.0, n)));
        Self { births: (!rows.is_sorted_by_key(|row| row.born)).then(|| sorted(births)), deaths: sorted(deaths) }
    }

    /// Visits births and deaths of `rows`, which this was made of; deaths come first where times coincide: memory replaced
    /// at one instant is never counted twice, as in [`Allocation::live_at`]. A row that died as it was born was never live
    /// and is left out, and so are deaths after the last birth, which cannot raise a peak.
    pub fn visit(&self, rows: &[Allocation], mut visit: impl FnMut(usize, Change)) {
        let died = |n: u32| rows[n as usize].died.map_or(u64::MAX, |(t, _)| t);
        let born = |n: u32| rows[n as usize].born;
        let mut deaths = self.deaths.iter().copied().filter(|n| died(*n) > born(*n)).peekable();
        let mut birth = |n: u32| {
            if died(n) <= born(n) {
                return;
            }
            while let Some(dead) = deaths.next_if(|dead| died(*dead) <= born(n)) {
                visit(dead as usize, Change::Death);
            }
            visit(n as usize, Change::Birth);
        };
        match &self.births {
            Some(births) => births.iter().for_each(|n| birth(*n)),
            None => (0..rows.len() as u32).for_each(birth),
        }
    }

    /// Most bytes that the rows of each key held at once, and when first; none for keys that never held any. Of `rows`, as in
    /// [`visit`](Self::visit).
    pub(crate) fn peaks<K: Eq + Hash>(&self, rows: &[Allocation], key: impl Fn(&Allocation) -> K) -> Map<K, Peak> {
        let mut now: Map<K, (u64, Peak)> = Map::default();
        self.visit(rows, |n, change| {
            let row = &rows[n];
            let (live, peak) = now.entry(key(row)).or_default();
            change.apply(live, row.bytes);
            if *live > peak.bytes {
                *peak = Peak { t: row.born, bytes: *live };
            }
        });
        now.into_iter().map(|(key, (_, peak))| (key, peak)).collect()
    }
}

/// Numbers in order of their times. Times and numbers lie together while they are sorted, which is most of the speed.
fn sorted(timed: impl Iterator<Item = (u64, u32)>) -> Vec<u32> {
    let mut timed: Vec<(u64, u32)> = timed.collect();
    timed.sort_unstable();
    timed.into_iter().map(|(_, n)| n).collect()
}

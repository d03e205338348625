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
    /// Row numbers; of those that die, with [`DEATH`].
    order: Vec<u32>,
}

/// Marks a death. A table of half as many rows is beyond any machine's memory.
const DEATH: u32 = 1 << 31;

impl Changes {
    /// Of these rows. Deaths come first where times coincide: memory replaced at one instant is never counted twice, as in
    /// [`Allocation::live_at`]. A row that died as it was born was never live and is left out, and so are deaths after the
    /// last birth, which cannot raise a peak.
    #[must_use]
    pub fn of(rows: &[Allocation]) -> Self {
        let was_live = |row: &Allocation| row.died.is_none_or(|(died, _)| died > row.born);
        let numbered = || (0..).zip(rows).filter(|(_, row)| was_live(row));
        let births = || numbered().map(|(n, row): (u32, _)| (row.born, n));
        let mut deaths = sorted(numbered().filter_map(|(n, row)| Some((row.died?.0, n)))).into_iter().peekable();
        let mut order = Vec::with_capacity(2 * rows.len());
        let mut birth = |(born, n)| {
            order.extend(std::iter::from_fn(|| deaths.next_if(|(died, _)| *died <= born)).map(|(_, n)| n | DEATH));
            order.push(n);
        };
        match rows.is_sorted_by_key(|row| row.born) {
            true => births().for_each(&mut birth),
            false => sorted(births()).into_iter().for_each(&mut birth),
        }
        Self { order }
    }

    /// Visits births and deaths by number of the row.
    pub fn visit(&self, mut visit: impl FnMut(usize, Change)) {
        for n in &self.order {
            let change = if n & DEATH == 0 { Change::Birth } else { Change::Death };
            visit((n & !DEATH) as usize, change);
        }
    }

    /// Most bytes that the rows of each key held at once, and when first; none for keys that never held any. Of `rows`, which
    /// this was made of.
    pub(crate) fn peaks<K: Eq + Hash>(&self, rows: &[Allocation], key: impl Fn(&Allocation) -> K) -> Map<K, Peak> {
        let mut now: Map<K, (u64, Peak)> = Map::default();
        self.visit(|n, change| {
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
fn sorted(timed: impl Iterator<Item = (u64, u32)>) -> Vec<(u64, u32)> {
    let mut timed: Vec<(u64, u32)> = timed.collect();
    timed.sort_unstable();
    timed
}

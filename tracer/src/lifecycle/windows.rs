//! Stretches of time in which something went on: communicators being made, streams being captured.

use std::hash::Hash;

use crate::map::Map;

/// Stretches by key, for the question which of them hold a moment.
#[derive(Debug)]
pub(super) struct Windows<K> {
    by_key: Map<K, Track>,
}

/// Those of one key, by start.
#[derive(Debug, Default)]
struct Track {
    spans: Vec<Span>,
    /// Latest end up to here: ends a search early.
    latest: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    number: usize,
}

impl<K: Eq + Hash> Windows<K> {
    /// Of `(key, start, end)`, numbered in this order.
    pub(super) fn new(spans: impl IntoIterator<Item = (K, u64, u64)>) -> Self {
        let mut by_key: Map<K, Track> = Map::default();
        for (number, (key, start, end)) in spans.into_iter().enumerate() {
            by_key.entry(key).or_default().spans.push(Span { start, end, number });
        }
        for track in by_key.values_mut() {
            track.spans.sort_by_key(|span| (span.start, span.number));
            let latest = track.spans.iter().scan(0, |latest, span| {
                *latest = span.end.max(*latest);
                Some(*latest)
            });
            track.latest = latest.collect();
        }
        Self { by_key }
    }

    /// Numbers of the stretches of `key` that hold `t`, both ends included; the last to begin first.
    pub(super) fn at(&self, key: &K, t: u64) -> impl Iterator<Item = usize> {
        let track = self.by_key.get(key);
        let (spans, latest) = track.map_or((&[][..], &[][..]), |track| (&track.spans[..], &track.latest[..]));
        let begun = spans.partition_point(|span| span.start <= t);
        let reach = spans[..begun].iter().zip(latest).rev().take_while(move |(_, latest)| **latest >= t);
        reach.filter(move |(span, _)| span.end >= t).map(|(span, _)| span.number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_moment_is_in_the_stretches_around_it(
            spans in prop::collection::vec((0..3_u8, 0..50_u64, 0..20_u64), 0..20), key in 0..3_u8, t in 0..80_u64,
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(key, start, long)| (key, start, start + long)).collect();
            let mut found: Vec<_> = Windows::new(spans.iter().copied()).at(&key, t).collect();
            found.sort_unstable();
            let holds = |(_, span): &(usize, &(u8, u64, u64))| span.0 == key && span.1 <= t && t <= span.2;
            let expected: Vec<_> = spans.iter().enumerate().filter(holds).map(|(n, _)| n).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

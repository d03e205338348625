//! The state that log lines put a process in.

use super::logs;
use super::rules::{LogRule, Rules};
use super::windows::Windows;
use crate::ledger::{Book, Family};

/// States with an end that may be open at once in one process.
const NESTED: usize = 8;

/// What the lines of one process say. Each list is in order of time.
#[derive(Clone, Debug, Default)]
struct Track {
    /// From here on.
    points: Vec<(u64, u16)>,
    /// From the first to the second time.
    spans: Vec<(u64, u64, u16)>,
    /// From here on, for the process and its descendants.
    tree: Vec<(u64, u16)>,
    /// From here on, where nothing else tells.
    weak: Vec<(u64, u16)>,
    /// The process and its ancestors.
    line: Vec<usize>,
}

/// States of all processes.
#[derive(Debug)]
pub(super) struct States {
    tracks: Vec<Track>,
    /// Rule of each of `spans`.
    rules: Vec<u16>,
    /// States with an end, by process.
    spans: Windows<usize>,
}

impl States {
    pub(super) fn new(book: &Book, rules: &Rules, family: &Family) -> Self {
        let mut tracks = vec![Track::default(); book.processes.len()];
        for log in &book.logs {
            let Some(track) = tracks.get_mut(log.process) else { continue };
            for piece in logs::pieces(&log.text) {
                let (begins, ends) = rules.of_line(logs::parse(piece).message);
                track.ends(log.t, &ends);
                if let Some(begins) = begins {
                    track.begins(log.t, begins);
                }
            }
        }
        for (process, track) in tracks.iter_mut().enumerate() {
            track.line = family.line(process);
            track.points.sort_by_key(|(t, _)| *t);
            track.tree.sort_by_key(|(t, _)| *t);
            track.weak.sort_by_key(|(t, _)| *t);
        }
        let spans = || tracks.iter().enumerate().flat_map(|(n, track)| track.spans.iter().map(move |span| (n, *span)));
        let rules = spans().map(|(_, (.., rule))| rule).collect();
        let spans = Windows::new(spans().map(|(n, (start, end, _))| (n, start, end)));
        Self { tracks, rules, spans }
    }

    /// The rule whose state `process` is in at `t`.
    pub(super) fn at(&self, process: usize, t: u64) -> Option<u16> {
        let track = self.tracks.get(process)?;
        if let Some(open) = self.spans.at(&process, t).next() {
            return Some(self.rules[open]);
        }
        let of_tree = track.line.iter().filter_map(|&n| latest(&self.tracks[n].tree, t));
        // At one moment the process's own line counts: it is met last.
        let told = of_tree.chain(latest(&track.points, t)).max_by_key(|(when, _)| *when);
        told.or_else(|| latest(&track.weak, t)).map(|(_, rule)| rule)
    }
}

impl Track {
    fn begins(&mut self, t: u64, log: &LogRule) {
        if log.ends {
            self.ends(t, &[log.rule]);
            self.spans.push((t, u64::MAX, log.rule));
            return;
        }
        let list = match (log.weak, log.tree) {
            (true, _) => &mut self.weak,
            (false, true) => &mut self.tree,
            (false, false) => &mut self.points,
        };
        // A server that serves says so over and over.
        if list.last().is_none_or(|(_, rule)| *rule != log.rule) {
            list.push((t, log.rule));
        }
    }

    fn ends(&mut self, t: u64, rules: &[u16]) {
        for (_, end, rule) in self.spans.iter_mut().rev().take(NESTED) {
            if *end == u64::MAX && rules.contains(rule) {
                *end = t;
            }
        }
    }
}

/// The last entry at or before `t`.
fn latest(list: &[(u64, u16)], t: u64) -> Option<(u64, u16)> {
    list[..list.partition_point(|(when, _)| *when <= t)].last().copied()
}

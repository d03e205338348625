use super::*;
use crate::report::testbook::{TestBook, any_book};
use proptest::prelude::*;

/// Differences summed up.
fn running(differences: &[i64]) -> Vec<i64> {
    differences.iter().scan(0, |sum, difference| Some(std::mem::replace(sum, *sum + difference) + difference)).collect()
}

fn times(track: &Track, width: u64) -> Vec<u64> {
    let unit = if track.exact { 1 } else { width };
    track.at.iter().scan(0, |sum, step| Some(std::mem::replace(sum, *sum + step) + step)).map(|at| at * unit).collect()
}

/// Bytes of all layers at each point.
fn totals(track: &Track) -> Vec<i64> {
    let parts: Vec<Vec<i64>> = track.parts.values().map(|part| running(part)).collect();
    (0..track.at.len()).map(|n| parts.iter().map(|part| part[n]).sum()).collect()
}

/// Live bytes of the track by the ledger.
fn live(book: &Book, track: &Track, t: u64) -> i64 {
    book.live_at(book.header.t + t, |row| row.process == track.process && row.gpu == track.gpu) as i64
}

#[test]
fn widths_can_be_read_out() {
    let cases = [(1, 1), (2, 2), (3, 5), (6, 10), (299_999_999, 500_000_000), (500_000_000, 500_000_000)];
    for (least, width) in cases {
        assert_eq!(nice_width(least), width);
    }
}

#[test]
fn few_changes_are_kept_one_by_one() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "a"), t.gpu(0));
    let row = t.at(100).allocate(process, gpu, 5);
    t.at(250).allocate(process, gpu, 7);
    t.at(300).free(row);
    let timeline = Timeline::new(&Axes::new(&t.book));
    let track = &timeline.tracks[0];
    assert!(track.exact && track.low.is_empty());
    assert_eq!((times(track, 1), totals(track)), (vec![100, 250, 300], vec![5, 12, 7]));
    assert_eq!((timeline.by, timeline.layers), ("kind", vec!["cuda_malloc".to_owned()]));
}

#[test]
fn a_spike_stays_as_high_as_it_was() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "a"), t.gpu(0));
    t.at(0).allocate(process, gpu, 100);
    for n in 0..5_000_u64 {
        let row = t.at(n * 10_000).allocate(process, gpu, if n == 3_333 { 1_000_000 } else { 3 });
        t.at(n * 10_000 + 1).free(row);
    }
    t.at(100_000_000).allocate(process, gpu, 1);
    let timeline = Timeline::new(&Axes::new(&t.book));
    let track = &timeline.tracks[0];
    assert_eq!((track.exact, timeline.bucket_ns, track.changes), (false, 50_000, 10_001));
    let (totals, low, last) = (totals(track), running(&track.low), running(&track.last));
    let spike = totals.iter().position(|total| *total == 1_000_100).unwrap();
    assert_eq!((low[spike], last[spike], times(track, 50_000)[spike]), (100, 100, 33_300_000));
    // Half of the time nothing changes: one point says so.
    assert_eq!(track.at.iter().max(), Some(&1000));
    assert_eq!(totals.last(), Some(&101));
}

#[test]
fn of_the_marks_in_a_bucket_the_most_telling_is_kept() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "a"), t.gpu(0));
    t.at(1).allocate(process, gpu, 100);
    t.at(10_000_000_000).allocate(process, gpu, 1);
    let base = 1_000_000;
    t.at(base).sample(process, gpu, 100, true);
    t.at(base + 1).sample(process, gpu, 90, true);
    t.at(base + 2).sample(process, gpu, 10, false);
    t.at(base + 3).fail(process, gpu, 77);
    let timeline = Timeline::new(&Axes::new(&t.book));
    let track = &timeline.tracks[0];
    assert_eq!((track.nvml.samples, &track.nvml.shown[..]), (3, &[[base + 1, 90, 100, 1]][..]));
    assert_eq!((track.failures.len(), track.failures[0].requested_bytes), (1, Some(77)));
}

#[test]
fn of_too_many_tracks_the_largest_are_drawn() {
    let mut t = TestBook::new();
    let gpu = t.gpu(0);
    for pid in 1..=80 {
        let process = t.process(pid, "a");
        t.allocate(process, gpu, u64::from(pid));
    }
    let timeline = Timeline::new(&Axes::new(&t.book));
    assert_eq!((timeline.tracks.len(), timeline.left_out), (64, 16));
    assert!(timeline.tracks.iter().all(|track| track.peak_bytes > 16));
}

/// Both ways to keep changes, at a width that puts several into a bucket.
fn check(book: &Book, width: u64) -> Result<(), TestCaseError> {
    let axes = Axes::new(book);
    for track in Timeline::new(&axes).tracks {
        for (t, total) in times(&track, 1).into_iter().zip(totals(&track)) {
            prop_assert_eq!(total, live(book, &track, t));
        }
        let mine = |row: &&Allocation| row.process == track.process && row.gpu == track.gpu;
        let mut changes: Vec<Change> = Vec::new();
        for row in book.allocations.iter().filter(mine).filter(|row| row.died.is_none_or(|(t, _)| t > row.born)) {
            let bytes = i128::from(row.bytes);
            changes.push(Change { t: since_start(book, row.born), layer: 0, bytes });
            changes.extend(row.died.map(|(t, _)| Change { t: since_start(book, t), layer: 0, bytes: -bytes }));
        }
        changes.sort_by_key(|change| change.t);
        for point in buckets(&changes, 1, width) {
            let held: Vec<i64> = (point.at * width..(point.at + 1) * width).map(|t| live(book, &track, t)).collect();
            let expected = (held.iter().max(), held.iter().min(), held.last());
            let (high, low, last) = (point.parts[0] as i64, point.low as i64, point.last as i64);
            prop_assert_eq!((Some(&high), Some(&low), Some(&last)), expected, "bucket {}", point.at);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn points_hold_what_the_ledger_held(book in any_book(), width in 1_u64..80) {
        check(&book, width)?;
    }
}

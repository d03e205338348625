//! The ledger against NVML's per-process figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::summary::since_start;
use crate::ledger::{Book, Sample};

/// One NVML sample with the ledger's value at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// When the query ended, since tracing began.
    pub time_ns: u64,
    /// NVML's figure.
    pub nvml_bytes: u64,
    /// The ledger's.
    pub live_bytes: u64,
    /// No allocation or free was in flight around it: only then must the two be equal.
    pub quiet: bool,
}

impl Reading {
    pub(super) fn new(book: &Book, sample: &Sample) -> Self {
        let time_ns = since_start(book, sample.t);
        Self { time_ns, nvml_bytes: sample.nvml, live_bytes: sample.live, quiet: sample.quiet }
    }
}

/// The ledger against NVML on one device of one process. Only quiet samples are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Compared {
    /// NVML samples.
    pub samples: u64,
    /// Quiet ones among them.
    pub quiet_samples: u64,
    /// NVML's figure in the last quiet sample up to the moment looked at.
    pub nvml_bytes: Option<u64>,
    /// The ledger's in the same sample.
    pub live_bytes: Option<u64>,
    /// Largest difference in any quiet sample.
    pub worst_residual_bytes: Option<u64>,
    /// Share of NVML's bytes that the ledger explains.
    pub explained_percent: Option<f64>,
}

impl Compared {
    pub(super) fn new(samples: &[&Sample], at: u64) -> Self {
        let quiet = || samples.iter().copied().filter(|sample| sample.quiet);
        let last = quiet().filter(|sample| sample.t <= at).max_by_key(|sample| sample.t);
        Self {
            samples: samples.len() as u64,
            quiet_samples: quiet().count() as u64,
            nvml_bytes: last.map(|sample| sample.nvml),
            live_bytes: last.map(|sample| sample.live),
            worst_residual_bytes: quiet().map(|sample| sample.nvml.abs_diff(sample.live)).max(),
            explained_percent: explained_percent(samples.iter().copied()),
        }
    }
}

/// 100 × (1 − Σ|nvml − live| / Σ nvml) over quiet samples: 100 only when every one agrees to the byte. `None` when no quiet
/// sample shows memory.
pub fn explained_percent<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Option<f64> {
    let (mut nvml, mut off) = (0_u128, 0_u128);
    for sample in samples.into_iter().filter(|sample| sample.quiet) {
        nvml += u128::from(sample.nvml);
        off += u128::from(sample.nvml.abs_diff(sample.live));
    }
    (nvml > 0).then(|| 100.0 * (1.0 - off as f64 / nvml as f64))
}

/// `percent` with one digit, rounded down: `100.0` stands for equality to the byte and nothing less.
#[must_use]
pub fn format_percent(percent: f64) -> String {
    format!("{:.1}", (percent * 10.0).floor() / 10.0)
}

/// Samples by process and GPU, in order of time.
pub(super) fn by_device(samples: &[Sample]) -> BTreeMap<(usize, usize), Vec<&Sample>> {
    let mut pairs: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        pairs.entry((sample.process, sample.gpu)).or_default().push(sample);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(t: u64, nvml: u64, live: u64, quiet: bool) -> Sample {
        Sample { t, process: 0, gpu: 0, nvml, live, quiet }
    }

    #[test]
    fn the_explained_share_is_over_quiet_samples() {
        let exact = sample(1, 542_113_792, 542_113_792, true);
        let short = sample(2, 400, 300, true);
        let over = sample(2, 600, 700, true);
        let busy = sample(3, 500, 0, false);
        assert_eq!(explained_percent(&[exact.clone(), busy.clone()]), Some(100.0));
        // Differences of opposite sign do not cancel.
        assert_eq!(explained_percent(&[short, over]), Some(80.0));
        assert_eq!(explained_percent(&[busy, sample(4, 0, 0, true)]), None);
    }

    #[test]
    fn the_figures_shown_are_those_of_the_last_quiet_sample_before_the_moment() {
        let samples =
            [sample(1, 10, 10, true), sample(5, 30, 20, true), sample(6, 99, 0, false), sample(9, 7, 7, true)];
        let samples: Vec<_> = samples.iter().collect();
        let compared = Compared::new(&samples, 8);
        assert_eq!((compared.nvml_bytes, compared.live_bytes), (Some(30), Some(20)));
        assert_eq!((compared.samples, compared.quiet_samples, compared.worst_residual_bytes), (4, 3, Some(10)));
        assert_eq!(Compared::new(&samples, 0).nvml_bytes, None);
    }

    #[test]
    fn only_equality_reads_as_one_hundred() {
        assert_eq!(format_percent(100.0), "100.0");
        assert_eq!(format_percent(99.999_999), "99.9");
        assert_eq!(format_percent(-3.21), "-3.3");
    }

    proptest! {
        #[test]
        fn one_byte_off_is_not_one_hundred(nvml in 1..1_u64 << 47, off in 1..1024_u64) {
            let percent = explained_percent(&[sample(1, nvml, nvml.saturating_sub(off), true)]).unwrap();
            prop_assert!(percent < 100.0);
            prop_assert_ne!(format_percent(percent), "100.0");
        }
    }
}

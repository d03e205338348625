//! A figure and where it comes from, and the arithmetic of fractions.

use serde::Serialize;

/// How a figure was found, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The process's own reading; the Python frame around it tells what it was for.
    ReadingByFrame,
    /// The process's own reading; its place among the lines of the log tells what it was for.
    ReadingByOrder,
    /// The log prints it, rounded to a hundredth of a GiB.
    Printed,
    /// Command line.
    CommandLine,
    /// The ledger's bytes.
    Ledger,
}

/// A figure of a budget, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// What it is: `available`, `pre_load`, `mem_fraction_static`, …
    pub figure: &'static str,
    /// Bytes; `None` for what is no size.
    pub bytes: Option<u64>,
    /// How it was found.
    pub from: Found,
    /// The evidence in words.
    pub text: String,
}

/// The smallest fraction of two decimals under which something is left of `available`, when `before` × (1 − fraction) must
/// stay free. `None` where none up to 0.99 leaves anything.
pub(super) fn smallest_fraction(available: u64, before: u64) -> Option<f64> {
    fraction_leaving(1, available, before)
}

/// The smallest fraction of two decimals that leaves at least `rest` bytes of `available`.
pub(in crate::report) fn fraction_leaving(rest: u64, available: u64, before: u64) -> Option<f64> {
    // Hundredths, so that no rounding of binary fractions decides.
    (1..100_u32).map(|hundredths| f64::from(hundredths) / 100.0).find(|fraction| {
        let left = rest_bytes(available, before, *fraction);
        u64::try_from(left).is_ok_and(|left| left >= rest.max(1))
    })
}

/// `available − before × (1 − fraction)`, as `SGLang` sizes its pool, to the byte.
pub(in crate::report) fn rest_bytes(available: u64, before: u64, fraction: f64) -> i64 {
    let reserve = (before as f64 * (1.0 - fraction)).round();
    (i128::from(available) - reserve as i128).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// `0.55`, `0.8`, `0.839`: a fraction as people write it.
pub(in crate::report) fn fraction(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A size with its sign: `-21.00 GiB`.
pub(in crate::report) fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", crate::report::bytes::human(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CENTI_GIB: u64 = (1 << 30) / 100;

    #[test]
    fn the_founding_case() {
        let (available, before) = (2170 * CENTI_GIB, 9490 * CENTI_GIB);
        assert_eq!(signed(rest_bytes(available, before, 0.55)), "-21.00 GiB");
        assert_eq!(signed(rest_bytes(available, before, 0.88)), "10.31 GiB");
        // 1 − 21.70 / 94.90 = 0.7713.
        assert_eq!(smallest_fraction(available, before), Some(0.78));
        assert_eq!(fraction_leaving(1042 * CENTI_GIB, available, before), Some(0.89));
    }

    #[test]
    fn nothing_left_is_no_room() {
        assert_eq!(smallest_fraction(50, 100), Some(0.51), "0.5 leaves exactly nothing");
        assert_eq!(smallest_fraction(0, 100), None);
        assert_eq!(fraction(0.3), "0.3");
        assert_eq!(fraction(1.0), "1");
    }

    proptest! {
        #[test]
        fn the_smallest_fraction_works_and_less_does_not(available in 1..1_u64 << 40, before in 1..1_u64 << 40) {
            if let Some(smallest) = smallest_fraction(available, before) {
                prop_assert!(rest_bytes(available, before, smallest) > 0);
                prop_assert!(smallest < 0.015 || rest_bytes(available, before, smallest - 0.01) <= 0);
            } else {
                prop_assert!(rest_bytes(available, before, 0.99) <= 0);
            }
        }
    }
}

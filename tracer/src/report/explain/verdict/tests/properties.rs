//! What holds of any two runs.

use proptest::prelude::*;

use super::*;
use crate::report::{diff::When, query::Moments, testbook::any_book};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Topics divide the difference: they sum to it, whatever the runs.
    #[test]
    fn topics_sum_to_the_difference((base, other) in (any_book(), any_book())) {
        let axes = [Axes::new(&base), Axes::new(&other)];
        let runs = [0, 1].map(|n| Run { name: ["a", "b"][n], axes: &axes[n] });
        let question = Question { when: When::At(At::End), ..Question::default() };
        let diff = Diff::new(&runs[0], &runs[1], &question).unwrap();
        let moments = [0, 1].map(|n| Moments::new(&axes[n], At::End).unwrap());
        let facts = [0, 1].map(|n| Facts::new("x", &axes[n], &moments[n]));
        let pair = Pair::new(&facts[0], &facts[1], &diff);
        let sum: i64 = topics::sums(&pair).iter().map(topics::Bytes::delta).sum();
        prop_assert_eq!(sum, diff.bytes.delta_bytes);
    }
}

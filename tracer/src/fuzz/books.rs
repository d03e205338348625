//! Books that make sense, written as a `PyTorch` snapshot and in every other form.

use std::path::Path;

use super::{outputs, pickle as reader, scenario};
use crate::{
    lifecycle::{Axes, Rules},
    report::{
        At,
        export::{Format, Job},
        folded,
    },
};

/// Any run: its snapshot must be a pickle that a viewer can read, and hold what the report says.
pub fn pickle(data: &[u8]) {
    let Some((what, data)) = data.split_first() else { return };
    let book = scenario::book(data);
    let rules = Rules::standard();
    let axes = Axes::with_rules(&book, rules);
    let nowhere = Path::new("/nonexistent");
    let job = Job { axes: &axes, trace: nowhere, value: folded::Value::Live, at: At::End, by: &folded::ROOTS };
    let mut bytes = Vec::new();
    let format = Format::named("torch-snapshot").expect("a format");
    if format.write(&job, &mut bytes).is_ok() {
        reader::check(&bytes).expect("a snapshot that can be read");
    }
    let which = usize::from(what / 12);
    match what % 12 {
        0 => outputs::report(&book, rules, which),
        1 => outputs::compare(&book, &book, rules, which),
        2 => outputs::pictures(&book, rules),
        3 => {
            let half = scenario::book(&data[..data.len() / 2]);
            outputs::compare(&half, &book, rules, which);
        }
        n => outputs::export(&book, rules, nowhere, usize::from(n) - 4),
    }
}

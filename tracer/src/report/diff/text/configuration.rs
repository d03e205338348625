//! What was different in how the runs were started.

use crate::report::diff::Setting;
use crate::report::text::plain::{columns, fit, plain};
use crate::report::text::table::{Column, Table, WIDTH};
use crate::report::text::{Style, sentence};

/// Settings shown.
const ROWS: usize = 12;
/// Columns that two alike values may take before what they have in common is cut.
const VALUE: usize = 34;

/// Settings that differ; those that differ between any two runs in one line.
pub(super) fn table(settings: &[Setting], style: Style) -> String {
    let (noise, telling): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.noise);
    let mut text = String::new();
    if telling.is_empty() {
        text += &sentence("Configuration: no difference seen in arguments, environment, libraries or host");
    } else {
        text += &(style.title("Configuration") + "\n");
        let mut table = Table::new(["Setting", "BASE", "OTHER"].map(Column::Name).to_vec());
        for setting in telling.iter().take(ROWS) {
            let (base, other) = apart(&value(setting.base.as_deref()), &value(setting.other.as_deref()));
            table.row([setting.key.clone(), base, other]);
        }
        text += &table.render();
        if telling.len() > ROWS {
            text += &format!("  … and {} more (--format json lists all)\n", telling.len() - ROWS);
        }
    }
    if !noise.is_empty() {
        let names: Vec<&str> = noise.iter().map(|setting| setting.key.as_str()).collect();
        let line = format!("  as between any two runs: {}", names.join(", "));
        text += &(fit(&plain(&line), WIDTH) + "\n");
    }
    text
}

fn value(value: Option<&str>) -> String {
    match value {
        None => "(not set)".to_owned(),
        Some("") => "(set)".to_owned(),
        Some(value) => value.to_owned(),
    }
}

/// Two long values without most of what they have in common at either end.
fn apart(base: &str, other: &str) -> (String, String) {
    const CONTEXT: usize = 8;
    if columns(base).max(columns(other)) <= VALUE {
        return (base.to_owned(), other.to_owned());
    }
    let [base, other] = [base, other].map(|text| text.chars().collect::<Vec<char>>());
    let shorter = base.len().min(other.len());
    let head = base.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let tail = base.iter().rev().zip(other.iter().rev()).take(shorter - head).take_while(|(a, b)| a == b).count();
    let (skip, keep) = (head.saturating_sub(CONTEXT), tail.saturating_sub(CONTEXT));
    let cut = |text: &[char]| {
        let middle: String = text[skip..text.len() - keep].iter().collect();
        let mark = |cut: usize| if cut > 0 { "…" } else { "" };
        format!("{}{middle}{}", mark(skip), mark(keep))
    };
    (cut(&base), cut(&other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn alike_values_show_what_differs() {
        let list = |n: u32| (0..40).map(|i| (i * n).to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(apart("0.88", "0.55"), ("0.88".to_owned(), "0.55".to_owned()));
        let (base, other) = apart(&format!("{},a,{}", list(1), list(2)), &format!("{},bb,{}", list(1), list(2)));
        assert_eq!((base.as_str(), other.as_str()), ("…7,38,39,a,0,2,4,6…", "…7,38,39,bb,0,2,4,6…"));
    }

    proptest! {
        #[test]
        fn any_two_values_can_be_told_apart(base in ".{0,80}", other in ".{0,80}") {
            let (a, b) = apart(&base, &other);
            prop_assert_eq!(a == b, base == other);
        }
    }
}

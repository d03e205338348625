//! Two values of a setting, short enough to be read side by side.

use super::text::plain::columns;

/// Columns that two alike values may take before what they have in common is cut.
const VALUE: usize = 34;

/// Two long values without most of what they have in common at either end.
pub(super) fn apart(base: &str, other: &str) -> (String, String) {
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

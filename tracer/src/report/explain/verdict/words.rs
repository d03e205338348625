//! Phrases that several judges use.

use std::collections::BTreeMap;

use crate::report::apart::apart;
use crate::report::bytes::human;
use crate::report::diff::Setting;

/// Characters of a value that a sentence bears.
const LONG: usize = 60;

/// A difference with its sign: `+24.0 MiB`.
pub(super) fn delta(bytes: i64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        more if more > 0 => format!("+{}", human(more.unsigned_abs())),
        less => format!("-{}", human(less.unsigned_abs())),
    }
}

/// Differences by rank in one phrase: `+24.0 MiB a rank (8 ranks, +192.0 MiB in all)`, `+518.0 MiB in TP0`.
pub(super) fn by_rank(deltas: &BTreeMap<String, i64>) -> String {
    by_member(deltas, ["rank", "ranks"])
}

/// The same of processes some of which are no ranks.
pub(super) fn by_process(deltas: &BTreeMap<String, i64>) -> String {
    by_member(deltas, ["process", "processes"])
}

fn by_member(deltas: &BTreeMap<String, i64>, [one, several]: [&str; 2]) -> String {
    let changed: Vec<(&String, i64)> =
        deltas.iter().filter(|(_, bytes)| **bytes != 0).map(|(rank, n)| (rank, *n)).collect();
    let total = changed.iter().fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let least = changed.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
    let most = changed.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    match &changed[..] {
        [] => "0 B".to_owned(),
        [(rank, bytes)] => format!("{} in {rank}", delta(*bytes)),
        _ if delta(least) == delta(most) => {
            format!("{} a {one} ({} {several}, {} in all)", delta(least), changed.len(), delta(total))
        }
        _ => {
            let (least, most, total) = (delta(least), delta(most), delta(total));
            format!("{least} to {most} a {one} ({} {several}, {total} in all)", changed.len())
        }
    }
}

/// `NCCL_CUMEM_ENABLE not set → 1`.
pub(super) fn setting(setting: &Setting) -> String {
    let value = |value: &Option<String>| match value.as_deref() {
        None => "not set".to_owned(),
        Some("") => "set".to_owned(),
        Some(value) => value.to_owned(),
    };
    let (base, other) = apart(&value(&setting.base), &value(&setting.other));
    let short = |value: String| value.chars().take(LONG).collect::<String>();
    format!("{} {} → {}", setting.key, short(base), short(other))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `TP0`, `TP0 and TP1`, `8 ranks`.
pub(super) fn ranks(ranks: &[String]) -> String {
    if ranks.len() > 3 { format!("{} ranks", ranks.len()) } else { list(ranks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_by_rank_are_short() {
        let of = |deltas: &[(&str, i64)]| by_rank(&deltas.iter().map(|(rank, n)| ((*rank).to_owned(), *n)).collect());
        assert_eq!(of(&[("TP0", 24 << 20), ("TP1", 24 << 20)]), "+24.0 MiB a rank (2 ranks, +48.0 MiB in all)");
        assert_eq!(of(&[("TP0", 24 << 20), ("TP1", 0)]), "+24.0 MiB in TP0");
        assert_eq!(of(&[("TP0", -1024), ("TP1", 2048)]), "-1.0 KiB to +2.0 KiB a rank (2 ranks, +1.0 KiB in all)");
        assert_eq!((of(&[]), delta(i64::MIN)), ("0 B".to_owned(), "-8.00 EiB".to_owned()));
        assert_eq!(list(&["a", "b", "c"].map(str::to_owned)), "a, b and c");
    }
}

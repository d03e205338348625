//! Text from traces made safe and short: names come from the traced machine and may hold anything.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` with everything that could steer a terminal or reorder a line written out (`\u{1b}`).
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => plain.push(' '),
            c if c.is_control() || is_invisible(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    plain
}

/// Line and paragraph separators, zero-width characters and bidirectional controls.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{ad}')
}

/// Columns that `text` takes.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.width()
}

/// `text` in at most `width` columns: what does not fit is cut from its middle, as names differ at either end.
#[must_use]
pub fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = take(text.chars(), room.div_ceil(2));
    let mut tail: Vec<char> = take(text.chars().rev(), room - room.div_ceil(2)).chars().collect();
    tail.reverse();
    let tail: String = tail.into_iter().collect();
    if width == 0 { String::new() } else { format!("{head}…{tail}") }
}

/// The first characters of `chars` that fit in `width` columns.
fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// `text` broken at spaces into lines of at most `width` columns. Lines after the first begin with `indent` spaces, the first
/// with its own, at most as many.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let words = text.trim_start_matches(' ');
    let mut lines: Vec<String> = vec![" ".repeat((text.len() - words.len()).min(indent))];
    for word in words.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        let word = fit(word, width - indent);
        if line.trim().is_empty() || columns(line) + 1 + columns(&word) <= width {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        } else {
            lines.push(format!("{}{word}", " ".repeat(indent)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_are_written_out() {
        assert_eq!(plain("a\x1b[31mb\tc\nd\u{202e}e\u{9b}f"), "a\\u{1b}[31mb c\\u{a}d\\u{202e}e\\u{9b}f");
    }

    #[test]
    fn long_text_is_cut_in_its_middle() {
        assert_eq!(fit("sglang::scheduler_TP0", 11), "sglan…r_TP0");
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("日本語日本語", 5), "日…語");
        assert_eq!(fit("ab", 1), "…");
        assert_eq!(fit("ab", 0), "");
    }

    #[test]
    fn sentences_wrap_at_spaces() {
        assert_eq!(wrap("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrap("  one two", 6, 2), "  one\n  two");
    }

    proptest! {
        #[test]
        fn whatever_comes_fits_and_is_safe(text in "\\PC{0,80}|[\u{0}-\u{ff}]{0,80}|.{0,80}", width in 4..40_usize) {
            let safe = plain(&text);
            prop_assert!(!safe.chars().any(|c| c.is_control() || is_invisible(c)));
            prop_assert!(columns(&fit(&safe, width)) <= width);
            for line in wrap(&safe, width, 2).lines() {
                prop_assert!(columns(line) <= width, "{line:?}");
            }
        }
    }
}

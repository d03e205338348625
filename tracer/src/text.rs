//! Texts of bounded length: what comes from a target may be of any.

/// The longest beginning of `text` of at most `most` bytes.
pub(crate) fn prefix(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rfind(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}

/// The text, or its beginning of at most `most` bytes and a sign that more is missing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { format!("{}…", prefix(text, most)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_character_is_split_and_none_left_out_that_fits(text in ".{0,20}", most in 0_usize..40) {
            let kept = prefix(&text, most);
            prop_assert!(kept.len() <= most && text.starts_with(kept));
            prop_assert!(text[kept.len()..].chars().next().is_none_or(|next| kept.len() + next.len_utf8() > most));
            let cut = cut(&text, most);
            prop_assert_eq!(cut.strip_suffix('…').unwrap_or(&cut), kept);
            prop_assert_eq!(cut == text, text.len() <= most);
        }
    }
}

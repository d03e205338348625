//! Strings on their way to the page: what could reorder a line is written out, what is too long is cut.

use serde_json::Value;

use crate::report::text::plain::plain;

/// Longest string kept, in characters. Symbols of templates reach a few thousand.
const LONGEST: usize = 2000;
/// Bytes of strings in all before they are cut shorter.
const ALL: usize = 4 << 20;
/// Strings are never cut below this.
const SHORTEST: usize = 60;

/// `value` with every string safe to show, and not longer than the page can take.
pub(super) fn clean(value: Value) -> Value {
    let mut longest = LONGEST;
    while longest > SHORTEST && size(&value, longest) > ALL {
        longest /= 2;
    }
    cleaned(value, longest)
}

/// Bytes of all strings when none is longer than `longest`.
fn size(value: &Value, longest: usize) -> usize {
    match value {
        Value::String(text) => text.len().min(longest),
        Value::Array(items) => items.iter().map(|item| size(item, longest)).sum(),
        Value::Object(fields) => fields.iter().map(|(name, item)| name.len() + size(item, longest)).sum(),
        _ => 0,
    }
}

fn cleaned(value: Value, longest: usize) -> Value {
    match value {
        Value::String(text) => Value::String(cut(&plain(&text), longest)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| cleaned(item, longest)).collect()),
        Value::Object(fields) => {
            let field = |(name, item): (String, Value)| (cut(&plain(&name), longest), cleaned(item, longest));
            Value::Object(fields.into_iter().map(field).collect())
        }
        other => other,
    }
}

/// `text` with its middle left out, where it is longer than `longest` characters: names differ at either end.
fn cut(text: &str, longest: usize) -> String {
    let length = if text.len() > longest { text.chars().count() } else { 0 };
    if length <= longest {
        return text.to_owned();
    }
    let head: String = text.chars().take(longest * 2 / 3).collect();
    let tail: String = text.chars().skip(length - longest / 3).collect();
    let left_out = length - head.chars().count() - tail.chars().count();
    format!("{head} …{left_out} characters… {tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_reorders_a_line_is_written_out() {
        let value = clean(json!({"a\u{202e}b": ["x\u{202e}y", 7, null], "<script>": "</script>"}));
        assert_eq!(value, json!({"a\\u{202e}b": ["x\\u{202e}y", 7, null], "<script>": "</script>"}));
    }

    #[test]
    fn long_names_keep_both_ends() {
        let text = format!("{}{}{}", "a".repeat(5000), "ü", "z".repeat(5000));
        let value = clean(json!(text));
        let kept = value.as_str().unwrap();
        assert!(kept.starts_with("aaa") && kept.ends_with("zzz") && kept.contains(" …8002 characters… "), "{kept}");
        assert_eq!(clean(json!("short")), json!("short"));
    }

    #[test]
    fn many_long_names_are_cut_shorter() {
        let names: Vec<String> = (0..20_000).map(|n| format!("{n}{}", "x".repeat(5000))).collect();
        let cleaned = clean(json!(names)).to_string();
        assert!(cleaned.len() < 2 * ALL, "{}", cleaned.len());
    }
}

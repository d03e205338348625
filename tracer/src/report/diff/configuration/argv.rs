//! A command line, option by option.

use std::collections::BTreeMap;

/// Name of the words that are no option's: program, script, sub-command.
pub(super) const COMMAND: &str = "command";

/// Options of a command line with their values, and its other words under [`COMMAND`].
///
/// Which options take a value is not known, so an option has all words up to the next one. A value given twice is both.
pub(super) fn options(words: &[String]) -> BTreeMap<String, String> {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |name: &str, value: &str| match options.get_mut(name) {
        Some(known) if !value.is_empty() => *known = format!("{known} {value}").trim_start().to_owned(),
        Some(_) => {}
        None => drop(options.insert(name.to_owned(), value.to_owned())),
    };
    let mut open = COMMAND;
    for word in words {
        if !is_option(word) {
            add(open, word);
            continue;
        }
        match word.split_once('=') {
            Some((name, value)) => {
                add(name, value);
                open = COMMAND;
            }
            None => {
                add(word, "");
                open = word;
            }
        }
    }
    options
}

/// `--name` or `-n`, but no negative number and no lone dash.
fn is_option(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_values() {
        let line = "python3 -m sglang.launch_server --tp 8 --mem-fraction-static=0.55 --enable-metrics --bs 1 2 4 --x -1.5 --bs 8 -";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let options = options(&words);
        let get = |name: &str| options.get(name).map(String::as_str);
        assert_eq!(get(COMMAND), Some("python3"));
        assert_eq!(get("-m"), Some("sglang.launch_server"));
        assert_eq!((get("--tp"), get("--mem-fraction-static")), (Some("8"), Some("0.55")));
        assert_eq!((get("--enable-metrics"), get("--x")), (Some(""), Some("-1.5")));
        assert_eq!(get("--bs"), Some("1 2 4 8 -"));
        assert_eq!(options.len(), 7);
    }
}

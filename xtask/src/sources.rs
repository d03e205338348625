//! The `non-free` component beside the `main` one that a machine's package sources name.
//!
//! Built from the machine's own sources, so that its mirror and its keys are used, whatever they are.

/// Source entries for `codename`'s `non-free`, in the form of the file they come from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NonFree {
    /// Lines for a `.list` file.
    pub(crate) list: String,
    /// Stanzas for a `.sources` file.
    pub(crate) stanzas: String,
}

impl NonFree {
    /// Adds what a source file (named `name`) gives.
    pub(crate) fn add(&mut self, name: &str, text: &str, codename: &str) {
        let entry = |out: &mut String, entry: String| {
            if !out.contains(&entry) {
                out.push_str(&entry);
            }
        };
        if name.ends_with(".sources") {
            stanzas(text).filter_map(|stanza| from_stanza(&stanza, codename)).for_each(|s| entry(&mut self.stanzas, s));
        } else if name.ends_with(".list") {
            text.lines().filter_map(|line| from_line(line, codename)).for_each(|l| entry(&mut self.list, l));
        }
    }

    /// True when no source of the release was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.stanzas.is_empty()
    }
}

/// `deb [options] URI SUITE COMPONENT…` (sources.list(5)), with `non-free` for its components.
fn from_line(line: &str, codename: &str) -> Option<String> {
    let words = line.split('#').next()?.trim().strip_prefix("deb ")?.trim_start();
    let (options, words) = match words.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(options, rest)| (format!("[{options}] "), rest))?,
        None => (String::new(), words),
    };
    let mut words = words.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let fits = suite == codename && words.any(|component| component == "main");
    fits.then(|| format!("deb {options}{uri} {codename} non-free\n"))
}

/// The stanzas of a deb822 file: fields as (name, value), continuation lines kept in the value.
fn stanzas(text: &str) -> impl Iterator<Item = Vec<(String, String)>> {
    let mut all = vec![Vec::<(String, String)>::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some(last) = all.last_mut().and_then(|stanza| stanza.last_mut()) {
                last.1 += "\n";
                last.1 += line;
            }
        } else if let (Some((name, value)), Some(stanza)) = (line.split_once(':'), all.last_mut()) {
            stanza.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    all.into_iter()
}

/// A stanza with `non-free` for its components and `codename` alone for its suites.
fn from_stanza(stanza: &[(String, String)], codename: &str) -> Option<String> {
    let field =
        |name: &str| stanza.iter().find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1.as_str());
    let has = |name: &str, word: &str| field(name).is_some_and(|value| value.split_whitespace().any(|w| w == word));
    let disabled = field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
    if disabled || !has("Types", "deb") || !has("Suites", codename) || !has("Components", "main") {
        return None;
    }
    let replaced = |name: &str, value: &str| {
        Some(match name.to_ascii_lowercase().as_str() {
            "types" => "deb".to_owned(),
            "suites" => codename.to_owned(),
            "components" => "non-free".to_owned(),
            _ => value.to_owned(),
        })
    };
    let lines = stanza.iter().filter_map(|(name, value)| Some(format!("{name}: {}\n", replaced(name, value)?)));
    Some(lines.collect::<String>() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn non_free(name: &str, text: &str) -> NonFree {
        let mut found = NonFree::default();
        found.add(name, text, "bookworm");
        found
    }

    #[test]
    fn a_stanza_keeps_its_mirror_and_key() {
        let text = "Types: deb deb-src\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main contrib\nSigned-By: /usr/share/keyrings/k.gpg\n\n\
                    Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main\n";
        let expected = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: non-free\n\
                        Signed-By: /usr/share/keyrings/k.gpg\n\n";
        assert_eq!(non_free("debian.sources", text), NonFree { list: String::new(), stanzas: expected.into() });
    }

    #[test]
    fn an_inline_key_stays_whole() {
        let text =
            "Types: deb\nURIs: http://m/\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n";
        assert!(non_free("a.sources", text).stanzas.contains("Signed-By: \n -----BEGIN\n .\n abc\n"));
    }

    #[test]
    fn a_disabled_stanza_gives_nothing() {
        let text = "Enabled: no\nTypes: deb\nURIs: http://m/\nSuites: bookworm\nComponents: main\n";
        assert!(non_free("a.sources", text).is_empty());
    }

    #[test]
    fn a_line_keeps_its_options() {
        let text = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main # the mirror\n\
                    deb-src http://mirror.example/debian bookworm main\n# deb http://old/ bookworm main\n\
                    deb http://mirror.example/debian bookworm-updates main\n";
        let expected = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm non-free\n";
        assert_eq!(non_free("sources.list", text).list, expected);
    }

    #[test]
    fn other_archives_and_other_releases_are_left_out() {
        assert!(non_free("vendor.list", "deb https://vendor.example/apt vendor-bookworm main\n").is_empty());
        assert!(non_free("a.list", "deb http://m/ trixie main\n").is_empty());
        assert!(non_free("a.list", "deb [broken http://m/ bookworm main\n").is_empty());
        assert!(non_free("a.list.save", "deb http://m/ bookworm main\n").is_empty());
    }

    #[test]
    fn the_same_mirror_twice_counts_once() {
        let line = "deb http://m/ bookworm main\n";
        assert_eq!(non_free("a.list", &line.repeat(2)).list, "deb http://m/ bookworm non-free\n");
    }
}

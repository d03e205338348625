//! Other components and suites of the archive that a machine's package sources name.
//!
//! Built from the machine's own sources, so that its mirror and its keys are used, whatever they are.

/// What to take from an archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Suite; the machine's own by its codename.
    pub(crate) suite: &'a str,
    pub(crate) component: &'a str,
}

/// Source entries for what is wanted, in the form of the file they come from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Lines for a `.list` file.
    pub(crate) list: String,
    /// Stanzas for a `.sources` file.
    pub(crate) stanzas: String,
}

impl Sources {
    /// Adds what a source file (named `name`) gives: the archives of its entries for `main` of `codename`.
    pub(crate) fn add(&mut self, name: &str, text: &str, codename: &str, wanted: Wanted<'_>) {
        let entry = |out: &mut String, entry: String| {
            if !out.contains(&entry) {
                out.push_str(&entry);
            }
        };
        if name.ends_with(".sources") {
            stanzas(text)
                .filter_map(|stanza| from_stanza(&stanza, codename, wanted))
                .for_each(|s| entry(&mut self.stanzas, s));
        } else if name.ends_with(".list") {
            text.lines().filter_map(|line| from_line(line, codename, wanted)).for_each(|l| entry(&mut self.list, l));
        }
    }

    /// True when no source of the release was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.stanzas.is_empty()
    }
}

/// `deb [options] URI SUITE COMPONENT…` (sources.list(5)), with what is wanted for suite and components.
fn from_line(line: &str, codename: &str, wanted: Wanted<'_>) -> Option<String> {
    let words = line.split('#').next()?.trim().strip_prefix("deb ")?.trim_start();
    let (options, words) = match words.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(options, rest)| (format!("[{options}] "), rest))?,
        None => (String::new(), words),
    };
    let mut words = words.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let fits = suite == codename && words.any(|component| component == "main");
    fits.then(|| format!("deb {options}{uri} {} {}\n", wanted.suite, wanted.component))
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

/// A stanza with what is wanted for its components and its suites.
fn from_stanza(stanza: &[(String, String)], codename: &str, wanted: Wanted<'_>) -> Option<String> {
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
            "suites" => wanted.suite.to_owned(),
            "components" => wanted.component.to_owned(),
            _ => value.to_owned(),
        })
    };
    let lines = stanza.iter().filter_map(|(name, value)| Some(format!("{name}: {}\n", replaced(name, value)?)));
    Some(lines.collect::<String>() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn non_free(name: &str, text: &str) -> Sources {
        let mut found = Sources::default();
        found.add(name, text, "bookworm", Wanted { suite: "bookworm", component: "non-free" });
        found
    }

    #[test]
    fn another_suite_of_the_same_archive() {
        let mut found = Sources::default();
        let wanted = Wanted { suite: "sid", component: "main" };
        found.add("a.list", "deb [trusted=no] http://m/ bookworm main contrib\n", "bookworm", wanted);
        found.add("a.sources", "Types: deb\nURIs: http://m/\nSuites: bookworm\nComponents: main\n", "bookworm", wanted);
        assert_eq!(found.list, "deb [trusted=no] http://m/ sid main\n");
        assert_eq!(found.stanzas, "Types: deb\nURIs: http://m/\nSuites: sid\nComponents: main\n\n");
    }

    #[test]
    fn a_stanza_keeps_its_mirror_and_key() {
        let text = "Types: deb deb-src\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main contrib\nSigned-By: /usr/share/keyrings/k.gpg\n\n\
                    Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main\n";
        let expected = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: non-free\n\
                        Signed-By: /usr/share/keyrings/k.gpg\n\n";
        assert_eq!(non_free("debian.sources", text), Sources { list: String::new(), stanzas: expected.into() });
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

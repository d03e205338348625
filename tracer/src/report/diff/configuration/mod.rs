//! What differs in how two runs were started and where they ran.
//!
//! Facts are read from each trace by itself ([`facts`]) and compared by their names. What a server prints of its arguments
//! has the defaults filled in, so where it does, its values stand for those of the command line.

mod argv;
mod environment;
mod facts;
mod noise;

use std::collections::{BTreeMap, BTreeSet};

use super::Run;
use super::model::{Setting, Source, canonical};
use facts::Facts;

/// Settings that differ: what may be a cause first, then what differs between any two runs.
pub(super) fn differences(runs: [&Run<'_, '_>; 2]) -> Vec<Setting> {
    let [base, other] = runs.map(facts::facts);
    let keys: BTreeSet<_> = base.keys().chain(other.keys()).collect();
    let mut settings = Vec::new();
    for key @ (source, name) in keys {
        let (old, new) = (base.get(key), other.get(key));
        if old == new {
            continue;
        }
        settings.push(Setting {
            key: name.clone(),
            base: old.cloned(),
            other: new.cloned(),
            source: *source,
            noise: noise::is(*source, name, old, new),
        });
    }
    let mut settings = as_the_server_has_it(settings, &base, &other);
    settings.sort_by(|a, b| (a.noise, a.source, &a.key).cmp(&(b.noise, b.source, &b.key)));
    settings
}

/// One row for an option and the server's word on it: named as it was typed, with the values that the server printed.
fn as_the_server_has_it(settings: Vec<Setting>, base: &Facts, other: &Facts) -> Vec<Setting> {
    let of = |facts: &Facts, source: Source| -> BTreeMap<String, String> {
        let named = facts.iter().filter(|((of, _), _)| *of == source);
        named.map(|((_, name), _)| (canonical(name), name.clone())).collect()
    };
    let mut typed = of(base, Source::Argument);
    typed.extend(of(other, Source::Argument));
    let printed = [of(base, Source::ServerArgument), of(other, Source::ServerArgument)];
    let is_printed = |name: &String| printed.iter().all(|printed| printed.contains_key(name));
    let printed_rows: BTreeSet<String> =
        settings.iter().filter(|s| s.source == Source::ServerArgument).map(|s| canonical(&s.key)).collect();
    let merge = |mut setting: Setting| {
        let name = canonical(&setting.key);
        match setting.source {
            Source::ServerArgument => {
                if let Some(option) = typed.get(&name) {
                    (setting.key, setting.source) = (option.clone(), Source::Argument);
                }
                Some(setting)
            }
            Source::Argument if printed_rows.contains(&name) => None,
            // Given in one run, by default in the other, and the server has the same value in both.
            Source::Argument if is_printed(&name) => Some(Setting { noise: true, ..setting }),
            _ => Some(setting),
        }
    };
    settings.into_iter().filter_map(merge).collect()
}

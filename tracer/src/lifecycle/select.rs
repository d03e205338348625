//! Which rules a target's versions select: for `vramtrace check`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::rules::{Covers, Rule, Rules, Version};

/// Directories of packages looked into.
const MAX_SITES: usize = 16;
/// Entries of each.
const MAX_ENTRIES: usize = 20_000;

/// The rules that one package's version selects.
#[derive(Clone, Debug)]
pub struct Selection<'r> {
    /// Package.
    pub package: String,
    /// Its version, as given.
    pub version: String,
    /// What the rules were written for; `None` where no rule is about the package.
    pub covers: Option<&'r Covers>,
    /// False when the version lies outside that: phases may be missing.
    pub is_covered: bool,
    /// Rules that it selects, in order of precedence.
    pub selected: Vec<&'r Rule>,
    /// Rules on the package that are for other versions.
    pub left_out: Vec<&'r Rule>,
}

/// Rules that `versions` (package, version) select. When a trace is read, all rules are tried: the functions of another
/// version are not there to be met.
#[must_use]
pub fn select<'r>(rules: &'r Rules, versions: &[(String, String)]) -> Vec<Selection<'r>> {
    let selection = |(package, text): &(String, String)| {
        let version = text.parse::<Version>().ok();
        let holds = |range: Option<&super::rules::Range>| {
            range.is_none_or(|range| version.as_ref().is_none_or(|version| range.holds(version)))
        };
        let of_package = rules.all().iter().filter(|rule| rule.package.as_ref() == Some(package));
        let (selected, left_out) = of_package.partition(|rule| holds(rule.versions.as_ref()));
        let covers = rules.covers().iter().find(|covers| covers.package == *package);
        let is_covered = version.is_some() && covers.is_some_and(|covers| holds(Some(&covers.versions)));
        Selection { package: package.clone(), version: text.clone(), covers, is_covered, selected, left_out }
    };
    versions.iter().map(selection).collect()
}

/// Versions of the packages that rules are about, installed beside libraries that a target uses: `…/site-packages/nvidia/…`
/// tells where its packages are. Directories that cannot be read count as empty.
#[must_use]
pub fn versions_beside(rules: &Rules, libraries: &[PathBuf]) -> Vec<(String, String)> {
    let is_site =
        |path: &&Path| path.file_name().is_some_and(|name| name == "site-packages" || name == "dist-packages");
    let mut sites: Vec<&Path> = libraries.iter().filter_map(|path| path.ancestors().find(is_site)).collect();
    sites.sort_unstable();
    sites.dedup();
    let mut versions = BTreeMap::new();
    for site in sites.into_iter().take(MAX_SITES) {
        let entries = fs::read_dir(site).into_iter().flatten().flatten().take(MAX_ENTRIES);
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            // `sglang-0.5.17.dist-info`, of the wheel format (PyPA "Recording installed projects").
            let installed = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-'));
            if let Some((package, version)) = installed
                && rules.covers().iter().any(|covers| covers.package == package)
            {
                versions.insert(package.to_owned(), version.to_owned());
            }
        }
    }
    versions.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &[&Rule]) -> Vec<String> {
        rules.iter().map(|rule| rule.name.clone()).collect()
    }

    #[test]
    fn versions_select_rules() {
        let of = |version: &str| select(Rules::standard(), &[("sglang".to_owned(), version.to_owned())]).remove(0);
        let old = of("0.5.13");
        assert!(old.is_covered && names(&old.selected).contains(&"distributed".to_owned()));
        assert!(names(&old.left_out).contains(&"distributed-bootstrap".to_owned()));
        let new = of("0.5.21.post1");
        assert!(names(&new.left_out).contains(&"distributed".to_owned()));
        assert!(names(&new.selected).contains(&"distributed-bootstrap".to_owned()));
        assert!(!of("0.9.0").is_covered);
        // What cannot be judged selects everything.
        let unknown = of("main");
        assert!(!unknown.is_covered && unknown.left_out.is_empty());
        let other = select(Rules::standard(), &[("numpy".to_owned(), "2.0".to_owned())]).remove(0);
        assert!(other.covers.is_none() && other.selected.is_empty());
    }

    #[test]
    fn versions_are_found_beside_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let site = dir.path().join("lib/python3.12/site-packages");
        for name in ["sglang-0.5.17.dist-info", "torch-2.11.0+cu130.dist-info", "numpy-2.0.dist-info", "sglang"] {
            fs::create_dir_all(site.join(name)).unwrap();
        }
        let library = site.join("nvidia/nccl/lib/libnccl.so.2");
        let found = versions_beside(Rules::standard(), &[library, "/usr/lib/libcuda.so.1".into()]);
        let expected = [("sglang", "0.5.17"), ("torch", "2.11.0+cu130")];
        assert_eq!(found, expected.map(|(package, version)| (package.to_owned(), version.to_owned())));
    }
}

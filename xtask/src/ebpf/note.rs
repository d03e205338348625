//! How the eBPF object came about: the note beside it, and what a rebuild that differs means.

use std::{
    fmt,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{NOTE, OBJECT, PACKAGE};
use crate::{
    command::{output, root},
    toolchain::{Compiler, linker_llvm},
};

/// `TOOLCHAIN.txt`: how the object came about, a key and a value a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Note(Vec<(String, String)>);

impl Note {
    pub(super) fn new(compiler: Compiler, linker: &Path, objcopy: &str, object: &[u8]) -> Result<Self> {
        let (rustc, cargo) = compiler.versions()?;
        let linker_version = output(Command::new(linker).arg("--version"))?;
        let objcopy_version = output(Command::new(objcopy).arg("--version"))?;
        let objcopy_version = objcopy_version.lines().find(|line| line.contains("LLVM version")).unwrap_or("unknown");
        let rows = [
            ("sha256", sha256(object)?),
            ("sources", sources_sha256()?),
            ("compiler", compiler.to_string()),
            ("rustc", rustc),
            ("cargo", cargo),
            ("linker", format!("{linker_version}, {}", linker_llvm(linker)?)),
            ("objcopy", objcopy_version.trim().to_owned()),
        ];
        Ok(Self(rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    }

    pub(super) fn parse(text: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
        Self(rows.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
    }

    pub(super) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|row| row.0 == key).map_or("nothing recorded", |row| &row.1)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# How vramtrace-x86_64.bpf.o was built. `cargo xtask ebpf` writes both; `cargo xtask ebpf --check`"
        )?;
        writeln!(f, "# rebuilds and compares. `sources` covers tracer-ebpf/.")?;
        self.0.iter().try_for_each(|(key, value)| writeln!(f, "{key:<9} {value}"))
    }
}

/// Why the rebuilt object differs from the committed one, and what to do.
pub(super) fn difference(committed: &[u8], built: &[u8], recorded: &Note, now: &Note) -> String {
    let at = committed.iter().zip(built).position(|(a, b)| a != b).unwrap_or(committed.len().min(built.len()));
    let what = format!(
        "{OBJECT} ({} bytes) differs from its rebuild ({} bytes) from byte {at} on. ",
        committed.len(),
        built.len()
    );
    if recorded.get("sources") != now.get("sources") {
        return what
            + "The sources changed since it was built: run `cargo xtask ebpf` and commit the object and its note.";
    }
    let changed = now.0.iter().filter(|(key, value)| key != "sha256" && recorded.get(key) != value);
    let changed: Vec<String> =
        changed.map(|(key, value)| format!("{key}: {} there, {value} here", recorded.get(key))).collect();
    if changed.is_empty() {
        return what
            + "Same sources, same tools: the build is not reproducible here, or the object was built otherwise.";
    }
    format!("{what}Same sources, other tools; only those of {NOTE} can prove it. {}", changed.join("; "))
}

/// One sum over names and contents of the crate's files.
fn sources_sha256() -> Result<String> {
    let listed = output(Command::new("find").args([PACKAGE, "-type", "f"]).current_dir(root()))?;
    let mut names: Vec<&str> = listed.lines().collect();
    names.sort_unstable();
    output(Command::new("sha256sum").args(["--"]).args(&names).current_dir(root()))
        .and_then(|sums| sha256(sums.as_bytes()))
}

/// SHA-256 of `bytes`, hex.
pub(super) fn sha256(bytes: &[u8]) -> Result<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run sha256sum")?;
    child.stdin.take().context("sha256sum takes no input")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "`sha256sum` failed ({})", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(rows: &[(&str, &str)]) -> Note {
        Note(rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_note_reads_back_as_written() {
        let note = note(&[("sha256", "ab"), ("rustc", "rustc 1.96.0 (x y), LLVM 22.1.8")]);
        assert_eq!(Note::parse(&note.to_string()), note);
        assert_eq!(Note::parse("").get("rustc"), "nothing recorded");
    }

    #[test]
    fn changed_sources_outrank_changed_tools() {
        let (old, new) = (note(&[("sources", "1"), ("rustc", "a")]), note(&[("sources", "2"), ("rustc", "b")]));
        let told = difference(b"abc", b"abd", &old, &new);
        assert!(told.contains("from byte 2 on") && told.contains("sources changed"), "{told}");
    }

    #[test]
    fn other_tools_are_named_with_both_values() {
        let (old, new) = (note(&[("sources", "1"), ("rustc", "a")]), note(&[("sources", "1"), ("rustc", "b")]));
        assert!(difference(b"ab", b"abc", &old, &new).ends_with("rustc: a there, b here"));
    }

    #[test]
    fn the_same_of_all_is_called_unreproducible() {
        let same = note(&[("sources", "1"), ("sha256", "x")]);
        let built = note(&[("sources", "1"), ("sha256", "y")]);
        assert!(difference(b"a", b"b", &same, &built).contains("not reproducible"));
    }

    #[test]
    fn sha256_is_that_of_the_bytes() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b"").unwrap(), empty);
    }
}

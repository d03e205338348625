//! `cargo xtask dist`: what a package of vramtrace holds, in `target/dist/` as it lies under `/usr`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::command::{cargo, output, root, run, target};

/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/vramtrace"),
    ("fish", "share/fish/vendor_completions.d/vramtrace.fish"),
    ("zsh", "share/zsh/site-functions/_vramtrace"),
];

/// Files of the repository that go with it.
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "docs"];

/// Builds the program for release and puts it there with its manual pages, completions and documents.
pub(crate) fn main() -> Result<()> {
    let dist = target().join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot replace {}", dist.display()))?;
    }
    run(cargo().args(["build", "--quiet", "--release", "--locked", "--package", "tracer"]))?;
    let program = dist.join("bin/vramtrace");
    copy(&target().join("release/vramtrace"), &program)?;
    let manual = dist.join("share/man/man1");
    fs::create_dir_all(&manual).with_context(|| format!("cannot create {}", manual.display()))?;
    run(Command::new(&program).arg("man").arg(&manual))?;
    for (shell, path) in COMPLETIONS {
        let script = output(Command::new(&program).args(["completions", shell]).stderr(Stdio::inherit()))?;
        write(&dist.join(path), &(script + "\n"))?;
    }
    for document in DOCUMENTS {
        let from = root().join(document);
        let to = dist.join("share/doc/vramtrace").join(document);
        if from.is_dir() {
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                copy(&entry.path(), &to.join(entry.file_name()))?;
            }
        } else {
            copy(&from, &to)?;
        }
    }
    println!("{}: bin, manual pages, completions, documents; copy it to /usr/local", dist.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    if from.is_file() {
        fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

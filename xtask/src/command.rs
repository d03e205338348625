//! Running other programs, and where things are.

use std::{
    env,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    // Asked at run time first: a target directory shared by two clones may hold the other clone's xtask.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}

/// The target directory that cargo uses for this workspace.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Cargo as it was called, running in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// True when this process runs as root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(owner()?.0 == 0)
}

/// User and group that this process runs as.
pub(crate) fn owner() -> Result<(u32, u32)> {
    let me = Path::new("/proc/self").metadata().context("cannot read /proc/self")?;
    Ok((me.uid(), me.gid()))
}

/// `program`, through sudo unless this is root already.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    if is_root()? {
        return Ok(Command::new(program));
    }
    if !found("sudo") {
        bail!("`{program}` must run as root, and there is no sudo: run this as root, or install sudo");
    }
    let mut sudo = Command::new("sudo");
    sudo.arg(program);
    Ok(sudo)
}

/// Runs `command` with our own output; a failure names the command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// What `command` writes to standard output, trimmed; a failure carries what it wrote to standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}): {}", line(command), output.status, told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// True when `program` is on PATH.
pub(crate) fn found(program: &str) -> bool {
    which(program).is_some()
}

/// Where `program` is on PATH.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// The command line, as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error =
            output(Command::new("sh").args(["-c", "echo 'no such thing' >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c 'echo '"), "{error}");
        assert!(error.contains("exit status: 3") && error.ends_with("no such thing"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert_eq!(error, "cannot run `no-such-program-here`");
    }
}

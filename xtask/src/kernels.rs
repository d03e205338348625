//! `cargo xtask kernels`: the live tests in virtual machines of old and new kernels, and a table of what each kernel lacks.
//!
//! Kernels are Debian's cloud images, unpacked under `target/kernels`, never installed. Each boots under qemu with the host's
//! file system as its root (virtiofs: cloud images have no 9p), so that the test programs built here run there as they are.

mod fetch;
mod initramfs;
mod machine;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use self::{
    machine::Machine,
    table::{Row, table},
};
use crate::{
    command::{cargo, output, root, run, target},
    setup,
    tally::Tally,
};

/// Arguments of `cargo xtask kernels`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these kernels (5.10, 6.1, 6.12, 6.18, 7.3; may be repeated)
    #[arg(long, value_name = "VERSION", value_parser = fetch::names())]
    kernel: Vec<String>,
    /// A kernel that is unpacked already: a directory that holds boot/vmlinuz-… and lib/modules
    #[arg(long, value_name = "DIR", conflicts_with = "kernel")]
    tree: Option<PathBuf>,
    /// A few tests that cover each of the kernel's features that tracing uses, instead of all
    #[arg(long)]
    quick: bool,
    /// Only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Appended to the kernel's command line, such as `lockdown=confidentiality`
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    append: String,
    /// Emulate the processor, as where there is no KVM
    #[arg(long)]
    emulate: bool,
}

/// Kernels of the step in `cargo xtask test`.
const IN_CI: [&str; 2] = ["6.1", "6.12"];

/// Test programs whose tests depend on the kernel; all others read recorded data.
const SUITES: [&str; 13] = [
    "kernels",
    "live",
    "sim",
    "attach",
    "lifecycle",
    "logs",
    "python",
    "native",
    "libraries",
    "robustness",
    "torch",
    "top",
    "rights",
];

/// `--quick`: the test program and the exact name of the test. Each start of the tracer takes the verifier half a minute where
/// the processor is emulated, so these are few, and the first trace has all of it.
const QUICK: [(&str, &str); 3] = [
    ("kernels", "the_kernel_takes_every_program"),
    ("kernels", "one_trace_of_everything"),
    ("attach", "what_was_there_is_one_line_and_what_comes_is_exact"),
];

/// What an administrator may have set, by name, whether tracing works then, and how it is set: all that tracing bears at once, and
/// what it does not. In this order, since the last cannot be taken back.
const HARDENED: [(&str, &str, &str); 3] = [
    (
        "all_that_tracing_bears",
        "works",
        "umount /sys/kernel/tracing && echo 3 >/proc/sys/kernel/perf_event_paranoid \
         && echo 2 >/proc/sys/kernel/unprivileged_bpf_disabled && echo 2 >/proc/sys/kernel/kptr_restrict \
         && echo 2 >/proc/sys/kernel/yama/ptrace_scope && echo 2 >/proc/sys/net/core/bpf_jit_harden \
         && echo integrity >/sys/kernel/security/lockdown",
    ),
    ("no_btf", "refused", "mount -t tmpfs tmpfs /sys/kernel/btf"),
    (
        "lockdown_confidentiality",
        "refused",
        "umount /sys/kernel/btf && echo confidentiality >/sys/kernel/security/lockdown",
    ),
];

/// Longest time that a machine may take: all tests, or the quick ones, on an emulated processor.
const LONGEST: Duration = Duration::from_secs(3 * 60 * 60);
const LONGEST_QUICK: Duration = Duration::from_secs(20 * 60);

/// Runs the tests on the kernels asked for.
pub(crate) fn main(args: &Args) -> Result<()> {
    let kernels: Vec<&str> = match args.kernel.as_slice() {
        [] => fetch::names(),
        some => some.iter().map(String::as_str).collect(),
    };
    let rows = match &args.tree {
        Some(tree) => vec![on(tree, &tree.display().to_string(), args)?],
        None => kernels.iter().map(|name| on(&fetch::kernel(name)?, name, args)).collect::<Result<_>>()?,
    };
    let text = table(&rows);
    let path = directory().join("table.txt");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{text}\n{} holds this table", path.display());
    let failed = rows.iter().map(|row| row.tests.failed).sum::<u64>();
    ensure!(failed == 0, "{failed} tests failed");
    Ok(())
}

/// The step `kernels` of `cargo xtask test`.
pub(crate) fn quick(tally: &mut Tally) -> Result<()> {
    let args = Args { kernel: Vec::new(), tree: None, quick: true, only: None, append: String::new(), emulate: false };
    let mut rows = Vec::new();
    for name in IN_CI {
        let row = on(&fetch::kernel(name)?, name, &args)?;
        *tally += row.tests;
        rows.push(row);
    }
    println!("{}", table(&rows));
    ensure!(tally.failed == 0, "{} tests failed", tally.failed);
    Ok(())
}

/// Boots one kernel and runs the tests there.
fn on(tree: &Path, name: &str, args: &Args) -> Result<Row> {
    setup::machines()?;
    let programs = test_programs()?;
    let place = directory().join("run").join(name.replace('/', "_"));
    fs::create_dir_all(&place)?;
    let job = place.join("job.sh");
    fs::write(&job, script(&programs, &place, args)?)?;
    let machine = Machine { tree, place: &place, append: &args.append, emulate: args.emulate || !machine::has_kvm() };
    println!("--- Linux {name}, {}", machine.how());
    let console = machine.run(&job, if args.quick { LONGEST_QUICK } else { LONGEST })?;
    Row::read(name, machine.how(), &console)
        .with_context(|| format!("the machine of Linux {name} did not come to its end: see {}", place.display()))
}

/// What the machine runs: the guest's part of this (tests/vm/guest.sh), then the tests.
fn script(programs: &[(String, PathBuf)], place: &Path, args: &Args) -> Result<String> {
    let find = |suite: &str| {
        let found = programs.iter().find(|(name, _)| name == suite);
        found.map(|(_, path)| path.display().to_string()).with_context(|| format!("no test program {suite}"))
    };
    let (root, target) = (root(), target());
    let mut text = format!("ROOT='{}'\nTARGET='{}'\nPLACE='{}'\n", root.display(), target.display(), place.display());
    text += ". \"$ROOT/tests/vm/guest.sh\"\nfacts\n";
    if args.quick {
        for (suite, test) in QUICK.iter().filter(|(_, test)| args.only.as_ref().is_none_or(|only| test.contains(only)))
        {
            text += &format!("tests {suite} '{}' --nocapture --exact '{test}'\n", find(suite)?);
        }
    } else {
        for suite in SUITES {
            text += &format!("tests {suite} '{}' '{}'\n", find(suite)?, args.only.as_deref().unwrap_or(""));
        }
    }
    for (name, expected, command) in HARDENED {
        text += &format!("hardened '{}' {name} {expected} '{command}'\n", find("kernels")?);
    }
    Ok(text)
}

/// Builds the tests and the tracer; gives the test programs by name.
fn test_programs() -> Result<Vec<(String, PathBuf)>> {
    run(cargo().args(["build", "--quiet", "--package", "tracer", "--package", "live-tests"]))?;
    // The simulated libraries are built by the first test; not in the machine, where that takes long.
    output(&mut Command::new(target().join("debug/sim-build")))?;
    let mut build = cargo();
    build.args(["test", "--quiet", "--package", "live-tests", "--no-run", "--message-format", "json"]);
    let messages = output(&mut build)?;
    Ok(messages.lines().filter_map(program).collect())
}

/// Name and path of the program that a message of cargo tells of, one JSON object a line.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let (path, _) = message.split_once("\"executable\":\"")?.1.split_once('"')?;
    // Cargo adds a hash to the name.
    let (name, _) = Path::new(path).file_name()?.to_str()?.rsplit_once('-')?;
    Some((name.to_owned(), path.into()))
}

/// Where kernels are unpacked and machines leave their files.
fn directory() -> PathBuf {
    target().join("kernels")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"live"},"executable":"/t/live-1","fresh":true}"#;
        assert_eq!(program(line), Some(("live".to_owned(), PathBuf::from("/t/live-1"))));
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program("warning: unused"), None);
    }
}

//! A target that forges all that is kept of it gains nothing: no secret is stored, nothing steers a terminal, a page or
//! another program's file, and its bytes are still exact.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, book, exact, vramtrace, wait_until};
use live_tests::sim::{Config, Sim};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// Bytes of a trace in clear that such a target may cause: every text of it is bounded.
const LARGEST: usize = 4 << 20;

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/hostile.py")
}

/// Runs the target under the tracer.
fn trace() -> Result<(Sim, PathBuf)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).args(["--", "/usr/bin/python3"]).arg(program());
    let output = command.output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok((sim, file))
}

fn run(arguments: &[&str]) -> Result<Output> {
    let output = Command::new(vramtrace()?).args(arguments).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

fn no_secret(what: &str, bytes: &[u8]) -> Result<()> {
    let at = bytes.windows(6).position(|window| window == b"SECRET");
    let around =
        at.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(60)..(at + 20).min(bytes.len())]).into_owned());
    ensure!(around.is_none(), "{what}: {}", around.unwrap_or_default());
    Ok(())
}

/// Nothing in it steers a terminal: no control character but the newline, none that reorders a line.
fn harmless(what: &str, bytes: &[u8]) -> Result<()> {
    let text = std::str::from_utf8(bytes).with_context(|| what.to_owned())?;
    let steers =
        |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let at = text.char_indices().find(|(_, c)| steers(*c));
    ensure!(at.is_none(), "{what}: {at:?} in {:?}", text.get(at.map_or(0, |(at, _)| at.saturating_sub(80))..));
    Ok(())
}

#[test]
fn nothing_that_a_hostile_target_forges_gets_through() -> Result<()> {
    let (sim, file) = trace()?;
    let (truth, mut book) = (sim.settled()?, book(&file)?);
    // What is left out of lines of megabytes is counted.
    ensure!(book.losses.remove("output").is_some(), "{:?}", book.losses);
    for pid in truth.processes() {
        exact(&book, &truth, pid)?;
    }
    ensure!(book.logs.len() >= 5, "{:?}", book.logs.len());
    let trace = file.to_str().context("an odd path")?;
    let mut clear = Vec::new();
    let zstd = Command::new("zstd").args(["-dc", trace]).stdout(Stdio::piped()).spawn()?;
    zstd.stdout.context("no output")?.read_to_end(&mut clear)?;
    no_secret("trace", &clear)?;
    ensure!(!clear.is_empty() && clear.len() < LARGEST, "{} bytes in clear", clear.len());
    ensure!(clear.windows(3).any(|window| window == b"***"), "what was left out is shown");
    for arguments in [
        &["report", trace][..],
        &["report", trace, "--by", "phase,rank,kind,owner,role,device,stack"],
        &["diff", trace, trace],
        &["export", trace, "--format", "folded"],
    ] {
        let output = run(arguments)?;
        harmless(&format!("{arguments:?}"), &output.stdout)?;
        no_secret(&format!("{arguments:?}"), &output.stdout)?;
    }
    for arguments in [["report", trace, "--format", "json"], ["export", trace, "--format", "speedscope"]] {
        let output = run(&[&arguments[..], if arguments[0] == "export" { &["-o", "-"] } else { &[] }].concat())?;
        serde_json::from_slice::<serde_json::Value>(&output.stdout)?;
        no_secret(&format!("{arguments:?}"), &output.stdout)?;
    }
    for (name, command) in [("page.html", "html"), ("graph.svg", "flamegraph")] {
        let path = sim.scratch().join(name);
        run(&[command, trace, "-o", path.to_str().context("an odd path")?])?;
        let page = fs::read(&path)?;
        no_secret(name, &page)?;
        let breaks_out = |mark: &[u8]| page.windows(mark.len()).any(|window| window == mark);
        ensure!(!breaks_out(b"<img src=x") && !breaks_out(b"\x1b"), "{name}: markup from the target");
    }
    for format in ["pprof", "perfetto", "firefox", "torch-snapshot"] {
        let path = sim.scratch().join(format);
        run(&["export", trace, "--format", format, "-o", path.to_str().context("an odd path")?])?;
        no_secret(format, &fs::read(&path)?)?;
    }
    Ok(())
}

/// `check` beside it, and a library in a place whose name steers terminals.
#[test]
fn a_running_hostile_target_is_described_as_text() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let odd = sim.scratch().join("\x1b[2J\u{202e}x/libcuda.so.1");
    fs::create_dir_all(odd.parent().context("no parent")?)?;
    fs::copy(sim.libraries().join("libcuda.so.1"), &odd)?;
    let mut command = sim.command("/usr/bin/python3")?;
    command.arg(program()).arg("hold").env("LD_PRELOAD", &odd);
    let mut target = Talk::start(command)?;
    let mut said = String::new();
    wait_until("the target", || {
        said.push_str(&target.errors());
        Ok(said.ends_with("holding\n"))
    })?;
    let output = Command::new(vramtrace()?).args(["check", "--pid", &target.pid().to_string()]).output()?;
    harmless("check", &output.stdout)?;
    no_secret("check", &output.stdout)?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("\\u{1b}[2J") && text.contains("libcuda.so.1"), "{text}");
    target.close();
    Ok(())
}

/// Every output of every command: links are not followed, what is there is kept, a FIFO is not waited for.
#[test]
fn outputs_are_made_safely() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let directory = sim.scratch();
    let made = directory.join("made.vrt");
    let output = |arguments: &[&str], to: &Path| {
        let (options, command) =
            arguments.split_at(arguments.iter().position(|a| *a == "--").unwrap_or(arguments.len()));
        Command::new(vramtrace()?)
            .args(options)
            .arg("-o")
            .arg(to)
            .args(command)
            .stdin(Stdio::null())
            .output()
            .context("run")
    };
    let run = ["run", "--as-root", "--", "true"];
    ensure!(output(&run, &made)?.status.success());
    let trace = made.to_str().context("an odd path")?;
    let commands: [&[&str]; 5] = [
        &run,
        &["html", trace],
        &["flamegraph", trace],
        &["export", trace, "--format", "speedscope"],
        &["export", trace, "--format", "parquet"],
    ];
    let (precious, link, fifo) = (directory.join("precious"), directory.join("link"), directory.join("fifo"));
    fs::write(&precious, "precious")?;
    std::os::unix::fs::symlink(&precious, &link)?;
    std::os::unix::fs::symlink(directory.join("nowhere"), directory.join("dangling"))?;
    mkfifo(&fifo, Mode::S_IRWXU)?;
    for command in commands {
        for (to, forced) in [(&precious, false), (&link, false), (&link, true), (&directory.join("dangling"), true)] {
            let arguments =
                if forced { [&command[..1], &["--force"], &command[1..]].concat() } else { command.to_vec() };
            let refused = output(&arguments, to)?;
            let errors = String::from_utf8_lossy(&refused.stderr);
            ensure!(refused.status.code() == Some(1), "{arguments:?} to {}: {errors}", to.display());
            ensure!(errors.lines().count() == 1, "{arguments:?}: {errors}");
        }
        ensure!(fs::read_to_string(&precious)? == "precious" && link.is_symlink());
        ensure!(!directory.join("nowhere").exists(), "{command:?} wrote through a link");
    }
    // A trace never goes to a FIFO, asked for or not; nobody waits for its reader.
    ensure!(output(&["run", "--as-root", "--force", "--", "true"], &fifo)?.status.code() == Some(1));
    Ok(())
}

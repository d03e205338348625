//! Log lines: what traced processes write to their standard output and error, and `--until serving`.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use live_tests::live::{Footprint, goes_on, vramtrace, wait_until};
use live_tests::{pythons, shims};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::ledger::Book;
use tracer::trace::record::Outcome;

/// A traced program with its outputs in two files: what is there is the truth.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        Ok(Self { directory: tempfile::tempdir()? })
    }

    fn trace(&self) -> PathBuf {
        self.directory.path().join("run.vrt")
    }

    fn output(&self) -> PathBuf {
        self.directory.path().join("output")
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.directory.path().join("errors")).unwrap_or_default()
    }

    fn written(&self) -> String {
        let read = |name: &str| fs::read(self.output().with_extension(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("1"), read("2")].concat()).into_owned()
    }

    /// `vramtrace run` of a shell that sends its command's outputs to the files.
    fn run(&self, options: &[&str], command: &[&str]) -> Result<Command> {
        let mut tracer = Command::new(vramtrace()?);
        tracer.args(["run", "--as-root", "-o"]).arg(self.trace()).args(options);
        tracer.args(["--", "/bin/sh", "-c", "exec \"$@\" >>\"$0.1\" 2>>\"$0.2\""]).arg(self.output()).args(command);
        tracer.stdin(Stdio::null()).stdout(Stdio::null());
        tracer.stderr(fs::File::create(self.directory.path().join("errors"))?);
        Ok(tracer)
    }

    fn traced(&self, options: &[&str], command: &[&str]) -> Result<(ExitStatus, Book)> {
        let status = self.run(options, command)?.status()?;
        let book = Book::read(&self.trace()).with_context(|| self.errors())?;
        Ok((status, book))
    }

    /// Lines of the output that a trace keeps, in order of their texts: those of two files have no other.
    fn truth(&self) -> Vec<String> {
        let text = self.written();
        let kept = text.split(['\n', '\r']).filter(|line| tracer::lifecycle::logs::interesting(line));
        sorted(kept.map(str::to_owned).collect())
    }
}

fn seen(book: &Book) -> Vec<String> {
    book.logs.iter().map(|log| log.text.clone()).collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn same(seen: Vec<String>, truth: &[String]) -> Result<()> {
    let seen = sorted(seen);
    let short = |line: Option<&String>| line.map(|line| line.chars().take(80).collect::<String>());
    let equal = seen.iter().zip(truth).take_while(|(a, b)| a == b).count();
    ensure!(seen == truth, "{equal}: {:?}, truth {:?}", short(seen.get(equal)), short(truth.get(equal)));
    Ok(())
}

fn lines() -> Result<String> {
    Ok(shims::build()?.join("lines").display().to_string())
}

fn program(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).display().to_string()
}

fn no_output_lost(book: &Book) -> Result<()> {
    ensure!(!book.losses.contains_key("output"), "{:?}", book.losses);
    Ok(())
}

#[test]
fn a_c_programs_lines() -> Result<()> {
    let place = Place::new()?;
    let (status, book) = place.traced(&[], &[&lines()?])?;
    ensure!(status.code() == Some(1), "{status}, where a probe stands in write: {}", place.errors());
    let truth = place.truth();
    ensure!(truth.len() >= 17 && truth.iter().any(|line| line.len() == 19_999), "{truth:?}");
    same(seen(&book), &truth)?;
    // The write of what is at no address.
    ensure!(book.losses.get("output") == Some(&1), "{:?}", book.losses);
    let pids: std::collections::BTreeSet<_> = book.logs.iter().map(|log| log.process).collect();
    ensure!(pids.len() == 3, "a child and a program write too: {pids:?}");
    ensure!(book.logs.iter().all(|log| log.fd == 1 || log.fd == 2));
    ensure!(book.logs.iter().any(|log| log.fd == 1 && log.text.contains("duplicate")));
    Ok(())
}

fn lines_are_seen(command: &[&str], count: usize) -> Result<()> {
    let place = Place::new()?;
    let (status, book) = place.traced(&[], command)?;
    ensure!(status.code() == Some(1), "{status}: {}", place.errors());
    let truth = place.truth();
    ensure!(truth.len() >= count, "{truth:?}");
    same(seen(&book), &truth)?;
    no_output_lost(&book)?;
    let arguments = book.logs.iter().find_map(|log| tracer::lifecycle::logs::arguments(&log.text));
    ensure!(arguments.is_some_and(|arguments| arguments.len() == 700));
    Ok(())
}

#[test]
fn a_python_programs_lines() -> Result<()> {
    lines_are_seen(&["python3", &program("lines.py")], 215)
}

/// The interpreter that set-up fetches has one: another than the shell's that starts it. The second time it is known.
#[test]
fn lines_of_programs_with_a_libc_of_their_own() -> Result<()> {
    let newest = pythons::all()?.pop().context("no CPython")?;
    let libc = newest.program.with_file_name("../lib/x86_64-linux-gnu/libc.so.6");
    ensure!(libc.exists(), "{}: `cargo xtask setup` fetches one with a libc", newest.program.display());
    let twice = "\"$0\" \"$1\"; \"$0\" \"$1\"";
    lines_are_seen(&["/bin/sh", "-c", twice, &newest.program.to_string_lossy(), &program("lines.py")], 2 * 215)
}

#[test]
fn a_line_beyond_the_limit_is_cut_and_counted() -> Result<()> {
    let place = Place::new()?;
    let (_, book) = place.traced(&[], &[&lines()?, "100000"])?;
    let (seen, truth) = (seen(&book), place.truth());
    ensure!(seen.len() == 1 && truth.len() == 1);
    let cut = seen[0].strip_suffix('…').context("not shown as cut")?;
    ensure!(cut.len() == (64 << 10) - '…'.len_utf8() && truth[0].starts_with(cut), "{}", cut.len());
    ensure!(book.losses.get("output") == Some(&1), "{:?}", book.losses);
    Ok(())
}

/// A child that writes and ends at once may be too quick. Then that is counted.
#[test]
fn what_a_short_lived_child_writes_is_seen_or_counted() -> Result<()> {
    let place = Place::new()?;
    let script = "for i in 1 2 3 4 5; do (echo avail mem=$i.00 GB); done; /bin/echo avail mem=9.00 GB";
    let (_, book) = place.traced(&[], &["/bin/bash", "-c", script])?;
    let (seen, truth) = (seen(&book), place.truth());
    let unseen = book.losses.get("unfollowed").copied().unwrap_or_default();
    ensure!(truth.len() == 6 && seen.last() == truth.last(), "{seen:?}");
    ensure!(seen.len() as u64 + unseen >= 6, "{seen:?}, {unseen} unseen");
    Ok(())
}

#[test]
fn perf_events_do_the_same() -> Result<()> {
    let place = Place::new()?;
    let mut tracer = place.run(&[], &[&lines()?])?;
    let status = tracer.env("VRAMTRACE_PERF_UPROBES", "1").status()?;
    ensure!(status.code() == Some(1), "{status}: {}", place.errors());
    let book = Book::read(&place.trace())?;
    ensure!(book.header.probes == "perf", "{}", book.header.probes);
    same(seen(&book), &place.truth())
}

/// Who is not traced has no probe in its `write`, and none of its lines is kept.
#[test]
fn others_are_left_alone() -> Result<()> {
    let place = Place::new()?;
    let mut traced = place.run(&[], &["/bin/sh", "-c", "echo avail mem=1.00 GB; sleep 3"])?.spawn()?;
    wait_until("the traced line", || Ok(place.written().contains("mem=1")))?;
    let other = fs::File::create(place.directory.path().join("other"))?;
    let status = Command::new(lines()?).stdout(other.try_clone()?).stderr(other).status()?;
    ensure!(status.code() == Some(0), "breakpoints beside the tracer: {status}");
    traced.wait()?;
    same(seen(&Book::read(&place.trace())?), &["avail mem=1.00 GB".to_owned()])
}

const SERVER: &str = "import os, sys, time
print('[2026-11-29 14:56:37 TP0] Load weight begin. avail mem=139.13 GB', flush=True)
child = os.fork()
while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)
if child: print('[2026-11-29 14:56:42] The server is fired up and ready to roll!', file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
# Both at once: in one write each, which print does not promise.
os.write(1, b'[2026-11-29 14:56:50 TP0] Memory pool end. avail mem=1.00 GB\\n')
# 7 if the child ended as it should, else 100 and how it did.
if child: child = os.waitpid(child, 0)[1]
sys.exit(7 if child in (0, 7 << 8) else 100 + child % 100)
";

fn served(book: &Book) -> Result<()> {
    ensure!(book.outcome == Some(Outcome::Running { why: "until".to_owned() }), "{:?}", book.outcome);
    let last = seen(book).pop().context("no lines")?;
    ensure!(last.contains("fired up"), "{last}");
    Ok(())
}

#[test]
fn until_serving_the_command_goes_on_without_probes() -> Result<()> {
    let place = Place::new()?;
    let stop = place.directory.path().join("stop");
    let command = ["python3", "-c", SERVER, &stop.display().to_string()];
    let mut tracer = place.run(&["--until", "serving"], &command)?.spawn()?;
    wait_until("probes", || Ok(place.written().contains("begin")))?;
    let footprint = Footprint::of(tracer.id())?;
    fs::write(stop.with_extension("go"), "")?;
    wait_until("the last line", || Ok(place.errors().contains("vramtrace: wrote")))?;
    footprint.gone()?;
    ensure!(place.errors().contains("serving: tracing has ended and all probes are gone; the command goes on"));
    served(&Book::read(&place.trace())?)?;
    ensure!(tracer.try_wait()?.is_none(), "it waits for its command");
    fs::write(&stop, "")?;
    let status = tracer.wait()?;
    ensure!(status.code() == Some(7), "{status}: {} {}", place.written(), place.errors());
    // What the command did afterwards went on undisturbed, and was not looked at.
    let after = place.truth().iter().filter(|line| line.contains("Memory pool end")).count();
    ensure!(after == 2, "{after}: {}", place.written());
    served(&Book::read(&place.trace())?)
}

#[test]
fn until_serving_beside_a_server() -> Result<()> {
    let place = Place::new()?;
    let stop = place.directory.path().join("stop");
    let output = OpenOptions::new().create(true).append(true).open(place.output().with_extension("1"))?;
    let mut server = Command::new("python3");
    server.args(["-c", SERVER]).arg(&stop).stdout(output.try_clone()?).stderr(output);
    let mut server = server.spawn()?;
    wait_until("the server", || Ok(place.written().contains("begin")))?;
    let mut tracer = Command::new(vramtrace()?);
    tracer.args(["attach", "--until", "serving", "--pid", &server.id().to_string(), "-o"]).arg(place.trace());
    tracer.stderr(fs::File::create(place.directory.path().join("errors"))?);
    let mut tracer = tracer.spawn()?;
    wait_until("the tracer", || Ok(place.errors().contains("Ctrl-C ends it")))?;
    fs::write(stop.with_extension("go"), "")?;
    let mut status = None;
    wait_until("its end", || {
        status = tracer.try_wait()?;
        Ok(status.is_some())
    })?;
    ensure!(status.is_some_and(|status| status.success()), "{status:?}: {}", place.errors());
    served(&Book::read(&place.trace())?)?;
    ensure!(goes_on(server.id()), "the server goes on");
    fs::write(&stop, "")?;
    ensure!(server.wait()?.code() == Some(7));
    Ok(())
}

/// A rule of the user's names the line that ends tracing; what it names is kept.
#[test]
fn rules_of_the_users_name_lines() -> Result<()> {
    let place = Place::new()?;
    let rules = place.directory.path().join("mine.toml");
    fs::write(&rules, "format = 1\n\n[[rule]]\nname = \"up\"\nphase = \"serving\"\nlog = '^my server is up'\n")?;
    let options = ["--until", "serving", "--rules", &rules.display().to_string()];
    let script = "echo not named; echo my server is up; sleep 2; echo my server is up again";
    let (status, book) = place.traced(&options, &["/bin/sh", "-c", script])?;
    ensure!(status.success() && seen(&book) == ["my server is up"], "{status}: {:?}", seen(&book));
    Ok(())
}

#[test]
fn a_slip_in_the_rules_starts_nothing() -> Result<()> {
    let place = Place::new()?;
    let rules = place.directory.path().join("mine.toml");
    fs::write(&rules, "format = 1\n\n[[rule]]\nname = \"up\"\nphase = \"serving\"\nlog = '('\n")?;
    let status = place.run(&["--rules", &rules.display().to_string()], &["/bin/echo", "started"])?.status()?;
    let errors = place.errors();
    ensure!(status.code() == Some(1) && errors.contains("mine.toml: rule `up`"), "{status}: {errors}");
    ensure!(place.written().is_empty() && !place.trace().exists());
    Ok(())
}

/// No line comes: tracing ends with the command, and that is said.
#[test]
fn a_command_that_never_serves_is_traced_to_its_end() -> Result<()> {
    let place = Place::new()?;
    let (status, book) = place.traced(&["--until", "serving"], &["/bin/sh", "-c", "exit 3"])?;
    ensure!(status.code() == Some(3) && book.outcome == Some(Outcome::Exited { code: 3 }), "{:?}", book.outcome);
    ensure!(place.errors().contains("no log line said that the command serves"), "{}", place.errors());
    Ok(())
}

/// Killed with no chance to clean up, the tracer leaves no breakpoint that stops anybody.
#[test]
fn a_killed_tracers_probes_are_gone() -> Result<()> {
    let place = Place::new()?;
    let stop = place.directory.path().join("stop");
    let command = ["python3", "-c", SERVER, &stop.display().to_string()];
    let mut tracer = place.run(&[], &command)?.spawn()?;
    fs::write(stop.with_extension("go"), "")?;
    wait_until("probes", || Ok(place.written().contains("fired")))?;
    let footprint = Footprint::of(tracer.id())?;
    kill(Pid::from_raw(tracer.id().cast_signed()), Signal::SIGKILL)?;
    tracer.wait()?;
    footprint.gone()?;
    fs::write(&stop, "")?;
    wait_until("the lines written afterwards", || {
        Ok(place.truth().iter().filter(|line| line.contains("Memory pool end")).count() == 2)
    })
}

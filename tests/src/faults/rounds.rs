//! The rounds: one kill each, or interruptions all the way.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::attach::find::descendants;
use tracer::trace::record::Outcome;

use super::aftermath::{self, Extent};
use super::steps::Stepped;
use super::{Victim, When, interrupted};
use crate::live::{Footprint, Talk, comm, guard, run_command, vramtrace, wait_until};
use crate::sim::{Config, Sim};

/// A simulation and the work to do on it.
pub(super) struct Stage {
    pub(super) sim: Sim,
    /// The trace.
    pub(super) file: PathBuf,
    /// What the server is told; `churn` is how much it allocates and frees on the way.
    script: Vec<String>,
}

impl Stage {
    pub(super) fn new(churn: u32) -> Result<Self> {
        let sim = Sim::start(Config::default())?;
        let odd = sim.scratch().join("odd/libcuda.so.1");
        fs::create_dir(sim.scratch().join("odd"))?;
        fs::copy(sim.libraries().join("libcuda.so.1"), &odd)?;
        // A library that nobody knows (the server is held when it loads it), children that end at once, children that allocate.
        let work = format!(
            "alloc 10\nchurn {churn}\ndriver {}\nalloc 3\nstorm 4\nfamily 2\nfree\nchurn {churn}\nalloc 1",
            odd.display()
        );
        let file = sim.scratch().join("run.vrt");
        Ok(Self { sim, file, script: work.lines().map(str::to_owned).collect() })
    }

    /// The script as a file to read.
    fn input(&self) -> Result<File> {
        let path = self.sim.scratch().join("script");
        fs::write(&path, self.script.join("\n") + "\n")?;
        Ok(File::open(path)?)
    }

    fn output(&self) -> PathBuf {
        self.sim.scratch().join("output")
    }

    /// A command that reads the script and writes to a file.
    fn wired(&self, mut command: Command) -> Result<Command> {
        let errors = File::create(self.sim.scratch().join("errors"))?;
        command.stdin(self.input()?).stdout(File::create(self.output())?).stderr(errors);
        Ok(command)
    }

    /// The server did all its work (true), or none (false).
    pub(super) fn all_or_nothing(&self) -> Result<bool> {
        let output = fs::read_to_string(self.output())?;
        let said: Vec<&str> = output.lines().skip(1).collect();
        let expected: Vec<String> =
            self.script.iter().map(|line| format!("{} 0", line.split(' ').next().unwrap_or_default())).collect();
        ensure!(output.is_empty() || said == expected, "the server was disturbed: {output}");
        Ok(!output.is_empty())
    }
}

/// One round: a kill at `point` (0 to 1) of the way.
pub(super) fn round(victim: Victim, point: f64) -> Result<When> {
    match victim {
        Victim::Run => tracer_of_run(point),
        Victim::Attach => tracer_of_attach(point),
        Victim::TargetInDriver => target_in_driver(point),
        Victim::Target | Victim::Guard => at_a_time(victim, point),
        Victim::Driver => driver(point),
        Victim::Interrupted => interrupted::tracer_of_run(point),
    }
}

fn part(whole: u64, point: f64) -> u64 {
    Duration::from_nanos(whole).mul_f64(point).as_nanos().try_into().unwrap_or(u64::MAX)
}

pub(super) fn run_of(stage: &Stage) -> Result<Command> {
    stage.wired(run_command(&stage.sim, &stage.file, &[])?)
}

/// System calls of a tracer that is let alone: the way.
fn way(of: &OnceLock<u64>, start: impl FnOnce() -> Result<Command>) -> Result<u64> {
    if let Some(way) = of.get() {
        return Ok(*way);
    }
    let all = Stepped::start(start()?)?.go(u64::MAX)?;
    Ok(*of.get_or_init(|| all))
}

fn tracer_of_run(point: f64) -> Result<When> {
    static WAY: OnceLock<u64> = OnceLock::new();
    let whole = Stage::new(5)?;
    let way = way(&WAY, || run_of(&whole))?;
    drop(whole);
    let stage = Stage::new(5)?;
    let mut tracer = Stepped::start(run_of(&stage)?)?;
    tracer.go(part(way, point))?;
    let footprint = Footprint::so_far(tracer.pid());
    let killed = tracer.kill()?;
    aftermath::all_end(&stage.sim)?;
    footprint.gone()?;
    let worked = stage.all_or_nothing()?;
    ensure!(killed || worked, "it was let alone and did nothing");
    let Some(book) = aftermath::read(&stage.file)? else { return Ok(When::Before) };
    let complete = book.outcome.is_some();
    aftermath::agrees(&book, &stage.sim.settled()?, if complete { Extent::All } else { Extent::Beginning })?;
    Ok(match (killed, worked, complete) {
        (false, ..) => When::Never,
        (true, false, _) => When::Before,
        (true, true, false) => When::During,
        (true, true, true) => When::After,
    })
}

/// A server that gets its work when the tracer has begun to write, or when it is told that there will be none.
struct Fed {
    server: Child,
    go: Arc<AtomicBool>,
    feeder: JoinHandle<Result<()>>,
}

impl Fed {
    fn start(stage: &Stage) -> Result<Self> {
        let mut command = stage.wired(stage.sim.command("server")?)?;
        let mut server = command.stdin(Stdio::piped()).spawn()?;
        let mut input = server.stdin.take().context("no input")?;
        let (script, file, go) = (stage.script.join("\n") + "\n", stage.file.clone(), Arc::new(AtomicBool::new(false)));
        let may_go = Arc::clone(&go);
        let feeder = std::thread::spawn(move || {
            wait_until("a trace", || Ok(file.exists() || may_go.load(Ordering::Relaxed)))?;
            Ok(input.write_all(script.as_bytes())?)
        });
        Ok(Self { server, go, feeder })
    }

    fn finish(mut self) -> Result<()> {
        self.go.store(true, Ordering::Relaxed);
        self.feeder.join().map_err(|_| anyhow!("the feeder panicked"))??;
        ensure!(self.server.wait()?.success(), "the server was harmed");
        Ok(())
    }
}

fn attach_to(stage: &Stage, pid: u32) -> Result<Command> {
    let mut command = stage.sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["attach", "--pid", &pid.to_string(), "-o"]).arg(&stage.file);
    command.stdin(Stdio::null()).stderr(File::create(stage.sim.scratch().join("errors"))?);
    Ok(command)
}

fn tracer_of_attach(point: f64) -> Result<When> {
    static WAY: OnceLock<u64> = OnceLock::new();
    if WAY.get().is_none() {
        let stage = Stage::new(300)?;
        let fed = Fed::start(&stage)?;
        way(&WAY, || attach_to(&stage, fed.server.id()))?;
        fed.finish()?;
    }
    let way = *WAY.get().context("no way")?;
    let stage = Stage::new(300)?;
    let fed = Fed::start(&stage)?;
    let mut tracer = Stepped::start(attach_to(&stage, fed.server.id())?)?;
    tracer.go(part(way, point))?;
    let footprint = Footprint::so_far(tracer.pid());
    let killed = tracer.kill()?;
    fed.finish()?;
    aftermath::all_end(&stage.sim)?;
    footprint.gone()?;
    ensure!(stage.all_or_nothing()?, "it did nothing");
    let Some(book) = aftermath::read(&stage.file)? else { return Ok(When::Before) };
    aftermath::agrees_with_nvml(&book)?;
    Ok(if !killed {
        When::Never
    } else if book.outcome.is_some() {
        When::After
    } else {
        When::During
    })
}

/// Requests of the server's work, about.
const REQUESTS: f64 = 700.0;

fn target_in_driver(point: f64) -> Result<When> {
    let stage = Stage::new(40)?;
    let mut run = Talk::server(run_command(&stage.sim, &stage.file, &[])?)?;
    let (pid, skip) = (run.server_pid(), (REQUESTS * point).round());
    let fault = format!("{{\"fault\":{{\"pid\":{pid},\"skip\":{skip},\"kill\":true}}}}");
    fs::write(stage.sim.devices().join("control"), fault)?;
    // It may be gone at any of these.
    for line in &stage.script {
        if run.ask(line).is_err() {
            break;
        }
    }
    run.close();
    let killed = match run.wait()?.code() {
        Some(0) => false,
        Some(137) => true,
        code => anyhow::bail!("exit code {code:?}: {}", run.errors()),
    };
    finished(&stage, Extent::All)?;
    Ok(if killed { When::During } else { When::Never })
}

/// The tracer was let alone: its trace is complete, and right.
pub(super) fn finished(stage: &Stage, extent: Extent) -> Result<Option<Outcome>> {
    aftermath::all_end(&stage.sim)?;
    let book = aftermath::read(&stage.file)?.context("no trace")?;
    ensure!(book.outcome.is_some(), "a trace without an end");
    let truth = if extent == Extent::All { stage.sim.settled()? } else { stage.sim.truth()? };
    aftermath::agrees(&book, &truth, extent)?;
    Ok(book.outcome)
}

/// The process of a tracer that is to be killed, once it is there.
fn find(victim: Victim, tracer: u32) -> Option<u32> {
    if victim == Victim::Guard {
        return guard(tracer);
    }
    // Its helpers have names of their own; the target has the tracer's until it executes.
    let is_target = |pid: &u32| !comm(*pid).starts_with("vramtrace-");
    descendants(tracer).into_iter().skip(1).find(is_target)
}

/// The part of the points that lies before the target speaks.
const SILENT: f64 = 0.3;

fn at_a_time(victim: Victim, point: f64) -> Result<When> {
    // Nanoseconds until the target speaks, and from there to the end.
    static WAY: OnceLock<[u64; 2]> = OnceLock::new();
    let stage = Stage::new(40)?;
    let (begun, mut child) = (Instant::now(), run_of(&stage)?.spawn()?);
    let speaks = || Ok(fs::metadata(stage.output())?.len() > 0);
    let Some([silent, speaking]) = WAY.get() else {
        wait_until("the target's first word", speaks)?;
        let silent = begun.elapsed();
        ensure!(child.wait()?.success() && stage.all_or_nothing()?);
        let speaking = begun.elapsed().saturating_sub(silent);
        WAY.get_or_init(|| [silent, speaking].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        return at_a_time(victim, point);
    };
    if point < SILENT {
        std::thread::sleep(Duration::from_nanos(part(*silent, point / SILENT)));
    } else {
        wait_until("the target's first word", speaks)?;
        std::thread::sleep(Duration::from_nanos(part(*speaking, (point - SILENT) / (1.0 - SILENT))));
    }
    let mut found = None;
    let mut ended = None;
    wait_until("the victim", || {
        found = find(victim, child.id());
        ended = child.try_wait()?;
        Ok(found.is_some() || ended.is_some())
    })?;
    let killed = found.is_some_and(|pid| kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).is_ok());
    let footprint = Footprint::so_far(child.id());
    let status = child.wait()?;
    footprint.gone()?;
    aftermath::all_end(&stage.sim)?;
    if victim == Victim::Guard {
        if !status.success() {
            // As it began: nothing was traced, which one line says, and nothing was run.
            let errors = fs::read_to_string(stage.sim.scratch().join("errors"))?;
            ensure!(
                errors.lines().count() == 1 && errors.contains("the guard") && !stage.all_or_nothing()?,
                "{errors}"
            );
            return Ok(When::Before);
        }
        ensure!(stage.all_or_nothing()?, "it did nothing");
        finished(&stage, Extent::All)?;
        return Ok(if killed { When::During } else { When::Never });
    }
    target_killed(&stage, killed, status.code())
}

/// The target was killed at some time; the tracer ended with `code`.
fn target_killed(stage: &Stage, killed: bool, code: Option<i32>) -> Result<When> {
    let book = aftermath::read(&stage.file)?;
    if code == Some(0) {
        finished(stage, Extent::All)?;
        return Ok(if killed { When::After } else { When::Never });
    }
    // Before its exec there was nothing to trace: one line says so, and there may be no file yet.
    let executed = book.as_ref().is_some_and(|book| book.outcome.is_some());
    if !executed {
        let errors = fs::read_to_string(stage.sim.scratch().join("errors"))?;
        ensure!(errors.lines().count() == 1 && fs::read(stage.output())?.is_empty(), "{code:?}: {errors}");
        return Ok(When::Before);
    }
    ensure!(code == Some(137), "{code:?}");
    ensure!(finished(stage, Extent::All)? == Some(Outcome::Killed { signal: 9 }));
    Ok(When::During)
}

fn driver(point: f64) -> Result<When> {
    let mut stage = Stage::new(400)?;
    let mut run = Talk::server(run_command(&stage.sim, &stage.file, &[])?)?;
    let footprint = Footprint::of(run.pid())?;
    for line in &stage.script {
        run.say(line)?;
    }
    std::thread::sleep(Duration::from_millis(part(1500, point)));
    stage.sim.kill_driver()?;
    run.close();
    let status = run.wait()?;
    ensure!(status.code().is_some(), "{status}");
    footprint.gone()?;
    finished(&stage, Extent::Beginning)?;
    Ok(When::During)
}

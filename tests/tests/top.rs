//! The ledger while tracing goes on: `vramtrace top` in a terminal, and `attach --metrics`.
//!
//! These load BPF programs and need root, and tmux. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use live_tests::live::{Footprint, Talk, attach, code_is_untouched, state, vramtrace, wait_until};
use live_tests::sim::{Config, Sim};
use nix::sys::signal::Signal;
use tracer::report::bytes::human;

const MIB: u64 = 1 << 20;

/// A sample: name, labels, value.
type Samples = BTreeMap<(String, BTreeMap<String, String>), u64>;

/// Reads the text format 0.0.4, and refuses whatever a scraper might not read as it was meant.
fn parse(text: &str) -> Result<Samples> {
    ensure!(text.ends_with('\n'), "the last line does not end");
    let (mut samples, mut types) = (Samples::new(), BTreeMap::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [what, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else { bail!("{line}") };
            match what {
                "HELP" => ensure!(!types.contains_key(name), "{name} twice"),
                "TYPE" => {
                    ensure!(matches!(rest, "gauge" | "counter"), "{line}");
                    ensure!((rest == "counter") == name.ends_with("_total"), "{line}");
                    ensure!(types.insert(name.to_owned(), rest.to_owned()).is_none(), "{name} twice");
                }
                _ => bail!("{line}"),
            }
            current = name.to_owned();
            continue;
        }
        let (set, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        let (name, labels) = match set.split_once('{') {
            Some((name, labels)) => (name, parse_labels(labels).with_context(|| line.to_owned())?),
            None => (set, BTreeMap::new()),
        };
        ensure!(name == current && types.contains_key(name), "{line} stands not below its type");
        ensure!(samples.insert((name.to_owned(), labels), value.parse()?).is_none(), "{line} twice");
    }
    Ok(samples)
}

/// `a="b",c="d"}`.
fn parse_labels(text: &str) -> Result<BTreeMap<String, String>> {
    let (mut labels, mut rest) = (BTreeMap::new(), text);
    loop {
        let (name, value) = rest.split_once("=\"").context("no label")?;
        ensure!(!name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name:?}");
        let (mut unescaped, mut chars) = (String::new(), value.char_indices());
        let end = loop {
            match chars.next().context("no end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next().context("no end")?.1 {
                    'n' => unescaped.push('\n'),
                    c @ ('"' | '\\') => unescaped.push(c),
                    c => bail!("\\{c}"),
                },
                (_, c) => unescaped.push(c),
            }
        };
        ensure!(labels.insert(name.to_owned(), unescaped).is_none(), "{name} twice");
        match &value[end + 1..] {
            "}" => return Ok(labels),
            more => rest = more.strip_prefix(',').context("no comma")?,
        }
    }
}

fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn scrape(port: u16) -> Result<Samples> {
    let answer = get(port, "/metrics")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    if head.starts_with("HTTP/1.1 503 ") {
        return Ok(Samples::new());
    }
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    ensure!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    ensure!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    parse(body)
}

/// Sum of a metric over the samples that have these labels.
fn sum(samples: &Samples, metric: &str, labels: &[(&str, &str)]) -> u64 {
    let has = |known: &BTreeMap<String, String>| labels.iter().all(|(k, v)| known.get(*k).is_some_and(|x| x == v));
    samples.iter().filter(|((name, known), _)| name == metric && has(known)).map(|(_, value)| value).sum()
}

#[test]
fn metrics_are_the_drivers_figures() -> Result<()> {
    let sim = Sim::start(Config { gpus: 2, ..Config::default() })?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    let pid = server.server_pid();
    let before = sim.smi()?.processes[&(0, pid)];
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let options = ["--pid", &pid.to_string(), "--metrics", &port.to_string()];
    let tracer = attach(&sim, &sim.scratch().join("metrics.vrt"), &options)?;
    // What was there, and then each step.
    for (order, kind, bytes) in [
        ("", "pre_attach", before),
        ("alloc 30", "cuda_malloc", 30 * MIB),
        ("alloc 40", "cuda_malloc", 70 * MIB),
        ("free", "cuda_malloc", 30 * MIB),
    ] {
        if !order.is_empty() {
            server.order(order)?;
        }
        let (now, mut last) = (sim.smi()?, Samples::new());
        let held = now.processes[&(0, pid)];
        let came = wait_until(order, || {
            last = scrape(port)?;
            Ok(sum(&last, "vramtrace_live_bytes", &[("gpu", "0")]) == held
                && sum(&last, "vramtrace_gpu_used_bytes", &[("gpu", "0")]) == now.used[&0])
        });
        came.with_context(|| format!("{held} bytes: {last:?}"))?;
        let of_kind = [("gpu", "0"), ("kind", kind), ("phase", "unattributed")];
        ensure!(sum(&last, "vramtrace_live_bytes", &of_kind) == bytes, "{order}: {last:?}");
        let free = sum(&last, "vramtrace_gpu_free_bytes", &[("gpu", "1")]);
        ensure!(free == Config::default().gpu_bytes, "{free} on the idle GPU");
        ensure!(sum(&last, "vramtrace_processes", &[]) == 1 && sum(&last, "vramtrace_lost_events_total", &[]) == 0);
    }
    ensure!(server.ask("alloc 1000000")? != 0, "there is no such GPU");
    let reason = [("reason", "out_of_memory"), ("gpu", "0")];
    wait_until("the failure", || Ok(sum(&scrape(port)?, "vramtrace_failures_total", &reason) == 1))?;
    let peak = sum(&scrape(port)?, "vramtrace_peak_bytes", &[("gpu", "0")]);
    ensure!(peak == before + 70 * MIB, "{peak}");

    // Only this machine may ask, and clients that say nothing hinder neither others nor the tracer's end.
    let listens = Command::new("ss").args(["-Hltn", &format!("sport = :{port}")]).output();
    if let Ok(output) = listens {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.contains(&format!("127.0.0.1:{port}")) && !text.contains(&format!("0.0.0.0:{port}")), "{text}");
    }
    let _silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port))).collect::<Result<_, _>>()?;
    ensure!(get(port, "/")?.contains("vramtrace"));
    let mut tracer = tracer;
    tracer.signal(Signal::SIGINT)?;
    ensure!(tracer.wait()?.success());
    ensure!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it serves on");
    server.order("alloc 1")
}

#[test]
fn an_address_that_is_taken_is_one_error() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["attach", "--pid", &std::process::id().to_string(), "-o"]).arg(sim.scratch().join("taken.vrt"));
    let output = command.args(["--metrics", &taken.local_addr()?.port().to_string()]).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1) && said.lines().count() == 1, "{said}");
    ensure!(said.contains("--metrics: cannot serve at 127.0.0.1:") && said.contains("in use"), "{said}");
    Ok(())
}

/// A terminal of 80 × 24 that runs a command; gone with this.
struct Tmux {
    name: String,
}

impl Tmux {
    fn start(sim: &Sim, command: &str) -> Result<Self> {
        let tmux =
            Self { name: format!("vramtrace-{}-{}", std::process::id(), sim.scratch().display()).replace('/', "_") };
        // What its first command is given, its server and all in it has.
        let status = sim
            .command("/usr/bin/tmux")?
            .args(["-L", &tmux.name, "-f", "/dev/null"])
            .args(["new-session", "-d", "-x", "80", "-y", "24", command])
            .status()
            .context("tmux")?;
        ensure!(status.success(), "{status}");
        Ok(tmux)
    }

    fn tell(&self, words: &[&str]) -> Result<String> {
        let output = Command::new("tmux").args(["-L", &self.name]).args(words).output()?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn keys(&self, keys: &[&str]) -> Result<()> {
        self.tell(&[&["send-keys"], keys].concat()).map(drop)
    }

    /// Waits until the screen holds all of these; gives the screen.
    fn shows(&self, wanted: &[&str]) -> Result<String> {
        let mut screen = String::new();
        let seen = wait_until("the screen", || {
            screen = self.tell(&["capture-pane", "-p"])?;
            Ok(wanted.iter().all(|text| screen.contains(text)))
        });
        seen.with_context(|| format!("{wanted:?} in\n{screen}"))?;
        Ok(screen)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        _ = self.tell(&["kill-server"]);
    }
}

/// The tracer among the children of the terminal's shell.
fn tracer_of(tmux: &Tmux) -> Result<u32> {
    let shell = tmux.tell(&["display-message", "-p", "#{pane_pid}"])?;
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.trim()))?;
    children.split_whitespace().next().context("no child")?.parse().context("no pid")
}

#[test]
fn top_shows_what_the_driver_has_and_leaves_nothing_behind() -> Result<()> {
    let sim = Sim::start(Config { gpus: 2, ..Config::default() })?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    let pid = server.server_pid();
    let top = vramtrace()?.display().to_string();
    // Whatever the terminal's width then, these are two short lines.
    let modes = r"raw $(stty -a | tr ' ;' '\n' | grep -cx -e -icanon -e -echo)";
    let tmux = Tmux::start(&sim, &format!("{top} top --pid {pid}; echo ended $?; echo {modes}; sleep 1000"))?;
    let rank = format!("{pid} server");
    let held = |sim: &Sim| Ok::<_, anyhow::Error>(human(sim.smi()?.processes[&(0, pid)]));
    tmux.shows(&[&rank, &held(&sim)?, "1 process", "0 lost", "GPU 0", "GPU 1"])?;
    server.order("alloc 3000")?;
    server.order("alloc 64")?;
    let screen = tmux.shows(&[&rank, &held(&sim)?])?;
    let row = screen.lines().find(|line| line.contains(&rank)).context("no row")?;
    ensure!(row.split_whitespace().collect::<Vec<_>>().join(" ").contains(&held(&sim)?), "{row}");
    ensure!(server.ask("alloc 1000000")? != 0);
    let failed = || Ok(tmux.shows(&[&rank])?.lines().any(|line| line.contains(&rank) && line.ends_with(" 1")));
    wait_until("the failure", failed)?;

    // Into the rank, its biggest cell, the stack, its frames.
    tmux.keys(&["Enter"])?;
    tmux.shows(&["cuda_malloc", &human(3064 * MIB), "pre_attach"])?;
    tmux.keys(&["Enter"])?;
    tmux.shows(&["CALLED BY", "keep (server.c", &human(3064 * MIB)])?;
    tmux.keys(&["Enter"])?;
    tmux.shows(&["FRAME", "cudaMalloc", "main (server.c"])?;
    tmux.keys(&["Escape"])?;
    tmux.shows(&["CALLED BY"])?;
    tmux.keys(&["/", "nowhere", "Enter"])?;
    let screen = tmux.shows(&["[filter: nowhere]"])?;
    ensure!(!screen.contains("keep (server.c"), "{screen}");
    tmux.keys(&["?"])?;
    tmux.shows(&["any key closes it"])?;
    tmux.keys(&["x"])?;

    // However the terminal's size changes, nothing breaks.
    for (width, height) in [("20", "5"), ("200", "60"), ("80", "24")] {
        tmux.tell(&["resize-window", "-x", width, "-y", height])?;
        tmux.shows(&["vramtrace top"])?;
    }
    let footprint = Footprint::of(tracer_of(&tmux)?)?;
    tmux.keys(&["q"])?;
    // The terminal is given back: lines and echo are on.
    tmux.shows(&["all probes are gone", "ended 0", "raw 0"])?;
    footprint.gone()?;
    server.order("alloc 1")?;
    ensure!(code_is_untouched(pid, "libcuda.so.1")? > 0);
    Ok(())
}

#[test]
fn a_terminal_that_hangs_up_ends_tracing() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    let pid = server.server_pid();
    let tmux = Tmux::start(&sim, &format!("exec {} top --pid {pid}", vramtrace()?.display()))?;
    tmux.shows(&["1 process", "RANK"])?;
    let tracer: u32 = tmux.tell(&["display-message", "-p", "#{pane_pid}"])?.trim().parse()?;
    let footprint = Footprint::of(tracer)?;
    drop(tmux);
    wait_until("the tracer's end", || Ok(state(tracer).is_none_or(|state| state == 'Z')))?;
    footprint.gone()?;
    server.order("alloc 1")
}

#[test]
fn top_waits_for_a_server_and_writes_its_trace() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let (word, file) = (sim.scratch().display().to_string(), sim.scratch().join("top.vrt"));
    let top = vramtrace()?.display().to_string();
    let command = format!("{top} top --match 'server late {word}$' -o {}; echo ended $?; sleep 1000", file.display());
    let tmux = Tmux::start(&sim, &command)?;
    tmux.shows(&["Waiting for a process", "server late"])?;
    let mut command = sim.command("server")?;
    command.args(["late", &word]);
    let mut server = Talk::start(command)?;
    let pid = u32::try_from(server.answer("late")?)?;
    server.order("alloc 77")?;
    let held = sim.smi()?.processes[&(0, pid)];
    tmux.shows(&[&format!("{pid} server"), &human(held)])?;
    server.close();
    server.wait()?;
    tmux.shows(&["exited (0)"])?;
    tmux.keys(&["C-c"])?;
    tmux.shows(&["vramtrace: wrote", "ended 0"])?;
    live_tests::live::exact(&live_tests::live::book(&file)?, &sim.settled()?, pid)
}

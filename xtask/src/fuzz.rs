//! `cargo xtask fuzz`: libFuzzer on every target of `fuzz/`, and a table of what was run and found.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{cargo, line, root, run, target};

/// Version of cargo-fuzz that is installed.
const CARGO_FUZZ: &str = "0.13.2";
/// What cargo-fuzz builds for: sanitizers need the target named.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Memory that an input may take, MiB, `AddressSanitizer`'s shadow and red zones with it; and one allocation.
const MEMORY: [&str; 2] = ["-rss_limit_mb=2048", "-malloc_limit_mb=512"];
/// A reader's threads end a moment after it: what they then give back, a look for leaks in that moment takes for one.
const LEAKS: &str = "-detect_leaks=0";
/// Seconds that one input may take; with the sanitizer on, on a busy machine.
const TIMEOUT: &str = "-timeout=25";
/// Clock ticks a second in `/proc/PID/stat` (`USER_HZ`, the same on every x86-64 kernel).
const TICKS: f64 = 100.0;

/// Targets, with the longest input of each in bytes.
const TARGETS: [(&str, u32); 7] = [
    ("trace_reader", 16 << 10),
    ("trace_lines", 16 << 10),
    ("elf", 16 << 10),
    ("wire", 16 << 10),
    ("rules", 8 << 10),
    ("pickle", 4 << 10),
    ("foreign", 4 << 10),
];

/// Arguments of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Only these targets; may be given again
    #[arg(long, value_name = "NAME", value_parser = TARGETS.map(|(name, _)| name))]
    target: Vec<String>,
    /// Take what is built
    #[arg(long)]
    no_build: bool,
}

/// What a target came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    executions: u64,
    cpu_seconds: f64,
    /// Edges of the control flow that some input reached.
    coverage: u64,
    findings: usize,
}

/// Builds the targets, runs them in turn, and prints what came of it. What was found interesting stays under
/// `target/fuzz/corpus` for the next time.
pub(crate) fn main(args: &Args) -> Result<()> {
    let wanted = TARGETS.iter().filter(|(name, _)| args.target.is_empty() || args.target.iter().any(|t| t == name));
    let wanted: Vec<_> = wanted.collect();
    if !args.no_build {
        build(&wanted.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
    }
    let (mut sums, mut known) = (BTreeMap::new(), BTreeMap::new());
    for (name, longest) in wanted {
        let sum = fuzz(name, *longest, args.seconds)?;
        // Each at once: hours are often cut short.
        known = add_to_totals(name, &sum)?;
        sums.insert(*name, sum);
    }
    print!("{}\nAll runs on this machine so far:\n{}", table(&sums), table(&known.iter().map(borrowed).collect()));
    let found: usize = sums.values().map(|sum| sum.findings).sum();
    ensure!(found == 0, "{found} inputs break something: they are under {}", folder("findings").display());
    Ok(())
}

fn borrowed<'a>((name, sum): (&'a String, &Sum)) -> (&'a str, Sum) {
    (name.as_str(), *sum)
}

fn folder(name: &str) -> PathBuf {
    target().join("fuzz").join(name)
}

fn build(targets: &[&str]) -> Result<()> {
    let tool = folder("tool");
    if !tool.join("bin/cargo-fuzz").exists() {
        println!("building cargo-fuzz {CARGO_FUZZ}");
        run(cargo().args(["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--root"]).arg(&tool))?;
    }
    // The versions that users get.
    fs::copy(root().join("Cargo.lock"), root().join("fuzz/Cargo.lock")).context("cannot copy Cargo.lock")?;
    for name in targets {
        let mut fuzz = Command::new(tool.join("bin/cargo-fuzz"));
        fuzz.args(["build", "--fuzz-dir", "fuzz", "--target", TRIPLE, "--target-dir"]).arg(folder("build")).arg(name);
        // Sanitizers are not stable yet, and stable compilers have them.
        run(fuzz.current_dir(root()).env("RUSTC_BOOTSTRAP", "1"))?;
    }
    Ok(())
}

fn fuzz(name: &str, longest: u32, seconds: u32) -> Result<Sum> {
    let program = folder("build").join(TRIPLE).join("release").join(name);
    let (corpus, seeds, findings) =
        (folder("corpus").join(name), folder("seeds").join(name), folder("findings").join(name));
    for dir in [&corpus, &findings] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    run(Command::new(&program).env("VRAMTRACE_FUZZ_SEEDS", &seeds).stderr(Stdio::null()))?;
    let before = entries(&findings)?;
    let cpu = cpu_seconds()?;
    // Anything else on the machine comes first.
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(&program).args([&corpus, &seeds]).args(MEMORY).args([TIMEOUT, LEAKS]);
    command.arg(format!("-max_len={longest}")).arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", findings.display())).args(["-print_final_stats=1", "-print_funcs=0"]);
    let dictionary = seeds.with_extension("dict");
    if fs::metadata(&dictionary).is_ok_and(|meta| meta.len() > 0) {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    println!("=== {name}, {seconds} s");
    let log = folder("findings").join(format!("{name}.log"));
    let mut sum = follow(&mut command, &log)?;
    sum.cpu_seconds = cpu_seconds()? - cpu;
    sum.findings = entries(&findings)?.saturating_sub(before);
    Ok(sum)
}

/// Runs the fuzzer; what it says goes to `log`, and its figures are read off.
fn follow(command: &mut Command, log: &Path) -> Result<Sum> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{}`", line(command)))?;
    let mut kept = fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut sum = Sum::default();
    for said in BufReader::new(child.stderr.take().context("no output")?).split(b'\n') {
        let said = String::from_utf8_lossy(&said?).into_owned();
        writeln!(kept, "{said}")?;
        sum.read(&said);
    }
    let status = child.wait()?;
    // libFuzzer: 77 is a crash, 70 a timeout, 71 out of memory. Each leaves its input.
    if !status.success() {
        println!("stopped ({status}): see {}", log.display());
    }
    if sum.executions == 0 && status.success() {
        bail!("`{}` ran nothing", line(command));
    }
    Ok(sum)
}

impl Sum {
    /// A line of libFuzzer: `#1024 pulse cov: 4711 ft: …` or `stat::number_of_executed_units: 4096`.
    fn read(&mut self, said: &str) {
        let mut words = said.split_whitespace();
        while let Some(word) = words.next() {
            match (word, word.strip_prefix('#').and_then(|n| n.parse().ok())) {
                ("cov:", _) => self.coverage = words.next().and_then(|n| n.parse().ok()).unwrap_or(self.coverage),
                ("stat::number_of_executed_units:", _) => {
                    self.executions = words.next().and_then(|n| n.parse().ok()).unwrap_or(self.executions);
                }
                (_, Some(executions)) => self.executions = self.executions.max(executions),
                _ => {}
            }
        }
    }

    fn add(&mut self, more: &Self) {
        self.executions += more.executions;
        self.cpu_seconds += more.cpu_seconds;
        self.coverage = self.coverage.max(more.coverage);
        self.findings += more.findings;
    }
}

fn entries(dir: &Path) -> Result<usize> {
    Ok(fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?.count())
}

/// CPU time of children that have ended: fields 16 and 17 of `/proc/self/stat` (proc(5)), counted behind the name.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').context("no /proc/self/stat as it should be")?.1.split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / TICKS)
}

/// Adds to what earlier runs came to, in `target/fuzz/totals.txt`.
fn add_to_totals(name: &str, sum: &Sum) -> Result<BTreeMap<String, Sum>> {
    let path = folder("totals.txt");
    let mut totals = totals(&fs::read_to_string(&path).unwrap_or_default());
    totals.entry(name.to_owned()).or_default().add(sum);
    let mut text = String::new();
    for (name, Sum { executions, cpu_seconds, coverage, findings }) in &totals {
        let _ = writeln!(text, "{name} {executions} {cpu_seconds} {coverage} {findings}");
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(totals)
}

fn totals(text: &str) -> BTreeMap<String, Sum> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, executions, cpu_seconds, coverage, findings] = words[..] else { return None };
        let (executions, cpu_seconds) = (executions.parse().ok()?, cpu_seconds.parse().ok()?);
        let (coverage, findings) = (coverage.parse().ok()?, findings.parse().ok()?);
        Some((name.to_owned(), Sum { executions, cpu_seconds, coverage, findings }))
    };
    text.lines().filter_map(row).collect()
}

fn table(sums: &BTreeMap<&str, Sum>) -> String {
    let mut text = format!("{:<14}{:>14}{:>10}{:>10}{:>10}\n", "target", "executions", "CPU s", "edges", "findings");
    for (name, Sum { executions, cpu_seconds, coverage, findings }) in sums {
        let _ = writeln!(text, "{name:<14}{executions:>14}{cpu_seconds:>10.0}{coverage:>10}{findings:>10}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_off_what_the_fuzzer_says() {
        let mut sum = Sum::default();
        for said in [
            "INFO: Running with entropic power schedule (0xFF, 100).",
            "#2      INITED cov: 120 ft: 121 corp: 1/1b exec/s: 0 rss: 40Mb",
            "#4096   pulse  cov: 4711 ft: 9000 corp: 77/3Kb lim: 4096 exec/s: 512 rss: 90Mb",
            "==7== ERROR: libFuzzer: deadly signal",
        ] {
            sum.read(said);
        }
        assert_eq!((sum.executions, sum.coverage), (4096, 4711));
        sum.read("stat::number_of_executed_units: 5000");
        assert_eq!(sum.executions, 5000);
    }

    #[test]
    fn every_target_has_its_binary() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        for (name, _) in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(root().join(format!("fuzz/fuzz_targets/{name}.rs")).exists(), "{name}");
        }
    }

    #[test]
    fn totals_add_up_over_runs() {
        let sum = Sum { executions: 5, cpu_seconds: 1.5, coverage: 9, findings: 0 };
        let mut read = totals("elf 5 1.5 9 0\ndamaged\n");
        assert_eq!(read["elf"], sum);
        read.get_mut("elf").unwrap().add(&Sum { coverage: 7, findings: 1, ..sum });
        assert_eq!(read["elf"], Sum { executions: 10, cpu_seconds: 3.0, coverage: 9, findings: 1 });
    }
}

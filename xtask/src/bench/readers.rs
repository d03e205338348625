//! What reading a trace takes, and how that grows with its length.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{
    Bench, built,
    running::{Taken, measured},
};
use crate::command::run;

/// Lengths of the traces, in events; the last is an option's.
const SHORT: [u64; 2] = [10_000, 1_000_000];

/// A command: its name, its arguments around the trace, whether it takes two, seconds and GiB at most for the longest trace.
struct Reader {
    name: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    two: bool,
    limit: Option<(f64, f64)>,
}

const fn reader(name: &'static str, before: &'static [&'static str], limit: Option<(f64, f64)>) -> Reader {
    Reader { name, before, after: &[], two: false, limit }
}

/// Output goes to a file that `{out}` stands for.
const READERS: [Reader; 7] = [
    reader("report", &["report"], Some((10.0, 1.0))),
    reader("report --format json", &["report", "--format", "json"], None),
    Reader { two: true, ..reader("diff, of two", &["diff"], Some((20.0, 2.0))) },
    Reader { after: &["-o", "{out}"], ..reader("html", &["html", "--force"], None) },
    Reader {
        after: &["-o", "{out}"],
        ..reader("export perfetto", &["export", "--force", "--format", "perfetto"], None)
    },
    Reader { after: &["-o", "{out}"], ..reader("export pprof", &["export", "--force", "--format", "pprof"], None) },
    Reader { after: &["-o", "{out}"], ..reader("export parquet", &["export", "--force", "--format", "parquet"], None) },
];

pub(super) fn table(bench: &Bench<'_>) -> Result<String> {
    let lengths: Vec<u64> = SHORT.into_iter().filter(|n| *n < bench.args.events).chain([bench.args.events]).collect();
    let traces = lengths.iter().map(|events| trace(bench, *events)).collect::<Result<Vec<_>>>()?;
    let mut text = String::from(
        "Seconds, processor seconds and resident memory at most, of a release build; by events, and bytes of the trace:\n\n",
    );
    let _ = write!(text, "{:<22}", "");
    for (events, trace) in lengths.iter().zip(&traces) {
        let size = fs::metadata(trace)?.len() as f64 / f64::from(1 << 20);
        let _ = write!(text, "{:>28}", format!("{events} ({size:.1} MiB)"));
    }
    text += "  target\n";
    for reader in &READERS {
        let taken = traces.iter().map(|trace| read(bench, reader, trace)).collect::<Result<Vec<_>>>()?;
        text += &row(reader, &taken);
    }
    traces.iter().try_for_each(fs::remove_file)?;
    Ok(text)
}

fn row(reader: &Reader, taken: &[Taken]) -> String {
    let mut text = format!("{:<22}", reader.name);
    for taken in taken {
        let _ = write!(
            text,
            "{:>28}",
            format!("{:.2} s ({:.2}) {:>5.0} MiB", taken.seconds, taken.cpu_seconds, mib(taken))
        );
    }
    if let (Some((seconds, gib)), Some(last)) = (reader.limit, taken.last()) {
        let missed = last.seconds > seconds || mib(last) > gib * 1024.0;
        let _ = write!(text, "  ≤ {seconds} s, {gib} GiB{}", if missed { ": missed" } else { "" });
    }
    text + "\n"
}

fn mib(taken: &Taken) -> f64 {
    taken.peak_bytes as f64 / f64::from(1 << 20)
}

/// A trace of a simulated server of eight ranks.
fn trace(bench: &Bench<'_>, events: u64) -> Result<PathBuf> {
    let file = bench.dir.join(format!("{events}.vrt"));
    let _ = fs::remove_file(&file);
    run(Command::new(built("synthetic-trace")).arg(&file).arg(events.to_string()))?;
    Ok(file)
}

fn read(bench: &Bench<'_>, reader: &Reader, trace: &Path) -> Result<Taken> {
    let out = bench.dir.join("reader.out");
    let _ = fs::remove_file(&out);
    let mut command = Command::new(built("vramtrace"));
    command.args(reader.before).arg(trace);
    if reader.two {
        command.arg(trace);
    }
    command.args(reader.after.iter().map(|arg| match *arg {
        "{out}" => out.as_os_str(),
        arg => arg.as_ref(),
    }));
    let taken = measured(bench, &command)?;
    let _ = fs::remove_file(&out);
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_missed_is_said() {
        let taken = |seconds, mib: u64| Taken { seconds, cpu_seconds: 1.0, peak_bytes: mib << 20 };
        assert!(
            row(&READERS[0], &[taken(0.1, 5), taken(9.9, 1000)]).ends_with("9.90 s (1.00)  1000 MiB  ≤ 10 s, 1 GiB\n")
        );
        assert!(row(&READERS[0], &[taken(0.1, 5), taken(9.9, 1030)]).ends_with(": missed\n"));
        assert!(row(&READERS[0], &[taken(10.1, 1)]).ends_with(": missed\n"));
    }
}

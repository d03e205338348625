//! Runs a command and writes what it took: wall-clock seconds, seconds of processor time, KiB of memory at most, in a line.
//! `measured FILE COMMAND…`; its exit status is the command's.

use std::mem::MaybeUninit;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

fn main() -> Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let file = args.next().context("measured FILE COMMAND…")?;
    let program = args.next().context("measured FILE COMMAND…")?;
    let begin = Instant::now();
    let status = Command::new(&program).args(args).status().with_context(|| format!("cannot run {program:?}"))?;
    let wall = begin.elapsed().as_secs_f64();
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills in all of it, or fails.
    let usage = unsafe {
        ensure!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) == 0, std::io::Error::last_os_error());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    std::fs::write(file, format!("{wall:.4} {cpu:.4} {}\n", usage.ru_maxrss))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

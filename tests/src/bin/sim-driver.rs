//! The simulated NVIDIA driver: serves device files in a directory until SIGTERM, SIGINT or the end of its input.
//!
//! `sim-driver --mount DIR --truth FILE [--gpus N] [--gpu-bytes N] [--reverse-instances]`

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fuser::{MountOption, SessionACL};
use live_tests::driver::fs::Driver;
use live_tests::driver::rm::{Gpu, Rm};
use nix::sys::signal::{SigSet, Signal};

struct Options {
    mount: PathBuf,
    truth: PathBuf,
    gpus: u32,
    gpu_bytes: u64,
    /// Device instances count from the last GPU down, so that nobody can mistake one for an NVML index.
    reverse: bool,
}

fn options() -> Result<Options> {
    // CUDA's total on an H200 (reference measurements): 150,109,880,320 bytes.
    let (mut mount, mut truth, mut gpus, mut gpu_bytes, mut reverse) = (None, None, 1, 150_109_880_320, false);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let mut value = || args.next().with_context(|| format!("{name} needs a value"));
        match name.as_str() {
            "--mount" => mount = Some(PathBuf::from(value()?)),
            "--truth" => truth = Some(PathBuf::from(value()?)),
            "--gpus" => gpus = value()?.parse()?,
            "--gpu-bytes" => gpu_bytes = value()?.parse()?,
            "--reverse-instances" => reverse = true,
            _ => bail!("unknown option {name}"),
        }
    }
    let mount = mount.context("--mount DIR is missing")?;
    Ok(Options { mount, truth: truth.context("--truth FILE is missing")?, gpus, gpu_bytes, reverse })
}

fn main() -> Result<()> {
    let options = options()?;
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    // Before any thread exists, so that only the wait below gets them.
    signals.thread_block()?;

    let instance = |g| if options.reverse { options.gpus - 1 - g } else { g };
    let gpus = (0..options.gpus).map(|g| Gpu { bytes: options.gpu_bytes, instance: instance(g) }).collect();
    let log = File::create(&options.truth).with_context(|| format!("cannot create {}", options.truth.display()))?;
    let mut config = fuser::Config::default();
    config.mount_options = vec![MountOption::FSName("vramtrace-sim".into()), MountOption::NoSuid];
    config.acl = SessionACL::All;
    let session = fuser::Session::new(Driver::new(Rm::new(gpus), log), &options.mount, &config)
        .with_context(|| format!("cannot mount on {}", options.mount.display()))?;
    let session = session.spawn()?;
    println!("ready {}", options.mount.display());

    end_with_input();
    signals.wait()?;
    unmount(&options.mount)?;
    drop(session);
    Ok(())
}

/// Lets the end of standard input count as SIGTERM: whoever started the daemon is gone.
fn end_with_input() {
    std::thread::spawn(|| {
        _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGTERM);
    });
}

/// Takes the mount away even while a left-over process has a file open in it.
fn unmount(mount: &Path) -> Result<()> {
    live_tests::sim::detach(mount).with_context(|| format!("cannot unmount {}", mount.display()))
}

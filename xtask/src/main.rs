//! Developer commands: `cargo xtask --help`.
//!
//! Each does its own set-up, so that a fresh clone on a machine with only rustup needs nothing else.

mod apt;
mod bench;
mod command;
mod demo;
mod dist;
mod ebpf;
mod faults;
mod fuzz;
mod kernels;
mod pythons;
mod qemu;
mod readers;
mod real_libs;
mod setup;
mod sources;
mod tally;
mod test;
mod toolchain;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of vramtrace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Xtask,
}

#[derive(Subcommand)]
enum Xtask {
    /// Build the eBPF object and the note beside it (tracer/ebpf/)
    Ebpf(ebpf::Args),
    /// Install what the tests need: system packages, bpf-linker, real CUDA libraries under target/
    Setup,
    /// Format, lints, unit and property tests, eBPF check, live probes, real libraries, readers of exports
    Test(test::Args),
    /// Measure what a probed call costs, against an empty uprobe pair; the table goes to target/bench/
    Bench(bench::Args),
    /// Kill tracer, target, driver and guard at every point, and look at what is left; prints a table
    Faults(faults::Args),
    /// Trace simulated CUDA programs through real probes; files go to target/demo/
    Demo,
    /// Run the live tests in virtual machines of old and new kernels; the table goes to target/kernels/
    Kernels(kernels::Args),
    /// Fuzz everything that reads foreign bytes; inputs and findings stay under target/fuzz/
    Fuzz(fuzz::Args),
    /// Build for release, with manual pages and completions, as a package holds them; files go to target/dist/
    Dist,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Xtask::Ebpf(args) => ebpf::main(&args),
        Xtask::Setup => setup::main(),
        Xtask::Test(args) => test::main(&args),
        Xtask::Bench(args) => bench::main(&args),
        Xtask::Faults(args) => faults::main(&args),
        Xtask::Kernels(args) => kernels::main(&args),
        Xtask::Demo => demo::main(),
        Xtask::Fuzz(args) => fuzz::main(&args),
        Xtask::Dist => dist::main(),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    // What went wrong, without a backtrace of this program.
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

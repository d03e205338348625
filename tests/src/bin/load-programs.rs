//! Loads each program of the eBPF object and prints what that took: what the running kernel's verifier makes of it.
//!
//! Columns: program, `ok` or the error, instructions that the verifier went through (its limit is 1000000), milliseconds.

use std::time::Instant;

use anyhow::{Context, Result};
use aya::{
    EbpfLoader, VerifierLogLevel,
    programs::{Program, ProgramError},
};

fn main() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tracer/ebpf/vramtrace-x86_64.bpf.o");
    let object = std::fs::read(path).with_context(|| path.to_owned())?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut ebpf = EbpfLoader::new().verifier_log_level(VerifierLogLevel::STATS).load(&object)?;
    let mut names: Vec<String> = ebpf.programs().map(|(name, _)| name.to_owned()).collect();
    names.sort();
    let mut refused = 0;
    for name in names.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        let begin = Instant::now();
        let program = ebpf.program_mut(name).context("a program of the object")?;
        let loaded = match program {
            Program::UProbe(program) => program.load(),
            Program::RawTracePoint(program) => program.load(),
            // Tracing programs are loaded for one kernel function.
            _ => continue,
        };
        let took = begin.elapsed().as_millis();
        match loaded {
            Ok(()) => {
                let verified = program.info()?.verified_instruction_count().unwrap_or(0);
                println!("{name} ok {verified} {took}");
            }
            Err(ProgramError::LoadError { io_error, verifier_log }) => {
                refused += 1;
                let log = verifier_log.to_string();
                let last: Vec<&str> = log.lines().rev().take(40).collect();
                println!("{name} {io_error} 0 {took}");
                last.iter().rev().for_each(|line| println!("    {line}"));
            }
            Err(error) => {
                refused += 1;
                println!("{name} {error} 0 {took}");
            }
        }
    }
    std::process::exit(i32::from(refused > 0));
}

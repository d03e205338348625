//! Fuzz targets: foreign bytes of every kind, taken as the program takes them, and everything that follows from them.
//!
//! `cargo xtask fuzz` has libFuzzer call these functions (`fuzz/`), the unit tests call them with their seeds and damaged
//! seeds. A target panics where the program would: on a fault of its own, or where what it says contradicts itself.
//! Built for tests and fuzzing alone.

mod books;
mod elf;
mod foreign;
mod input;
mod outputs;
mod pickle;
mod rules;
mod scenario;
mod traces;

#[cfg(test)]
mod tests;

use std::{env, fs, path::Path};

pub use elf::elf;
pub use foreign::foreign;
pub(crate) use input::Input;
pub use rules::rules;
pub use traces::{trace_lines, trace_reader};

pub use crate::collect::fuzz::wire;
pub use books::pickle;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of its binary.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Bytes to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its format.
    pub words: fn() -> Vec<String>,
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "trace_reader", run: trace_reader, seeds: traces::compressed_seeds, words: Vec::new },
    Target { name: "trace_lines", run: trace_lines, seeds: traces::seeds, words: traces::words },
    Target { name: "elf", run: elf, seeds: elf::seeds, words: elf::words },
    Target { name: "wire", run: wire, seeds: crate::collect::fuzz::seeds, words: Vec::new },
    Target { name: "rules", run: rules, seeds: rules::seeds, words: rules::words },
    Target { name: "pickle", run: pickle, seeds: scenario::seeds, words: Vec::new },
    Target { name: "foreign", run: foreign, seeds: foreign::seeds, words: foreign::words },
];

/// Variable that names a folder for seeds, in place of fuzzing.
pub const SEEDS: &str = "VRAMTRACE_FUZZ_SEEDS";

/// Where [`SEEDS`] is set: writes a target's seeds there, and its dictionary beside it, and ends the process.
pub fn begin(target: &str) {
    let Some(dir) = env::var_os(SEEDS) else { return };
    let (dir, target) = (Path::new(&dir), TARGETS.iter().find(|known| known.name == target));
    let written = target.ok_or_else(|| std::io::Error::other("no such target")).and_then(|target| write(dir, target));
    std::process::exit(i32::from(written.inspect_err(|e| eprintln!("{}: {e}", dir.display())).is_err()));
}

fn write(dir: &Path, target: &Target) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(dir.join(format!("seed-{number:03}")), seed)?;
    }
    let quoted = |word: String| {
        let bytes: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{bytes}\"\n")
    };
    let dictionary: String = (target.words)().into_iter().filter(|word| !word.is_empty()).map(quoted).collect();
    fs::write(dir.with_extension("dict"), dictionary)
}

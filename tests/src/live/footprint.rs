//! What must be left of a tracer when it is gone: nothing.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tracer::attach::find::descendants;

use super::{patience, wait_until};

/// What a tracer has in the kernel: programs, links and maps, by id.
#[derive(Debug)]
pub struct Footprint {
    ids: BTreeSet<(&'static str, u32)>,
}

impl Footprint {
    /// Of a running tracer.
    ///
    /// # Errors
    /// It has nothing there, so that nothing could be told later.
    pub fn of(pid: u32) -> Result<Self> {
        let Self { ids } = Self::so_far(pid);
        let count = |wanted| ids.iter().filter(|(kind, _)| *kind == wanted).count();
        ensure!(count("prog_id") > 0 && count("link_id") > 0 && count("map_id") > 0, "no programs: {ids:?}");
        Ok(Self { ids })
    }

    /// Of a tracer that may be about to begin or to end: what it has now, which may be nothing.
    #[must_use]
    pub fn so_far(pid: u32) -> Self {
        let mut ids = BTreeSet::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            for kind in ["prog_id", "link_id", "map_id"] {
                let value = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(":\t")?.parse().ok());
                ids.extend(value.map(|id: u32| (kind, id)));
            }
        }
        Self { ids }
    }

    /// How many links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.ids.iter().filter(|(kind, _)| *kind == "link_id").count()
    }

    /// Waits until all of it is gone. Links go with the tracer's descriptors, programs and maps a grace period later.
    ///
    /// # Errors
    /// Something stays.
    pub fn gone(&self) -> Result<()> {
        let mut left = BTreeSet::new();
        let waited = wait_until("the end of programs, links and maps", || {
            let programs = aya::programs::loaded_programs().filter_map(Result::ok).map(|p| ("prog_id", p.id()));
            let links = aya::programs::loaded_links().filter_map(Result::ok).map(|l| ("link_id", l.id()));
            let maps = aya::maps::loaded_maps().filter_map(Result::ok).map(|m| ("map_id", m.id()));
            let now: BTreeSet<_> = programs.chain(links).chain(maps).collect();
            left = self.ids.intersection(&now).copied().collect();
            Ok(left.is_empty())
        });
        waited.with_context(|| format!("{left:?}"))
    }
}

/// Name of a process's first thread; empty when it is gone.
#[must_use]
pub fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The guard of a tracer, if it lives.
#[must_use]
pub fn guard(tracer: u32) -> Option<u32> {
    let is_guard = |pid: &u32| comm(*pid) == "vramtrace-guard" && state(*pid) != Some('Z');
    // Its member of the process group has the same name, and is its child.
    descendants(tracer).into_iter().skip(1).find(is_guard)
}

/// State of a process as `/proc/PID/stat` has it: `R`, `S`, `T` (stopped), `Z`; none when it is gone.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// True while a process runs or sleeps by its own will.
#[must_use]
pub fn goes_on(pid: u32) -> bool {
    matches!(state(pid), Some('R' | 'S' | 'D'))
}

/// Code of a mapped library is what its file holds: no breakpoint is left in it. Gives the bytes compared.
///
/// Probes go by file, so the tracer of a test beside this one has its breakpoints here too: a difference counts only if
/// it stays.
///
/// # Errors
/// A difference, or nothing to compare.
pub fn code_is_untouched(pid: u32, library: &str) -> Result<u64> {
    let begun = Instant::now();
    loop {
        match compare_code(pid, library) {
            Err(_) if begun.elapsed() < patience() => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

fn compare_code(pid: u32, library: &str) -> Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut compared = 0;
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.ends_with(library)) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').context("a range")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        let file = std::fs::read(fields[5])?;
        let offset = usize::try_from(u64::from_str_radix(fields[2], 16)?)?;
        let mut code = vec![0; usize::try_from(end - start)?.min(file.len() - offset)];
        memory.read_exact_at(&mut code, start)?;
        if let Some(at) = code.iter().zip(&file[offset..]).position(|(a, b)| a != b) {
            bail!("{library} differs from its file at {:#x}: {:#x}", offset + at, code[at]);
        }
        compared += code.len() as u64;
    }
    ensure!(compared > 0, "process {pid} maps no code of {library}");
    Ok(compared)
}

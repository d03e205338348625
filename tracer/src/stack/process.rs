//! One process's code: its mappings and, once needed, the modules behind them.

use std::{
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    linked::Linked,
    maps::{self, Mapping},
    module::Module,
    modules::Modules,
};

/// Reading a memory map again takes at most this part of the time in the long run: 1/20.
const REST: u32 = 20;
/// Time that may be spent at once: a program that starts loads one library after the other, and runs each at once.
const BURST: Duration = Duration::from_secs(1);

/// A process as the unwinder sees it.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// In order of addresses.
    code: Vec<Code>,
    /// Of a process that has ended meanwhile, the linker's word must do.
    pub(super) linked: Linked,
    /// Time that may be spent on reading the map, as of the last reading; how long that took.
    saved: Option<(Duration, Instant)>,
    took: Duration,
}

#[derive(Debug)]
struct Code {
    mapping: Mapping,
    /// `None`: not opened yet; `Some(None)`: cannot be opened.
    module: Option<Option<Rc<Module>>>,
}

/// What an address belongs to.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file: the address in its own terms.
    Module(Rc<Module>, u64),
    /// A file that could not be read: its path, and the file offset.
    Unread(Rc<str>, u64),
    /// Executable memory without a file: a JIT compiler's, or the kernel's uprobe trampoline.
    Anonymous,
}

impl Process {
    /// Reads the memory map again.
    pub(super) fn refresh(&mut self, pid: u32) -> io::Result<()> {
        let begin = Instant::now();
        let mappings = maps::read(pid);
        self.took = begin.elapsed();
        self.saved = Some((self.saved(begin).saturating_sub(self.took), begin));
        let mappings = mappings?;
        // A process that is dying has an empty map: what was known of it remains the best there is.
        if mappings.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut old = std::mem::take(&mut self.code);
        for mapping in mappings {
            let known = old.binary_search_by_key(&mapping.start, |code| code.mapping.start).ok();
            let module = known.filter(|&at| old[at].mapping == mapping).and_then(|at| old[at].module.take());
            self.code.push(Code { mapping, module });
        }
        Ok(())
    }

    /// One whose code is all of one file, mapped at `start`.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of(module: Rc<Module>, start: u64, bytes: u64) -> Self {
        let mapping = Mapping { start, end: start + bytes, offset: 0, file: (0, 0), path: "fuzzed".into() };
        Self { code: vec![Code { mapping, module: Some(Some(module)) }], ..Self::default() }
    }

    /// True when no memory map could be read so far, nor was told of.
    pub(super) fn is_unknown(&self) -> bool {
        self.code.is_empty() && self.linked.is_empty()
    }

    /// What an address belongs to; `None` when it is not in executable memory. An unknown address has the map read
    /// again, unless that was just done. What is not in that either was unloaded meanwhile, or another process has the
    /// number by now: the linker's word is left.
    pub(super) fn place(&mut self, pid: u32, address: u64, modules: &mut Modules) -> Option<Place> {
        let again = |process: &mut Self| {
            let is_read = process.may_refresh() && process.refresh(pid).is_ok();
            is_read.then(|| process.find(address)).flatten()
        };
        let at = self.find(address).or_else(|| again(self)).or_else(|| self.recall(pid, address))?;
        let Code { mapping, module } = &mut self.code[at];
        let offset = address - mapping.start + mapping.offset;
        if mapping.path.is_empty() {
            return Some(Place::Anonymous);
        }
        let module = module.get_or_insert_with(|| modules.get(pid, mapping));
        let inside = module.as_ref().and_then(|module| Some((module.clone(), module.address(offset)?)));
        Some(match inside {
            Some((module, address)) => Place::Module(module, address),
            None => Place::Unread(mapping.path.clone(), offset),
        })
    }

    /// Puts the mapping of an object that the linker told of where a newer map would have it.
    fn recall(&mut self, pid: u32, address: u64) -> Option<usize> {
        let mapping = self.linked.mapping(pid, address)?;
        let at = self.code.partition_point(|code| code.mapping.start < mapping.start);
        self.code.insert(at, Code { mapping, module: None });
        Some(at)
    }

    fn find(&self, address: u64) -> Option<usize> {
        let after = self.code.partition_point(|code| code.mapping.start <= address);
        let at = after.checked_sub(1)?;
        (address < self.code[at].mapping.end).then_some(at)
    }

    fn may_refresh(&self) -> bool {
        self.saved(Instant::now()) >= self.took
    }

    /// Time that may be spent at `now`.
    fn saved(&self, now: Instant) -> Duration {
        self.saved.map_or(BURST, |(saved, since)| BURST.min(saved + now.duration_since(since) / REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_in_bursts_but_not_all_the_time() {
        let now = Instant::now();
        let process = |saved, ago| Process { saved: Some((saved, now - ago)), ..Process::default() };
        let ms = Duration::from_millis;
        assert_eq!(Process::default().saved(now), BURST);
        assert_eq!(process(ms(40), ms(0)).saved(now), ms(40));
        assert_eq!(process(ms(0), ms(200)).saved(now), ms(10));
        assert_eq!(process(ms(0), ms(60_000)).saved(now), BURST);
        let process = |took| Process { took, saved: Some((ms(0), Instant::now())), ..Process::default() };
        assert!(process(ms(0)).may_refresh() && !process(ms(60_000)).may_refresh());
    }
}

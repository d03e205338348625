//! Native call stacks: a slice of a target's stack and its registers become named frames.
//!
//! The kernel side copies up to [`tracer_ebpf::STACK_BYTES`] of stack where an event happens; unwinding and naming
//! happen here, with the unwind tables and symbols of the files the process has mapped. Where that cannot be done to
//! the end, the stack says so with a [`FrameKind::Cut`] frame at its outer end; where frame pointers had to be trusted, with
//! one in between.

mod cfi;
mod cut;
mod intern;
mod maps;
mod module;
mod modules;
mod process;
mod rule;
mod symbols;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use intern::Interner;

use self::{
    cut::Cut,
    modules::Modules,
    process::{Place, Process},
    symbols::Symbols,
    walk::{Slice, Step, Walker},
};
use crate::trace::record::{Frame, FrameKind};

/// Frames of a stack at most, the innermost ones.
const FRAMES: usize = 256;
/// Processes whose memory maps are kept.
const PROCESSES: usize = 1024;

/// Unwinds and names the native stacks of all traced processes.
///
/// Not `Send`: it belongs to the thread that reads the events. Frame numbers are remembered, so one value must always
/// be used with one [`Interner`].
pub struct Stacks {
    processes: HashMap<u32, Process>,
    modules: Modules,
    symbols: Symbols,
}

impl Default for Stacks {
    fn default() -> Self {
        Self::new()
    }
}

impl Stacks {
    /// Knows no process yet: memory maps are read when first needed.
    #[must_use]
    pub fn new() -> Self {
        Self { processes: HashMap::new(), modules: Modules::default(), symbols: Symbols::new() }
    }

    /// Number of the native stack that `regs` and `bytes` (the slice from `regs.sp` up) describe, outermost frame
    /// first. `None` when they hold no instruction pointer. The process may have ended by now; the stack then has
    /// as many frames and names as can still be had.
    pub fn native(&mut self, pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8], out: &mut Interner) -> Option<u32> {
        if regs.ip == 0 {
            return None;
        }
        self.trim();
        let patched = regs.patched.get(..regs.patched_len as usize).unwrap_or(&regs.patched);
        let bytes = bytes.get(..regs.len as usize).unwrap_or(bytes);
        let stack = Slice { start: regs.sp, bytes, patched };
        let process = self.processes.entry(pid).or_default();
        let walker = Walker { pid, process, modules: &mut self.modules, stack };
        let (steps, cut) = walker.walk(regs.ip, regs.bp);
        let frames = self.frames(&steps, cut, out);
        Some(out.stack(frames))
    }

    /// Forgets a process: it ended or executed another program.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Reads a process's memory map now: it has mapped libraries, or may soon be gone. Failing is no error; the map is
    /// read again when an address is not found in it.
    pub fn refresh(&mut self, pid: u32) {
        self.trim();
        self.processes.entry(pid).or_default().refresh(pid).ok();
    }

    /// Keeps memory and file descriptors bounded: drops everything when there is too much, which only costs time.
    fn trim(&mut self) {
        if self.modules.is_full() {
            self.modules.clear();
            self.symbols = Symbols::new();
            self.processes.clear();
        }
        if self.processes.len() > PROCESSES {
            self.processes.clear();
        }
    }

    fn frames(&mut self, steps: &[Step], cut: Option<Cut>, out: &mut Interner) -> Vec<u32> {
        // Innermost first, so that the limit takes away the outer end; turned round when done.
        let mut frames: Vec<u32> = Vec::with_capacity(steps.len() + 1);
        for step in steps {
            if step.is_guess {
                frames.push(out.frame(marker("[by frame pointer: frames may be missing here]")));
            }
            match &step.place {
                Some(Place::Module(module, address)) if !step.is_signal => {
                    let found = self.symbols.frames(module, *address, step.is_return, out);
                    frames.extend(found.iter().rev());
                }
                _ => frames.push(out.frame(unnamed(step))),
            }
        }
        let cut = if frames.len() > FRAMES { Some(Cut::TooDeep) } else { cut };
        if let Some(cut) = cut {
            frames.truncate(FRAMES - 1);
            frames.push(out.frame(marker(cut.text())));
        }
        frames.reverse();
        frames
    }
}

fn marker(text: &str) -> Frame {
    Frame { function: text.into(), kind: FrameKind::Cut, ..Frame::default() }
}

/// A frame that has no symbol: shown as `module+offset`, or as the bare address.
fn unnamed(step: &Step) -> Frame {
    let (module, offset) = match &step.place {
        Some(Place::Module(module, address)) => (module.path.to_string(), *address),
        Some(Place::Unread(path, offset)) => (path.to_string(), *offset),
        Some(Place::Anonymous) | None => (String::new(), step.address),
    };
    // What debuggers call the frame that the kernel puts between a signal handler and what it interrupted.
    let function = if step.is_signal { "<signal handler called>" } else { "" };
    Frame { function: function.into(), module, offset, ..Frame::default() }
}

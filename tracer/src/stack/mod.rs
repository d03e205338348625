//! Call stacks: a slice of a target's stack and its registers become named frames, with Python frames in place of the
//! interpreter's.
//!
//! The kernel side copies up to [`tracer_ebpf::STACK_BYTES`] of stack where an event happens; unwinding and naming
//! happen here, with the unwind tables and symbols of the files the process has mapped. Where that cannot be done to
//! the end, the stack says so with a [`FrameKind::Cut`] frame at its outer end; where frame pointers had to be trusted, with
//! one in between.

mod cfi;
mod cut;
mod debug;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod intern;
mod linked;
mod maps;
mod merge;
mod module;
mod modules;
mod names;
mod process;
mod python;
mod rule;
mod symbols;
mod walk;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range};

pub use intern::Interner;
pub use python::{Look, WatchCode};

use self::{
    cut::Cut,
    merge::{Role, merge},
    modules::Modules,
    process::{Place, Process},
    python::Pythons,
    symbols::Symbols,
    walk::{Slice, Step, Walker},
};
use crate::trace::record::{Frame, FrameKind};

/// Frames of a stack at most, the innermost ones.
const FRAMES: usize = 256;
/// Frames of a stack with Python frames, at most.
const LIMIT: usize = FRAMES + tracer_ebpf::PYTHON_FRAMES;
/// Functions of interpreters whose roles are remembered.
const ROLES: usize = 100_000;
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
    pythons: Pythons,
    /// Roles of the interpreter's own functions, by module and address.
    roles: HashMap<(u32, u64), Role>,
}

/// A native stack, not yet named.
#[derive(Debug)]
pub struct Native {
    /// Frames, innermost first.
    steps: Vec<Step>,
    cut: Option<Cut>,
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
        Self {
            processes: HashMap::new(),
            modules: Modules::default(),
            symbols: Symbols::default(),
            pythons: Pythons::default(),
            roles: HashMap::new(),
        }
    }

    /// Walks the native stack that `regs` and `bytes` (the slice from `regs.sp` up) describe. `None` when they hold no
    /// instruction pointer. The process may have ended by now; the stack then has as many frames as can still be had.
    pub fn native(&mut self, pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8]) -> Option<Native> {
        if regs.ip == 0 {
            return None;
        }
        self.trim();
        let patched = regs.patched.get(..regs.patched_len as usize).unwrap_or(&regs.patched);
        let bytes = bytes.get(..regs.len as usize).unwrap_or(bytes);
        let stack = Slice { start: regs.sp, bytes, patched };
        let process = self.processes.entry(pid).or_default();
        let walker = Walker { pid, process, modules: &mut self.modules, stack };
        let (steps, cut) = walker.walk(regs.ip, regs.bp, regs.header.flags & tracer_ebpf::FLAG_RETURNED != 0);
        Some(Native { steps, cut })
    }

    /// Number of the stack that a thread's native stack and its Python frames make, outermost frame first. `None` when
    /// there is neither.
    pub fn number(
        &mut self,
        pid: u32,
        native: Option<Native>,
        python: Option<&tracer_ebpf::PythonStack>,
        out: &mut Interner,
    ) -> Option<u32> {
        let python = python.map(|stack| self.pythons.frames(stack, out)).filter(|found| !found.runs.is_empty());
        let (steps, cut) = native.map_or((Vec::new(), None), |native| (native.steps, native.cut));
        let mut frames = match &python {
            None => steps.iter().flat_map(|step| self.step(step, out)).collect(),
            Some(_) => Vec::new(),
        };
        let mut python_cut = None;
        if let Some(python) = python {
            let range = self.pythons.code_range(pid).unwrap_or_default();
            let native = (0..steps.len()).map(|n| {
                let role = self.role(&steps[n], &range);
                let frames = if role == Role::Other { self.step(&steps[n], out) } else { Vec::new() };
                merge::Native { role, end: steps.get(n + 1).and_then(|caller| caller.sp), frames }
            });
            let native: Vec<_> = native.collect();
            frames = merge(native, python.runs, self.pythons.anchored(pid), cut.is_none());
            python_cut = python.cut;
        }
        let cut = if frames.len() > LIMIT { Some(Cut::TooDeep) } else { cut };
        frames.truncate(LIMIT);
        let cuts = [cut.map(Cut::text), python_cut];
        frames.extend(cuts.into_iter().flatten().map(|text| out.frame(marker(text))));
        frames.reverse();
        (!frames.is_empty()).then(|| out.stack(frames))
    }

    /// Looks for the Python interpreter of a process that loaded a library, or that just came to be traced.
    pub fn look_for_python(&mut self, pid: u32, watch: &mut WatchCode<'_>) -> Look {
        self.pythons.look(pid, watch)
    }

    /// The same where there was none, unless that was just done.
    pub fn look_for_python_again(&mut self, pid: u32, watch: &mut WatchCode<'_>) -> Option<Look> {
        self.pythons.look_again(pid, watch)
    }

    /// Takes over a Python code object. Gives what the kernel side must be told, if it is to send all of them again.
    pub fn code(&mut self, code: &tracer_ebpf::PythonCode) -> Option<tracer_ebpf::Python> {
        self.pythons.code(code)
    }

    /// The dynamic linker of a process mapped an object. `path` is as the process sees it.
    pub fn object(&mut self, pid: u32, object: &tracer_ebpf::Object, path: &[u8]) {
        self.trim();
        self.processes.entry(pid).or_default().linked.add(object, path);
    }

    /// A process forked.
    pub fn fork(&mut self, parent: u32, child: u32) {
        self.pythons.fork(parent, child);
        let linked = self.processes.get(&parent).map(|parent| parent.linked.clone());
        if let Some(linked) = linked.filter(|linked| !linked.is_empty()) {
            self.processes.entry(child).or_default().linked = linked;
        }
    }

    /// Forgets a process: it ended or executed another program.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.pythons.forget(pid);
    }

    /// Reads a process's memory map now: it has mapped libraries, or may soon be gone. Failing is no error; the map is
    /// read again when an address is not found in it.
    pub fn refresh(&mut self, pid: u32) {
        self.trim();
        self.processes.entry(pid).or_default().refresh(pid).ok();
    }

    /// What was found out since last asked, for the top of reports.
    pub fn notices(&mut self) -> Vec<String> {
        self.symbols.notices()
    }

    /// Keeps memory and file descriptors bounded: drops everything when there is too much, which only costs time.
    fn trim(&mut self) {
        if self.modules.is_full() {
            self.modules.clear();
            self.symbols.clear();
            self.processes.clear();
        }
        if self.processes.len() > PROCESSES {
            self.processes.clear();
        }
    }

    /// Numbers of a step's frames, innermost first.
    fn step(&mut self, step: &Step, out: &mut Interner) -> Vec<u32> {
        let mut frames = Vec::new();
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
        frames
    }

    /// What a step is to a stack with Python frames. `range` is the interpreter's code.
    fn role(&mut self, step: &Step, range: &Range<u64>) -> Role {
        let Some(Place::Module(module, address)) = &step.place else { return Role::Other };
        if !range.contains(&(step.address - u64::from(step.is_return))) {
            return Role::Other;
        }
        if self.roles.len() == ROLES {
            self.roles.clear();
        }
        let symbols = &mut self.symbols;
        *self.roles.entry((module.id, *address)).or_insert_with(|| {
            match symbols.name(module, *address, step.is_return).as_str() {
                // How the program began is worth a frame, though a static interpreter has these functions itself.
                "_start" | "main" => Role::Other,
                // Also of parts that the compiler split off, such as `.cold`.
                name if name.starts_with("_PyEval_EvalFrameDefault") => Role::Evaluation,
                _ => Role::Interpreter,
            }
        })
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

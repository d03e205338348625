//! Python frames: which processes run Python, what their code objects are called, which lines they are at.

mod code;
mod find;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod layout;
mod lines;
mod memory;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

use tracer_ebpf as wire;

use self::{
    code::Code,
    find::{Finder, Found, Interpreter},
};
use super::{Interner, marker, merge::Run};
use crate::attach::files::descriptor_path;
use crate::trace::record::{Frame, FrameKind};

#[cfg(any(test, fuzzing))]
pub(crate) use fuzz::CODE_TYPE;
#[cfg(any(test, fuzzing))]
pub(super) use fuzz::tables;

/// Code objects kept of one process; a server has a few thousand on its stacks. More are forgotten all at once, and sent
/// again.
const CODES: usize = 16 * 1024;
/// Bytes that the code objects of all processes may take, with the same consequence.
const BYTES: usize = 64 << 20;
/// Time between two looks for the interpreter of a process that had none: at first, and at most.
const WAIT: Range<Duration> = Duration::from_millis(10)..Duration::from_secs(2);

/// What the kernel side must be told of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// How to walk its Python frames; all zero when that cannot be done.
    pub walk: wire::Python,
    /// For the reader of the trace.
    pub notice: Option<String>,
}

/// Places a probe where an interpreter's code objects end, at an offset of a file; true when no hit of it is missed.
pub type WatchCode<'a> = dyn FnMut(&Path, u64) -> bool + 'a;

/// All traced processes' interpreters.
#[derive(Debug, Default)]
pub(super) struct Pythons {
    finder: Finder,
    processes: HashMap<u32, State>,
    /// What the code objects of all processes take.
    bytes: usize,
    /// Numbers of kernel-side entries: each is used once.
    generation: u32,
    /// Files of interpreters, by device and inode, and whether the end of their code objects is reported.
    watched: HashMap<(u64, u64), bool>,
    /// What has been said already.
    notices: HashSet<String>,
}

#[derive(Debug)]
enum State {
    /// No interpreter that runs: looked for again, at that time and after twice the wait.
    Waiting(Instant, Duration),
    Unsupported,
    Runs(Box<Process>),
}

#[derive(Debug)]
struct Process {
    interpreter: Interpreter,
    codes: HashMap<u64, Code>,
}

impl Process {
    fn bytes(&self) -> usize {
        self.codes.values().map(Code::size).sum()
    }
}

/// Runs of the interpreter, innermost first, and whether outer ones may be missing.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) runs: Vec<Run>,
    pub(super) cut: Option<&'static str>,
}

impl Pythons {
    /// Looks for the interpreter of a process.
    pub(super) fn look(&mut self, pid: u32, watch: &mut WatchCode<'_>) -> Look {
        let mut look = Look { walk: wire::Python::default(), notice: None };
        let state = match self.finder.find(pid) {
            Found::Nothing | Found::NotYet => {
                let wait = match self.processes.get(&pid) {
                    Some(State::Waiting(_, wait)) => (*wait * 2).min(WAIT.end),
                    _ => WAIT.start,
                };
                State::Waiting(Instant::now() + wait, wait)
            }
            Found::Unsupported(path, why) => {
                let notice =
                    format!("no Python stacks of processes that run {path}: {why} (known: CPython 3.9 to 3.14)");
                look.notice = self.notices.insert(notice.clone()).then_some(notice);
                State::Unsupported
            }
            Found::Interpreter(mut interpreter) => {
                self.generation += 1;
                interpreter.walk.generation = self.generation;
                interpreter.walk.watched = self.watch(pid, &interpreter, watch).into();
                look.walk = interpreter.walk;
                State::Runs(Box::new(Process { interpreter, codes: HashMap::new() }))
            }
        };
        self.forget(pid);
        self.processes.insert(pid, state);
        look
    }

    /// Whether the end of the interpreter's code objects is reported from now on. It must be before the first is known.
    fn watch(&mut self, pid: u32, interpreter: &Interpreter, watch: &mut WatchCode<'_>) -> bool {
        let Some(end) = &interpreter.code_end else { return false };
        // A probe keeps its file, so that no other gets its inode.
        *self
            .watched
            .entry(end.mapping.file)
            .or_insert_with(|| end.mapping.open(pid).is_some_and(|file| watch(&descriptor_path(&file), end.offset)))
    }

    /// Looks again where there was no interpreter, unless that was just done.
    pub(super) fn look_again(&mut self, pid: u32, watch: &mut WatchCode<'_>) -> Option<Look> {
        match self.processes.get(&pid) {
            Some(State::Waiting(when, _)) if Instant::now() < *when => None,
            Some(State::Unsupported | State::Runs(_)) => None,
            Some(State::Waiting(..)) | None => Some(self.look(pid, watch)),
        }
    }

    /// A process forked: its child's interpreter is the same.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        if let Some(State::Runs(parent)) = self.processes.get(&parent) {
            let process = Process { interpreter: parent.interpreter.clone(), codes: HashMap::new() };
            self.processes.insert(child, State::Runs(Box::new(process)));
        }
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        if let Some(State::Runs(process)) = self.processes.remove(&pid) {
            self.bytes -= process.bytes();
        }
    }

    /// Where a process's interpreter has its code.
    pub(super) fn code_range(&self, pid: u32) -> Option<Range<u64>> {
        match self.processes.get(&pid)? {
            State::Runs(process) => Some(process.interpreter.code.clone()),
            _ => None,
        }
    }

    /// Whether the process's frames tell where on the C stack they run.
    pub(super) fn anchored(&self, pid: u32) -> bool {
        matches!(self.processes.get(&pid), Some(State::Runs(process)) if process.interpreter.layout.anchored)
    }

    /// Takes over a code object. Gives what the kernel side must be told when it is to send all of them again.
    pub(super) fn code(&mut self, code: &wire::PythonCode) -> Option<wire::Python> {
        let Some(State::Runs(process)) = self.processes.get_mut(&code.header.tgid) else { return None };
        let mut renewed = None;
        if process.codes.len() >= CODES || self.bytes >= BYTES {
            self.bytes -= process.bytes();
            process.codes.clear();
            self.generation += 1;
            process.interpreter.walk.generation = self.generation;
            renewed = Some(process.interpreter.walk);
        }
        let new = Code::new(code, &process.interpreter);
        self.bytes += new.size();
        self.bytes -= process.codes.insert(code.code, new).map_or(0, |old| old.size());
        renewed
    }

    /// Names the frames of a thread.
    pub(super) fn frames(&mut self, stack: &wire::PythonStack, out: &mut Interner) -> Frames {
        let mut found = Frames::default();
        let Some(State::Runs(process)) = self.processes.get_mut(&stack.header.tgid) else { return found };
        let Process { interpreter, codes } = &mut **process;
        let frames = stack.frames.get(..stack.len as usize).unwrap_or(&stack.frames);
        let mut run = Run::default();
        for frame in frames {
            if frame.code != 0 {
                run.frames.push(match codes.get_mut(&frame.code) {
                    Some(code) if code.identity == frame.identity => code.frame(frame, interpreter, out),
                    _ => out.frame(unnamed()),
                });
            }
            if frame.anchor != 0 || !interpreter.layout.anchored {
                found.runs.push(Run { anchor: frame.anchor, ..std::mem::take(&mut run) });
            }
        }
        if !run.frames.is_empty() {
            found.runs.push(run);
        }
        found.cut = match stack.flags {
            flags if flags & wire::PYTHON_TRUNCATED != 0 => {
                Some("[outer Python frames not read: the stack is too deep]")
            }
            flags if flags & wire::PYTHON_FAULT != 0 => Some("[outer Python frames could not be read]"),
            _ => None,
        };
        found
    }
}

/// A frame whose code object's names were lost.
fn unnamed() -> Frame {
    Frame { kind: FrameKind::Python, ..marker("[Python function, name lost]") }
}

//! Finding the interpreter of a process, whatever its file is called: the mapped file that defines `_PyRuntime`.

use std::{collections::HashMap, ops::Range, rc::Rc};

use super::{
    layout::{self, Layout, THREAD_INTERPRETER},
    memory::Memory,
};
use crate::{
    attach::elf::ElfFile,
    stack::maps::{self, Mapping},
};

/// Files remembered.
const FILES: usize = 16 * 1024;
/// Threads looked at for the slot.
const THREADS: usize = 64;
/// `PyTypeObject.tp_dealloc`, in all versions.
const TYPE_DEALLOC: u64 = 48;
/// glibc's `struct pthread` on x86-64: `specific_1stblock`, 32 entries of 16 bytes, the value in the second word
/// (nptl/descr.h; the same from 2.17 to 2.43).
const SLOTS: Range<u64> = 0x310..0x510;

/// What looking for an interpreter gave.
#[derive(Debug)]
pub(super) enum Found {
    /// No file of the process defines one.
    Nothing,
    /// It is mapped but does not run yet.
    NotYet,
    /// It cannot be walked: path and reason.
    Unsupported(Rc<str>, String),
    /// It can.
    Interpreter(Interpreter),
}

/// A running interpreter.
#[derive(Clone, Debug)]
pub(super) struct Interpreter {
    pub(super) layout: Rc<Layout>,
    /// Its file's executable mappings.
    pub(super) code: Range<u64>,
    /// `PyCode_Type`.
    pub(super) code_type: u64,
    /// What the kernel side needs.
    pub(super) walk: tracer_ebpf::Python,
    /// Where code objects end.
    pub(super) code_end: Option<CodeEnd>,
}

/// The function by which code objects end (`PyCode_Type.tp_dealloc`), in its file.
#[derive(Clone, Debug)]
pub(super) struct CodeEnd {
    pub(super) mapping: Mapping,
    /// Offset into the file.
    pub(super) offset: u64,
}

/// Addresses in a file's own terms.
#[derive(Clone, Copy, Debug)]
struct Symbols {
    runtime: u64,
    code_type: u64,
    /// `Py_Version` (3.11 on).
    version: Option<u64>,
    /// The version as the functions it has tell it.
    by_functions: Option<(u8, u8)>,
}

/// Looks for interpreters; files that have none are opened once.
#[derive(Debug, Default)]
pub(super) struct Finder {
    files: HashMap<(u64, u64), Option<Symbols>>,
}

impl Finder {
    /// Looks for the interpreter of a process.
    pub(super) fn find(&mut self, pid: u32) -> Found {
        let Ok(mappings) = maps::read(pid) else { return Found::Nothing };
        let mut interpreters = mappings.iter().filter_map(|mapping| Some((mapping, self.symbols(pid, mapping)?)));
        let Some((mapping, symbols)) = interpreters.next() else { return Found::Nothing };
        let memory = Memory { pid };
        let of_file = || mappings.iter().filter(|other| other.file == mapping.file);
        let code = mapping.start..of_file().map(|other| other.end).max().unwrap_or(mapping.end);
        let Some(bias) = open(pid, mapping).and_then(|file| file.bias(mapping.start, mapping.offset)) else {
            return Found::Nothing;
        };
        let runtime = bias.wrapping_add(symbols.runtime);
        let version = match symbols.version {
            // PY_VERSION_HEX: major in the highest byte, then minor.
            Some(at) => memory.u32(bias.wrapping_add(at)).map(|hex| ((hex >> 24) as u8, (hex >> 16) as u8)),
            None => symbols.by_functions,
        };
        let layout = match version {
            None => Err("it is older than 3.9".to_owned()),
            Some(version @ (3, 9..=12)) => layout::known(version).ok_or_else(String::new),
            Some(version) => layout::described(memory, runtime, version)
                .map_err(|why| format!("CPython {}.{}: {why}", version.0, version.1)),
        };
        match layout {
            Err(why) => Found::Unsupported(mapping.path.clone(), why),
            Ok(layout) => walk(memory, runtime, &layout).map_or(Found::NotYet, |walk| {
                let code_type = bias.wrapping_add(symbols.code_type);
                let code_end = memory.u64(code_type.wrapping_add(TYPE_DEALLOC)).and_then(|at| {
                    let mapping = of_file().find(|mapping| (mapping.start..mapping.end).contains(&at))?.clone();
                    Some(CodeEnd { offset: at - mapping.start + mapping.offset, mapping })
                });
                Found::Interpreter(Interpreter { layout: Rc::new(layout), code, code_type, walk, code_end })
            }),
        }
    }

    fn symbols(&mut self, pid: u32, mapping: &Mapping) -> Option<Symbols> {
        if mapping.path.is_empty() || mapping.path.starts_with('[') {
            return None;
        }
        if self.files.len() == FILES {
            self.files.clear();
        }
        *self.files.entry(mapping.file).or_insert_with(|| symbols(&open(pid, mapping)?))
    }
}

fn open(pid: u32, mapping: &Mapping) -> Option<ElfFile> {
    ElfFile::of(mapping.path.as_ref().as_ref(), mapping.open(pid)?).ok()
}

fn symbols(file: &ElfFile) -> Option<Symbols> {
    let address = |name| file.dynamic_address(name).ok().flatten();
    // Functions that came with 3.10 and 3.9 (Doc/whatsnew).
    let by_functions = [("Py_NewRef", (3, 10)), ("PyFrame_GetCode", (3, 9))];
    Some(Symbols {
        runtime: address("_PyRuntime")?,
        code_type: address("PyCode_Type")?,
        version: address("Py_Version"),
        by_functions: by_functions.into_iter().find(|(name, _)| address(name).is_some()).map(|(_, version)| version),
    })
}

/// What the kernel side needs to walk this interpreter; `None` while it has no thread state.
fn walk(memory: Memory, runtime: u64, layout: &Layout) -> Option<tracer_ebpf::Python> {
    let interpreter = memory.u64(runtime + layout.main).filter(|&at| at != 0)?;
    let threads = interpreter.checked_add(layout.threads)?;
    let states = states(memory, threads, layout);
    let first = *states.first()?;
    if memory.u64(first.checked_add(THREAD_INTERPRETER)?)? != interpreter {
        return None;
    }
    Some(tracer_ebpf::Python { threads, slot: slot(memory, &states, layout), ..layout.walk })
}

/// Thread states of the main interpreter.
fn states(memory: Memory, threads: u64, layout: &Layout) -> Vec<u64> {
    let follow = |at: u64| memory.u64(at).filter(|&state| state != 0);
    let next = |state: &u64| follow(state.checked_add(layout.walk.thread_next.into())?);
    std::iter::successors(follow(threads), next).take(THREADS).collect()
}

/// Offset from the thread pointer of the slot that holds each thread's own state; 0 when there is none that does for all.
fn slot(memory: Memory, states: &[u64], layout: &Layout) -> u32 {
    let mut slots: Option<Vec<u64>> = None;
    for &state in states {
        let Some(pointer) = state.checked_add(layout.walk.thread_id.into()).and_then(|at| memory.u64(at)) else {
            continue;
        };
        let Some(block) = pointer.checked_add(SLOTS.start).and_then(|at| memory.bytes(at, 0x200)) else { continue };
        let holds = |slot: &u64| {
            let at = (slot - SLOTS.start) as usize;
            block[at..at + 8] == state.to_le_bytes()
        };
        let candidates = slots.take().unwrap_or_else(|| SLOTS.step_by(16).map(|entry| entry + 8).collect());
        slots = Some(candidates.into_iter().filter(holds).collect());
    }
    // Several would mean that another library keeps the same pointer: either serves.
    slots.and_then(|slots| slots.first().copied()).map_or(0, |slot| slot as u32)
}

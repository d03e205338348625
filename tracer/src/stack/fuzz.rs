//! Stacks from any files and any memory.

use std::{fs::File, hint::black_box, os::unix::fs::FileExt as _, rc::Rc};

use super::{
    Stacks, maps,
    module::Module,
    modules::Modules,
    process::Process,
    walk::{Slice, Walker},
};
use crate::fuzz::Input;

pub(crate) use super::python::CODE_TYPE;

/// Where the file is mapped.
const START: u64 = 0x7f00_0000_0000;
/// Where its stack begins.
const STACK: u64 = 0x7fff_0000_0000;

/// Unwinds what runs in an ELF file; `data` says where, and is the stack. (Names are read by a child without rights.)
pub(crate) fn unwind(file: File, data: &[u8]) {
    let Ok(bytes) = file.metadata().map(|meta| meta.len()) else { return };
    let Ok(module) = Module::read(0, "fuzzed".into(), file) else { return };
    let module = Rc::new(module);
    let mut input = Input::new(data);
    for _ in 0..8 {
        let mut process = Process::of(Rc::clone(&module), START, bytes);
        let (ip, bp) = (START + u64::from(input.u16()), STACK + u64::from(input.u8()) * 8);
        let returned = input.u8() % 2 == 1;
        let stack = Slice { start: STACK, bytes: data, patched: &[] };
        let walker = Walker { pid: 0, process: &mut process, modules: &mut Modules::default(), stack };
        black_box(walker.walk(ip, bp, returned));
    }
}

/// Takes any bytes for a memory map, for what an interpreter keeps, and for an answer of the child that reads names.
pub(crate) fn foreign(bytes: &[u8]) {
    maps::parse(bytes).into_iter().flatten().for_each(drop);
    super::python::tables(bytes);
    super::names::foreign(bytes);
}

/// A small ELF file with symbols, `.eh_frame` and `.eh_frame_hdr`: the vDSO.
pub(crate) fn image() -> Vec<u8> {
    let own = maps::read(std::process::id()).into_iter().flatten().find(|mapping| &*mapping.path == "[vdso]");
    let file = own.and_then(|mapping| mapping.open(std::process::id()));
    let mut bytes = vec![0; file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |meta| meta.len() as usize)];
    file.map(|file| file.read_exact_at(&mut bytes, 0));
    bytes
}

impl Stacks {
    /// Makes believe that a process runs an interpreter.
    pub(crate) fn pretend(&mut self, pid: u32, version: (u8, u8)) {
        self.pythons.pretend(pid, version);
    }
}

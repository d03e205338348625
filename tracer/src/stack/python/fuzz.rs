//! Code objects and line tables of any bytes.

use std::{collections::HashMap, hint::black_box, rc::Rc};

use tracer_ebpf::{Python, Text};

use super::{
    Process, Pythons, State, code,
    find::Interpreter,
    layout,
    lines::{self, Format},
};
use crate::fuzz::Input;

/// Where every interpreter of [`Pythons::pretend`] has `PyCode_Type`.
pub(crate) const CODE_TYPE: u64 = 0x1000;

impl Pythons {
    /// Makes believe that a process runs an interpreter.
    pub(in crate::stack) fn pretend(&mut self, pid: u32, version: (u8, u8)) {
        let Some(layout) = layout::known(version) else { return };
        let walk = Python { generation: 1, ..layout.walk };
        let interpreter =
            Interpreter { layout: Rc::new(layout), code: 0..1 << 20, code_type: CODE_TYPE, walk, code_end: None };
        self.processes.insert(pid, State::Runs(Box::new(Process { interpreter, codes: HashMap::new() })));
    }
}

/// Takes any bytes for line tables and strings.
pub(in crate::stack) fn tables(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (first, offset) = (input.u64() as i32, input.u64() as u32);
    let text = Text { at: 0, length: input.u64(), state: input.u64() as u32, len: input.u16().into() };
    let table = input.rest();
    for format in [Format::Lnotab, Format::Ranges, Format::Locations] {
        black_box(lines::line(format, table, first, offset));
    }
    black_box(code::decode(&text, table, |_, len| table.get(..len).map(<[u8]>::to_vec)));
}

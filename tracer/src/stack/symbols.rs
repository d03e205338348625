//! Names for code addresses, each looked up once.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer, source};

use super::{intern::Interner, module::Module};
use crate::trace::record::{Frame, FrameKind};

/// Addresses whose frames are remembered.
const KNOWN: usize = 100_000;
/// Line tables are read from files up to this size (bytes): those of a debug build of libtorch would take more memory
/// than the tracer may use.
const DWARF: u64 = 256 << 20;

/// Symbols of all modules.
pub(super) struct Symbols {
    symbolizer: Symbolizer,
    /// By module number, address, and whether the address is a return address.
    known: HashMap<(u32, u64, bool), Rc<[u32]>>,
}

impl Symbols {
    pub(super) fn new() -> Self {
        Self { symbolizer: Symbolizer::new(), known: HashMap::new() }
    }

    /// Frames of an address in a module, outermost first: the function, then what was inlined into it there.
    pub(super) fn frames(&mut self, module: &Module, address: u64, is_return: bool, out: &mut Interner) -> Rc<[u32]> {
        let key = (module.id, address, is_return);
        if let Some(frames) = self.known.get(&key) {
            return frames.clone();
        }
        if self.known.len() == KNOWN {
            self.known.clear();
        }
        // A return address may be the first of the next line, or of the next function: ask for the call before it.
        let symbol = self.find(module, address.saturating_sub(is_return.into()));
        let frames: Rc<[u32]> = frames_of(symbol, module, address).into_iter().map(|frame| out.frame(frame)).collect();
        self.known.insert(key, frames.clone());
        frames
    }

    /// Name of the function at an address; empty when unknown.
    pub(super) fn name(&mut self, module: &Module, address: u64, is_return: bool) -> String {
        self.find(module, address.saturating_sub(is_return.into()))
            .map(|symbol| symbol.name.into_owned())
            .unwrap_or_default()
    }

    fn find(&mut self, module: &Module, address: u64) -> Option<Sym<'static>> {
        let (path, size) = module.source();
        let mut elf = source::Elf::new(path);
        elf.debug_syms = size <= DWARF;
        // The file may be made to break its reader, and must not take the tracer with it.
        let symbol = catch_unwind(AssertUnwindSafe(|| {
            symbolize(&self.symbolizer, elf.clone(), address).unwrap_or_else(|_damaged| {
                elf.debug_syms = false;
                symbolize(&self.symbolizer, elf, address).unwrap_or_default()
            })
        }));
        symbol.unwrap_or_else(|_| {
            self.symbolizer = Symbolizer::new();
            None
        })
    }
}

fn symbolize(symbolizer: &Symbolizer, elf: source::Elf, address: u64) -> blazesym::Result<Option<Sym<'static>>> {
    let found = symbolizer.symbolize_single(&elf.into(), Input::VirtOffset(address))?;
    Ok(found.into_sym().map(Sym::into_owned))
}

fn frames_of(symbol: Option<Sym<'_>>, module: &Module, address: u64) -> Vec<Frame> {
    let frame = |function: String, code: Option<&CodeInfo<'_>>| Frame {
        function,
        module: module.path.to_string(),
        offset: address,
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line),
        kind: FrameKind::Native,
        id: 0,
    };
    let Some(symbol) = symbol else { return vec![frame(String::new(), None)] };
    let mut frames = vec![frame(symbol.name.into_owned(), symbol.code_info.as_deref())];
    for inlined in symbol.inlined {
        frames.push(frame(inlined.name.clone().into_owned(), inlined.code_info.as_ref()));
    }
    frames
}

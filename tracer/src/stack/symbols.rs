//! Names for code addresses, each looked up once.

use std::{collections::HashMap, fs::File, rc::Rc};

use super::{
    intern::Interner,
    module::Module,
    names::{Named, Names},
};
use crate::trace::record::{Frame, FrameKind};

/// Addresses whose frames are remembered.
const KNOWN: usize = 100_000;

/// Where symbols are read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a File,
    /// Debugging information may be read too.
    pub(super) lines: bool,
}

/// Symbols of all modules.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    names: Names,
    /// By module number, address, and whether the address is a return address.
    known: HashMap<(u32, u64, bool), Rc<[u32]>>,
}

impl Symbols {
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
        let mut found = self.find(module, address.saturating_sub(is_return.into()));
        if found.is_empty() {
            found.push(Named::default());
        }
        let frames = found.into_iter().map(|function| out.frame(frame(function, module, address))).collect();
        self.known.entry(key).insert_entry(frames).get().clone()
    }

    /// Name of the function at an address; empty when unknown.
    pub(super) fn name(&mut self, module: &Module, address: u64, is_return: bool) -> String {
        let found = self.find(module, address.saturating_sub(is_return.into()));
        found.into_iter().next().unwrap_or_default().name
    }

    /// Forgets the files of all modules; numbers of frames stay good.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.known.clear();
    }

    /// What there is to say at the top of reports.
    pub(super) fn notices(&mut self) -> Vec<String> {
        self.names.notices()
    }

    fn find(&mut self, module: &Module, address: u64) -> Vec<Named> {
        self.names.find(module.id, &module.path, module.source(), address)
    }
}

fn frame(function: Named, module: &Module, address: u64) -> Frame {
    Frame {
        function: function.name,
        module: module.path.to_string(),
        offset: address,
        file: function.file,
        line: function.line,
        kind: FrameKind::Native,
        id: 0,
    }
}

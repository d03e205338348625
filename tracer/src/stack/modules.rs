//! Modules shared by all processes that map the same file.

use std::{collections::HashMap, rc::Rc};

use super::{maps::Mapping, module::Module};

/// Modules kept: each holds a file descriptor, and one more once it has been symbolised.
const MODULES: usize = 128;
/// Bytes of unwind information kept.
const BYTES: usize = 96 << 20;

/// Open modules by device and inode.
#[derive(Debug, Default)]
pub(super) struct Modules {
    open: HashMap<(u64, u64), Rc<Module>>,
    bytes: usize,
    next: u32,
}

impl Modules {
    /// True when so much is kept that all of it should be let go.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= MODULES || self.bytes >= BYTES
    }

    /// Forgets all; numbers are not given again.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.bytes = 0;
    }

    /// Module of a mapping; `None` when its file cannot be opened or read.
    pub(super) fn get(&mut self, pid: u32, mapping: &Mapping) -> Option<Rc<Module>> {
        // An open file keeps its inode number from being given to another, so the key cannot go stale.
        if let Some(module) = self.open.get(&mapping.file) {
            return Some(module.clone());
        }
        let module = Rc::new(Module::read(self.next, mapping.path.clone(), mapping.open(pid)?).ok()?);
        self.next += 1;
        self.bytes += module.size;
        self.open.insert(mapping.file, module.clone());
        Some(module)
    }
}

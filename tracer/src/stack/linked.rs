//! Objects that a process's dynamic linker has told of: what its memory map held, once that is gone.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    rc::Rc,
};

use super::maps::Mapping;
use crate::attach::{
    elf::ElfFile,
    files::{identity_of, open_in, open_regular},
};

/// Objects remembered of one process; a server that loads every CUDA library there is has some hundreds.
const OBJECTS: usize = 16 * 1024;
/// Mappings begin and end at multiples of this on `x86_64`.
const PAGE: u64 = 4096;

/// Objects of one process by load bias.
#[derive(Clone, Debug, Default)]
pub(super) struct Linked(BTreeMap<u64, Object>);

#[derive(Clone, Debug)]
struct Object {
    dynamic: u64,
    path: Rc<Path>,
}

impl Linked {
    /// True when the linker told of nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes an object in. Its path is the process's own; a relative one says too little.
    pub(super) fn add(&mut self, object: &tracer_ebpf::Object, path: &[u8]) {
        let path = Path::new(OsStr::from_bytes(path));
        if path.is_absolute() && self.0.len() < OBJECTS {
            self.0.insert(object.bias, Object { dynamic: object.dynamic, path: path.into() });
        }
    }

    /// The executable mapping that `address` was in, as far as the object's file tells: read again, and only if its
    /// dynamic section is where the linker found it.
    pub(super) fn mapping(&self, pid: u32, address: u64) -> Option<Mapping> {
        let (&bias, object) = self.0.range(..=address).next_back()?;
        // Below the process's own root as long as it lives; by then the path may name another file for us.
        let inside = || open_in(Path::new(&format!("/proc/{pid}/root")), &object.path).ok();
        let here = || open_regular(&object.path).ok().filter(is_public);
        let openers: [&dyn Fn() -> Option<File>; 2] = [&inside, &here];
        openers.into_iter().find_map(|open| {
            let file = open()?;
            let found = identity_of(&file).ok()?;
            let (start, end, offset) = segment(file, &object.path, bias, object.dynamic, address)?;
            let path = object.path.to_string_lossy().into();
            Some(Mapping { start, end, offset, file: found, path })
        })
    }
}

/// True for a file that everybody may read. The path is the process's word: its user must not learn by it what is in a
/// file that only we may read.
fn is_public(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.mode() & 0o004 != 0)
}

/// Start, end and file offset of the executable segment with `address` of an object loaded at `bias`.
fn segment(file: File, path: &Path, bias: u64, dynamic: u64, address: u64) -> Option<(u64, u64, u64)> {
    let elf = ElfFile::of(path, file).ok()?;
    if bias.wrapping_add(elf.dynamic_segment()?) != dynamic {
        return None;
    }
    elf.loaded().into_iter().filter(|segment| segment.executable).find_map(|segment| {
        let inside = segment.address % PAGE;
        let start = bias.checked_add(segment.address)?.checked_sub(inside)?;
        let size = segment.file.end - segment.file.start;
        let end = start.checked_add(inside)?.checked_add(size)?.checked_next_multiple_of(PAGE)?;
        let offset = segment.file.start.checked_sub(inside)?;
        (start..end).contains(&address).then_some((start, end, offset))
    })
}

//! Objects that a process's dynamic linker has told of: what its memory map held, once that is gone.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
    rc::Rc,
};

use object::{
    Endianness, ReadCache, elf,
    read::elf::{FileHeader, ProgramHeader},
};

use super::maps::Mapping;

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
        let mut inside = OsString::from(format!("/proc/{pid}/root"));
        inside.push(&*object.path);
        [Path::new(&inside), &*object.path].into_iter().find_map(|path| {
            let file = regular(path)?;
            let meta = file.metadata().ok()?;
            let (start, end, offset) = segment(&file, bias, object.dynamic, address)?;
            let path = object.path.to_string_lossy().into();
            Some(Mapping { start, end, offset, file: (meta.dev(), meta.ino()), path })
        })
    }
}

/// Opens a regular file; whatever else has that name is not waited for.
fn regular(path: &Path) -> Option<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|meta| meta.is_file()).then_some(file)
}

/// Start, end and file offset of the executable segment with `address` of an object loaded at `bias`.
fn segment(file: &File, bias: u64, dynamic: u64, address: u64) -> Option<(u64, u64, u64)> {
    let data = ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &data).ok()?;
    let is_at = |segment: &&elf::ProgramHeader64<_>| bias.wrapping_add(segment.p_vaddr(endian)) == dynamic;
    segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_DYNAMIC).find(is_at)?;
    segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).find_map(|segment| {
        let inside = segment.p_vaddr(endian) % PAGE;
        let start = bias.checked_add(segment.p_vaddr(endian))?.checked_sub(inside)?;
        let end = start.checked_add(inside)?.checked_add(segment.p_filesz(endian))?.checked_next_multiple_of(PAGE)?;
        let offset = segment.p_offset(endian).checked_sub(inside)?;
        let executable = segment.p_flags(endian) & elf::PF_X != 0;
        (executable && (start..end).contains(&address)).then_some((start, end, offset))
    })
}

//! A mapped ELF file: its addresses, its unwind tables, its bytes.

use std::{fmt, fs::File, os::unix::fs::FileExt, path::Path, rc::Rc};

use gimli::BaseAddresses;

use super::{
    cfi::{Sections, Tables},
    debug::Debug,
    symbols::Source,
};
use crate::attach::elf::{self, ElfFile, Segment};

/// Bytes of one unwind section at most; the largest known (`libtorch_cpu.so`) has 12 MiB.
const SECTION: u64 = 64 << 20;

/// An ELF file that some process has mapped.
pub(super) struct Module {
    /// Number of this module: no other gets the same.
    pub(super) id: u32,
    /// Path as the process that mapped it first sees it.
    pub(super) path: Rc<str>,
    pub(super) tables: Tables,
    /// Bytes of memory its unwind sections take.
    pub(super) size: usize,
    /// Keeps the inode from being reused, and the contents within reach.
    file: File,
    segments: Vec<Segment>,
    debug: Debug,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Module {
    /// Reads the headers and unwind sections of a 64-bit ELF file.
    pub(super) fn read(id: u32, path: Rc<str>, file: File) -> Result<Self, elf::Error> {
        let file = ElfFile::of(Path::new(&*path), file)?;
        let sections = sections(&file);
        let size = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame]
            .into_iter()
            .flatten()
            .map(|section| section.len())
            .sum();
        let (segments, debug) = (file.loaded(), Debug::of(&file));
        Ok(Self { id, path, tables: Tables::new(sections), size, file: file.into_file(), segments, debug })
    }

    /// Address in the file's own terms of the byte at a file offset.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| segment.file.contains(&offset))?;
        segment.address.checked_add(offset - segment.file.start)
    }

    /// True when the instruction before `address` is a call: then `address` may be a return address.
    ///
    /// Near calls only (Intel SDM, CALL): E8 rel32, or FF /2 with its `ModRM`, SIB and displacement: 2 to 7 bytes.
    pub(super) fn follows_call(&self, address: u64) -> bool {
        let mut code = [0; 7];
        let Some(start) = address.checked_sub(7).and_then(|start| self.offset(start)) else { return false };
        if self.file.read_exact_at(&mut code, start).is_err() {
            return false;
        }
        let indirect = |length: usize| code[7 - length] == 0xff && (code[8 - length] >> 3) & 7 == 2;
        code[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
    }

    fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            let offset = segment.file.start.checked_add(inside)?;
            segment.file.contains(&offset).then_some(offset)
        })
    }

    /// Where its symbols and line tables are.
    pub(super) fn source(&self) -> Source<'_> {
        match &self.debug {
            Debug::Elsewhere(file) => Source { file, lines: true },
            debug => Source { file: &self.file, lines: matches!(debug, Debug::Here) },
        }
    }
}

/// Reads the unwind sections, as far as they are there and of a sane size.
fn sections(file: &ElfFile) -> Sections {
    let bytes = |name| file.section(name).and_then(|found| file.contents(found, SECTION)).map(Rc::from);
    let address = |name| file.section(name).map(|found| found.address());
    let mut bases = BaseAddresses::default();
    if let Some(at) = address(".eh_frame") {
        bases = bases.set_eh_frame(at);
    }
    if let Some(at) = address(".eh_frame_hdr") {
        bases = bases.set_eh_frame_hdr(at);
    }
    if let Some(at) = address(".text") {
        bases = bases.set_text(at);
    }
    if let Some(at) = address(".got") {
        bases = bases.set_got(at);
    }
    Sections {
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
        bases,
    }
}

//! A mapped ELF file: its addresses, its unwind tables, its bytes.

use std::{fmt, fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf, rc::Rc};

use gimli::BaseAddresses;
use object::{
    Endianness, ReadCache, elf,
    read::elf::{FileHeader, ProgramHeader, SectionHeader},
};

use super::{
    cfi::{Sections, Tables},
    maps,
};

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
}

#[derive(Debug)]
struct Segment {
    file: Range<u64>,
    address: u64,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Module {
    /// Reads the headers and unwind sections of a 64-bit ELF file.
    pub(super) fn read(id: u32, path: Rc<str>, file: File) -> Result<Self, object::Error> {
        let data = ReadCache::new(&file);
        let header = elf::FileHeader64::<Endianness>::parse(&data)?;
        let endian = header.endian()?;
        let segments = header
            .program_headers(endian, &data)?
            .iter()
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
            .map(|segment| {
                let start = segment.p_offset(endian);
                let file = start..start.saturating_add(segment.p_filesz(endian));
                Segment { file, address: segment.p_vaddr(endian) }
            })
            .collect();
        let sections = sections(header, endian, &data).unwrap_or_default();
        let size = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame]
            .into_iter()
            .flatten()
            .map(|section| section.len())
            .sum();
        drop(data);
        Ok(Self { id, path, tables: Tables::new(sections), size, file, segments })
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

    /// A path under which the file can be opened while this module lives, and its size in bytes.
    pub(super) fn source(&self) -> (PathBuf, u64) {
        (maps::descriptor_path(&self.file), self.file.metadata().map_or(u64::MAX, |meta| meta.len()))
    }
}

type Header = elf::FileHeader64<Endianness>;

/// Reads the unwind sections, as far as they are there and of a sane size.
fn sections(header: &Header, endian: Endianness, data: &ReadCache<&File>) -> Result<Sections, object::Error> {
    let mut found = Sections { bases: BaseAddresses::default(), ..Sections::default() };
    // 0 means "more than 65279, see the first section header": no library has as many.
    if header.e_shnum(endian) == 0 {
        return Ok(found);
    }
    let table = header.sections(endian, data)?;
    for section in table.iter() {
        let address = section.sh_addr(endian);
        let bytes = || -> Option<Rc<[u8]>> {
            let plain = section.sh_flags(endian) & u64::from(elf::SHF_COMPRESSED) == 0;
            if !plain || section.sh_size(endian) > SECTION {
                return None;
            }
            section.data(endian, data).ok().filter(|bytes| !bytes.is_empty()).map(Rc::from)
        };
        match table.section_name(endian, section)? {
            b".eh_frame" => {
                found.bases = found.bases.set_eh_frame(address);
                found.eh_frame = bytes();
            }
            b".eh_frame_hdr" => {
                found.bases = found.bases.set_eh_frame_hdr(address);
                found.eh_frame_hdr = bytes();
            }
            b".debug_frame" => found.debug_frame = bytes(),
            b".text" => found.bases = found.bases.set_text(address),
            b".got" => found.bases = found.bases.set_got(address),
            _ => {}
        }
    }
    Ok(found)
}

//! Sections and segments as an unwinder wants them.

use std::fs::File;
use std::ops::Range;

use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64};

use super::ElfFile;

/// Sections whose names are looked at; libraries have some dozens.
const SECTIONS: usize = 1024;
/// Longest section name looked for, bytes.
const NAME: u64 = 32;

/// A section that has bytes in the file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a>(&'a SectionHeader64<LE>);

impl Section<'_> {
    /// Its address, in the file's own terms.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.sh_addr.get(LE)
    }
}

/// A part of the file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is in the file.
    pub file: Range<u64>,
    /// Its address, in the file's own terms.
    pub address: u64,
    /// It holds code.
    pub executable: bool,
}

impl ElfFile {
    /// The first section of a name, if it has bytes in the file.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let names = self.sections.get(self.names)?;
        let is_called = |section: &&SectionHeader64<LE>| {
            let at = u64::from(section.sh_name.get(LE));
            let room = names.sh_size.get(LE).saturating_sub(at).min(NAME);
            let text = names.sh_offset.get(LE).checked_add(at).and_then(|at| self.bytes(at, room, "names").ok());
            text.is_some_and(|text| text.split(|&byte| byte == 0).next() == Some(name.as_bytes()))
        };
        let with_bytes = self.sections.iter().take(SECTIONS).filter(|s| s.sh_type.get(LE) != elf::SHT_NOBITS);
        with_bytes.clone().find(is_called).map(Section)
    }

    /// The bytes of a section of at most `most` bytes. `None` for one that is larger, compressed, empty, or beyond the end.
    #[must_use]
    pub fn contents(&self, section: Section<'_>, most: u64) -> Option<Vec<u8>> {
        let Section(header) = section;
        let (len, flags) = (header.sh_size.get(LE), header.sh_flags.get(LE));
        if len == 0 || len > most || flags & u64::from(elf::SHF_COMPRESSED) != 0 {
            return None;
        }
        self.bytes(header.sh_offset.get(LE), len, "a section lies beyond its end").ok()
    }

    /// Its mapped parts.
    #[must_use]
    pub fn loaded(&self) -> Vec<Segment> {
        let mapped = self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD);
        mapped
            .map(|segment| {
                let start = segment.p_offset.get(LE);
                let end = start.saturating_add(segment.p_filesz.get(LE));
                let executable = segment.p_flags.get(LE) & elf::PF_X != 0;
                Segment { file: start..end, address: segment.p_vaddr.get(LE), executable }
            })
            .collect()
    }

    /// Address of its dynamic section, in its own terms, as its loader finds it.
    #[must_use]
    pub fn dynamic_segment(&self) -> Option<u64> {
        let dynamic = self.segments.iter().find(|segment| segment.p_type.get(LE) == elf::PT_DYNAMIC);
        dynamic.map(|segment| segment.p_vaddr.get(LE))
    }

    /// The open file.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

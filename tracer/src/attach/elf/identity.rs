//! What a file calls itself.

use object::LittleEndian as LE;
use object::elf::{self, Dyn64};

use super::ElfFile;

/// Notes larger than this are not looked into: a build id's takes 36 bytes.
const NOTE_BYTES: u64 = 64 << 10;
/// Entries of a dynamic section that are looked at; a real one has dozens.
const DYNAMIC_ENTRIES: u64 = 4096;

impl ElfFile {
    /// GNU build id in hex; none when the file has none that can be read.
    #[must_use]
    pub fn build_id(&self) -> Option<String> {
        let notes = self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_NOTE);
        let id = notes.filter(|note| note.p_filesz.get(LE) <= NOTE_BYTES).find_map(|note| {
            let bytes = self.bytes(note.p_offset.get(LE), note.p_filesz.get(LE), "a note lies beyond its end").ok()?;
            find_build_id(&bytes, if note.p_align.get(LE) == 8 { 8 } else { 4 })
        })?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// `DT_SONAME`; none when the file has none that can be read.
    #[must_use]
    pub fn soname(&self) -> Option<String> {
        let dynamic = self.sections_of(elf::SHT_DYNAMIC).next()?;
        let count = (dynamic.sh_size.get(LE) / size_of::<Dyn64<LE>>() as u64).min(DYNAMIC_ENTRIES);
        let entries: Vec<Dyn64<LE>> =
            self.records(dynamic.sh_offset.get(LE), count, "the dynamic section lies beyond its end").ok()?;
        let soname = entries.iter().find(|entry| entry.d_tag.get(LE) == elf::DT_SONAME)?;
        let at = u32::try_from(soname.d_val.get(LE)).ok()?;
        let strings = self.strings(dynamic).ok()?;
        let name = strings.get(self, at).ok()?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }
}

/// The descriptor of the `NT_GNU_BUILD_ID` note in a note segment.
fn find_build_id(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize);
        let (name_len, desc_len, kind) = (word(0)?, word(4)?, word(8)?);
        let desc_at = 12_usize.checked_add(name_len)?.checked_next_multiple_of(align)?;
        let desc_end = desc_at.checked_add(desc_len)?;
        let desc = notes.get(desc_at..desc_end)?;
        if kind == elf::NT_GNU_BUILD_ID as usize && notes.get(12..12 + name_len)? == b"GNU\0" {
            return Some(desc.to_vec());
        }
        notes = notes.get(desc_end.checked_next_multiple_of(align)?..)?;
    }
}

//! Symbols and where to probe them.

use std::collections::HashMap;

use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64, Sym64};

use super::{ElfFile, Error};

/// `endbr64`: a landing pad for indirect branches, the first instruction of functions built with `-fcf-protection`. A
/// uprobe on it costs 35 times one on the instruction behind (measured: the kernel single-steps it), and there the
/// registers and the stack are still the caller's.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// String table bytes kept in memory. The rest of a larger table is read name by name.
const STRINGS_IN_MEMORY: u64 = 64 << 20;
/// Longest name that can be looked for, with its NUL.
const NAME_BYTES: usize = 256;
/// Definitions of wanted names, all versions together; a real library has one or two of each.
const DEFINITIONS: usize = 1024;
/// Symbols read at a time.
const CHUNK: u64 = 4096;

/// Why a symbol of a wanted name cannot be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `STT_GNU_IFUNC`: the address is that of a resolver, not of the function.
    #[error("indirect function: its address is chosen at run time")]
    Indirect,
    /// Not a function.
    #[error("data, not code")]
    Data,
    /// In no executable section or segment.
    #[error("not in executable code")]
    NotExecutable,
}

/// A symbol of a wanted name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'n> {
    /// The name as it was asked for.
    pub name: &'n str,
    /// File offset for the probe, behind a leading `endbr64`.
    pub offset: Result<u64, Refusal>,
}

impl ElfFile {
    /// Finds symbols by name: in `.dynsym`, and those not there in `.symtab`. Imports are not definitions. A name that
    /// is defined twice at different addresses (symbol versions) is given twice; one that is not there, not at all.
    ///
    /// # Errors
    /// When a symbol table lies outside the file or cannot be read.
    pub fn resolve<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Vec<Definition<'n>>, Error> {
        let mut wanted: HashMap<&[u8], &'n str> = names.into_iter().map(|name| (name.as_bytes(), name)).collect();
        let mut found = Vec::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let before = found.len();
            for table in self.sections_of(kind) {
                self.search(table, &wanted, &mut found)?;
            }
            for definition in &found[before..] {
                wanted.remove(definition.name.as_bytes());
            }
        }
        Ok(found)
    }

    fn search<'n>(
        &self,
        table: &SectionHeader64<LE>,
        wanted: &HashMap<&[u8], &'n str>,
        found: &mut Vec<Definition<'n>>,
    ) -> Result<(), Error> {
        let strings = self.strings(table)?;
        let size = size_of::<Sym64<LE>>() as u64;
        let total = table.sh_size.get(LE) / size;
        for first in (0..total).step_by(CHUNK as usize) {
            let at = table.sh_offset.get(LE).saturating_add(first * size);
            let chunk: Vec<Sym64<LE>> =
                self.records(at, CHUNK.min(total - first), "a symbol table lies beyond its end")?;
            for symbol in chunk.iter().filter(|symbol| symbol.st_shndx.get(LE) != elf::SHN_UNDEF) {
                let name = strings.get(self, symbol.st_name.get(LE))?;
                let Some(&name) = wanted.get(&*name) else { continue };
                let definition = Definition { name, offset: self.place(symbol)? };
                if !found.contains(&definition) {
                    found.push(definition);
                }
                if found.len() > DEFINITIONS {
                    return Err(self.damaged("a symbol table defines the same functions over and over"));
                }
            }
        }
        Ok(())
    }

    /// Where a probe on `symbol` goes.
    fn place(&self, symbol: &Sym64<LE>) -> Result<Result<u64, Refusal>, Error> {
        match symbol.st_info & 0xf {
            elf::STT_FUNC | elf::STT_NOTYPE => {}
            elf::STT_GNU_IFUNC => return Ok(Err(Refusal::Indirect)),
            _ => return Ok(Err(Refusal::Data)),
        }
        // Reserved indices (absolute, common) name no section.
        let section = self.sections.get(usize::from(symbol.st_shndx.get(LE)));
        let in_code = section.is_some_and(|s| s.sh_flags.get(LE) & u64::from(elf::SHF_EXECINSTR) != 0);
        let Some(offset) = self.file_offset(symbol.st_value.get(LE)).filter(|_| in_code) else {
            return Ok(Err(Refusal::NotExecutable));
        };
        let first = self.bytes(offset, (self.len - offset).min(ENDBR64.len() as u64), "code lies beyond its end")?;
        Ok(Ok(if first == ENDBR64 { offset + first.len() as u64 } else { offset }))
    }

    /// File offset of a virtual address in an executable segment.
    fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            segment.p_type.get(LE) == elf::PT_LOAD
                && segment.p_flags.get(LE) & elf::PF_X != 0
                && address.checked_sub(segment.p_vaddr.get(LE)).is_some_and(|at| at < segment.p_filesz.get(LE))
        })?;
        let offset = (address - segment.p_vaddr.get(LE)).checked_add(segment.p_offset.get(LE))?;
        (offset < self.len).then_some(offset)
    }

    /// The string table that a section links to.
    pub(super) fn strings(&self, section: &SectionHeader64<LE>) -> Result<Strings, Error> {
        let table = usize::try_from(section.sh_link.get(LE)).ok().and_then(|index| self.sections.get(index));
        let table = table
            .filter(|table| table.sh_type.get(LE) == elf::SHT_STRTAB)
            .ok_or_else(|| self.damaged("a symbol table has no string table"))?;
        let (start, len) = (table.sh_offset.get(LE), table.sh_size.get(LE));
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.damaged("a string table lies beyond its end"));
        }
        let head = self.bytes(start, len.min(STRINGS_IN_MEMORY), "a string table lies beyond its end")?;
        Ok(Strings { start, len, head })
    }
}

/// A string table: its beginning in memory, the rest in the file.
pub(super) struct Strings {
    start: u64,
    len: u64,
    head: Vec<u8>,
}

impl Strings {
    /// The string at an offset; empty when it lies outside or is longer than any name that is looked for.
    pub(super) fn get(&self, file: &ElfFile, at: u32) -> Result<std::borrow::Cow<'_, [u8]>, Error> {
        let at = u64::from(at);
        if at >= self.len {
            return Ok([].as_slice().into());
        }
        let room = (self.len - at).min(NAME_BYTES as u64);
        if at + room <= self.head.len() as u64 {
            return Ok(until_nul(&self.head[at as usize..][..room as usize]).into());
        }
        let bytes = file.bytes(self.start + at, room, "a string table lies beyond its end")?;
        Ok(until_nul(&bytes).to_vec().into())
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|&byte| byte == 0).map_or(&[], |len| &bytes[..len])
}

//! Dynamic symbols by name, through the file's own hash table: a few reads, whatever the size of the library.

use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64, Sym64};

use super::{ElfFile, Error};

/// Symbols of one bucket that are looked at; a real one has a handful.
const CHAIN: u32 = 4096;

impl ElfFile {
    /// Address, in the file's own terms, of a symbol that the file defines for others. `None` as well for a file without
    /// a GNU hash table.
    ///
    /// # Errors
    /// When a table lies outside the file or cannot be read.
    pub fn dynamic_address(&self, name: &str) -> Result<Option<u64>, Error> {
        for table in self.sections_of(elf::SHT_GNU_HASH) {
            let symbols = usize::try_from(table.sh_link.get(LE)).ok().and_then(|index| self.sections.get(index));
            if let Some(symbols) = symbols
                && let Some(address) = self.look_up(table, symbols, name)?
            {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// Distance from addresses in the file's own terms to those of a process that maps the file's offset `offset` at
    /// `start`; `None` when no segment holds that offset.
    #[must_use]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segment =
            self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD).find(|segment| {
                // A mapping begins at the start of a page, a segment may not.
                let begin = segment.p_offset.get(LE) & !0xfff;
                let end = segment.p_offset.get(LE).saturating_add(segment.p_filesz.get(LE));
                begin <= offset && offset < end && segment.p_flags.get(LE) & elf::PF_X != 0
            })?;
        let address = segment.p_vaddr.get(LE).wrapping_sub(segment.p_offset.get(LE)).wrapping_add(offset);
        Some(start.wrapping_sub(address))
    }

    /// Layout: header of four words, Bloom filter of 64-bit words, buckets, one chain word for each symbol from
    /// `first` on (the `DT_GNU_HASH` section, as written by binutils' `elflink.c` and read by glibc's `dl-lookup.c`).
    fn look_up(
        &self,
        table: &SectionHeader64<LE>,
        symbols: &SectionHeader64<LE>,
        name: &str,
    ) -> Result<Option<u64>, Error> {
        const BEYOND: &str = "a hash table lies beyond its end";
        let at = table.sh_offset.get(LE);
        let words = |at: u64| -> Result<u32, Error> { Ok(self.records::<object::U32<LE>>(at, 1, BEYOND)?[0].get(LE)) };
        let [buckets, first, bloom, shift] = [words(at)?, words(at + 4)?, words(at + 8)?, words(at + 12)?];
        if buckets == 0 || bloom == 0 || shift >= 32 {
            return Ok(None);
        }
        let hash = gnu_hash(name);
        let filter = self.records::<object::U64<LE>>(at + 16 + u64::from(hash / 64 % bloom) * 8, 1, BEYOND)?[0].get(LE);
        if filter >> (hash % 64) & filter >> ((hash >> shift) % 64) & 1 == 0 {
            return Ok(None);
        }
        let bucket_at = at + 16 + u64::from(bloom) * 8;
        let chain_at = bucket_at + u64::from(buckets) * 4;
        let begin = words(bucket_at + u64::from(hash % buckets) * 4)?;
        let strings = self.strings(symbols)?;
        for n in begin..begin.saturating_add(CHAIN) {
            let Some(link) = n.checked_sub(first) else { break };
            let found = words(chain_at + u64::from(link) * 4)?;
            if found | 1 == hash | 1 {
                let at = symbols.sh_offset.get(LE).saturating_add(u64::from(n) * size_of::<Sym64<LE>>() as u64);
                let symbol = self.records::<Sym64<LE>>(at, 1, "a symbol table lies beyond its end")?[0];
                let defined = symbol.st_shndx.get(LE) != elf::SHN_UNDEF;
                if defined && *strings.get(self, symbol.st_name.get(LE))? == *name.as_bytes() {
                    return Ok(Some(symbol.st_value.get(LE)));
                }
            }
            if found & 1 == 1 {
                break;
            }
        }
        Ok(None)
    }
}

/// Daniel Bernstein's hash with 33 and 5381.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn finds_what_the_symbol_table_has() {
        // This test runs with a libc that is certainly there, and its functions are found by two ways.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
        let file = ElfFile::open(Path::new(path.unwrap())).unwrap();
        for name in ["malloc", "ioctl", "printf", "environ"] {
            assert!(file.dynamic_address(name).unwrap().is_some(), "{name}");
        }
        assert_eq!(file.dynamic_address("no_such_function_here").unwrap(), None);
        assert_eq!(file.dynamic_address("").unwrap(), None);
    }

    #[test]
    fn hash_is_that_of_the_linker() {
        // Values from binutils' documentation of the format.
        assert_eq!(gnu_hash(""), 5381);
        assert_eq!(gnu_hash("printf"), 0x156b_2bb8);
    }
}

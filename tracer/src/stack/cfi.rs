//! Call frame information: from a code address to the [`Rule`] that undoes its frame (DWARF 5 §6.4; `.eh_frame` and
//! its search table: LSB Core 5.0 §10.6).

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, EhHdrTable, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindSection,
};

use super::rule::Rule;

/// Rules remembered for one module.
const RULES: usize = 32 * 1024;
/// Entries of a section without a search table that are known at most; libtorch has half a million.
const ENTRIES: usize = 1 << 20;
/// Bytes of one entry, or of the one that it shares with others, at most: real ones have some hundred. Each is a program
/// that is run to its end.
const ENTRY: usize = 64 * 1024;
type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// Unwind sections of a module. Addresses are the file's own.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) eh_frame: Option<Rc<[u8]>>,
    pub(super) eh_frame_hdr: Option<Rc<[u8]>>,
    pub(super) debug_frame: Option<Rc<[u8]>>,
    pub(super) bases: BaseAddresses,
}

/// Finds rules in a module's sections and remembers them.
#[derive(Debug)]
pub(super) struct Tables {
    sections: Sections,
    /// Address ranges and offsets of the FDEs, for a section that has no search table.
    eh_index: Option<Index>,
    debug_index: Option<Index>,
    rules: RefCell<HashMap<u64, Option<Rc<Rule>>>>,
}

impl Tables {
    pub(super) fn new(sections: Sections) -> Self {
        let bases = &sections.bases;
        let searchable = sections.eh_frame_hdr.as_deref().is_some_and(|hdr| {
            // A table that claims more entries than there are bytes is damaged, and `lookup` overflows on it.
            let fits = |table: EhHdrTable<'_, _>| table.iter(bases).size_hint().0 <= hdr.len();
            EhFrameHdr::new(hdr, LittleEndian).parse(bases, 8).is_ok_and(|parsed| parsed.table().is_some_and(fits))
        });
        let eh_frame = sections.eh_frame.as_deref().filter(|_| !searchable);
        Self {
            eh_index: eh_frame.map(|data| index(&eh_section(data), bases)),
            debug_index: sections.debug_frame.as_deref().map(|data| index(&debug_section(data), bases)),
            sections,
            rules: RefCell::default(),
        }
    }

    /// Rule for a code address. `None`: no unwind information covers it.
    pub(super) fn rule(&self, address: u64) -> Option<Rc<Rule>> {
        let mut rules = self.rules.borrow_mut();
        if let Some(rule) = rules.get(&address) {
            return rule.clone();
        }
        if rules.len() == RULES {
            rules.clear();
        }
        let rule = self.eh_rule(address).or_else(|| self.debug_rule(address)).map(Rc::new);
        rules.insert(address, rule.clone());
        rule
    }

    fn eh_rule(&self, address: u64) -> Option<Rule> {
        let (data, bases) = (self.sections.eh_frame.as_ref()?, &self.sections.bases);
        let section = eh_section(data);
        let fde = if let Some(index) = &self.eh_index {
            section.fde_from_offset(bases, find(index, address)?.into(), EhFrame::cie_from_offset).ok()?
        } else {
            let header = self.sections.eh_frame_hdr.as_deref()?;
            let header = EhFrameHdr::new(header, LittleEndian).parse(bases, 8).ok()?;
            let entry = header.table()?.lookup(address, bases).ok()?;
            // Not `pointer_to_offset`, whose subtraction overflows on a damaged table.
            let offset = entry.pointer().checked_sub(bases.eh_frame.section?)?;
            let offset = usize::try_from(offset).ok()?;
            section.fde_from_offset(bases, offset.into(), EhFrame::cie_from_offset).ok()?
        };
        rule_from(&fde, &section, bases, address, data)
    }

    fn debug_rule(&self, address: u64) -> Option<Rule> {
        let (data, bases) = (self.sections.debug_frame.as_ref()?, &self.sections.bases);
        let section = debug_section(data);
        let offset = find(self.debug_index.as_ref()?, address)?;
        let fde = section.fde_from_offset(bases, offset.into(), DebugFrame::cie_from_offset).ok()?;
        rule_from(&fde, &section, bases, address, data)
    }
}

fn eh_section(data: &[u8]) -> EhFrame<Slice<'_>> {
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section
}

fn debug_section(data: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut section = DebugFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section
}

/// Start, end and section offset of each FDE, by start.
type Index = Vec<(u64, u64, usize)>;

/// Reads a section from front to back; stops at the first entry that is damaged.
fn index<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Index {
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    while found.len() < ENTRIES
        && let Ok(Some(entry)) = entries.next()
    {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(fde) = partial.parse(S::cie_from_offset) {
            found.push((fde.initial_address(), fde.end_address(), fde.offset()));
        }
    }
    found.sort_unstable();
    found
}

fn find(index: &Index, address: u64) -> Option<usize> {
    let after = index.partition_point(|&(start, ..)| start <= address);
    let &(_, end, offset) = index.get(after.checked_sub(1)?)?;
    (address < end).then_some(offset)
}

fn rule_from<'a, S: UnwindSection<Slice<'a>>>(
    fde: &Fde<'a>,
    section: &S,
    bases: &BaseAddresses,
    address: u64,
    data: &Rc<[u8]>,
) -> Option<Rule> {
    if fde.entry_len().max(fde.cie().entry_len()) > ENTRY {
        return None;
    }
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, address).ok()?;
    Some(Rule {
        cfa: row.cfa().clone(),
        registers: row.registers().cloned().collect(),
        encoding: fde.cie().encoding(),
        section: data.clone(),
        signal: fde.is_signal_trampoline(),
    })
}

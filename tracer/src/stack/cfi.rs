//! Call frame information: from a code address to the rule that undoes its frame, and from a rule and registers to
//! the caller's registers (DWARF 5 §6.4; `.eh_frame`: LSB Core 5.0 §10.6, System V ABI x86-64 §3.7).
//!
//! Unlike unwinders that follow only instruction, stack and frame pointer, all callee-saved registers are followed
//! and expressions may read the stack: frames of realigned stacks (AVX code) and of signal handlers need both.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice, Evaluation, EvaluationResult,
    FrameDescriptionEntry, LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, Value, X86_64,
};

use super::cut::Cut;

/// Rules remembered for one module.
const RULES: usize = 32 * 1024;
/// Operations an expression may take: compilers emit under ten.
const OPERATIONS: u32 = 1_000;
/// General registers and the return address, by DWARF number (System V ABI x86-64, figure 3.36).
const REGISTERS: usize = 17;
/// What a function must keep for its caller: rbx, rbp, r12–r15.
const CALLEE_SAVED: [Register; 6] = [X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// How to undo the frame of the function at some address.
#[derive(Debug)]
pub(super) struct Rule {
    cfa: CfaRule<usize>,
    registers: Vec<(Register, RegisterRule<usize>)>,
    encoding: Encoding,
    /// The section that `cfa` and `registers` refer to for expressions.
    section: Rc<[u8]>,
    /// The frame is the kernel's: its "return address" is an interrupted instruction, not one after a call.
    pub(super) signal: bool,
}

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
            EhFrameHdr::new(hdr, LittleEndian).parse(bases, 8).is_ok_and(|parsed| parsed.table().is_some())
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
    while let Ok(Some(entry)) = entries.next() {
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

/// Registers of one frame, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers([Option<u64>; REGISTERS]);

impl Registers {
    pub(super) fn new(ip: u64, sp: u64, bp: u64) -> Self {
        let mut registers = Self::default();
        registers.set(X86_64::RA, Some(ip));
        registers.set(X86_64::RSP, Some(sp));
        registers.set(X86_64::RBP, Some(bp));
        registers
    }

    /// The same registers with another instruction and stack pointer.
    pub(super) fn at(&self, ip: u64, sp: u64) -> Self {
        let mut moved = self.clone();
        moved.set(X86_64::RA, Some(ip));
        moved.set(X86_64::RSP, Some(sp));
        moved
    }

    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied().flatten()
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(slot) = self.0.get_mut(usize::from(register.0)) {
            *slot = value;
        }
    }
}

impl Rule {
    /// Registers of the caller; `Ok(None)` when the rule says that there is none (`_start`, `clone3`).
    pub(super) fn undo(&self, frame: &Registers, read: &dyn Fn(u64) -> Option<u64>) -> Result<Option<Registers>, Cut> {
        let known = |register| frame.get(register).ok_or(Cut::Register);
        let cfa = match &self.cfa {
            CfaRule::RegisterAndOffset { register, offset } => known(*register)?.wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => self.evaluate(expression, None, frame, read)?,
        };
        let mut caller = Registers::default();
        for register in CALLEE_SAVED {
            caller.set(register, frame.get(register));
        }
        caller.set(X86_64::RSP, Some(cfa));
        for (register, rule) in &self.registers {
            let value = match self.restore(*register, rule, cfa, frame, read) {
                // In an epilogue, rules still point at what was popped already, below the stack pointer. Such a
                // register is not known any more; only the return address is needed for certain.
                Err(Cut::SliceEnd) if *register != X86_64::RA => None,
                value => value?,
            };
            caller.set(*register, value);
        }
        // Calls push: a stack that does not shrink on the way out would be walked in a circle. A signal handler may
        // run on a stack of its own, anywhere.
        if !self.signal && frame.get(X86_64::RSP).is_some_and(|sp| cfa <= sp) {
            return Err(Cut::BadRule);
        }
        Ok(caller.get(X86_64::RA).filter(|&address| address != 0).map(|_| caller))
    }

    /// Value that a register had in the caller.
    fn restore(
        &self,
        register: Register,
        rule: &RegisterRule<usize>,
        cfa: u64,
        frame: &Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Option<u64>, Cut> {
        let load = |address| read(address).map(Some).ok_or(Cut::SliceEnd);
        match rule {
            RegisterRule::SameValue => Ok(frame.get(register)),
            RegisterRule::Offset(offset) => load(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Ok(Some(cfa.wrapping_add_signed(*offset))),
            RegisterRule::Register(other) => Ok(frame.get(*other)),
            RegisterRule::Expression(expression) => load(self.evaluate(expression, Some(cfa), frame, read)?),
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa), frame, read).map(Some),
            RegisterRule::Constant(value) => Ok(Some(*value)),
            RegisterRule::Undefined | RegisterRule::Architectural => Ok(None),
        }
    }

    /// Evaluates an expression; those of registers start with the CFA on their stack.
    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        cfa: Option<u64>,
        frame: &Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, Cut> {
        let end = expression.offset.saturating_add(expression.length);
        let code = self.section.get(expression.offset..end).ok_or(Cut::BadRule)?;
        let mut evaluation = Evaluation::new(EndianSlice::new(code, LittleEndian), self.encoding);
        evaluation.set_max_iterations(OPERATIONS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| Cut::BadRule)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = frame.get(register).ok_or(Cut::Register)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = read(address).ok_or(Cut::SliceEnd)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(Cut::BadRule),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                _ => Err(Cut::BadRule),
            },
            _ => Err(Cut::BadRule),
        }
    }
}

//! From a rule and a frame's registers to its caller's (DWARF 5 §6.4; System V ABI x86-64 §3.7).
//!
//! Unlike unwinders that follow only instruction, stack and frame pointer, all callee-saved registers are followed
//! and expressions may read the stack: frames of realigned stacks (AVX code) and of signal handlers need both.

use std::rc::Rc;

use gimli::{
    CfaRule, Encoding, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Register, RegisterRule,
    UnwindExpression, Value, X86_64,
};

use super::cut::Cut;

/// Operations an expression may take: compilers emit under ten.
const OPERATIONS: u32 = 1_000;
/// General registers and the return address, by DWARF number (System V ABI x86-64, figure 3.36).
const REGISTERS: usize = 17;
/// What a function must keep for its caller: rbx, rbp, r12–r15.
const CALLEE_SAVED: [Register; 6] = [X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];

/// How to undo the frame of the function at some address.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) cfa: CfaRule<usize>,
    pub(super) registers: Vec<(Register, RegisterRule<usize>)>,
    pub(super) encoding: Encoding,
    /// The section that `cfa` and `registers` refer to for expressions.
    pub(super) section: Rc<[u8]>,
    /// The frame is the kernel's: its "return address" is an interrupted instruction, not one after a call.
    pub(super) signal: bool,
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

//! From registers and a slice of stack to return addresses.

use gimli::X86_64;
use tracer_ebpf::Patched;

use super::{
    FRAMES,
    cut::Cut,
    modules::Modules,
    process::{Place, Process},
    rule::Registers,
};

/// A copied slice of stack.
pub(super) struct Slice<'a> {
    /// Address of the first byte.
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
    /// Return addresses that uretprobes replaced.
    pub(super) patched: &'a [Patched],
}

impl Slice<'_> {
    /// The word at an address, as the target put it there.
    fn read(&self, address: u64) -> Option<u64> {
        if let Some(patched) = self.patched.iter().find(|patched| patched.sp == address) {
            return Some(patched.address);
        }
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }
}

/// One machine frame.
#[derive(Debug)]
pub(super) struct Step {
    /// Instruction pointer or return address.
    pub(super) address: u64,
    /// Stack pointer in this frame, where it is known: the inner frame ends there.
    pub(super) sp: Option<u64>,
    /// `address` stands after a call: the code that runs is the byte before it.
    pub(super) is_return: bool,
    /// The kernel's frame below a signal handler.
    pub(super) is_signal: bool,
    /// Found by frame pointer in code without unwind information: frames may be missing between it and the inner one.
    pub(super) is_guess: bool,
    /// What the code belongs to; `None` when it is no known executable memory.
    pub(super) place: Option<Place>,
}

/// Walks the stack of a process.
pub(super) struct Walker<'a> {
    pub(super) pid: u32,
    pub(super) process: &'a mut Process,
    pub(super) modules: &'a mut Modules,
    pub(super) stack: Slice<'a>,
}

impl Walker<'_> {
    /// Frames, innermost first, and why they end before the outermost, if they do. `returned`: `ip` stands after a call.
    pub(super) fn walk(mut self, ip: u64, bp: u64, returned: bool) -> (Vec<Step>, Option<Cut>) {
        let mut registers = Registers::new(ip, self.stack.start, bp);
        let place = self.place(ip);
        let sp = Some(self.stack.start);
        let mut steps = vec![Step { address: ip, sp, is_return: returned, is_signal: false, is_guess: false, place }];
        let cut = loop {
            if self.process.is_unknown() {
                break Some(Cut::Gone);
            }
            if steps.len() == FRAMES {
                break Some(Cut::TooDeep);
            }
            match self.caller(&registers, &mut steps) {
                Ok(Some((caller, step))) => {
                    registers = caller;
                    steps.push(step);
                }
                Ok(None) => break None,
                Err(cut) => break Some(cut),
            }
        };
        (steps, cut)
    }

    /// Caller of the outermost step so far; `Ok(None)` when that is the outermost of all.
    fn caller(&mut self, registers: &Registers, steps: &mut [Step]) -> Result<Option<(Registers, Step)>, Cut> {
        let is_entry = steps.len() == 1 && !steps[0].is_return;
        let Some(step) = steps.last_mut() else { return Ok(None) };
        let why_not = match &step.place {
            Some(Place::Module(module, address)) => {
                let code = address.checked_sub(step.is_return.into());
                if let Some(rule) = code.and_then(|code| module.tables.rule(code)) {
                    step.is_signal = rule.signal;
                    let Some(caller) = rule.undo(registers, &|address| self.stack.read(address))? else {
                        return Ok(None);
                    };
                    let found = self.step(&caller, !rule.signal).ok_or(Cut::NotCode)?;
                    return Ok(Some((caller, found)));
                }
                Cut::NoUnwindInfo
            }
            Some(Place::Unread(..)) => Cut::BadFile,
            Some(Place::Anonymous) => Cut::NoFile,
            None => Cut::NotCode,
        };
        self.guess(registers, is_entry).map(Some).ok_or(why_not)
    }

    /// Caller of code without unwind information: at its first instruction (where probes sit) the return address is on
    /// top of the stack; else the code may keep frame pointers. Only what is certain to follow a call is taken.
    fn guess(&mut self, registers: &Registers, is_entry: bool) -> Option<(Registers, Step)> {
        let (sp, bp) = (registers.get(X86_64::RSP)?, registers.get(X86_64::RBP));
        let entered = || {
            let ip = self.stack.read(sp)?;
            Some(registers.at(ip, sp.checked_add(8)?))
        };
        let framed = || {
            let bp = bp.filter(|&bp| bp >= sp)?;
            let ip = self.stack.read(bp.checked_add(8)?)?;
            Some(Registers::new(ip, bp.checked_add(16)?, self.stack.read(bp)?))
        };
        let candidates = [(false, is_entry.then(entered).flatten()), (true, framed())];
        candidates.into_iter().find_map(|(is_guess, caller)| {
            let caller = caller?;
            let step = Step { is_guess, ..self.step(&caller, true)? };
            let holds = match &step.place {
                Some(Place::Module(module, address)) => {
                    // A signal handler returns to the kernel's trampoline, which has not called it.
                    module.follows_call(*address) || module.tables.rule(address - 1).is_some_and(|rule| rule.signal)
                }
                _ => true,
            };
            holds.then_some((caller, step))
        })
    }

    /// The frame that registers describe, if they point into code.
    fn step(&mut self, registers: &Registers, is_return: bool) -> Option<Step> {
        let address = registers.get(X86_64::RA)?;
        let place = self.place(address.checked_sub(u64::from(is_return))?)?;
        // A call may be the last instruction of its mapping, so the place was asked for the byte before.
        let place = match place {
            Place::Module(module, at) => Place::Module(module, at.checked_add(is_return.into())?),
            Place::Unread(path, at) => Place::Unread(path, at.checked_add(is_return.into())?),
            Place::Anonymous => Place::Anonymous,
        };
        let sp = registers.get(X86_64::RSP);
        Some(Step { address, sp, is_return, is_signal: false, is_guess: false, place: Some(place) })
    }

    fn place(&mut self, address: u64) -> Option<Place> {
        self.process.place(self.pid, address, self.modules)
    }
}

//! Stacks: what the kernel side sends of them, and what it must know to walk Python's.

use tracer_ebpf as wire;

use super::{Error, Session};
use crate::stack::Look;

impl Session {
    /// A thread's native stack, for a record to come.
    pub(super) fn stack(&mut self, regs: &wire::Stack, bytes: &[u8]) -> Result<(), Error> {
        let wire::Header { tgid: pid, tid, .. } = regs.header;
        if let Some(stack) = self.stacks.native(pid, regs, bytes) {
            self.pending.native(tid, stack);
        }
        // An interpreter may start after libcuda was loaded.
        let kernel = &mut self.kernel;
        let look = self.stacks.look_for_python_again(pid, &mut |file, offset| kernel.watch_code(file, offset));
        look.map_or(Ok(()), |look| self.tell(pid, look))
    }

    /// A Python code object.
    pub(super) fn code(&mut self, code: &wire::PythonCode) -> Result<(), Error> {
        let walk = self.stacks.code(code);
        walk.map_or(Ok(()), |walk| self.tell(code.header.tgid, Look { walk, notice: None }))
    }

    /// Number of the stack that a record refers to.
    pub(super) fn take_stack(&mut self, header: &wire::Header) -> Result<Option<u32>, Error> {
        let (native, python) = self.pending.take(header);
        let stack = self.stacks.number(header.tgid, native, python.as_deref(), &mut self.interner);
        for record in self.interner.drain() {
            self.writer.record(&record)?;
        }
        for text in self.stacks.notices() {
            self.notice(text)?;
        }
        Ok(stack)
    }

    /// Looks for the interpreter of a process.
    pub(super) fn look_for_python(&mut self, pid: u32) -> Result<(), Error> {
        let kernel = &mut self.kernel;
        let look = self.stacks.look_for_python(pid, &mut |file, offset| kernel.watch_code(file, offset));
        self.tell(pid, look)
    }

    fn tell(&mut self, pid: u32, look: Look) -> Result<(), Error> {
        self.kernel.walk_python(pid, look.walk)?;
        look.notice.map_or(Ok(()), |text| self.notice(text))
    }
}

//! Stacks that wait for the record they belong to.

use std::collections::HashMap;

use tracer_ebpf::{DEPTH, FLAG_PYTHON, FLAG_STACK, Header, PythonStack};

use crate::stack::Native;

/// Threads at most: those that died between a stack and its record leave theirs behind.
const THREADS: usize = 4096;

/// What waits, by thread. A thread's stacks nest as its calls do: the last sent is the first referred to.
#[derive(Debug, Default)]
pub(super) struct Pending {
    native: HashMap<u32, Vec<Native>>,
    python: HashMap<u32, Vec<Box<PythonStack>>>,
}

impl Pending {
    pub(super) fn native(&mut self, tid: u32, stack: Native) {
        push(&mut self.native, tid, stack);
    }

    pub(super) fn python(&mut self, stack: Box<PythonStack>) {
        push(&mut self.python, stack.header.tid, stack);
    }

    /// The stacks that a record refers to.
    pub(super) fn take(&mut self, header: &Header) -> (Option<Native>, Option<Box<PythonStack>>) {
        let native = (header.flags & FLAG_STACK != 0).then(|| pop(&mut self.native, header.tid)).flatten();
        let python = (header.flags & FLAG_PYTHON != 0).then(|| pop(&mut self.python, header.tid)).flatten();
        (native, python)
    }
}

fn push<T>(of: &mut HashMap<u32, Vec<T>>, tid: u32, stack: T) {
    if of.len() >= THREADS && !of.contains_key(&tid) {
        of.clear();
    }
    let stacks = of.entry(tid).or_default();
    // Records that never came leave stacks at the bottom.
    if stacks.len() > DEPTH {
        stacks.remove(0);
    }
    stacks.push(stack);
}

fn pop<T>(of: &mut HashMap<u32, Vec<T>>, tid: u32) -> Option<T> {
    let stacks = of.get_mut(&tid)?;
    let last = stacks.pop();
    if stacks.is_empty() {
        of.remove(&tid);
    }
    last
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    fn stack(tid: u32, len: u32) -> Box<PythonStack> {
        Box::new(PythonStack { header: Header { tid, ..Header::default() }, len, ..PythonStack::zeroed() })
    }

    fn taken(pending: &mut Pending, tid: u32, flags: u32) -> Option<u32> {
        pending.take(&Header { tid, flags, ..Header::default() }).1.map(|stack| stack.len)
    }

    #[test]
    fn the_innermost_calls_stack_comes_first() {
        let mut pending = Pending::default();
        for (tid, len) in [(1, 10), (2, 20), (1, 11)] {
            pending.python(stack(tid, len));
        }
        assert_eq!(taken(&mut pending, 1, 0), None, "a record that refers to none takes none");
        assert_eq!(taken(&mut pending, 1, FLAG_PYTHON), Some(11));
        assert_eq!(taken(&mut pending, 1, FLAG_PYTHON), Some(10));
        assert_eq!(taken(&mut pending, 1, FLAG_PYTHON), None);
        assert_eq!(taken(&mut pending, 2, FLAG_PYTHON), Some(20));
        assert!(pending.python.is_empty());
    }

    #[test]
    fn stacks_nobody_refers_to_do_not_pile_up() {
        let mut pending = Pending::default();
        for n in 0..100 {
            pending.python(stack(1, n));
        }
        assert_eq!(pending.python[&1].len(), DEPTH + 1);
        for tid in 0..2 * THREADS as u32 {
            pending.python(stack(tid, 0));
        }
        assert!(pending.python.len() <= THREADS);
    }
}

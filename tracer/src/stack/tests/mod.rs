//! Unwinds of real processes, held against gdb's.

mod target;

use std::process::Command;

use tracer_ebpf::Patched;

use self::target::{GdbFrame, Target, build, gdb_may_attach};
use super::{
    Interner, Stacks,
    cut::Cut,
    modules::Modules,
    process::Process,
    walk::{Slice, Step, Walker},
};
use crate::trace::record::{Frame, FrameKind, Record};

const OPTIMISED: [&str; 3] = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];

/// Unwinds with nothing known beforehand.
fn walk(pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8]) -> (Vec<Step>, Option<Cut>) {
    let stack = Slice { start: regs.sp, bytes, patched: &regs.patched[..regs.patched_len as usize] };
    let (mut process, mut modules) = (Process::default(), Modules::default());
    Walker { pid, process: &mut process, modules: &mut modules, stack }.walk(regs.ip, regs.bp)
}

/// Frames of a stack, outermost first.
fn frames(stacks: &mut Stacks, pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8]) -> Vec<Frame> {
    let mut names = Interner::new();
    let wanted = stacks.native(pid, regs, bytes, &mut names).unwrap();
    let mut known = Vec::new();
    for record in names.drain() {
        match record {
            Record::Frame(frame) => known.push(frame),
            Record::Stack(stack) if stack.id == wanted => {
                return stack.frames.iter().map(|&id| known[id as usize].clone()).collect();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the stack was not written");
}

/// Every machine frame has the address that gdb shows. Inlined functions have none in gdb's list, nor has the frame
/// below a signal handler.
fn assert_same_addresses(steps: &[Step], gdb: &[GdbFrame]) {
    let ours: Vec<u64> = steps.iter().filter(|step| !step.is_signal).map(|step| step.address).collect();
    let theirs: Vec<u64> = gdb.iter().filter_map(|frame| frame.address).collect();
    assert_eq!(ours, theirs, "{steps:#x?}\n{gdb:#x?}");
    let signals = gdb.iter().filter(|frame| frame.function == "<signal handler called>").count();
    assert_eq!(steps.iter().filter(|step| step.is_signal).count(), signals);
}

#[test]
fn callbacks_recursion_realigned_stack_and_signal_frame_equal_gdbs() {
    if !gdb_may_attach() {
        return eprintln!("skipped: Yama does not let gdb attach");
    }
    let dir = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&dir);
    let (regs, bytes) = target.capture();
    let gdb = target.gdb();

    let (steps, cut) = walk(target.pid(), &regs, &bytes);
    assert_eq!(cut, None);
    assert_same_addresses(&steps, &gdb);

    let found = frames(&mut Stacks::new(), target.pid(), &regs, &bytes);
    let ours: Vec<&str> = found.iter().rev().map(|frame| frame.function.as_str()).collect();
    for (name, frame) in ours.iter().zip(&gdb) {
        // The C library has several names for one address (`raise`, `gsignal`); which one is shown is taste.
        assert!(*name == frame.function || !name.is_empty() && is_libc(&frame.function), "{name} {frame:?}");
    }
    assert_eq!(ours.iter().filter(|name| **name == "descend").count(), 41);
    for name in ["library_wait", "handler", "realigned", "compare", "library_call", "main", "_start"] {
        assert_eq!(ours.iter().filter(|found| **found == name).count(), 1, "{name}: {ours:?}");
    }
}

fn is_libc(function: &str) -> bool {
    function.contains("read") || function.contains("raise") || function.contains("sort") || function.contains("_")
}

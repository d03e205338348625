//! Unwinds of real processes, held against gdb's.

mod damage;
mod linked;
mod target;

use std::{path::Path, process::Command};

use tempfile::TempDir;
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
    Walker { pid, process: &mut process, modules: &mut modules, stack }.walk(regs.ip, regs.bp, false)
}

/// The unwinder with one table of names, and what that table wrote.
#[derive(Default)]
struct Unwinder {
    stacks: Stacks,
    names: Interner,
    frames: Vec<Frame>,
    written: Vec<Vec<u32>>,
}

impl Unwinder {
    /// Frames of a stack, outermost first.
    fn frames(&mut self, pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8]) -> Vec<Frame> {
        let native = self.stacks.native(pid, regs, bytes);
        let stack = self.stacks.number(pid, native, None, &mut self.names).unwrap();
        for record in self.names.drain() {
            match record {
                Record::Frame(frame) => self.frames.push(frame),
                Record::Stack(stack) => self.written.push(stack.frames),
                other => panic!("{other:?}"),
            }
        }
        // Numbers differ from one table to another; what they stand for must not.
        let frame = |&id: &u32| Frame { id: 0, ..self.frames[id as usize].clone() };
        self.written[stack as usize].iter().map(frame).collect()
    }
}

fn frames(pid: u32, regs: &tracer_ebpf::Stack, bytes: &[u8]) -> Vec<Frame> {
    Unwinder::default().frames(pid, regs, bytes)
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

    let found = frames(target.pid(), &regs, &bytes);
    let functions = functions_of(&dir, &found);
    let theirs: Vec<String> = gdb.into_iter().map(|frame| frame.function).rev().collect();
    let theirs: Vec<&String> = theirs.iter().filter(|name| functions.contains(name)).collect();
    assert_eq!(functions.iter().collect::<Vec<_>>(), theirs);
    assert_eq!(functions.iter().filter(|name| *name == "descend").count(), 41);
    let once = ["_start", "main", "library_call", "compare", "realigned", "handler", "library_wait"];
    for name in once {
        assert_eq!(functions.iter().filter(|found| *found == name).count(), 1, "{name}: {functions:?}");
    }
    assert!(found.iter().any(|frame| frame.function == "<signal handler called>"));
}

#[test]
fn every_kind_of_unwind_information_serves() {
    if !gdb_may_attach() {
        return eprintln!("skipped: Yama does not let gdb attach");
    }
    let kinds: [&[&str]; 3] = [
        // No search table: the section is indexed.
        &["-O2", "-fno-optimize-sibling-calls", "-Wl,--no-eh-frame-hdr"],
        // Only `.debug_frame`.
        &["-O2", "-fno-optimize-sibling-calls", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
        // None at all, but frame pointers.
        &["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ];
    for flags in kinds {
        let dir = build("callbacks.c", flags);
        let target = Target::program(&dir);
        let (regs, bytes) = target.capture();
        let (steps, cut) = walk(target.pid(), &regs, &bytes);
        assert_eq!(cut, None, "{flags:?}");
        assert_same_addresses(&steps, &target.gdb());
    }
}

#[test]
fn code_without_unwind_information_and_frame_pointers_is_never_passed_over_in_silence() {
    let dir = build("callbacks.c", &["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let target = Target::program(&dir);
    let (regs, bytes) = target.capture();
    let found = frames(target.pid(), &regs, &bytes);
    let inner = found.iter().rposition(|frame| frame.function == "library_wait").unwrap();
    assert_eq!(found[inner - 1].kind, FrameKind::Cut, "{found:#?}");
}

#[test]
fn the_first_instruction_of_a_function_needs_no_unwind_information() {
    let dir = build("callbacks.c", &["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let target = Target::program(&dir);
    let (mut regs, mut bytes) = target.capture();
    // As an entry probe on `library_wait` would see it: the return address is on top of the stack. Rewind the call.
    let (steps, _) = walk(target.pid(), &regs, &bytes);
    let library_wait = steps[1].address;
    let gone = bytes.chunks_exact(8).position(|word| word == library_wait.to_le_bytes()).unwrap() * 8;
    bytes.drain(..gone);
    regs = tracer_ebpf::Stack { ip: library_wait - 1, sp: regs.sp + gone as u64, ..regs };
    let found = frames(target.pid(), &regs, &bytes);
    let inner: Vec<&str> = found.iter().rev().take(2).map(|frame| frame.function.as_str()).collect();
    assert_eq!(inner, ["library_wait", "library_wait"]);
}

/// Functions of the frames in files that were built in `dir`, outermost first.
fn functions_of(dir: &TempDir, frames: &[Frame]) -> Vec<String> {
    let built = |frame: &&Frame| Path::new(&frame.module).starts_with(dir.path());
    frames.iter().filter(built).map(|frame| frame.function.clone()).collect()
}

#[test]
fn cxx_names_are_demangled_and_inlined_functions_shown_with_their_lines() {
    if !gdb_may_attach() {
        return eprintln!("skipped: Yama does not let gdb attach");
    }
    let dir = build("names.cpp", &["-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]);
    let target = Target::program(&dir);
    let (regs, bytes) = target.capture();
    let gdb = target.gdb();
    let (steps, cut) = walk(target.pid(), &regs, &bytes);
    assert_eq!(cut, None);
    assert_same_addresses(&steps, &gdb);

    // gdb gives file and line of each frame, inlined ones too; parameter types it shows apart from the name.
    let ours: Vec<(String, Option<String>)> = frames(target.pid(), &regs, &bytes)
        .iter()
        .rev()
        .filter(|frame| frame.file.as_ref().is_some_and(|file| file.ends_with(".cpp") || file.ends_with(".c")))
        .map(|frame| {
            let line = frame.line.map(|line| format!("{}:{line}", frame.file.as_deref().unwrap_or_default()));
            (plain(&frame.function), line)
        })
        .collect();
    let theirs: Vec<(String, Option<String>)> = gdb
        .iter()
        .filter(|frame| frame.line.as_ref().is_some_and(|line| line.contains(".c")))
        .map(|frame| (plain(&frame.function), frame.line.clone()))
        .collect();
    // Functions without external linkage have their bare name in the debug information.
    let same = |ours: &(String, _), theirs: &(String, _)| theirs.0.ends_with(&ours.0) && ours.1 == theirs.1;
    assert!(ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| same(a, b)), "{ours:?}\n{theirs:?}");
    for part in ["inlined_leaf", "inlined_middle", "area", "shapes::Sum<double>::add", "main"] {
        assert!(ours.iter().any(|(name, _)| name == part), "{part}: {ours:?}");
    }
}

/// A C++ name without parameters, and without what gdb and the demangler spell differently.
fn plain(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    name.split('(').next().unwrap_or_default().replace("{anonymous}", "(anonymous namespace)")
}

#[test]
fn a_short_slice_gives_the_inner_frames_and_says_that_more_are_missing() {
    let dir = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&dir);
    let (regs, bytes) = target.capture();
    let mut unwinder = Unwinder::default();
    let whole = unwinder.frames(target.pid(), &regs, &bytes);
    let mut cuts = 0;
    for len in (0..bytes.len()).step_by(104) {
        let regs = tracer_ebpf::Stack { len: u32::try_from(len).unwrap(), ..regs };
        let part = unwinder.frames(target.pid(), &regs, &bytes);
        if part == whole {
            continue;
        }
        cuts += 1;
        assert_eq!((part[0].kind, part[0].function.as_str()), (FrameKind::Cut, Cut::SliceEnd.text()));
        assert!(whole.ends_with(&part[1..]), "{len} bytes: {part:#?}");
    }
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn a_return_address_that_a_uretprobe_replaced_is_put_back() {
    let dir = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&dir);
    let (mut regs, mut bytes) = target.capture();
    let mut unwinder = Unwinder::default();
    let whole = unwinder.frames(target.pid(), &regs, &bytes);

    // Where the kernel maps its trampoline on x86-64 when that is free (xol_area, kernel/events/uprobes.c).
    let trampoline: u64 = 0x7fff_ffff_e000;
    let address = walk(target.pid(), &regs, &bytes).0.iter().rfind(|step| step.is_return).unwrap().address;
    let at = bytes.chunks_exact(8).rposition(|word| word == address.to_le_bytes()).unwrap() * 8;
    bytes[at..at + 8].copy_from_slice(&trampoline.to_le_bytes());
    let broken = unwinder.frames(target.pid(), &regs, &bytes);
    assert_eq!((broken[0].kind, broken[0].function.as_str()), (FrameKind::Cut, Cut::NotCode.text()));
    assert!(whole.ends_with(&broken[1..]) && broken.len() < whole.len() + 1);

    regs.patched[0] = Patched { sp: regs.sp + at as u64, address };
    regs.patched_len = 1;
    assert_eq!(unwinder.frames(target.pid(), &regs, &bytes), whole);
}

#[test]
fn a_process_that_ended_keeps_what_is_known_of_it() {
    let dir = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&dir);
    let (pid, (regs, bytes)) = (target.pid(), target.capture());
    let (mut seen, mut mapped) = (Unwinder::default(), Unwinder::default());
    let whole = seen.frames(pid, &regs, &bytes);
    mapped.stacks.refresh(pid);
    target.kill();

    // Seen before, or mapped and the files still there: complete.
    assert_eq!(seen.frames(pid, &regs, &bytes), whole);
    seen.stacks.refresh(pid);
    assert_eq!(seen.frames(pid, &regs, &bytes), whole, "the empty map of a dead process replaces nothing");
    assert_eq!(functions_of(&dir, &mapped.frames(pid, &regs, &bytes)), functions_of(&dir, &whole));

    // Never seen: one bare address.
    let bare = frames(pid, &regs, &bytes);
    assert_eq!(bare.len(), 2);
    assert_eq!((bare[0].kind, bare[0].function.as_str()), (FrameKind::Cut, Cut::Gone.text()));
    assert_eq!((bare[1].function.as_str(), bare[1].module.as_str(), bare[1].offset), ("", "", regs.ip));

    // A forgotten process is a new one.
    seen.stacks.forget(pid);
    assert_eq!(seen.frames(pid, &regs, &bytes), bare);
}

#[test]
fn a_process_and_its_files_gone_leaves_module_and_offset() {
    let dir = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&dir);
    let (pid, (mut regs, bytes)) = (target.pid(), target.capture());
    let (steps, _) = walk(pid, &regs, &bytes);
    // As if the event had come from the library itself.
    regs.ip = steps[1].address;
    let mut unwinder = Unwinder::default();
    unwinder.stacks.refresh(pid);
    target.kill();
    drop(dir);
    let found = unwinder.frames(pid, &regs, &bytes);
    let last = found.last().unwrap();
    assert!(last.module.ends_with("/liblibrary.so") && last.function.is_empty() && last.offset > 0, "{found:#?}");
    assert!(last.offset < 0x10000);
    assert_eq!((found[0].kind, found[0].function.as_str()), (FrameKind::Cut, Cut::BadFile.text()));
}

#[test]
fn a_thread_unwinds_to_where_it_was_started() {
    let mut flags = OPTIMISED.to_vec();
    flags.push("-pthread");
    let dir = build("thread.c", &flags);
    let target = Target::program(&dir);
    let (regs, bytes) = target.capture();
    let (steps, cut) = walk(target.pid(), &regs, &bytes);
    assert_eq!(cut, None);
    let found = frames(target.pid(), &regs, &bytes);
    assert_eq!(functions_of(&dir, &found), ["work", "library_wait"]);
    // `clone3` and `start_thread`, or what the C library calls them.
    assert!(steps.len() >= 5, "{steps:#x?}");
    assert!(found[..2].iter().all(|frame| frame.module.contains("/libc.so")), "{found:#?}");
}

#[test]
fn python_unwinds_to_start() {
    if !gdb_may_attach() {
        return eprintln!("skipped: Yama does not let gdb attach");
    }
    let code = "import sys; print('ready', flush=True); sys.stdin.read()";
    let target = Target::start(Command::new("python3").args(["-c", code]));
    let (regs, bytes) = target.capture();
    let (steps, cut) = walk(target.pid(), &regs, &bytes);
    assert_eq!(cut, None);
    assert_same_addresses(&steps, &target.gdb());
    let found = frames(target.pid(), &regs, &bytes);
    assert_eq!(found[0].function, "_start");
    assert!(found.iter().any(|frame| frame.function == "Py_BytesMain"), "{found:#?}");
}

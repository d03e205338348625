//! Python frames of the calling thread, read from the interpreter's own structures.
//!
//! The thread's state comes from the slot of thread-specific data that CPython keeps it in, which is right whether or not
//! the thread holds the GIL: CUDA calls are made without it. Nothing read here is trusted: user space decides what it means.
//!
//! Each read of user memory costs as much as some hundred instructions, so there is one a frame. What a code object is
//! called is sent once. That its address still means the same is known because a probe tells when code objects end: a frame
//! holds its code object, so none on a stack can end while the stack is walked. Without that probe (perf's uprobes may
//! skip hits) a code object is told from one that took its place by what it says, at five reads a frame.

use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, generated::bpf_probe_read_user as read_user},
    macros::{map, uprobe},
    maps::{Array, HashMap},
    programs::ProbeContext,
};
use tracer_ebpf::{
    FLAG_PYTHON, HASH_START, KIND_PYTHON, Loss, PYTHON_FAULT, PYTHON_FRAME_BYTES, PYTHON_FRAMES, PYTHON_NO_STATE,
    PYTHON_TRUNCATED, Python, PythonFrame, PythonStack, hash_step,
};

use crate::{
    code::{describe, identity, parts},
    maps::{EVENTS, config, header, ids, kernel_word, lose, no_room_for_stacks},
    read::{negative, nonzero, word},
    regs,
};

/// Thread states looked at when the slot is not known.
const THREADS: u32 = 256;
/// 3.14 tags references in their low bits; objects are aligned to 16 bytes.
const TAG: u64 = 7;

/// Processes whose interpreter user space has looked for.
#[map]
pub static PYTHONS: HashMap<u32, Python> = HashMap::with_max_entries(65536, 1 /* BPF_F_NO_PREALLOC */);
/// Code objects that user space knows, where their hash says. One that another took the place of is sent again. No hash
/// map: the verifier would have to follow both ways out of each lookup.
#[map]
static CODES: Array<[Known; KNOWN]> = Array::with_max_entries(1, 0);
const KNOWN: usize = 1 << 16;

/// A code object that user space knows. Another processor may write while this one reads: then the two do not fit.
#[derive(Clone, Copy)]
#[repr(C)]
struct Known {
    /// [`fingerprint`] with this identity.
    fingerprint: u64,
    identity: u64,
}

/// Sends the calling thread's Python frames. Gives `FLAG_PYTHON`, or 0 when this is no Python process.
#[inline(never)]
pub fn send(tgid: u32, tid: u32) -> u32 {
    // SAFETY: a map value; user space replaces it whole.
    let Some(python) = PYTHONS.get_ptr(tgid).and_then(|p| unsafe { p.as_ref() }) else { return 0 };
    if python.threads == 0 {
        return 0;
    }
    if no_room_for_stacks() {
        lose(Loss::RingFullStack);
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve::<PythonStack>(0) else {
        lose(Loss::RingFullStack);
        return 0;
    };
    let out = entry.as_mut_ptr();
    // SAFETY: `out` points to a reserved record of that size.
    unsafe {
        (*out).header = header(KIND_PYTHON, 0, tgid, tid);
        (*out).len = 0;
        (*out).new = 0;
        (*out).flags = match thread_state(python) {
            0 => PYTHON_NO_STATE,
            state => {
                let flags = walk(python, state, out);
                if python.thread_control != 0 {
                    anchor(python, state, out);
                }
                flags
            }
        };
        match python.watched {
            0 => identify::<false>(python, out),
            _ => identify::<true>(python, out),
        }
        introduce(python, out);
    }
    entry.submit(0);
    FLAG_PYTHON
}

/// The calling thread's `PyThreadState`; 0 when it has none. A function of its own, as are those below, so that the
/// verifier forgets how its result came about.
#[inline(never)]
fn thread_state(python: &Python) -> u64 {
    // SAFETY: no arguments.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let Some(pointer) = config().and_then(|config| kernel_word(task, config.task_fsbase)) else { return 0 };
    if python.slot != 0 {
        let state = word(pointer, python.slot);
        // The slot of a thread that never ran Python code is empty.
        if state == 0 || word(state, python.thread_id) == pointer {
            return state;
        }
    }
    search(python, pointer)
}

/// Searches the main interpreter's list of threads.
#[inline(always)]
fn search(python: &Python, pointer: u64) -> u64 {
    let mut state = word(python.threads, 0);
    for _ in 0..THREADS {
        if state == 0 || word(state, python.thread_id) == pointer {
            return state;
        }
        state = word(state, python.thread_next);
    }
    0
}

/// A code object ends: another may be made at its address. `void code_dealloc(PyCodeObject *)`, `PyCode_Type.tp_dealloc`.
#[uprobe]
pub fn code_end(ctx: ProbeContext) -> u32 {
    // SAFETY: the kernel's register frame, valid for the program's run.
    let [code, ..] = regs::arguments(unsafe { &*ctx.regs });
    let (tgid, _) = ids();
    // SAFETY: a map value; user space replaces it whole.
    if let Some(python) = PYTHONS.get_ptr(tgid).and_then(|p| unsafe { p.as_ref() })
        && let Some(known) = known()
    {
        // Should another have the place by now, it is sent again.
        known[slot(process(python, tgid), code)] = Known { fingerprint: 0, identity: 0 };
    }
    0
}

/// What is read of a frame, at once: a buffer of `PYTHON_FRAME_BYTES` bytes, aligned to 8.
#[derive(Clone, Copy)]
struct Raw(*mut u8);

impl Raw {
    /// Gives the helper's result. What cannot be read is 0.
    #[inline(always)]
    fn read(self, frame: u64, bytes: u32) -> i64 {
        let bytes = bytes & (PYTHON_FRAME_BYTES as u32 - 1);
        // SAFETY: less than the buffer has.
        unsafe { read_user(self.0.cast(), bytes, frame as *const _) }
    }

    #[inline(always)]
    fn word(self, offset: u32) -> u64 {
        // SAFETY: aligned, and within the buffer.
        unsafe { self.0.cast::<u64>().byte_add(offset as usize & (PYTHON_FRAME_BYTES - 8)).read_volatile() }
    }

    #[inline(always)]
    fn byte(self, offset: u32) -> u8 {
        // SAFETY: within the buffer.
        unsafe { self.0.add(offset as usize & (PYTHON_FRAME_BYTES - 1)).read_volatile() }
    }
}

/// Writes the frames into `out`; gives its flags.
///
/// The loop has no branch but those that leave it: after one that rejoins it, the verifier would go through all the
/// rest of the loop again.
///
/// # Safety
/// `out` must point to a writable record.
#[inline(never)]
unsafe fn walk(python: &Python, state: u64, out: *mut PythonStack) -> u32 {
    let mut frame = word(state, python.thread_frame);
    if python.control_frame != 0 {
        frame = word(frame, python.control_frame - 1);
    }
    let control = nonzero(python.thread_control as u64);
    // SAFETY: within the record.
    let raw = Raw(unsafe { &raw mut (*out).raw }.cast());
    let mut failed = 0;
    for i in 0..PYTHON_FRAMES {
        if frame == 0 {
            break;
        }
        failed |= raw.read(frame, python.frame_bytes);
        let code = raw.word(python.frame_code);
        let position = raw.word(python.frame_position) & python.position_mask;
        let entry = negative(python.entry_owner as i64 - 1 - raw.byte(python.frame_owner) as i64);
        let anchor = frame & entry;
        frame = raw.word(python.frame_previous);
        // SAFETY: `i` is below the array's length; the count is kept within the array for the verifier.
        unsafe {
            let found = &raw mut (*out).frames[i];
            found.write(PythonFrame { code: code & !TAG & !entry, identity: 0, position, anchor });
            (*out).len = i as u32 + 1;
            let entered = raw.byte(python.frame_entry) as u32 | python.all_entered;
            note(out, i as u32, nonzero(entered as u64) & control);
        }
    }
    (if frame == 0 { 0 } else { PYTHON_TRUNCATED }) | (if failed == 0 { 0 } else { PYTHON_FAULT })
}

/// Notes frame `i` in `which` if `one` is 1. Counted in the record, of whose contents the verifier does not keep track:
/// it would follow each count there can be.
///
/// # Safety
/// `out` must point to a writable record.
#[inline(always)]
unsafe fn note(out: *mut PythonStack, i: u32, one: u32) {
    // SAFETY: within the record; the count is kept within the array for the verifier.
    unsafe {
        let count = (&raw const (*out).new).read_volatile();
        (*out).which[count as usize & (PYTHON_FRAMES - 1)] = i;
        (&raw mut (*out).new).write_volatile(count + one);
    }
}

/// Fills in the anchors of the frames that [`walk`] noted: control frames and runs of the interpreter come in the same
/// order.
///
/// # Safety
/// `out` must point to a record that [`walk`] has written.
#[inline(never)]
unsafe fn anchor(python: &Python, state: u64, out: *mut PythonStack) {
    let mut control = word(state, python.thread_control);
    for n in 0..PYTHON_FRAMES {
        // SAFETY: written by `walk`; the index is kept within the array for the verifier.
        unsafe {
            if n as u32 >= (*out).new {
                break;
            }
            (*out).frames[(*out).which[n] as usize & (PYTHON_FRAMES - 1)].anchor = control;
        }
        control = word(control, python.control_previous);
    }
    // SAFETY: within the record.
    unsafe { (*out).new = 0 };
}

/// Fills in the identities of the frames' code objects, and notes those that user space does not know. Where the end of
/// every code object is reported (`WATCHED`), what is known of an address holds.
///
/// # Safety
/// `out` must point to a record that [`walk`] has written.
#[inline(never)]
unsafe fn identify<const WATCHED: bool>(python: &Python, out: *mut PythonStack) {
    let Some(known) = known() else { return };
    // SAFETY: the record's own header was written.
    let process = process(python, unsafe { (*out).header.tgid });
    let mut code = 0;
    for i in 0..PYTHON_FRAMES {
        // SAFETY: `i` is below the array's length.
        let (len, frame) = unsafe { ((*out).len, &raw mut (*out).frames[i]) };
        if i as u32 >= len {
            break;
        }
        // An entry of the interpreter has no code: the last one, which is known, is looked at again.
        // SAFETY: written by `walk`.
        let own = unsafe { (*frame).code };
        code ^= (code ^ own) & negative(own.wrapping_neg() as i64);
        let known = known[slot(process, code)];
        let identity = if WATCHED { known.identity } else { identity(&parts(python, code)) };
        let differ = known.fingerprint ^ fingerprint(process, code, identity);
        // SAFETY: within the record.
        unsafe {
            (*frame).identity = identity;
            note(out, i as u32, nonzero(differ));
        }
    }
}

/// Sends the code objects that [`identify`] found to be new.
///
/// # Safety
/// `out` must point to a record that [`identify`] has written.
#[inline(never)]
unsafe fn introduce(python: &Python, out: *mut PythonStack) {
    let Some(known) = known() else { return };
    // SAFETY: the record's own header was written.
    let header = unsafe { &(*out).header };
    let process = process(python, header.tgid);
    for n in 0..PYTHON_FRAMES {
        // SAFETY: written by `identify`; the index is kept within the array for the verifier.
        let (new, frame) =
            unsafe { ((*out).new, &raw mut (*out).frames[(*out).which[n] as usize & (PYTHON_FRAMES - 1)]) };
        if n as u32 >= new {
            break;
        }
        // SAFETY: as above.
        let code = unsafe { (*frame).code };
        let identity = describe(python, header, code);
        if identity == 0 {
            break;
        }
        // SAFETY: as above.
        unsafe { (*frame).identity = identity };
        known[slot(process, code)] = Known { fingerprint: fingerprint(process, code, identity), identity };
    }
}

#[inline(always)]
fn known() -> Option<&'static mut [Known; KNOWN]> {
    // SAFETY: a map value; words of it are read and written whole.
    CODES.get_ptr_mut(0).map(|known| unsafe { &mut *known })
}

/// What tells a process's codes from those of others, and from those it had before it executed another program.
#[inline(always)]
fn process(python: &Python, tgid: u32) -> u64 {
    (tgid as u64) << 32 | python.generation as u64
}

#[inline(always)]
fn fingerprint(process: u64, code: u64, identity: u64) -> u64 {
    hash_step(identity ^ process, code)
}

/// Where a code object is kept.
#[inline(always)]
fn slot(process: u64, code: u64) -> usize {
    (hash_step(hash_step(HASH_START, process), code) & (KNOWN as u64 - 1)) as usize
}

//! Python frames of the calling thread, read from the interpreter's own structures.
//!
//! The thread's state comes from the slot of thread-specific data that CPython keeps it in, which is right whether or not
//! the thread holds the GIL: CUDA calls are made without it. Nothing read here is trusted: user space decides what it means.

use aya_ebpf::{
    helpers::bpf_get_current_task_btf,
    macros::map,
    maps::{Array, HashMap},
};
use tracer_ebpf::{
    FLAG_PYTHON, HASH_START, Header, KIND_PYTHON, Loss, PYTHON_FAULT, PYTHON_FRAMES, PYTHON_NO_STATE, PYTHON_TRUNCATED,
    Python, PythonFrame, PythonStack, hash_step,
};

use crate::{
    code::{describe, identity, parts},
    maps::{EVENTS, config, header, kernel_word, lose},
    read::{checked, negative, nonzero, user, word},
};

/// Thread states looked at when the slot is not known.
const THREADS: u32 = 256;
/// 3.14 tags references in their low bits; objects are aligned to 16 bytes.
const TAG: u64 = 7;

/// Processes whose interpreter user space has looked for.
#[map]
pub static PYTHONS: HashMap<u32, Python> = HashMap::with_max_entries(65536, 1 /* BPF_F_NO_PREALLOC */);
/// Code objects that user space knows: a fingerprint each, where its hash says. One that another took the place of is
/// sent again. No hash map: the verifier would have to follow both ways out of each lookup.
#[map]
static CODES: Array<[u64; KNOWN]> = Array::with_max_entries(1, 0);
const KNOWN: usize = 1 << 16;

/// Sends the calling thread's Python frames. Gives `FLAG_PYTHON`, or 0 when this is no Python process.
#[inline(never)]
pub fn send(tgid: u32, tid: u32) -> u32 {
    // SAFETY: a map value; user space replaces it whole.
    let Some(python) = PYTHONS.get_ptr(tgid).and_then(|p| unsafe { p.as_ref() }) else { return 0 };
    if python.threads == 0 {
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve::<PythonStack>(0) else {
        lose(Loss::UnreadableStack);
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
            state if python.thread_control != 0 => walk::<true>(python, state, out),
            state => walk::<false>(python, state, out),
        };
        identify(python, out);
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

/// Writes the frames into `out`; gives its flags.
///
/// The loop has no branch but those that leave it: after one that rejoins it, the verifier would go through all the
/// rest of the loop again. So `CONTROL` says whether the version has control frames that tell where runs begin.
///
/// # Safety
/// `out` must point to a writable record.
#[inline(never)]
unsafe fn walk<const CONTROL: bool>(python: &Python, state: u64, out: *mut PythonStack) -> u32 {
    let mut frame = word(state, python.thread_frame);
    if python.control_frame != 0 {
        frame = word(frame, python.control_frame - 1);
    }
    let mut control = if CONTROL { word(state, python.thread_control) } else { 0 };
    let mut failed = 0;
    for i in 0..PYTHON_FRAMES {
        if frame == 0 {
            break;
        }
        // SAFETY: `i` is below the array's length.
        let found = unsafe { &raw mut (*out).frames[i] };
        let owner = user::<u8>(frame + python.frame_owner as u64);
        let code = word(frame, python.frame_code);
        let position = word(frame, python.frame_position) & python.position_mask;
        let entry = negative(python.entry_owner as i64 - 1 - owner as i64);
        let mut anchor = frame & entry;
        if CONTROL {
            // Control frames and runs of the interpreter come in the same order.
            let entered = user::<u8>(frame + python.frame_entry as u64) as u32 | python.all_entered;
            let entered = negative(-(entered as i64));
            let outer = word(control, python.control_previous);
            anchor = control & entered;
            control ^= (control ^ outer) & entered;
        }
        let result;
        (frame, result) = checked(frame + python.frame_previous as u64);
        failed |= result;
        // SAFETY: within the record.
        unsafe {
            found.write(PythonFrame { code: code & !TAG & !entry, identity: 0, position, anchor });
            (*out).len = i as u32 + 1;
        }
    }
    (if frame == 0 { 0 } else { PYTHON_TRUNCATED }) | (if failed == 0 { 0 } else { PYTHON_FAULT })
}

/// Fills in the identities of the frames' code objects, and notes those that user space does not know.
///
/// # Safety
/// `out` must point to a record that [`walk`] has written.
#[inline(never)]
unsafe fn identify(python: &Python, out: *mut PythonStack) {
    let Some(known) = known() else { return };
    // SAFETY: the record's own header was written.
    let process = process(python, unsafe { &(*out).header });
    // Counted in the record, of whose contents the verifier does not keep track: it would follow each count there can be.
    // SAFETY: within the record.
    let (new, which) = unsafe { (&raw mut (*out).new, &raw mut (*out).which) };
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
        let identity = identity(&parts(python, code));
        let differ = known[slot(process, code)] ^ fingerprint(process, code, identity);
        // SAFETY: within the record; the count is kept within the array for the verifier.
        unsafe {
            (*frame).identity = identity;
            let count = new.read_volatile();
            (*which)[count as usize & (PYTHON_FRAMES - 1)] = i as u32;
            new.write_volatile(count + nonzero(differ));
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
    let process = process(python, header);
    for n in 0..PYTHON_FRAMES {
        // SAFETY: written by `identify`; the index is kept within the array for the verifier.
        let (new, frame) = unsafe { ((*out).new, (*out).frames[(*out).which[n] as usize & (PYTHON_FRAMES - 1)]) };
        if n as u32 >= new || !describe(python, header, &frame) {
            break;
        }
        known[slot(process, frame.code)] = fingerprint(process, frame.code, frame.identity);
    }
}

#[inline(always)]
fn known() -> Option<&'static mut [u64; KNOWN]> {
    // SAFETY: a map value; words of it are read and written whole.
    CODES.get_ptr_mut(0).map(|known| unsafe { &mut *known })
}

/// What tells a process's codes from those of others, and from those it had before it executed another program.
#[inline(always)]
fn process(python: &Python, header: &Header) -> u64 {
    (header.tgid as u64) << 32 | python.generation as u64
}

#[inline(always)]
fn fingerprint(process: u64, code: u64, identity: u64) -> u64 {
    hash_step(identity ^ process, code)
}

/// Where the fingerprint of a code object is kept.
#[inline(always)]
fn slot(process: u64, code: u64) -> usize {
    (hash_step(hash_step(HASH_START, process), code) & (KNOWN as u64 - 1)) as usize
}

//! Python frames of the calling thread, read from the interpreter's own structures.
//!
//! The thread's state comes from the slot of thread-specific data that CPython keeps it in, which is right whether or not
//! the thread holds the GIL: CUDA calls are made without it. Nothing read here is trusted: user space decides what it means.

use core::mem::MaybeUninit;

use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, generated::bpf_probe_read_user as read_user},
    macros::map,
    maps::{Array, HashMap},
};
use tracer_ebpf::{
    FLAG_PYTHON, HASH_START, Header, KIND_CODE, KIND_PYTHON, Loss, PYTHON_FAULT, PYTHON_FILE, PYTHON_FRAMES,
    PYTHON_NAME, PYTHON_NO_STATE, PYTHON_TABLE, PYTHON_TRUNCATED, Python, PythonCode, PythonFrame, PythonStack, Text,
    hash_step,
};

use crate::maps::{EVENTS, config, header, kernel_word, lose};

/// Thread states looked at when the slot is not known.
const THREADS: u32 = 256;
/// 3.14 tags references in their low bits; objects are aligned to 16 bytes.
const TAG: u64 = 7;
// PyObject: ob_refcnt@0, ob_type@8.
const OBJECT_TYPE: u32 = 8;
// PyBytesObject: ob_size@16, ob_shash@24, ob_sval@32 (all versions).
const BYTES_SIZE: u64 = 16;
const BYTES_DATA: u64 = 32;
// PyASCIIObject: length@16, hash@24, state@32 (all versions).
const TEXT_LENGTH: u64 = 16;

/// Processes whose interpreter user space has looked for.
#[map]
pub static PYTHONS: HashMap<u32, Python> = HashMap::with_max_entries(65536, 1 /* BPF_F_NO_PREALLOC */);
/// Code objects that user space knows: a fingerprint each, where its hash says. One that another took the place of is
/// sent again. No hash map: the verifier would have to follow both ways out of each lookup.
#[map]
static CODES: Array<[u64; KNOWN]> = Array::with_max_entries(1, 0);
const KNOWN: usize = 1 << 16;

/// Reads plain integers; what cannot be read is 0, as the helper leaves it. No branch: the verifier would follow every
/// combination of them.
#[inline(always)]
fn user<T: Copy>(address: u64) -> T {
    checked(address).0
}

/// As [`user`], with the helper's result: negative on failure.
#[inline(always)]
fn checked<T: Copy>(address: u64) -> (T, i64) {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all of `value`, also when it fails; all uses are plain integers.
    unsafe {
        let result = read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        (value.assume_init(), result)
    }
}

#[inline(always)]
fn word(base: u64, offset: u32) -> u64 {
    user(base + offset as u64)
}

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

/// 1 if `x` is not zero, else 0; as [`negative`].
#[inline(always)]
fn nonzero(x: u64) -> u32 {
    // Highest bit set unless `x` is 0.
    let mut bit = x | x.wrapping_neg();
    // SAFETY: arithmetic on a register.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{bit} >>= 63", bit = inout(reg) bit);
    }
    bit as u32
}

/// All ones if `x` is negative, else 0. In assembly, because the compiler would make a branch of it.
#[inline(always)]
fn negative(x: i64) -> u64 {
    let mut mask = x as u64;
    // SAFETY: arithmetic on a register.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{mask} s>>= 63", mask = inout(reg) mask);
    }
    mask
}

/// What is looked at of a code object.
struct Parts {
    line: u32,
    file: u64,
    name: u64,
    table: u64,
    table_size: u64,
}

#[inline(always)]
fn parts(python: &Python, code: u64) -> Parts {
    let line = user(code + python.code_line as u64);
    let [file, name, third, fourth] = user::<[u64; 4]>(code + python.code_names as u64);
    let name = name ^ ((name ^ third) & python.qualified);
    let table = third ^ ((third ^ fourth) & python.qualified);
    Parts { line, file, name, table, table_size: word(table, BYTES_SIZE as u32) }
}

/// A hash of what tells a code object from another that took its place: its strings, first line, and line table, of
/// which the length, the beginning and the end are looked at.
#[inline(always)]
fn identity(parts: &Parts) -> u64 {
    let Parts { line, file, name, table, table_size: size } = *parts;
    // What lies behind the end does not belong to it.
    let short = negative(size.wrapping_sub(8) as i64);
    let head = word(table, BYTES_DATA as u32) & (((1 << ((size & 7) * 8)) - 1) | !short);
    let tail: u64 = user(table + BYTES_DATA + (size.wrapping_sub(8) & !short));
    [line as u64, file, name, table, head, tail & !short].into_iter().fold(size, hash_step)
}

/// Sends what a code object is called; false when that is not possible now.
#[inline(never)]
fn describe(python: &Python, header: &Header, frame: &PythonFrame) -> bool {
    let Some(mut entry) = EVENTS.reserve::<PythonCode>(0) else {
        lose(Loss::PythonCode);
        return false;
    };
    let out = entry.as_mut_ptr();
    let parts = parts(python, frame.code);
    // SAFETY: `out` points to a reserved record of that size; every field is written.
    unsafe {
        (*out).header = Header { kind: KIND_CODE, ..*header };
        (*out).code = frame.code;
        (*out).identity = frame.identity;
        (*out).kind = word(frame.code, OBJECT_TYPE);
        (*out).line = parts.line as i32;
        (*out).name = text(python, parts.name, (&raw mut (*out).name_text).cast(), PYTHON_NAME as u64);
        (*out).file = text(python, parts.file, (&raw mut (*out).file_text).cast(), PYTHON_FILE as u64);
        (*out).table_at = parts.table;
        (*out).table_length = parts.table_size;
        let size = at_most(parts.table_size, PYTHON_TABLE as u64);
        (*out).table_len = copy((&raw mut (*out).table).cast(), size, parts.table + BYTES_DATA);
    }
    entry.submit(0);
    true
}

/// Reads a string object's text into `to`.
///
/// # Safety
/// `to` must have room for `room` bytes.
#[inline(always)]
unsafe fn text(python: &Python, at: u64, to: *mut u8, room: u64) -> Text {
    let [length, _hash, state] = user::<[u64; 3]>(at + TEXT_LENGTH);
    let state = state as u32;
    let ascii = negative(-((state & 0x40) as i64)) as u32;
    let data = python.compact ^ ((python.compact ^ python.ascii) & ascii);
    let bytes = length.wrapping_mul((state >> 2 & 7) as u64);
    // SAFETY: less than `room` bytes.
    let len = unsafe { copy(to, at_most(bytes, room), at + data as u64) };
    Text { at, length, state, len }
}

/// The smaller of `len` and `room` - 1, where `room` is a power of two.
#[inline(always)]
fn at_most(len: u64, room: u64) -> u64 {
    // A huge length would pass for a negative one.
    let more = negative((room - 1).wrapping_sub(len) as i64) | negative(len as i64);
    (len | more) & (room - 1)
}

/// Copies user memory; gives the bytes copied, all or none.
///
/// # Safety
/// `to` must have room for `len` bytes.
#[inline(always)]
unsafe fn copy(to: *mut u8, len: u64, from: u64) -> u32 {
    // SAFETY: the caller's promise; the helper fails rather than faults.
    let result = unsafe { read_user(to.cast(), len as u32, from as *const _) };
    len as u32 & !(negative(result) as u32)
}

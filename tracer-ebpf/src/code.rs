//! Python code objects: what tells one from another, and what it is called.

use tracer_ebpf::{
    Header, KIND_CODE, Loss, PYTHON_FILE, PYTHON_NAME, PYTHON_TABLE, Python, PythonCode, Text, hash_step,
};

use crate::{
    maps::{EVENTS, lose},
    read::{at_most, copy, negative, user, word},
};

// PyObject: ob_refcnt@0, ob_type@8.
const OBJECT_TYPE: u32 = 8;
// PyBytesObject: ob_size@16, ob_shash@24, ob_sval@32 (all versions).
const BYTES_SIZE: u64 = 16;
const BYTES_DATA: u64 = 32;
// PyASCIIObject: length@16, hash@24, state@32 (all versions).
const TEXT_LENGTH: u64 = 16;

/// What is looked at of a code object.
pub struct Parts {
    line: u32,
    file: u64,
    name: u64,
    table: u64,
    table_size: u64,
}

#[inline(always)]
pub fn parts(python: &Python, code: u64) -> Parts {
    let line = user(code + python.code_line as u64);
    let [file, name, third, fourth] = user::<[u64; 4]>(code + python.code_names as u64);
    let name = name ^ ((name ^ third) & python.qualified);
    let table = third ^ ((third ^ fourth) & python.qualified);
    Parts { line, file, name, table, table_size: word(table, BYTES_SIZE as u32) }
}

/// A hash of what tells a code object from another that took its place: its strings, first line, and line table, of
/// which the length, the beginning and the end are looked at. Never 0.
#[inline(always)]
pub fn identity(parts: &Parts) -> u64 {
    let Parts { line, file, name, table, table_size: size } = *parts;
    // What lies behind the end does not belong to it.
    let short = negative(size.wrapping_sub(8) as i64);
    let head = word(table, BYTES_DATA as u32) & (((1 << ((size & 7) * 8)) - 1) | !short);
    let tail: u64 = user(table + BYTES_DATA + (size.wrapping_sub(8) & !short));
    [line as u64, file, name, table, head, tail & !short].into_iter().fold(size, hash_step) | 1
}

/// Sends what a code object is called. Gives its identity; 0 when that is not possible now.
#[inline(never)]
pub fn describe(python: &Python, header: &Header, code: u64) -> u64 {
    let Some(mut entry) = EVENTS.reserve::<PythonCode>(0) else {
        lose(Loss::PythonCode);
        return 0;
    };
    let out = entry.as_mut_ptr();
    let parts = parts(python, code);
    let identity = identity(&parts);
    // SAFETY: `out` points to a reserved record of that size; every field is written.
    unsafe {
        (*out).header = Header { kind: KIND_CODE, ..*header };
        (*out).code = code;
        (*out).identity = identity;
        (*out).kind = word(code, OBJECT_TYPE);
        (*out).line = parts.line as i32;
        (*out).name = text(python, parts.name, (&raw mut (*out).name_text).cast(), PYTHON_NAME as u64);
        (*out).file = text(python, parts.file, (&raw mut (*out).file_text).cast(), PYTHON_FILE as u64);
        (*out).table_at = parts.table;
        (*out).table_length = parts.table_size;
        let size = at_most(parts.table_size, PYTHON_TABLE as u64);
        (*out).table_len = copy((&raw mut (*out).table).cast(), size, parts.table + BYTES_DATA);
    }
    entry.submit(0);
    identity
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

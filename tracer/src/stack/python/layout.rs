//! Where each CPython version keeps what is needed to walk its frames, and how to read it.
//!
//! Offsets up to 3.12 are those of x86-64 builds with the GIL, compiled from each version's headers; they did not change
//! within a minor version. Since 3.13 the interpreter describes itself in `_Py_DebugOffsets`
//! (`pycore_debug_offsets.h`).

use tracer_ebpf::{PYTHON_FRAME_BYTES, Python};

use super::{lines::Format, memory::Memory};

/// A version of CPython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Major and minor version.
    pub(super) version: (u8, u8),
    /// What the kernel side needs, but for addresses.
    pub(super) walk: Python,
    /// `_PyRuntimeState.interpreters.main`.
    pub(super) main: u64,
    /// `PyInterpreterState.threads.head`.
    pub(super) threads: u64,
    /// Line table format.
    pub(super) lines: Format,
    /// `PyCodeObject.co_code_adaptive`, from where positions count; 0 where they are indices.
    pub(super) instructions: u64,
    /// Frames tell where on the C stack they run (3.10 on).
    pub(super) anchored: bool,
}

/// `PyThreadState.interp`, in all versions.
pub(super) const THREAD_INTERPRETER: u64 = 16;
/// No frame has this owner, an 8-bit number.
const NO_OWNER: u32 = 256;
/// `FRAME_OWNED_BY_CSTACK` (3.12, 3.13) or `FRAME_OWNED_BY_INTERPRETER`, which 3.14 put before it.
const ENTRY_OWNER: u32 = 3;
const INDEX: u64 = 0xffff_ffff;

/// Layout of a version that does not describe itself.
pub(super) fn known(version: (u8, u8)) -> Option<Layout> {
    let old = Python {
        thread_next: 8,
        thread_id: 176,
        thread_frame: 24,
        frame_previous: 24,
        frame_code: 32,
        entry_owner: NO_OWNER,
        code_line: 40,
        code_names: 104,
        ascii: 48,
        compact: 72,
        position_mask: INDEX,
        ..Python::default()
    };
    let new = Python {
        thread_next: 8,
        thread_frame: 56,
        frame_position: 56,
        entry_owner: NO_OWNER,
        code_names: 112,
        position_mask: u64::MAX,
        qualified: u64::MAX,
        ..Python::default()
    };
    let layout = |main, threads, lines, instructions, walk| Layout {
        version,
        walk: Python { frame_bytes: frame_bytes(&walk), ..walk },
        main,
        threads,
        lines,
        instructions,
        anchored: version >= (3, 10),
    };
    Some(match version {
        (3, 9) => layout(40, 8, Format::Lnotab, 0, Python { frame_position: 104, ..old }),
        (3, 10) => {
            let walk = Python { frame_position: 96, thread_control: 48, control_previous: 8, all_entered: 1, ..old };
            layout(40, 8, Format::Ranges, 0, walk)
        }
        (3, 11) => {
            let walk = Python {
                thread_id: 152,
                control_frame: 8 + 1,
                thread_control: 56,
                control_previous: 16,
                frame_previous: 48,
                frame_code: 32,
                frame_owner: 69,
                frame_entry: 68,
                code_line: 72,
                ascii: 48,
                compact: 72,
                ..new
            };
            layout(48, 16, Format::Locations, 184, walk)
        }
        (3, 12) => {
            let walk = Python {
                thread_id: 136,
                // `_PyCFrame.current_frame` is at 0.
                control_frame: 1,
                frame_previous: 8,
                frame_code: 0,
                frame_owner: 70,
                entry_owner: ENTRY_OWNER,
                code_line: 68,
                ascii: 40,
                compact: 56,
                ..new
            };
            layout(48, 72, Format::Locations, 192, walk)
        }
        _ => return None,
    })
}

/// Bytes of a frame up to the end of what is read of it: less than the frame has.
fn frame_bytes(walk: &Python) -> u32 {
    let words = [walk.frame_previous, walk.frame_code, walk.frame_position].map(|at| at + 8);
    let bytes = [walk.frame_owner, walk.frame_entry].map(|at| at + 1);
    words.into_iter().chain(bytes).fold(0, u32::max).next_multiple_of(8)
}

/// Where in `_Py_DebugOffsets` each offset is. The table has the same layout in all releases of a minor version.
struct Table {
    interpreters_head: u64,
    threads_head: u64,
    thread_next: u64,
    thread_frame: u64,
    thread_id: u64,
    frame_previous: u64,
    frame_code: u64,
    frame_position: u64,
    frame_owner: u64,
    code_file: u64,
    code_name: u64,
    code_qualname: u64,
    code_table: u64,
    code_line: u64,
    code_instructions: u64,
    bytes_size: u64,
    bytes_data: u64,
    text_state: u64,
    text_length: u64,
    text_ascii: u64,
}

const TABLES: [((u8, u8), Table); 2] = [
    (
        (3, 13),
        Table {
            interpreters_head: 40,
            threads_head: 72,
            thread_next: 168,
            thread_frame: 184,
            thread_id: 192,
            frame_previous: 232,
            frame_code: 240,
            frame_position: 248,
            frame_owner: 264,
            code_file: 280,
            code_name: 288,
            code_qualname: 296,
            code_table: 304,
            code_line: 312,
            code_instructions: 344,
            bytes_size: 520,
            bytes_data: 528,
            text_state: 544,
            text_length: 552,
            text_ascii: 560,
        },
    ),
    (
        (3, 14),
        Table {
            interpreters_head: 40,
            threads_head: 72,
            thread_next: 192,
            thread_frame: 208,
            thread_id: 216,
            frame_previous: 256,
            frame_code: 264,
            frame_position: 272,
            frame_owner: 288,
            code_file: 320,
            code_name: 328,
            code_qualname: 336,
            code_table: 344,
            code_line: 352,
            code_instructions: 384,
            bytes_size: 600,
            bytes_data: 608,
            text_state: 624,
            text_length: 632,
            text_ascii: 640,
        },
    ),
];

/// Offsets beyond this are not those of any real structure.
const LIMIT: u64 = 16384;

/// Layout that an interpreter of 3.13 or later gives of itself; `Err` says why it cannot be used.
pub(super) fn described(memory: Memory, runtime: u64, version: (u8, u8)) -> Result<Layout, &'static str> {
    let table = TABLES.iter().find(|(of, _)| *of == version).map(|(_, table)| table);
    let table = table.ok_or("its layout is not known")?;
    let unreadable = "its description of itself cannot be read";
    let mut head = [0; 8];
    memory.read(runtime, &mut head).ok_or(unreadable)?;
    if head != *b"xdebugpy" {
        return Err("it does not describe itself");
    }
    if memory.u64(runtime + 16) != Some(0) {
        return Err("it is a free-threaded build");
    }
    let offset = |at: u64| {
        let value = memory.u64(runtime + at).ok_or(unreadable)?;
        // All fit in 32 bits by this.
        if value < LIMIT { Ok(value as u32) } else { Err("its description of itself is not credible") }
    };
    // What the kernel side takes for granted.
    let names = offset(table.code_file)?;
    let granted = [
        (table.code_name, names + 8),
        (table.code_qualname, names + 16),
        (table.code_table, names + 24),
        (table.bytes_size, 16),
        (table.bytes_data, 32),
        (table.text_length, 16),
        (table.text_state, 32),
    ];
    for (at, expected) in granted {
        if offset(at)? != expected {
            return Err("its objects are laid out in an unknown way");
        }
    }
    let ascii = offset(table.text_ascii)?;
    let walk = Python {
        thread_next: offset(table.thread_next)?,
        thread_id: offset(table.thread_id)?,
        thread_frame: offset(table.thread_frame)?,
        frame_previous: offset(table.frame_previous)?,
        frame_code: offset(table.frame_code)?,
        frame_position: offset(table.frame_position)?,
        frame_owner: offset(table.frame_owner)?,
        entry_owner: ENTRY_OWNER,
        code_line: offset(table.code_line)?,
        code_names: names,
        ascii,
        // `PyCompactUnicodeObject` adds `utf8_length` and `utf8`.
        compact: ascii + 16,
        position_mask: u64::MAX,
        qualified: u64::MAX,
        ..Python::default()
    };
    let words = [walk.frame_previous, walk.frame_code, walk.frame_position];
    if frame_bytes(&walk) >= PYTHON_FRAME_BYTES as u32 || words.iter().any(|at| at % 8 != 0) {
        return Err("its frames are laid out in an unknown way");
    }
    Ok(Layout {
        version,
        walk: Python { frame_bytes: frame_bytes(&walk), ..walk },
        // struct pyinterpreters: head, main.
        main: u64::from(offset(table.interpreters_head)?) + 8,
        threads: offset(table.threads_head)?.into(),
        lines: Format::Locations,
        instructions: offset(table.code_instructions)?.into(),
        anchored: true,
    })
}

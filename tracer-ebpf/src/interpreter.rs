//! Wire types for Python: how an interpreter's frames are walked, and what the walk gives.

use bytemuck::{Pod, Zeroable};

use crate::Header;

/// Python frames walked at most, the innermost ones; entries of the interpreter count.
pub const PYTHON_FRAMES: usize = 128;
/// Bytes of a frame read at most (a power of two, one more than is used).
pub const PYTHON_FRAME_BYTES: usize = 128;
/// Room for a Python function's name in [`PythonCode`], one byte more than is used (a power of two, as are those below).
pub const PYTHON_NAME: usize = 256;
/// Room for a Python file's name.
pub const PYTHON_FILE: usize = 512;
/// Room for a line table. What is longer is read by user space from the process.
pub const PYTHON_TABLE: usize = 2048;

/// How to walk the Python frames of a process's threads. Addresses are the process's; the rest are offsets in bytes,
/// 0 where the version has no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Python {
    /// Where the pointer to the main interpreter's first thread state is; 0: not a Python process, or none that can be
    /// walked.
    pub threads: u64,
    /// Number of this entry: codes sent under another number are sent again.
    pub generation: u32,
    /// Offset from the thread pointer to the slot that holds the thread's state; 0: unknown, search the list of threads.
    pub slot: u32,
    /// `PyThreadState.next`.
    pub thread_next: u32,
    /// `PyThreadState.thread_id`: `pthread_self()`, which is the thread pointer.
    pub thread_id: u32,
    /// `PyThreadState.frame`, `.current_frame`, or where [`Python::control_frame`] applies, `.cframe`.
    pub thread_frame: u32,
    /// `_PyCFrame.current_frame` plus one: the top frame is found through the control frame (3.11, 3.12).
    pub control_frame: u32,
    /// `PyThreadState.cframe`: control frames tell where on the C stack the interpreter was entered (3.10, 3.11).
    pub thread_control: u32,
    /// `_PyCFrame.previous`.
    pub control_previous: u32,
    /// Code object of a frame.
    pub frame_code: u32,
    /// The caller's frame.
    pub frame_previous: u32,
    /// Position in the code.
    pub frame_position: u32,
    /// Owner of the frame (1 byte).
    pub frame_owner: u32,
    /// Owners from this number on are entries of the interpreter, not Python functions (3.12 on); else 256.
    pub entry_owner: u32,
    /// Whether the frame was entered from C (1 byte, 3.11).
    pub frame_entry: u32,
    /// 1 where every frame was (3.10).
    pub all_entered: u32,
    /// `co_firstlineno`.
    pub code_line: u32,
    /// `co_filename`, which `co_name`, `co_qualname` (if any) and the line table follow.
    pub code_names: u32,
    /// Size of `PyASCIIObject`: where the text of an ASCII string begins.
    pub ascii: u32,
    /// Size of `PyCompactUnicodeObject`: where the text of other strings begins.
    pub compact: u32,
    /// Bytes of a frame that hold what is read of it: at most [`PYTHON_FRAME_BYTES`].
    pub frame_bytes: u32,
    /// Not 0: the end of every code object is reported, so that one that is known needs no second look.
    pub watched: u64,
    /// Bits of `frame_position` that count: an index has 32, an address 64.
    pub position_mask: u64,
    /// All ones where there is a `co_qualname` (3.11 on).
    pub qualified: u64,
}

/// One Python frame, or an entry of the interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PythonFrame {
    /// Address of the code object; 0 for an entry of the interpreter from C that is no function.
    pub code: u64,
    /// Tells the code object from another one that had the same address.
    pub identity: u64,
    /// Index (up to 3.10) or address of the instruction.
    pub position: u64,
    /// Where this is the outermost frame of one run of the interpreter: an address in that run's C stack frame; else 0.
    pub anchor: u64,
}

/// The thread has no thread state: no Python code runs in it.
pub const PYTHON_NO_STATE: u32 = 1;
/// There are more frames than [`PYTHON_FRAMES`].
pub const PYTHON_TRUNCATED: u32 = 2;
/// A frame could not be read: those outside of it are missing.
pub const PYTHON_FAULT: u32 = 4;

/// The Python frames of the calling thread, innermost first.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PythonStack {
    /// Kind [`KIND_PYTHON`].
    pub header: Header,
    /// `PYTHON_*` bits.
    pub flags: u32,
    /// Valid entries of `frames`.
    pub len: u32,
    /// Frames whose code was met for the first time.
    pub new: u32,
    /// Unused.
    pub pad: u32,
    /// Which those are.
    pub which: [u32; PYTHON_FRAMES],
    /// The frame that the walk is at, as it was read: too large for the BPF stack of kernels before 6.13.
    pub raw: [u8; PYTHON_FRAME_BYTES],
    /// The frames.
    pub frames: [PythonFrame; PYTHON_FRAMES],
}

/// A Python string object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Text {
    /// Address of the object.
    pub at: u64,
    /// Its length in code points.
    pub length: u64,
    /// `PyASCIIObject.state`: bits 2 to 4 say how many bytes a code point takes, bit 5 that the text follows the object,
    /// bit 6 that it is ASCII.
    pub state: u32,
    /// Bytes of text that were read.
    pub len: u32,
}

/// A Python code object.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PythonCode {
    /// Kind [`KIND_CODE`].
    pub header: Header,
    /// Address of the code object.
    pub code: u64,
    /// As in [`PythonFrame`].
    pub identity: u64,
    /// Its type (`ob_type`).
    pub kind: u64,
    /// Name, qualified where the version has that.
    pub name: Text,
    /// File.
    pub file: Text,
    /// Address of the line table (a `bytes` object).
    pub table_at: u64,
    /// Its length in bytes.
    pub table_length: u64,
    /// Bytes of it that were read.
    pub table_len: u32,
    /// First line.
    pub line: i32,
    /// Text of `name`.
    pub name_text: [u8; PYTHON_NAME],
    /// Text of `file`.
    pub file_text: [u8; PYTHON_FILE],
    /// The line table.
    pub table: [u8; PYTHON_TABLE],
}

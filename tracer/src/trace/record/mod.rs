//! Records of a trace: what was seen, nothing concluded.
//!
//! One record a line of JSON, externally tagged by its kind: `{"rm":{…}}`, so that `jq .rm.alloc` works and a reader
//! can skip kinds it does not know. Times (`t`) are nanoseconds of `CLOCK_MONOTONIC` on the traced host; events stand in
//! the order in which the kernel recorded them.

mod block;
mod call;
mod end;
mod header;
mod log;
mod nvml;
mod process;
mod rm;
mod rm_read;
mod stack;

use serde::{Deserialize, Serialize};

pub use self::{
    block::Block,
    call::Call,
    end::{Footer, Loss, Notice, Outcome},
    header::{Gpu, Header, Library, Source},
    log::Log,
    nvml::{Nvml, NvmlProcess},
    process::{Image, Process, Step},
    rm::{Alloc, Op, Rm},
    stack::{Frame, FrameKind, Stack},
};

/// Major version of the format: a reader refuses a higher one.
pub const MAJOR: u32 = 1;
/// Minor version: grows when record kinds or fields are added.
pub const MINOR: u32 = 3;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// First line of a file.
    Header(Header),
    /// Probes were placed in a library.
    Library(Library),
    /// A step in a process's life.
    Process(Process),
    /// A stack frame, numbered from 0 in order of appearance.
    Frame(Frame),
    /// A call stack, numbered from 0 in order of appearance.
    Stack(Stack),
    /// A driver ioctl concerning resource-manager objects or GPU addresses.
    Rm(Rm),
    /// A probed API call returned.
    Call(Call),
    /// `PyTorch`'s caching allocator handed a block out or took one back. Since 1.2.
    Block(Block),
    /// A tracked process wrote a line that a lifecycle rule or a parser names.
    Log(Log),
    /// NVML's figures at one moment.
    Nvml(Nvml),
    /// Events were lost since the last such record.
    Loss(Loss),
    /// Something is degraded or worth knowing; shown at the top of every report.
    Notice(Notice),
    /// Last line of a complete file.
    Footer(Footer),
}

/// Names of all kinds, as they stand in a line.
pub const KINDS: [&str; 13] = [
    "header", "library", "process", "frame", "stack", "rm", "call", "block", "log", "nvml", "loss", "notice", "footer",
];

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero_u64(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero_i64(n: &i64) -> bool {
    *n == 0
}

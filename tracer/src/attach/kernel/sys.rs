//! The `bpf(2)` commands that aya 0.14 does not wrap. Delete what aya ≥ 0.16 offers once its MSRV (1.98) suits.

pub(super) mod perf;
mod unkilled;

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use aya_obj::generated::{
    bpf_attach_type::{self, BPF_TRACE_UPROBE_MULTI},
    bpf_attr, bpf_btf_info, bpf_cmd, bpf_insn,
    bpf_prog_type::{BPF_PROG_TYPE_KPROBE, BPF_PROG_TYPE_TRACING},
};

use super::{again, error::verdict};

// include/uapi/linux/bpf.h.
/// `BPF_F_UPROBE_MULTI_RETURN`.
const UPROBE_MULTI_RETURN: u32 = 1;
/// `BPF_F_SLEEPABLE`.
const SLEEPABLE: u32 = 1 << 4;
/// `BPF_JMP | BPF_CALL`, with a helper's number in `imm` where `src_reg` is 0.
const CALL: u8 = 0x85;
/// `bpf_probe_read_user`: cannot wait for a page, and fails where one is not in memory.
const PROBE_READ_USER: i32 = 112;
/// `bpf_copy_from_user`: the same for programs that may sleep.
const COPY_FROM_USER: i32 = 148;

fn zeroed() -> bpf_attr {
    // SAFETY: a union of plain integers; all zeroes is what the kernel asks for in unused fields.
    unsafe { mem::zeroed() }
}

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: `attr` outlives the call, and the pointers in it are set by the callers below from live values.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<bpf_attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn bpf_fd(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    owned(bpf(command, attr)?)
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    // SAFETY: the kernel just gave this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?) })
}

/// What a program is loaded for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Many uprobes a link (`BPF_TRACE_UPROBE_MULTI`, Linux 6.6).
    UprobeMulti,
    /// The same, of a program that may wait for pages of the process's memory.
    SleepableUprobeMulti,
    /// Uprobes that are perf events.
    Uprobe,
    /// The same, of a program that may wait for pages (Linux 6.0).
    SleepableUprobe,
    /// Entry or exit of a kernel function (`BPF_TRACE_FENTRY`, `BPF_TRACE_FEXIT`).
    Tracing { attach: bpf_attach_type, function: u32, module: Option<BorrowedFd<'a>> },
}

/// Loads a program; on failure the error holds what the verifier said last.
pub(super) fn load(instructions: &[bpf_insn], license: &CString, purpose: Purpose<'_>) -> io::Result<OwnedFd> {
    let waiting;
    let instructions = match purpose {
        Purpose::SleepableUprobeMulti | Purpose::SleepableUprobe => {
            waiting = with_waiting_reads(instructions);
            &waiting
        }
        _ => instructions,
    };
    load_once(instructions, license, purpose, &mut []).or_else(|first| {
        // A second try with a log: the first is quicker, and most loads succeed.
        let mut log = vec![0; 1 << 20];
        load_once(instructions, license, purpose, &mut log).map_err(|_| {
            let text = String::from_utf8_lossy(log.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
            io::Error::new(first.kind(), format!("{first}; verifier: {}", verdict(&text)))
        })
    })
}

/// Loads a program that does nothing (`r0 = 0; exit`), to ask what may be done with one.
pub(super) fn trivial(purpose: Purpose<'_>) -> io::Result<OwnedFd> {
    // `BPF_ALU64 | BPF_MOV | BPF_K` and `BPF_JMP | BPF_EXIT`; register 0 and immediate 0 are all zeroes.
    let instructions = [0xb7, 0x95].map(|code| {
        // SAFETY: a structure of plain integers.
        let nothing: bpf_insn = unsafe { mem::zeroed() };
        bpf_insn { code, ..nothing }
    });
    load(&instructions, &CString::default(), purpose)
}

/// The same program, with reads of user memory that wait for pages. Both helpers take and give the same.
fn with_waiting_reads(instructions: &[bpf_insn]) -> Vec<bpf_insn> {
    let mut instructions = instructions.to_vec();
    for call in instructions.iter_mut().filter(|i| i.code == CALL && i.src_reg() == 0 && i.imm == PROBE_READ_USER) {
        call.imm = COPY_FROM_USER;
    }
    instructions
}

fn load_once(insns: &[bpf_insn], license: &CString, purpose: Purpose<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: `BPF_PROG_LOAD` reads this member of the union.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    match purpose {
        Purpose::UprobeMulti | Purpose::SleepableUprobeMulti => {
            load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
            load.prog_flags = if matches!(purpose, Purpose::SleepableUprobeMulti) { SLEEPABLE } else { 0 };
            load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
        }
        Purpose::Uprobe | Purpose::SleepableUprobe => {
            load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
            load.prog_flags = if matches!(purpose, Purpose::SleepableUprobe) { SLEEPABLE } else { 0 };
        }
        Purpose::Tracing { attach, function, module } => {
            load.prog_type = BPF_PROG_TYPE_TRACING as u32;
            load.expected_attach_type = attach as u32;
            load.attach_btf_id = function;
            load.__bindgen_anon_1.attach_btf_obj_fd = module.map_or(0, |fd| fd.as_raw_fd().cast_unsigned());
        }
    }
    load.insns = insns.as_ptr() as u64;
    load.insn_cnt = u32::try_from(insns.len()).map_err(io::Error::other)?;
    load.license = license.as_ptr() as u64;
    if !log.is_empty() {
        load.log_level = 1;
        load.log_buf = log.as_mut_ptr() as u64;
        load.log_size = u32::try_from(log.len()).map_err(io::Error::other)?;
    }
    again::load(|| bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr))
}

/// Attaches a tracing program to the function it was loaded for. The link lasts as long as the descriptor.
pub(super) fn attach_tracing(program: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.raw_tracepoint.prog_fd = program.as_raw_fd().cast_unsigned();
    bpf_fd(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr)
}

/// Runs a raw tracepoint program once, with no context.
pub(super) fn run_once(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed();
    attr.test.prog_fd = program.as_raw_fd().cast_unsigned();
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr).map(drop)
}

/// One probe: where, and what the program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset into the file.
    pub offset: u64,
    /// Cookie (see [`tracer_ebpf::cookie`]).
    pub cookie: u64,
}

/// Places all `points` of one file with one link, in every process that maps it or in one.
pub(super) fn attach_uprobes(
    program: &OwnedFd,
    path: &Path,
    points: &[Point],
    at_return: bool,
    process: Option<u32>,
) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let offsets: Vec<u64> = points.iter().map(|p| p.offset).collect();
    let cookies: Vec<u64> = points.iter().map(|p| p.cookie).collect();
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: `BPF_LINK_CREATE` with this attach type reads this member of the union.
    let multi = unsafe { &mut attr.link_create.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = offsets.as_ptr() as u64;
    multi.cookies = cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(points.len()).map_err(io::Error::other)?;
    multi.pid = process.unwrap_or(0);
    multi.flags = if at_return { UPROBE_MULTI_RETURN } else { 0 };
    owned(unkilled::bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)?)
}

/// The key of a map that comes after `key`, or the first one. Allocates nothing.
pub(in crate::attach) fn next_key(map: RawFd, key: Option<&u32>, next: &mut u32) -> io::Result<()> {
    let mut attr = zeroed();
    attr.__bindgen_anon_2.map_fd = map.cast_unsigned();
    attr.__bindgen_anon_2.key = key.map_or(0, |key| std::ptr::from_ref(key) as u64);
    attr.__bindgen_anon_2.__bindgen_anon_1.next_key = std::ptr::from_mut(next) as u64;
    bpf(bpf_cmd::BPF_MAP_GET_NEXT_KEY, &mut attr).map(drop)
}

/// The value of a key. Allocates nothing.
pub(in crate::attach) fn value(map: RawFd, key: &u32, value: &mut u64) -> io::Result<()> {
    look_up(bpf_cmd::BPF_MAP_LOOKUP_ELEM, map, key, value)
}

/// Removes a key, and gives the value that it had at that moment (Linux 5.14 for hash maps).
pub(super) fn take(map: RawFd, key: &u32, value: &mut u64) -> io::Result<()> {
    look_up(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, map, key, value)
}

fn look_up(command: bpf_cmd, map: RawFd, key: &u32, value: &mut u64) -> io::Result<()> {
    let mut attr = zeroed();
    attr.__bindgen_anon_2.map_fd = map.cast_unsigned();
    attr.__bindgen_anon_2.key = std::ptr::from_ref(key) as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = std::ptr::from_mut(value) as u64;
    bpf(command, &mut attr).map(drop)
}

/// Descriptor of a loaded module's BTF object, found by name. Needs `CAP_SYS_ADMIN`.
pub(super) fn module_btf(name: &str) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        let mut attr = zeroed();
        attr.__bindgen_anon_6.__bindgen_anon_1.start_id = id;
        bpf(bpf_cmd::BPF_BTF_GET_NEXT_ID, &mut attr)?;
        // SAFETY: the command succeeded and wrote this field.
        id = unsafe { attr.__bindgen_anon_6.next_id };
        let mut attr = zeroed();
        attr.__bindgen_anon_6.__bindgen_anon_1.btf_id = id;
        // An object may vanish between the two calls.
        let Ok(fd) = bpf_fd(bpf_cmd::BPF_BTF_GET_FD_BY_ID, &mut attr) else { continue };
        let mut text = [0u8; 64];
        // SAFETY: a structure of plain integers.
        let mut info: bpf_btf_info = unsafe { mem::zeroed() };
        info.name = text.as_mut_ptr() as u64;
        info.name_len = text.len() as u32;
        let mut attr = zeroed();
        attr.info.bpf_fd = fd.as_raw_fd().cast_unsigned();
        attr.info.info_len = size_of::<bpf_btf_info>() as u32;
        attr.info.info = (&raw mut info) as u64;
        bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
        if info.kernel_btf == 1 && text.split(|b| *b == 0).next() == Some(name.as_bytes()) {
            return Ok(fd);
        }
    }
}

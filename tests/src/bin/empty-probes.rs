//! Puts an empty program at a function's entry and another at its return, until the end of input: the yardstick of
//! `cargo xtask bench`. `empty-probes LIBRARY SYMBOL`
//!
//! By bpf(2) itself: these programs have no object file. Structures are those of include/uapi/linux/bpf.h.

use std::ffi::CString;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tracer::attach::elf::ElfFile;

/// `BPF_PROG_LOAD`, `BPF_LINK_CREATE`.
const PROG_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
/// `BPF_PROG_TYPE_KPROBE`, `BPF_TRACE_UPROBE_MULTI`, `BPF_F_UPROBE_MULTI_RETURN`.
const KPROBE: u32 = 2;
const UPROBE_MULTI: u32 = 48;
const RETURN: u32 = 1;
/// `r0 = 0; exit`
const EMPTY: [u64; 2] = [0xb7, 0x95];

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The part of `union bpf_attr` that makes a link of uprobes.
#[repr(C)]
#[derive(Default)]
struct Link {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    uprobe_flags: u32,
    pid: u32,
    pad: u32,
}

fn bpf<T>(command: i64, attr: &T) -> Result<i32> {
    // SAFETY: `attr` and what it points to live through the call; the kernel reads as many bytes as it is told.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    i32::try_from(result).ok().filter(|fd| *fd >= 0).with_context(|| std::io::Error::last_os_error().to_string())
}

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let library = PathBuf::from(args.next().context("empty-probes LIBRARY SYMBOL")?);
    let symbol = args.next().and_then(|symbol| symbol.into_string().ok()).context("empty-probes LIBRARY SYMBOL")?;
    let definitions = ElfFile::open(&library)?.resolve([symbol.as_str()])?;
    let offset = definitions.first().and_then(|d| d.offset.ok()).with_context(|| format!("no function {symbol}"))?;
    let path = CString::new(library.into_os_string().into_encoded_bytes())?;
    let load = Load {
        prog_type: KPROBE,
        insn_cnt: 2,
        insns: EMPTY.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        expected_attach_type: UPROBE_MULTI,
        ..Load::default()
    };
    let program = bpf(PROG_LOAD, &load).context("cannot load an empty program (root? Linux 6.6?)")?;
    let mut links = Vec::new();
    for uprobe_flags in [RETURN, 0] {
        let link = Link {
            prog_fd: program.cast_unsigned(),
            attach_type: UPROBE_MULTI,
            path: path.as_ptr() as u64,
            offsets: (&raw const offset) as u64,
            cnt: 1,
            uprobe_flags,
            ..Link::default()
        };
        let link = bpf(LINK_CREATE, &link).context("cannot place the probes")?;
        // SAFETY: the kernel just gave this descriptor to us.
        links.push(unsafe { OwnedFd::from_raw_fd(link) });
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

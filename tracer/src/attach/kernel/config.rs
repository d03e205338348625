//! What the programs must know.

use std::sync::Arc;

use aya::{
    Ebpf,
    maps::{Array, HashMap},
};
use tracer_ebpf::{
    CONFIG_HOLD, CONFIG_HOLD_ALL, CONFIG_PLAIN_COUNT, CONFIG_STACKS, CONFIG_WATCH_ALL, Config, Control, Spec,
};

use super::{Btf, Error, Hold, Options};
use crate::attach::arch;

/// Writes what the programs must know before the first one runs.
pub(super) fn fill(ebpf: &mut Ebpf, btf: &Arc<Btf>, options: &Options) -> Result<(), Error> {
    let map = |name: &'static str| move |e: aya::maps::MapError| Error::Map(name, e.to_string());
    let missing = |name: &'static str| move || Error::Map(name, "missing from the object".into());
    let mut config: Array<_, [u32; CONFIG_WORDS]> =
        Array::try_from(ebpf.map_mut("CONFIG").ok_or_else(missing("CONFIG"))?).map_err(map("CONFIG"))?;
    config.set(0, bytemuck::cast::<Config, [u32; CONFIG_WORDS]>(configure(btf, options)?), 0).map_err(map("CONFIG"))?;
    let mut specs: Array<_, [u64; SPEC_WORDS]> =
        Array::try_from(ebpf.map_mut("SPECS").ok_or_else(missing("SPECS"))?).map_err(map("SPECS"))?;
    for (id, spec) in (0..).zip(&options.specs) {
        specs
            .set(id, bytemuck::pod_read_unaligned::<[u64; SPEC_WORDS]>(bytemuck::bytes_of(spec)), 0)
            .map_err(map("SPECS"))?;
    }
    let mut controls: HashMap<_, u32, [u32; 2]> =
        HashMap::try_from(ebpf.map_mut("CONTROLS").ok_or_else(missing("CONTROLS"))?).map_err(map("CONTROLS"))?;
    for (command, Control { fd, tail }) in &options.controls {
        controls.insert(command, [*fd, *tail], 0).map_err(map("CONTROLS"))?;
    }
    Ok(())
}

// aya's typed maps ask for its own `Pod`, which is implemented for arrays of integers.
pub(super) const CONFIG_WORDS: usize = size_of::<Config>() / 4;
const SPEC_WORDS: usize = size_of::<Spec>() / 8;
pub(super) const FLAGS_WORD: usize = std::mem::offset_of!(Config, flags) / 4;

fn configure(btf: &Btf, options: &Options) -> Result<Config, Error> {
    let (uid, hold) = match options.hold {
        Hold::Nobody => (0, 0),
        Hold::OfUser(uid) => (uid, CONFIG_HOLD),
        Hold::Anybody => (0, CONFIG_HOLD | CONFIG_HOLD_ALL),
    };
    let stacks = if options.stacks { CONFIG_STACKS } else { 0 };
    let watch = if options.watch_all { CONFIG_WATCH_ALL } else { 0 };
    let at = |structure, path| btf.offset(structure, path).ok_or(Error::NoMember(structure, path));
    let (file_count, plain_count) = match btf.offset("file", "f_ref") {
        Some(at) => (at, 0),
        None => (at("file", "f_count")?, CONFIG_PLAIN_COUNT),
    };
    // Without them, what a longjmp left is not always noticed.
    let area = btf.offset("mm_struct", "uprobes_state.xol_area").zip(btf.offset("xol_area", "vaddr"));
    let (mm_xol, xol_vaddr) = area.unwrap_or_default();
    Ok(Config {
        task_tgid: at("task_struct", "tgid")?,
        task_pid: at("task_struct", "pid")?,
        task_exit_code: at("task_struct", "exit_code")?,
        task_signal: at("task_struct", "signal")?,
        signal_live: at("signal_struct", "live")?,
        task_files: at("task_struct", "files")?,
        files_fdt: at("files_struct", "fdt")?,
        fdtable_fd: at("fdtable", "fd")?,
        file_inode: at("file", "f_inode")?,
        file_count,
        bprm_file: at("linux_binprm", "file")?,
        task_nsproxy: at("task_struct", "nsproxy")?,
        nsproxy_mnt: at("nsproxy", "mnt_ns")?,
        mnt_inum: at("mnt_namespace", "ns.inum")?,
        task_mm: at("task_struct", "mm")?,
        mm_start_stack: at("mm_struct", "start_stack")?,
        mm_xol,
        xol_vaddr,
        task_fs: at("task_struct", "fs")?,
        fs_root: at("fs_struct", "root.dentry")?,
        dentry_inode: at("dentry", "d_inode")?,
        inode_ino: at("inode", "i_ino")?,
        inode_sb: at("inode", "i_sb")?,
        sb_dev: at("super_block", "s_dev")?,
        uvm_map_tail: options.uvm_map_tail,
        flags: stacks | watch | hold | plain_count,
        uid,
        task_fsbase: at("task_struct", arch::here().thread_pointer)?,
        block_stack_bytes: options.block_stack_bytes,
    })
}

//! What user space tells the programs before the first one runs.

use bytemuck::{Pod, Zeroable};

/// What user space knows at load time and the programs need. All offsets are in bytes, from the running kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Config {
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.pid`.
    pub task_pid: u32,
    /// `task_struct.exit_code`.
    pub task_exit_code: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.live`: threads that have not exited.
    pub signal_live: u32,
    /// `task_struct.files`.
    pub task_files: u32,
    /// `files_struct.fdt`.
    pub files_fdt: u32,
    /// `fdtable.fd`.
    pub fdtable_fd: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `file.f_ref`, or `file.f_count` with [`CONFIG_PLAIN_COUNT`].
    pub file_count: u32,
    /// `linux_binprm.file`.
    pub bprm_file: u32,
    /// `task_struct.nsproxy`.
    pub task_nsproxy: u32,
    /// `nsproxy.mnt_ns`.
    pub nsproxy_mnt: u32,
    /// `mnt_namespace.ns.inum`.
    pub mnt_inum: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `mm_struct.start_stack`: where the main thread's stack begins.
    pub mm_start_stack: u32,
    /// `mm_struct.uprobes_state.xol_area`.
    pub mm_xol: u32,
    /// `xol_area.vaddr`; 0 where the kernel does not say.
    pub xol_vaddr: u32,
    /// `task_struct.fs`.
    pub task_fs: u32,
    /// `fs_struct.root.dentry`.
    pub fs_root: u32,
    /// `dentry.d_inode`.
    pub dentry_inode: u32,
    /// `inode.i_ino`.
    pub inode_ino: u32,
    /// `inode.i_sb`.
    pub inode_sb: u32,
    /// `super_block.s_dev`.
    pub sb_dev: u32,
    /// Offset of `gpuAttributesCount` in `UVM_MAP_EXTERNAL_ALLOCATION_PARAMS` (driver branch dependent).
    pub uvm_map_tail: u32,
    /// `CONFIG_*` bits.
    pub flags: u32,
    /// `task_struct.thread.fsbase`: the thread pointer of x86-64.
    pub task_fsbase: u32,
    /// Processes of this user may be held ([`CONFIG_HOLD`]).
    pub uid: u32,
    /// Blocks of `PyTorch`'s allocator of at least this size bring their Python frames.
    pub block_stack_bytes: u32,
}

/// Report (and hold) processes that are not tracked when they load libcuda.
pub const CONFIG_WATCH_ALL: u32 = 1;
/// Copy user stacks.
pub const CONFIG_STACKS: u32 = 2;
/// Files count their references from 1, as before Linux 6.13; since then from 0.
pub const CONFIG_PLAIN_COUNT: u32 = 16;
/// Processes of [`Config::uid`] may be held: user space is there and may continue them.
pub const CONFIG_HOLD: u32 = 4;
/// Processes of other users may be held too.
pub const CONFIG_HOLD_ALL: u32 = 8;

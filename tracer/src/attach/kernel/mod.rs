//! The kernel side, loaded: programs, maps, and the links that hold the probes.
//!
//! All links are file descriptors of this process: however it ends, the kernel removes the probes.

mod again;
mod btf;
mod closing;
mod config;
mod error;
mod follow;
mod held;
mod hook;
mod programs;
pub(super) mod sys;
mod uprobes;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, RingBuf},
    programs::{ProgramError, RawTracePoint},
};
use tracer_ebpf::{CONFIG_PLAIN_COUNT, CONFIG_STACKS, Control, EXE_PROBED, FileKey, LOSSES, NameKey, Python, Spec};

pub(super) use self::held::resume;
pub use self::{
    btf::Btf,
    error::Error,
    follow::Writes,
    held::{Held, Stop},
    hook::DriverHook,
    sys::Point,
    uprobes::{Method, Probes},
};
use self::{
    config::{CONFIG_WORDS, FLAGS_WORD},
    follow::Followers,
    programs::Programs,
    uprobes::Uprobes,
};
use super::arch;

/// The eBPF object that `cargo xtask ebpf` built from `tracer-ebpf`, for x86-64.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/vramtrace-x86_64.bpf.o"));

/// What to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the ring buffer: a power of two.
    pub ring_bytes: u32,
    /// Copy user stacks.
    pub stacks: bool,
    /// Blocks of `PyTorch`'s allocator of at least this size bring their Python frames, bytes.
    pub block_stack_bytes: u32,
    /// See processes that are not tracked when they load libcuda (`attach` to ones that start later).
    pub watch_all: bool,
    /// Which processes may be stopped while their probes are placed.
    pub hold: Hold,
    /// Offset of `gpuAttributesCount` in UVM's map-external parameters (depends on the driver).
    pub uvm_map_tail: u32,
    /// Where to read driver ioctls.
    pub hook: DriverHook,
    /// Kernel-side part of each row of the probe table; index = probe id.
    pub specs: Vec<Spec>,
    /// Driver controls to pass on.
    pub controls: Vec<(u32, Control)>,
}

/// Which processes may be stopped while their probes are placed: those that this process may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// None: probes go in while they run.
    Nobody,
    /// Those of this user (real id).
    OfUser(u32),
    /// Any: this process has `CAP_KILL`.
    Anybody,
}

/// The loaded kernel side. Dropping it takes the probes away and lets go whoever is held.
pub struct Kernel {
    ebpf: Ebpf,
    uprobes: Uprobes,
    /// Links of the driver hook: they last as long as these.
    links: Vec<OwnedFd>,
    hook: DriverHook,
    tracked: HashMap<MapData, u32, u32>,
    known: HashMap<MapData, [u64; 2], u32>,
    exes: HashMap<MapData, [u64; 2], u32>,
    followed: HashMap<MapData, u32, u32>,
    followers: Followers,
    pythons: HashMap<MapData, u32, [u64; PYTHON_WORDS]>,
    held: Held,
    config: Array<MapData, [u32; CONFIG_WORDS]>,
    lost: Array<MapData, u64>,
}

impl Kernel {
    /// Loads the object, hooks the driver and the process tracepoints. Nothing is traced until [`Kernel::track`].
    ///
    /// # Errors
    /// No BTF, missing rights, or a kernel that refuses a program.
    pub fn load(options: &Options) -> Result<Self, Error> {
        let btf = Btf::vmlinux().map_err(Error::NoBtf)?;
        let given = arch::object_here()?.map(|path| arch::read(&path)).transpose().map_err(Error::Object)?;
        let object = given.as_deref().unwrap_or(OBJECT);
        let mut ebpf = EbpfLoader::new().map_max_entries("EVENTS", options.ring_bytes).load(object)?;
        config::fill(&mut ebpf, &btf, options)?;
        let programs = Programs::new(object, &ebpf)?;
        for (name, tracepoint) in [
            ("process_fork", "sched_process_fork"),
            ("process_exec", "sched_process_exec"),
            ("process_exit", "sched_process_exit"),
        ] {
            attach_raw(&mut ebpf, name, tracepoint)?;
        }
        load_raw(&mut ebpf, "check_transfers")?;
        if options.hook == DriverHook::Syscall {
            attach_raw(&mut ebpf, "syscall_ioctl", "sys_exit")?;
        }
        let links = hook::attach(&programs, &btf, options.hook)?;
        let uprobes = Uprobes::new(&programs, &mut ebpf)?;
        Ok(Self {
            tracked: take(&mut ebpf, "TRACKED")?,
            known: take(&mut ebpf, "KNOWN")?,
            exes: take(&mut ebpf, "EXES")?,
            followed: take(&mut ebpf, "FOLLOWED")?,
            followers: Followers::new(&programs, uprobes.method() == Method::Multi)?,
            pythons: take(&mut ebpf, "PYTHONS")?,
            held: held(&mut ebpf)?,
            config: take(&mut ebpf, "CONFIG")?,
            lost: take(&mut ebpf, "LOST")?,
            ebpf,
            uprobes,
            links,
            hook: options.hook,
        })
    }

    /// The ring buffer; once.
    ///
    /// # Errors
    /// It was taken before.
    pub fn events(&mut self) -> Result<RingBuf<MapData>, Error> {
        take(&mut self.ebpf, "EVENTS")
    }

    /// Where driver ioctls are read.
    #[must_use]
    pub const fn hook(&self) -> DriverHook {
        self.hook
    }

    /// How uprobes are placed.
    #[must_use]
    pub const fn method(&self) -> Method {
        self.uprobes.method()
    }

    /// Starts tracing a process (thread group id in the initial PID namespace).
    ///
    /// # Errors
    /// The map is full.
    pub fn track(&mut self, tgid: u32) -> Result<(), Error> {
        self.tracked.insert(tgid, 1, 0).map_err(|e| Error::Map("TRACKED", e.to_string()))
    }

    /// Stops tracing a process.
    pub fn untrack(&mut self, tgid: u32) {
        // Absent already when the process exited: fine.
        let _ = self.tracked.remove(&tgid);
    }

    /// Says that the library at this path has its probes: processes that load it need not be held.
    ///
    /// # Errors
    /// The map is full.
    pub fn know_library(&mut self, key: NameKey) -> Result<(), Error> {
        self.known.insert([key.hash, key.view], 1, 0).map_err(|e| Error::Map("KNOWN", e.to_string()))
    }

    /// Says that the dynamic linker of this executable is probed: processes that execute it need not be held.
    ///
    /// # Errors
    /// The map is full.
    pub fn know_executable(&mut self, exe: FileKey) -> Result<(), Error> {
        self.exes.insert([exe.inode, exe.device], EXE_PROBED, 0).map_err(|e| Error::Map("EXES", e.to_string()))
    }

    /// True for an executable whose dynamic linker is probed.
    #[must_use]
    pub fn knows_executable(&self, exe: FileKey) -> bool {
        self.exes.get(&[exe.inode, exe.device], 0).is_ok_and(|known| known == EXE_PROBED)
    }

    /// Says how to walk the Python frames of a process.
    ///
    /// # Errors
    /// The map is full.
    pub fn walk_python(&mut self, tgid: u32, walk: Python) -> Result<(), Error> {
        let value: [u64; PYTHON_WORDS] = bytemuck::cast(walk);
        self.pythons.insert(tgid, value, 0).map_err(|e| Error::Map("PYTHONS", e.to_string()))
    }

    /// Places probes at `points` of a file. Gives the points that the kernel refused, with its reason.
    ///
    /// # Errors
    /// The file cannot be probed at all.
    pub fn place(&mut self, what: Probes, path: &Path, points: &[Point]) -> io::Result<Vec<(Point, String)>> {
        self.uprobes.place(&mut self.ebpf, what, path, points)
    }

    /// Reports the end of Python code objects: `offset` is where the function is in the interpreter's file. True when
    /// none will be missed.
    pub fn watch_code(&mut self, interpreter: &Path, offset: u64) -> bool {
        // Perf's events are skipped while another BPF program or map update is at work on the processor
        // (`trace_call_bpf` in kernel/trace/bpf_trace.c).
        self.method() == Method::Multi
            && self
                .place(Probes::CodeEnds, interpreter, &[Point { offset, cookie: 0 }])
                .is_ok_and(|refused| refused.is_empty())
    }

    /// Probes the writes of one process, which come as events.
    ///
    /// # Errors
    /// The kernel refuses such probes.
    pub fn follow(&mut self, tgid: u32, libc: &Path, writes: &Writes) -> io::Result<()> {
        self.followers.follow(tgid, libc, writes)
    }

    /// Says that the writes of a process are probed, as far as they can be.
    ///
    /// # Errors
    /// The map is full.
    pub fn know_followed(&mut self, tgid: u32) -> Result<(), Error> {
        self.followed.insert(tgid, 1, 0).map_err(|e| Error::Map("FOLLOWED", e.to_string()))
    }

    /// Takes the probes on the writes of a process away, once it has ended.
    pub fn unfollow(&mut self, tgid: u32) {
        self.followers.exited(tgid);
    }

    /// Looks whether files that carry objects between processes are still open; the answer comes as events.
    pub fn check_transfers(&self) {
        let program = self.ebpf.program("check_transfers").and_then(|program| program.fd().ok());
        if let Some(program) = program {
            // Refused by kernels before 5.10: then the next driver request tells.
            let _ = sys::run_once(program.as_fd());
        }
    }

    /// The processes that are stopped for us.
    pub const fn held(&mut self) -> &mut Held {
        &mut self.held
    }

    /// Traces nobody any more: takes the probes away where that is quick, lets go whoever is held. What was reported until
    /// now can still be read.
    pub fn detach(&mut self) {
        // Should this fail, whoever is held from now on is let go when we end.
        if let Ok(mut words) = self.config.get(&0, 0) {
            words[FLAGS_WORD] &= CONFIG_STACKS | CONFIG_PLAIN_COUNT;
            let _ = self.config.set(0, words, 0);
        }
        let tracked: Vec<u32> = self.tracked.keys().filter_map(Result::ok).collect();
        tracked.into_iter().for_each(|tgid| self.untrack(tgid));
        self.uprobes.detach();
        self.followers.detach();
        self.links.clear();
        self.held.release_all();
    }

    /// Loss counters so far, by [`tracer_ebpf::Loss`].
    #[must_use]
    pub fn losses(&self) -> [u64; LOSSES] {
        std::array::from_fn(|i| self.lost.get(&(i as u32), 0).unwrap_or(0))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.detach();
    }
}

fn load_raw<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut RawTracePoint, Error> {
    let load = |ebpf: &'a mut Ebpf| -> Result<&'a mut RawTracePoint, ProgramError> {
        let program: &mut RawTracePoint = ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
        again::load(|| program.load())?;
        Ok(program)
    };
    load(ebpf).map_err(|source| Error::Attach { name, source })
}

fn attach_raw(ebpf: &mut Ebpf, name: &'static str, tracepoint: &str) -> Result<(), Error> {
    load_raw(ebpf, name)?.attach(tracepoint).map(drop).map_err(|source| Error::Attach { name, source })
}

fn take<T: TryFrom<aya::maps::Map>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Error> {
    let map = ebpf.take_map(name).ok_or_else(|| Error::Map(name, "missing from the object".into()))?;
    T::try_from(map).map_err(|_| Error::Map(name, "is of another type than expected".into()))
}

fn held(ebpf: &mut Ebpf) -> Result<Held, Error> {
    let map = ebpf.take_map("HELD").ok_or_else(|| Error::Map("HELD", "missing from the object".into()))?;
    Held::new(map).map_err(|e| Error::Map("HELD", e.to_string()))
}

// As in `config`.
const PYTHON_WORDS: usize = size_of::<Python>() / 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(hook: DriverHook) -> Options {
        Options {
            ring_bytes: 1 << 20,
            stacks: true,
            block_stack_bytes: 0,
            watch_all: false,
            hold: Hold::Nobody,
            uvm_map_tail: 9240,
            hook,
            specs: vec![Spec::default(); 4],
            controls: vec![(0x205, Control { fd: Control::NO_FD, tail: 0 })],
        }
    }

    #[test]
    fn loads_with_every_hook() {
        for hook in [DriverHook::Libc, DriverHook::Syscall] {
            let mut kernel = Kernel::load(&options(hook)).unwrap_or_else(|e| panic!("{hook:?}: {e}"));
            assert_eq!(kernel.hook(), hook);
            assert!(kernel.events().is_ok());
            assert!(kernel.events().is_err(), "the ring buffer has one reader");
            assert_eq!(kernel.losses(), [0; LOSSES]);
        }
    }
}

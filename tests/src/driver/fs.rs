//! The mount: `nvidiactl`, `nvidia0` …, `nvidia-uvm` and `control`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags, LockOwner,
    OpenFlags, ReplyAttr, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use super::abi::nr;
use super::caller::process_of;
use super::fault::{Command, Faults};
use super::rm::Rm;
use super::{private, serve};
use crate::truth::What;

const TTL: Duration = Duration::from_secs(3600);
const ROOT: u64 = 1;
const CONTROL: u64 = 2;
const UVM: u64 = 3;
const NVIDIACTL: u64 = 4;
const NVIDIA0: u64 = 16;

/// What the daemon knows.
pub struct State {
    /// The resource manager.
    pub rm: Rm,
    /// Faults to come.
    pub faults: Faults,
    /// What each thread said its allocations are for.
    pub kinds: HashMap<u32, String>,
    /// Labels of threads, for the truth log.
    pub labels: HashMap<u32, String>,
    processes: HashMap<(u64, u32), u32>,
    next_file: u64,
    log: File,
}

impl State {
    /// Process of a thread that uses an open file; looked up once, as a thread id is not reused under an open file.
    pub fn process(&mut self, file: u64, tid: u32) -> u32 {
        *self.processes.entry((file, tid)).or_insert_with(|| process_of(tid))
    }

    /// Does what was written to `control` by a thread of process `pid`.
    fn command(&mut self, command: Command, pid: u32, tid: u32) {
        match command {
            Command::Fault(fault) => self.faults.add(fault, pid),
            Command::Limit { gpu, bytes } => {
                if let Some(gpu) = self.rm.gpus.get_mut(gpu) {
                    gpu.bytes = bytes;
                }
            }
            Command::Label { text } => _ = self.labels.insert(tid, text),
            Command::LabelLike { tid: other } => {
                let text = self.labels.get(&other).cloned().unwrap_or_default();
                self.labels.insert(tid, text);
            }
            Command::Mark { name } => {
                self.rm.begin();
                let live = self.rm.accounts.live(0, pid);
                self.rm.log(pid, tid, What::Mark { name, gpu: 0, expected: None, live });
                self.flush_log();
            }
        }
    }

    /// Writes what the resource manager did to the truth log.
    pub fn flush_log(&mut self) {
        let mut lines = Vec::new();
        for event in self.rm.take_events() {
            if serde_json::to_writer(&mut lines, &event).is_ok() {
                lines.push(b'\n');
            }
        }
        if let Err(error) = self.log.write_all(&lines) {
            // A truth log with holes is worse than none.
            eprintln!("sim-driver: cannot write the truth log: {error}");
            std::process::abort();
        }
    }
}

/// The file system; clones share one state.
#[derive(Clone)]
pub struct Driver(Arc<Mutex<State>>);

/// Which device an ioctl came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// `nvidiactl`.
    Control,
    /// `nvidiaN`.
    Gpu,
    /// `nvidia-uvm`.
    Uvm,
}

impl Driver {
    /// A driver with these GPUs that writes its truth to `log`.
    #[must_use]
    pub fn new(rm: Rm, log: File) -> Self {
        Self(Arc::new(Mutex::new(State {
            rm,
            faults: Faults::default(),
            kinds: HashMap::new(),
            labels: HashMap::new(),
            processes: HashMap::new(),
            next_file: 1,
            log,
        })))
    }

    /// The state, for one request.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> Vec<(u64, String)> {
        let gpus = self.state().rm.gpus.len();
        let fixed = [(CONTROL, "control"), (UVM, "nvidia-uvm"), (NVIDIACTL, "nvidiactl")];
        let fixed = fixed.map(|(ino, name)| (ino, name.to_owned()));
        fixed.into_iter().chain((0..gpus).map(|g| (NVIDIA0 + g as u64, format!("nvidia{g}")))).collect()
    }
}

fn attributes(ino: u64) -> FileAttr {
    let root = ino == ROOT;
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        // The real device files are open to everyone, too.
        perm: if root { 0o755 } else { 0o666 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Driver {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.files().into_iter().find(|(_, n)| OsStr::new(n) == name) {
            Some((ino, _)) => reply.entry(&TTL, &attributes(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(ino.0));
    }

    // Opening `control` with O_TRUNC changes nothing.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&TTL, &attributes(ino.0));
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let files = self.files();
        for (i, (ino, name)) in files.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(*ino), i as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        let file = state.next_file;
        state.next_file += 1;
        if ino.0 == NVIDIACTL {
            let pid = process_of(req.pid());
            state.rm.begin();
            state.rm.log(pid, req.pid(), What::Open { file });
            state.flush_log();
        }
        reply.opened(FileHandle(file), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        state.rm.begin();
        state.rm.close(fh.0);
        if ino.0 == NVIDIACTL {
            state.rm.log(0, 0, What::Close { file: fh.0 });
        }
        state.processes.retain(|&(file, _), _| file != fh.0);
        state.flush_log();
        reply.ok();
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let commands: Result<Vec<Command>, _> =
            serde_json::Deserializer::from_slice(data).into_iter::<Command>().collect();
        let (CONTROL, Ok(commands)) = (ino.0, commands) else { return reply.error(Errno::EINVAL) };
        let writer = process_of(req.pid());
        let mut state = self.state();
        commands.into_iter().for_each(|command| state.command(command, writer, req.pid()));
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let device = match ino.0 {
            NVIDIACTL => Device::Control,
            UVM => Device::Uvm,
            ino if ino >= NVIDIA0 => Device::Gpu,
            _ => return reply.error(Errno::ENOTTY),
        };
        if cmd & 0xffff == super::abi::PRIVATE_MAGIC << 8 | private::WHO {
            // Answered without the state: a request that holds it may be waiting for this answer.
            return reply.ioctl(0, &fh.0.to_le_bytes());
        }
        let call = serve::Call { device, file: fh.0, tid: req.pid(), cmd, arg: in_data.to_vec() };
        serve::serve(self, call, reply);
    }
}

/// True when the real driver takes this request on this device (`RM_ALLOC_MEMORY` on `nvidiaN`, the rest that matters on
/// `nvidiactl`; `escape.c`).
#[must_use]
pub fn allowed(device: Device, number: u32) -> bool {
    match number {
        nr::ALLOC_MEMORY => device == Device::Gpu,
        nr::ALLOC | nr::FREE | nr::DUP_OBJECT | nr::SHARE | nr::VID_HEAP_CONTROL | nr::CONTROL => {
            device == Device::Control
        }
        _ => device != Device::Uvm,
    }
}

//! A file system of one file, for a trace, on a disk that has something the matter with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// What is the matter.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Each write takes this long.
    Slow(Duration),
    /// Writes beyond these bytes fail with `EIO`.
    Broken(usize),
    /// Writes beyond these bytes wait for [`BadDisk::heal`].
    Stalled(usize),
}

const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
/// Sizes change: nothing may be remembered.
const TTL: Duration = Duration::ZERO;

#[derive(Debug)]
struct State {
    content: Option<Vec<u8>>,
    trouble: Trouble,
    /// A write has met the trouble.
    met: bool,
    healed: bool,
}

#[derive(Clone, Debug)]
struct Disk(Arc<(Mutex<State>, Condvar)>);

/// A mounted disk. Dropping it takes the mount away.
#[derive(Debug)]
pub struct BadDisk {
    disk: Disk,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl BadDisk {
    /// Makes the directory `at` and mounts the disk there.
    ///
    /// # Errors
    /// No right to mount.
    pub fn mount(at: &Path, trouble: Trouble) -> Result<Self> {
        std::fs::create_dir(at)?;
        let state = State { content: None, trouble, met: false, healed: false };
        let disk = Disk(Arc::new((Mutex::new(state), Condvar::new())));
        let mut config = fuser::Config::default();
        config.mount_options = vec![MountOption::FSName("vramtrace-disk".into())];
        let session = fuser::spawn_mount(disk.clone(), at, &config).context("cannot mount the disk")?;
        Ok(Self { disk, at: at.to_owned(), session: Some(session) })
    }

    /// The file on it, whatever its name.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.at.join("run.vrt")
    }

    /// True once a write has met the trouble.
    #[must_use]
    pub fn met(&self) -> bool {
        self.disk.0.0.lock().unwrap_or_else(PoisonError::into_inner).met
    }

    /// Nothing is the matter from now on.
    pub fn heal(&self) {
        self.disk.0.0.lock().unwrap_or_else(PoisonError::into_inner).healed = true;
        self.disk.0.1.notify_all();
    }

    /// Copies what is on it elsewhere.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn save(&self, to: &Path) -> Result<()> {
        let state = self.disk.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::fs::write(to, state.content.as_deref().context("nothing was written")?)?)
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        // Whoever waits in a write must be let go before the mount can end.
        self.heal();
        _ = crate::sim::detach(&self.at);
        drop(self.session.take());
    }
}

impl Disk {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (kind, perm) = if ino == ROOT { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o600) };
        let size = state.content.as_ref().filter(|_| ino != ROOT).map_or(0, |content| content.len() as u64);
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Takes bytes at an offset, as far as the trouble lets it.
    fn take(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let (lock, healed) = &*self.0;
        let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(data.len());
        let mut state = lock.lock().unwrap_or_else(PoisonError::into_inner);
        match state.trouble {
            Trouble::Slow(time) if !state.healed => {
                state.met = true;
                drop(state);
                std::thread::sleep(time);
                state = lock.lock().unwrap_or_else(PoisonError::into_inner);
            }
            Trouble::Broken(limit) if end > limit && !state.healed => {
                state.met = true;
                return Err(Errno::EIO);
            }
            Trouble::Stalled(limit) if end > limit => {
                state.met = true;
                state = healed.wait_while(state, |state| !state.healed).unwrap_or_else(PoisonError::into_inner);
            }
            _ => {}
        }
        let content = state.content.get_or_insert_default();
        content.resize(end.max(content.len()), 0);
        content[end - data.len()..end].copy_from_slice(data);
        Ok(())
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        let exists = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).content.is_some();
        if exists {
            reply.entry(&TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

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
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).content = Some(Vec::new());
        reply.created(&TTL, &self.attributes(FILE), Generation(0), FileHandle(1), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let content = state.content.as_deref().unwrap_or_default();
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let end = begin.saturating_add(size as usize).min(content.len());
        reply.data(&content[begin..end]);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.take(offset, data) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }
}

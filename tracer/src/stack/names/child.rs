//! The child's side.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, IoSliceMut},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer, source};
use nix::{
    sys::{
        resource::{Resource, setrlimit},
        socket::{ControlMessageOwned, MsgFlags, recvmsg, send},
    },
    unistd::{Gid, Uid, setgroups, setresgid, setresuid},
};

use super::{Named, Question, answer};
use crate::attach::{files::descriptor_path, guard::close_range};

/// Memory of its own that the child may have, bytes. Files that it maps do not count.
const MEMORY: u64 = 1 << 30;
/// The only descriptor besides the standard ones, which lead nowhere.
const SOCKET: RawFd = 3;
/// `nobody`, by the number that distributions and the kernel (`overflowuid`) give it.
const NOBODY: u32 = 65_534;
/// include/uapi/linux/capability.h: `_LINUX_CAPABILITY_VERSION_3`, and `CAP_DAC_READ_SEARCH`'s bit.
const VERSION: u32 = 0x2008_0522;
const READ_SEARCH: u32 = 1 << 2;

/// Answers until nobody asks any more.
pub(super) fn run(socket: &OwnedFd) -> ! {
    if confine(socket.as_raw_fd()).is_ok() {
        let mut server = Server::new();
        while let Ok(Some(answer)) = server.next() {
            if send(SOCKET, &answer, MsgFlags::MSG_NOSIGNAL).is_err() {
                break;
            }
        }
    }
    // SAFETY: ends the process without running what belongs to its parent.
    unsafe { libc::_exit(0) }
}

/// Leaves no descriptor but the socket, no right but to read files, a bounded memory.
fn confine(socket: RawFd) -> io::Result<()> {
    // SAFETY: system calls on descriptors that nothing in this process uses, with strings that outlive the calls.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"vramtrace-names".as_ptr());
        // Out of the way of the numbers that they are to have.
        let socket = libc::fcntl(socket, libc::F_DUPFD, 64);
        let null = libc::fcntl(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR), libc::F_DUPFD, 64);
        if null < 0 || socket < 0 || libc::dup2(socket, SOCKET) != SOCKET {
            return Err(io::Error::last_os_error());
        }
        for standard in 0..SOCKET {
            libc::dup2(null, standard);
        }
    }
    close_range(SOCKET.cast_unsigned() + 1, u32::MAX);
    // Out of the tracer's group: Ctrl-C is not for this process.
    nix::unistd::setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(0))?;
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) };
    if nix::unistd::geteuid().is_root() {
        // In a user namespace that has no such id this fails: what is dropped below remains.
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        _ = setgroups(&[]).and_then(|()| setresgid(gid, gid, gid)).and_then(|()| setresuid(uid, uid, uid));
    }
    keep_reading()?;
    // SAFETY: plain integers. Changed credentials clear the signal for the parent's death, so it is set behind them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    }
    setrlimit(Resource::RLIMIT_DATA, MEMORY, MEMORY)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    Ok(setrlimit(Resource::RLIMIT_NPROC, 0, 0)?)
}

/// Gives up all capabilities but that to read others' files, where that is held: a library may be its owner's alone.
fn keep_reading() -> io::Result<()> {
    // `struct __user_cap_header_struct` and two of `struct __user_cap_data_struct` (capget(2)): effective, permitted,
    // inheritable.
    let header = [VERSION, 0];
    let mut now = [[0_u32; 3]; 2];
    // SAFETY: both arrays have the layout that the calls want, and outlive them.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), now.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let kept = now[0][1] & READ_SEARCH;
        let next = [[kept, kept, 0], [0; 3]];
        if libc::syscall(libc::SYS_capset, header.as_ptr(), next.as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

struct Server {
    symbolizer: Symbolizer,
    files: HashMap<u32, File>,
}

impl Server {
    fn new() -> Self {
        Self { symbolizer: symbolizer(), files: HashMap::new() }
    }

    /// The answer to the next question; none when there are no more.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((question, file)) = receive()? else { return Ok(None) };
        self.files.extend(file.map(|file| (question.file, file)));
        let found = self.files.get(&question.file).map(|file| find(&self.symbolizer, file, question));
        Ok(Some(answer::encode(&found.unwrap_or_default())))
    }
}

/// One that looks for debugging information nowhere but in the file itself, and opens that once.
fn symbolizer() -> Symbolizer {
    Symbolizer::builder().set_debug_dirs(Some(std::iter::empty::<&Path>())).enable_auto_reload(false).build()
}

fn receive() -> io::Result<Option<(Question, Option<File>)>> {
    let mut bytes = [0; Question::SIZE];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(SOCKET, &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let read = message.bytes;
    let passed = message.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    // SAFETY: the kernel just made this descriptor for us.
    let file = passed.map(|fd| unsafe { File::from_raw_fd(fd) });
    Ok((read == Question::SIZE).then(|| (Question::from_bytes(bytes), file)))
}

fn find(symbolizer: &Symbolizer, file: &File, question: Question) -> Vec<Named> {
    let mut elf = source::Elf::new(descriptor_path(file));
    elf.debug_syms = question.lines;
    let found = catch_unwind(AssertUnwindSafe(|| {
        symbolize(symbolizer, elf.clone(), question.address).unwrap_or_else(|_damaged| {
            elf.debug_syms = false;
            symbolize(symbolizer, elf, question.address).unwrap_or_default()
        })
    }));
    found.ok().flatten().as_ref().map(named).unwrap_or_default()
}

fn symbolize(symbolizer: &Symbolizer, elf: source::Elf, address: u64) -> blazesym::Result<Option<Sym<'_>>> {
    Ok(symbolizer.symbolize_single(&elf.into(), Input::VirtOffset(address))?.into_sym())
}

fn named(symbol: &Sym<'_>) -> Vec<Named> {
    let function = |name: &str, code: Option<&CodeInfo<'_>>| Named {
        name: name.to_owned(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line),
    };
    let outer = function(&symbol.name, symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().map(|inlined| function(&inlined.name, inlined.code_info.as_ref()));
    std::iter::once(outer).chain(inlined).collect()
}

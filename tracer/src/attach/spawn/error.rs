//! Why a command could not be started, said so that the user can act on it.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::command::Command;
use crate::attach::user::Invoker;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// Nothing to run.
    #[error("no command given")]
    Empty,
    /// An argument or variable holds a NUL.
    #[error("an argument or environment variable contains a NUL byte")]
    Nul,
    /// Not found by name.
    #[error("no executable named {0} in PATH")]
    NotInPath(String),
    /// Not found by path.
    #[error("{}: no such file", .0.display())]
    NotFound(PathBuf),
    /// Found, but not to be executed by this user.
    #[error("{}: not executable by this user", .0.display())]
    NotExecutable(PathBuf),
    /// The interpreter that a script or ELF file names is missing.
    #[error("{}: its interpreter {interpreter} does not exist", path.display())]
    NoInterpreter {
        /// Program.
        path: PathBuf,
        /// What its first line or `PT_INTERP` names.
        interpreter: String,
    },
    /// Neither an ELF file for this machine nor a script.
    #[error("{}: neither a program for this machine nor a script with a #! line", .0.display())]
    NotAProgram(PathBuf),
    /// The kernel would not execute it.
    #[error("{}: cannot be executed: {errno}", path.display())]
    Execute {
        /// Program.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// The child could not become the invoking user.
    #[error("cannot become user {user}: {errno}: use --as-root to run the command as root")]
    User {
        /// Login name.
        user: String,
        /// What the kernel said.
        errno: Errno,
    },
    /// The child ended while it was held, with this exit code.
    #[error("the command was killed before it began (exit code {0})")]
    Ended(i32),
    /// No process or pipe to be had.
    #[error("cannot start a process: {0}")]
    System(#[from] io::Error),
}

impl From<Errno> for SpawnError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// How far the child came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// It waits to be let go.
    Ready,
    /// It could not change its user.
    User,
    /// It could not find or execute the program.
    Program,
}

/// What the child says through its pipe: stage, error number, candidate; three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    stage: i32,
    errno: i32,
    candidate: i32,
}

impl Report {
    pub(super) const SIZE: usize = 12;

    pub(super) fn ready() -> Self {
        Self { stage: Stage::Ready as i32, errno: 0, candidate: 0 }
    }

    pub(super) fn new(stage: Stage, candidate: usize, errno: Errno) -> Self {
        Self { stage: stage as i32, errno: errno as i32, candidate: i32::try_from(candidate).unwrap_or_default() }
    }

    pub(super) fn is_ready(self) -> bool {
        self.stage == Stage::Ready as i32
    }

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        bytemuck::cast([self.stage, self.errno, self.candidate])
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [stage, errno, candidate] = bytemuck::cast(bytes);
        Self { stage, errno, candidate }
    }

    /// The error a report stands for.
    pub(super) fn explain(self, command: &Command, invoker: Option<&Invoker>) -> SpawnError {
        let errno = Errno::from_raw(self.errno);
        if self.stage == Stage::User as i32 {
            return SpawnError::User { user: invoker.map(|user| user.name.clone()).unwrap_or_default(), errno };
        }
        let path = usize::try_from(self.candidate).ok().and_then(|at| command.candidates.get(at));
        let path = PathBuf::from(OsStr::from_bytes(path.map_or(&[], |path: &CString| path.as_bytes())));
        let by_name = !command.name.as_bytes().contains(&b'/');
        match errno {
            Errno::ENOENT if path.exists() => match interpreter(&path) {
                Some(interpreter) => SpawnError::NoInterpreter { path, interpreter },
                None => SpawnError::Execute { path, errno },
            },
            Errno::ENOENT if by_name => SpawnError::NotInPath(command.name.to_string_lossy().into_owned()),
            Errno::ENOENT | Errno::ENOTDIR => SpawnError::NotFound(path),
            Errno::EACCES => SpawnError::NotExecutable(path),
            Errno::ENOEXEC => SpawnError::NotAProgram(path),
            errno => SpawnError::Execute { path, errno },
        }
    }
}

/// Interpreter that a script's first line or an ELF file's `PT_INTERP` names.
fn interpreter(path: &Path) -> Option<String> {
    // Both stand at the beginning: the kernel itself looks at 256 bytes of a script (BINPRM_BUF_SIZE).
    let mut head = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut head).ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii_start();
        return Some(text(line.split(|byte| b" \t".contains(byte)).next()?));
    }
    use object::{Endianness, elf, read::elf::FileHeader, read::elf::ProgramHeader};
    let header = elf::FileHeader64::<Endianness>::parse(&*head).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &*head).ok()?;
    let name = segments.iter().find_map(|segment| segment.interpreter(endian, &*head).ok().flatten())?;
    Some(text(name))
}

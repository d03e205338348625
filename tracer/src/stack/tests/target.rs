//! Programs to unwind: compiled, run up to where they wait, and looked at as the kernel side and as gdb see them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use bytemuck::Zeroable;
use nix::{
    sys::{
        ptrace,
        uio::{RemoteIoVec, process_vm_readv},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use tempfile::TempDir;

/// Compiles `program` and `library.c` as shared objects and a program in a new directory.
pub(super) fn build(program: &str, flags: &[&str]) -> TempDir {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stack/tests");
    let dir = tempfile::tempdir().unwrap();
    let compiler = if program.ends_with("cpp") { "c++" } else { "cc" };
    run(Command::new("cc")
        .args(flags)
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.path().join("liblibrary.so"))
        .arg(sources.join("library.c")));
    run(Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(dir.path().join("program"))
        .arg(sources.join(program))
        .arg("-L")
        .arg(dir.path())
        .args(["-llibrary", "-Wl,-rpath,$ORIGIN"]));
    dir
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A running program that waits in a `read` of its standard input.
pub(super) struct Target {
    child: Child,
    /// The thread that waits.
    thread: u32,
}

impl Target {
    /// Starts a program and returns once it has said a line and sleeps.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let mut target = Self { child, thread: 0 };
        while target.thread == 0 {
            sleep(Duration::from_millis(2));
            target.thread = target.reader().unwrap_or_default();
        }
        target
    }

    /// The thread that sleeps in `read`, system call 0; the file has other text while a thread runs.
    fn reader(&self) -> Option<u32> {
        let mut threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().map(Result::unwrap);
        let thread = threads.find(|thread| {
            fs::read_to_string(thread.path().join("syscall")).is_ok_and(|call| call.starts_with("0 "))
        })?;
        thread.file_name().to_str()?.parse().ok()
    }

    pub(super) fn program(dir: &TempDir) -> Self {
        Self::start(&mut Command::new(dir.path().join("program")))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Registers and up to 32 KiB of stack, as the kernel side would send them.
    pub(super) fn capture(&self) -> (tracer_ebpf::Stack, Vec<u8>) {
        let pid = Pid::from_raw(self.thread.cast_signed());
        ptrace::seize(pid, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(pid).unwrap();
        waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
        let regs = ptrace::getregs(pid).unwrap();
        let bytes = read_stack(pid, regs.rsp);
        ptrace::detach(pid, None).unwrap();
        let len = u32::try_from(bytes.len()).unwrap();
        let stack = tracer_ebpf::Stack { ip: regs.rip, sp: regs.rsp, bp: regs.rbp, len, ..Zeroable::zeroed() };
        (stack, bytes)
    }

    /// The stack as gdb sees it, innermost first.
    pub(super) fn gdb(&self) -> Vec<GdbFrame> {
        // Without separate debug files, so that the C library's inlined functions look the same on every machine.
        let settings =
            ["width 0", "debug-file-directory /nonexistent", "debuginfod enabled off", "backtrace past-main on"];
        let output = Command::new("gdb")
            .args(["-batch", "-nx"])
            .args(settings.iter().flat_map(|setting| ["-iex".to_owned(), format!("set {setting}")]))
            .args(["-p", &self.pid().to_string(), "-ex", "bt"])
            .output()
            .expect("this test compares with gdb: install it");
        let text = String::from_utf8(output.stdout).unwrap();
        let frames: Vec<GdbFrame> = text.lines().filter_map(GdbFrame::parse).collect();
        assert!(frames.len() > 3, "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        frames
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Errors mean that it has gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read_stack(pid: Pid, start: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < tracer_ebpf::STACK_BYTES {
        let mut chunk = [0; 1024];
        let remote = RemoteIoVec { base: usize::try_from(start).unwrap() + bytes.len(), len: chunk.len() };
        let Ok(read) = process_vm_readv(pid, &mut [std::io::IoSliceMut::new(&mut chunk)], &[remote]) else { break };
        bytes.extend(&chunk[..read]);
    }
    bytes
}

/// One line of gdb's `bt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GdbFrame {
    /// Absent for inlined functions, signal frames, and the first instruction of a line.
    pub(super) address: Option<u64>,
    /// Function without arguments; C++ parameter types are part of it where gdb knows no debug information.
    pub(super) function: String,
    /// `file:line`.
    pub(super) line: Option<String>,
}

impl GdbFrame {
    /// `#3  0x00007f… in function (…) at file:line`, `… from library`, `#4  <signal handler called>`.
    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix('#')?.split_once(' ')?.1.trim_start();
        let (address, rest) = match rest.strip_prefix("0x").and_then(|rest| rest.split_once(" in ")) {
            Some((address, rest)) => (u64::from_str_radix(address, 16).ok(), rest),
            None => (None, rest),
        };
        let (function, place) = rest.rsplit_once(" (").unwrap_or((rest, ""));
        let line = place.split_once(" at ").map(|(_, line)| line.to_owned());
        Some(Self { address, function: function.to_owned(), line })
    }
}

/// True when this process may be traced from beside: not so under Yama for an ordinary user.
pub(super) fn gdb_may_attach() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    nix::unistd::geteuid().is_root() || scope.map_or(true, |scope| scope.trim() == "0")
}

//! Files made to break whoever reads them.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::PathBuf,
    process::Command,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::mkfifo,
};

use super::*;
use crate::stack::module::Module;

const SOURCE: &str =
    "__attribute__((noinline)) int inner(int n) { return n * 3; }\nint outer(int n) { return inner(n) + 1; }\n";

/// A library with debugging information, and the address of `outer` in it.
struct Library {
    dir: tempfile::TempDir,
    path: PathBuf,
    outer: u64,
}

fn library() -> Library {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    let source = dir.path().join("lib.c");
    fs::write(&source, SOURCE).unwrap();
    run(Command::new("cc").args(["-shared", "-fPIC", "-g", "-O1", "-o"]).arg(&path).arg(&source));
    let nm = Command::new("nm").arg(&path).output().unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let line = text.lines().find(|line| line.ends_with(" outer")).unwrap();
    let outer = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    Library { dir, path, outer }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Library {
    fn find(&self, names: &mut Names, number: u32) -> Vec<Named> {
        let module = Module::read(number, "lib".into(), fs::File::open(&self.path).unwrap()).unwrap();
        names.find(number, "lib", module.source(), self.outer)
    }

    /// Adds a section that names another file.
    fn link(&self, section: &str, contents: &[u8]) {
        let file = self.dir.path().join("link");
        fs::write(&file, contents).unwrap();
        let add = format!("{section}={}", file.display());
        run(Command::new("objcopy").arg("--add-section").arg(add).arg(&self.path));
    }
}

fn outer_of(found: &[Named]) -> (&str, bool) {
    let first = found.first().map(|named| (named.name.as_str(), named.line.is_some()));
    first.unwrap_or(("", false))
}

#[test]
fn names_and_lines_come_from_a_child() {
    let (library, mut names) = (library(), Names::default());
    let found = library.find(&mut names, 0);
    assert_eq!(outer_of(&found), ("outer", true), "{found:?}");
    assert!(found[0].file.as_deref().is_some_and(|file| file.ends_with("lib.c")), "{found:?}");
    assert!(names.notices().is_empty());
}

#[test]
fn a_file_that_only_its_owner_may_read_has_names_too() {
    let (library, mut names) = (library(), Names::default());
    fs::set_permissions(&library.path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(outer_of(&library.find(&mut names, 0)), ("outer", true));
}

#[test]
fn the_child_can_do_nothing_but_read() {
    let (library, mut names) = (library(), Names::default());
    library.find(&mut names, 0);
    let pid = names.child.as_ref().unwrap().pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let effective = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    assert!(effective == 0 || effective == 1 << 2, "{effective:x}");
    assert_eq!((field("NoNewPrivs:").as_str(), field("Name:").as_str()), ("1", "vramtrace-names"));
    if nix::unistd::geteuid().is_root() {
        assert!(field("Uid:").split_whitespace().all(|id| id == "65534"), "{status}");
        assert_eq!(field("Groups:"), "");
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        // Standard ones, the socket, the library; and what the symbolizer keeps open of it.
        assert!(fds <= 6, "{fds} descriptors");
    }
}

/// A path that a file names is neither opened nor looked at: a FIFO would keep its reader waiting, a device may do worse.
#[test]
fn links_to_other_files_are_not_followed() {
    for (section, tail) in [(".gnu_debuglink", 4), (".gnu_debugaltlink", 20)] {
        let (library, mut names) = (library(), Names::default());
        let fifo = library.dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let mut contents = fifo.as_os_str().as_encoded_bytes().to_vec();
        contents.push(0);
        contents.resize(contents.len().next_multiple_of(4) + tail, 7);
        library.link(section, &contents);
        let found = library.find(&mut names, 0);
        assert_eq!(outer_of(&found).0, "outer", "{section}: {found:?} {:?}", names.notices());
        assert!(names.notices().is_empty());
        // Nobody reads it: a writer who does not wait finds nobody.
        let writer = fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
        assert_eq!(writer.unwrap_err().raw_os_error(), Some(libc::ENXIO));
    }
}

/// Cut short while it is mapped: whoever reads on is killed by SIGBUS.
#[test]
fn a_file_cut_short_takes_only_its_own_names() {
    let (library, mut names) = (library(), Names::default());
    // Large enough that not all of it is in the page that stays.
    let mut file = fs::OpenOptions::new().append(true).open(&library.path).unwrap();
    file.write_all(&vec![0; 1 << 20]).unwrap();
    library.find(&mut names, 0);
    file.set_len(1).unwrap();
    let module = fs::File::open(&library.path).unwrap();
    let source = Source { file: &module, lines: true };
    // Known addresses may be answered from memory: ask for others.
    for address in 0..200 {
        names.find(0, "lib", source, library.outer + address * 16);
    }
    assert_eq!(names.failures, 1, "the child was killed, and once: the file is not asked about again");
    let other = self::library();
    assert_eq!(outer_of(&other.find(&mut names, 1)), ("outer", true), "others are read all the same");
}

#[test]
fn a_child_that_does_not_answer_is_replaced() {
    let library = library();
    let mut names = Names::with_patience(Duration::from_millis(200));
    library.find(&mut names, 0);
    let pid = names.child.as_ref().unwrap().pid;
    kill(pid, Signal::SIGSTOP).unwrap();
    assert_eq!(library.find(&mut names, 0), []);
    let notices = names.notices();
    assert!(notices[0].contains("lib: its symbols cannot be read (no answer in 0 s)"), "{notices:?}");
    names.patience = PATIENCE;
    assert_eq!(library.find(&mut names, 0), [], "it is not asked about again");
    assert_eq!(outer_of(&library.find(&mut names, 1)), ("outer", true));
    assert_ne!(names.child.as_ref().unwrap().pid, pid);
}

#[test]
fn children_that_fail_come_to_an_end() {
    let (library, mut names) = (library(), Names::default());
    for number in 0..FAILURES + 3 {
        library.find(&mut names, 2 * number);
        let Some(child) = &names.child else { break };
        kill(child.pid, Signal::SIGKILL).unwrap();
        library.find(&mut names, 2 * number + 1);
    }
    assert!(names.child.is_none() && names.failures == FAILURES);
    let notices = names.notices();
    assert_eq!(notices.len(), FAILURES as usize, "{notices:?}");
    assert!(notices.last().unwrap().ends_with("nor have others from now on"), "{notices:?}");
}

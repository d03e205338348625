//! What is remembered of processes, on this one.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use super::*;

fn closed(records: &[Record]) -> Vec<u64> {
    let mut files: Vec<u64> = records.iter().filter_map(closed_file).collect();
    files.sort_unstable();
    files
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

/// Puts another file under the number of one.
fn replace(file: &File, other: &File) {
    // SAFETY: both descriptors are open, and go on being owned by these.
    assert!(unsafe { libc::dup3(other.as_raw_fd(), file.as_raw_fd(), libc::O_CLOEXEC) } >= 0);
}

/// This process, with a file of its own open and known under identity 7.
fn with_file() -> (Processes, File, u32) {
    let (mut processes, file, me) = (Processes::default(), tempfile::tempfile().unwrap(), std::process::id());
    let fd = file.as_raw_fd().cast_unsigned();
    // Its title is told then, and no file is closed.
    let records = processes.uses(me, fd, (7, inode(&file)), 1);
    assert!(closed(&records).is_empty() && records.len() <= 1);
    (processes, file, me)
}

#[test]
fn a_file_is_closed_with_its_last_descriptor() {
    let (mut processes, file, me) = with_file();
    let copy = file.try_clone().unwrap();
    processes.uses(me, copy.as_raw_fd().cast_unsigned(), (7, inode(&copy)), 2);
    drop(file);
    assert_eq!(closed(&processes.poll(3)), [0_u64; 0]);
    drop(copy);
    assert_eq!(closed(&processes.poll(4)), [7]);
    assert_eq!(closed(&processes.poll(5)), [0_u64; 0], "once");
}

/// Device nodes are removed and made anew under running programs.
#[test]
fn a_file_stays_open_whatever_its_name_becomes() {
    let folder = tempfile::tempdir().unwrap();
    let [name, other] = ["nvidiactl", "moved"].map(|name| folder.path().join(name));
    let (mut processes, file, me) = (Processes::default(), File::create(&name).unwrap(), std::process::id());
    processes.uses(me, file.as_raw_fd().cast_unsigned(), (7, inode(&file)), 1);
    fs::rename(&name, &other).unwrap();
    assert_eq!(closed(&processes.poll(2)), [0_u64; 0]);
    fs::remove_file(&other).unwrap();
    File::create(&name).unwrap();
    assert_eq!(closed(&processes.poll(3)), [0_u64; 0]);
    // The number is another file's now, of the same name.
    replace(&file, &File::open(&name).unwrap());
    assert_eq!(closed(&processes.poll(4)), [7]);
}

/// Requests are read some time after they were made: the driver's file may be closed by then and the number another file's, and
/// later that of the driver's file again, which the kernel puts in the same memory.
#[test]
fn a_number_that_was_anothers_when_looked_at() {
    let (driver, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let (number, me) = (other.try_clone().unwrap(), std::process::id());
    let fd = number.as_raw_fd().cast_unsigned();
    let mut processes = Processes::default();
    processes.uses(me, fd, (7, inode(&driver)), 1);
    replace(&number, &driver);
    processes.uses(me, fd, (7, inode(&driver)), 2);
    assert_eq!(closed(&processes.poll(3)), [0_u64; 0]);
    // Its flags are known by now, too.
    assert_eq!(closed(&processes.exec(me, 4)), [7]);
    // Without a second time it is closed.
    processes.uses(me, fd, (8, inode(&other)), 5);
    assert_eq!(closed(&processes.poll(6)), [8]);
}

#[test]
fn a_number_used_again_was_closed_before() {
    let (mut processes, file, me) = with_file();
    let fd = file.as_raw_fd().cast_unsigned();
    assert_eq!(closed(&processes.uses(me, fd, (8, 0), 2)), [7]);
    assert!(processes.uses(me, u32::MAX, (9, 0), 3).is_empty() && processes.uses(me, fd, (0, 0), 3).is_empty());
    assert_eq!(closed(&processes.exit(me, 4)), [8]);
}

#[test]
fn an_exec_closes_what_is_to_be_closed_at_exec() {
    let (mut processes, file, me) = with_file();
    let fd = file.as_raw_fd().cast_unsigned();
    assert!(Descriptor::read(me, fd).unwrap().closes_at_exec, "as Rust opens files");
    // Still there: the number was used again.
    assert_eq!(closed(&processes.exec(me, 2)), [7]);
    // SAFETY: the descriptor is open, and the flag is its own.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    processes.uses(me, fd, (9, 0), 3);
    assert_eq!(closed(&processes.exec(me, 4)), [0_u64; 0]);
}

#[test]
fn a_childs_copy_keeps_a_file_open() {
    let (mut processes, _file, me) = with_file();
    // A child that was gone before anybody looked: its own exit tells.
    let child = u32::MAX;
    assert!(processes.fork(me, child, 2).is_empty());
    assert_eq!(closed(&processes.exit(me, 2)), [0_u64; 0]);
    assert_eq!(closed(&processes.exit(child, 3)), [7]);
}

#[test]
fn a_process_that_is_gone_twice_has_exited() {
    let mut processes = Processes::default();
    processes.uses(u32::MAX, 3, (7, 1), 1);
    assert!(processes.poll(2).is_empty(), "its exit may be on its way");
    let records = processes.poll(3);
    let exit = Step::Exit { code: None, signal: None };
    assert_eq!(records[0], Record::Process(Process { t: 3, pid: u32::MAX, step: exit }));
    assert_eq!((closed(&records), processes.len()), (vec![7], 0));
}

/// A process that was another one's before: by its number all that is known of that would be taken for its own.
#[test]
fn a_number_that_is_another_processes_now() {
    let (mut processes, _file, me) = with_file();
    assert!(processes.replaced(me, 2).is_empty() && processes.poll(2).is_empty());
    if let Some(known) = processes.known.get_mut(&me) {
        known.started = known.started.map(|ticks| ticks - 1);
    }
    assert!(processes.poll(3).is_empty(), "its exit may be on its way");
    let records = processes.poll(4);
    assert!(matches!(&records[0], Record::Process(Process { t: 4, step: Step::Exit { .. }, .. })), "{records:?}");
    assert_eq!((closed(&records), processes.len()), (vec![7], 0));
}

#[test]
fn a_child_with_a_number_that_is_known() {
    let (mut processes, _file, me) = with_file();
    let t = monotonic_ns();
    assert!(processes.fork(1, me, 1).is_empty(), "it was attached to since");
    let records = processes.fork(1, me, t);
    assert_eq!(closed(&records), [0_u64; 0], "the first fork had taken its files");
    assert!(matches!(&records[0], Record::Process(Process { step: Step::Exit { code: None, .. }, .. })));
    assert!(processes.contains(me));
}

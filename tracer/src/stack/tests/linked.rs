//! Stacks of processes that have ended, by what their dynamic linker told while they lived.

use std::{collections::BTreeMap, fs, path::Path};

use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use tempfile::TempDir;

use super::{
    super::{Stacks, cut::Cut},
    Frame, OPTIMISED, Unwinder,
    target::{Target, build},
};

/// A number that no process has: Linux gives none above 4,194,304 (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const NOBODY: u32 = 1 << 30;

/// What the kernel side tells of each object: its load bias, where its dynamic section is, its path.
fn told(pid: u32) -> Vec<(tracer_ebpf::Object, String)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut first = BTreeMap::new();
    for line in maps.lines() {
        let Some(path) = line.split_whitespace().nth(5).filter(|path| path.starts_with('/')) else { continue };
        let start = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
        first.entry(path.to_owned()).or_insert(start);
    }
    let object = |(path, start)| {
        let bytes = fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).ok()?;
        let bias: u64 = start - (file.segments().next()?.address() & !0xfff);
        let dynamic = bias + file.section_by_name(".dynamic")?.address();
        Some((tracer_ebpf::Object { bias, dynamic, ..Default::default() }, path))
    };
    first.into_iter().filter_map(object).collect()
}

fn tell(stacks: &mut Stacks, pid: u32, objects: &[(tracer_ebpf::Object, String)]) {
    objects.iter().for_each(|(object, path)| stacks.object(pid, object, path.as_bytes()));
}

/// A program that was looked at and has ended; its files are still there.
struct Ended {
    _files: TempDir,
    pid: u32,
    regs: tracer_ebpf::Stack,
    bytes: Vec<u8>,
    objects: Vec<(tracer_ebpf::Object, String)>,
    /// Its frames while it lived.
    alive: Vec<Frame>,
}

fn ended() -> Ended {
    let files = build("callbacks.c", &OPTIMISED);
    let target = Target::program(&files);
    let (pid, (regs, bytes), objects) = (target.pid(), target.capture(), told(target.pid()));
    let alive = Unwinder::default().frames(pid, &regs, &bytes);
    assert!(alive.len() > 40 && objects.len() >= 4, "{objects:?}");
    target.kill();
    Ended { _files: files, pid, regs, bytes, objects, alive }
}

#[test]
fn what_the_linker_told_serves_for_the_map_of_a_process_that_is_gone() {
    let Ended { _files, pid, regs, bytes, objects, alive } = ended();
    let mut gone = Unwinder::default();
    tell(&mut gone.stacks, pid, &objects);
    assert_eq!(gone.frames(pid, &regs, &bytes), alive);

    // A child that shares the parent's objects until it executes a program of its own.
    let mut child = Unwinder::default();
    tell(&mut child.stacks, pid, &objects);
    child.stacks.fork(pid, NOBODY);
    child.stacks.forget(pid);
    assert_eq!(child.frames(NOBODY, &regs, &bytes), alive);
    child.stacks.forget(NOBODY);
    assert_eq!(child.frames(NOBODY, &regs, &bytes)[0].function, Cut::Gone.text());
}

#[test]
fn what_the_linker_told_serves_when_another_process_has_the_number_by_now() {
    let Ended { _files, regs, bytes, objects, alive, .. } = ended();
    // This program has the number; its own map is found in place of the other's.
    let mut unwinder = Unwinder::default();
    tell(&mut unwinder.stacks, std::process::id(), &objects);
    assert_eq!(unwinder.frames(std::process::id(), &regs, &bytes), alive);
}

#[test]
fn another_file_by_the_same_name_is_not_the_object() {
    let Ended { _files, pid, regs, bytes, mut objects, .. } = ended();
    for (object, path) in &mut objects {
        let is_library = Path::new(path).file_name().is_some_and(|name| name == "liblibrary.so");
        object.dynamic += u64::from(is_library) * 16;
    }
    let mut unwinder = Unwinder::default();
    tell(&mut unwinder.stacks, pid, &objects);
    let found = unwinder.frames(pid, &regs, &bytes);
    assert_eq!(found[0].function, Cut::NotCode.text());
    assert!(found.iter().all(|frame| !frame.module.contains("liblibrary")), "{found:#?}");
}

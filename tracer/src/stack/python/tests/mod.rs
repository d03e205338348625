//! Line tables against each interpreter's own reading of them, and what damage does.

use std::{
    collections::HashMap,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
};

use bytemuck::Zeroable;
use proptest::prelude::*;

use super::{
    CODES, Interpreter, Process, Pythons, State, layout,
    lines::{Format, Line, line},
    wire,
};
use crate::{
    attach::elf::ElfFile,
    stack::{Interner, merge::Run},
    trace::record::Record,
};

/// Interpreters of this machine: the system's, pyenv's.
fn interpreters() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = home.join(".pyenv/versions").read_dir().into_iter().flatten().flatten();
    let programs = versions.map(|entry| entry.path().join("bin/python3")).chain([PathBuf::from("/usr/bin/python3")]);
    programs.filter(|program| program.exists()).collect()
}

fn format(version: (u8, u8)) -> Option<Format> {
    match version {
        (3, 9) => Some(Format::Lnotab),
        (3, 10) => Some(Format::Ranges),
        (3, 11..) => Some(Format::Locations),
        _ => None,
    }
}

#[test]
fn lines_are_those_the_interpreter_gives() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stack/python/tests/tables.py");
    let mut compared = Vec::new();
    for program in interpreters() {
        // Large modules with every construct there is.
        let modules = ["argparse", "inspect", "typing", "decimal", "_pydecimal", "asyncio.base_events", "pickletools"];
        let output = Command::new(&program).arg(&script).args(modules).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut rows = text.lines();
        let version = rows.next().and_then(|row| row.split_once(' '));
        let Some((major, minor)) = version else { continue };
        let version = (major.parse().unwrap(), minor.parse().unwrap());
        let Some(format) = format(version) else { continue };
        assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut positions = 0;
        for row in rows {
            let (first, table, expected): (i32, String, Vec<(u32, Option<u32>)>) = serde_json::from_str(row).unwrap();
            let table: Vec<u8> =
                (0..table.len()).step_by(2).map(|at| u8::from_str_radix(&table[at..at + 2], 16).unwrap()).collect();
            for (position, expected) in expected {
                let expected = expected.map_or(Line::None, Line::At);
                assert_eq!(line(format, &table, first, position), expected, "{program:?} {first} {position} {table:?}");
                positions += 1;
            }
        }
        assert!(positions > 10_000, "{program:?}: {positions}");
        compared.push(version);
    }
    assert!(!compared.is_empty(), "no interpreter of 3.9 or later on this machine");
    println!("compared with {compared:?}");
}

#[test]
fn a_position_outside_the_table_is_unknown() {
    for format in [Format::Ranges, Format::Locations] {
        assert_eq!(line(format, &[], 7, 0), Line::Unknown);
    }
    // One entry without columns, for one code unit.
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3, 2], 7, 0), Line::At(8));
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3, 2], 7, 2), Line::Unknown);
    assert_eq!(line(Format::Locations, &[13 << 3, 2], 7, 0), Line::Unknown, "no mark of an entry's beginning");
    assert_eq!(line(Format::Locations, &[0x80 | 13 << 3], 7, 0), Line::Unknown, "cut off");
    assert_eq!(line(Format::Ranges, &[2, 0x80], 7, 0), Line::None);
    assert_eq!(line(Format::Ranges, &[2, 0xf0], 7, 0), Line::Unknown, "a line below zero");
}

#[test]
fn only_versions_that_are_known_have_a_layout() {
    for minor in 0..20 {
        let layout = layout::known((3, minor));
        assert_eq!(layout.is_some(), (9..=12).contains(&minor), "3.{minor}");
        let Some(layout) = layout else { continue };
        // An offset that was forgotten is 0. In 3.12 the code object comes first.
        assert!(layout.walk.thread_id > 0 && layout.walk.thread_frame > 0 && layout.walk.frame_position > 0);
        assert!(layout.walk.frame_previous > 0 && layout.walk.code_names > 0 && layout.walk.code_line > 0);
        assert!(layout.walk.ascii > 0 && layout.walk.compact > layout.walk.ascii);
        assert!(layout.main > 0 && layout.threads > 0);
        assert_eq!(layout.instructions > 0, minor >= 11);
    }
}

proptest! {
    #[test]
    fn any_table_is_read_to_its_end(table in prop::collection::vec(any::<u8>(), 0..300), first: i32, offset: u32) {
        for format in [Format::Lnotab, Format::Ranges, Format::Locations] {
            line(format, &table, first, offset);
        }
    }
}

/// A process of which nothing but its own record is known.
fn pythons(pid: u32) -> Pythons {
    let layout = Rc::new(layout::known((3, 12)).unwrap());
    let interpreter = Interpreter { walk: layout.walk, layout, code: 0..1, code_type: 7, code_end: None };
    let state = State::Runs(Box::new(Process { interpreter, codes: HashMap::new() }));
    Pythons { processes: HashMap::from([(pid, state)]), generation: 1, ..Pythons::default() }
}

fn code(pid: u32, address: u64, name: &str) -> wire::PythonCode {
    let mut code = wire::PythonCode { code: address, identity: address, kind: 7, line: 3, ..Zeroable::zeroed() };
    code.header.tgid = pid;
    code.name = wire::Text { at: 0, length: name.len() as u64, state: 1 << 2 | 0x60, len: name.len() as u32 };
    code.name_text[..name.len()].copy_from_slice(name.as_bytes());
    code
}

/// Frames, each with an address, the identity its code had, and an anchor, as one stack.
fn stack(pid: u32, frames: &[(u64, u64, u64)]) -> wire::PythonStack {
    let mut stack = wire::PythonStack { len: frames.len() as u32, ..Zeroable::zeroed() };
    stack.header.tgid = pid;
    for (slot, &(code, identity, anchor)) in stack.frames.iter_mut().zip(frames) {
        *slot = wire::PythonFrame { code, identity, position: 0, anchor };
    }
    stack
}

/// Process number that no process has: its memory cannot be read.
const GONE: u32 = i32::MAX as u32;

#[test]
fn frames_are_named_by_the_code_they_ran_even_at_a_reused_address() {
    let (mut pythons, mut out) = (pythons(GONE), Interner::new());
    assert_eq!(pythons.code(&code(GONE, 0x10, "load")), None);
    let named = pythons.frames(&stack(GONE, &[(0x10, 0x10, 0), (0, 0, 99), (0x10, 0x11, 0)]), &mut out);
    let names: Vec<String> = out
        .drain()
        .map(|record| match record {
            Record::Frame(frame) => frame.function,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["load [its first line]", "[Python function, name lost]"]);
    let runs = [Run { anchor: 99, frames: vec![0] }, Run { anchor: 0, frames: vec![1] }];
    assert_eq!(named.runs, runs);
    assert!(pythons.frames(&stack(GONE - 1, &[(0x10, 0x10, 0)]), &mut out).runs.is_empty(), "another process");
}

#[test]
fn too_many_codes_are_sent_again() {
    let mut pythons = pythons(GONE);
    let renewed: Vec<_> = (0..2 * CODES as u64).filter_map(|n| pythons.code(&code(GONE, n, "f"))).collect();
    assert_eq!(renewed.len(), 1);
    assert_eq!(renewed[0].generation, 2, "what the kernel side knows is not known any more");
    pythons.fork(GONE, GONE - 1);
    pythons.forget(GONE);
    assert_eq!(pythons.bytes, 0);
    assert!(pythons.code_range(GONE - 1).is_some());
}

/// A running interpreter that ends with this.
struct Running(Child);

impl Running {
    fn start(program: &Path) -> Self {
        let child = Command::new(program)
            .args(["-c", "import sys; print(flush=True); sys.stdin.read()"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn code_objects_end_in_code_dealloc() {
    let mut found = 0;
    for program in interpreters() {
        let running = Running::start(&program);
        let mut pythons = Pythons::default();
        let mut ends = Vec::new();
        let pid = running.0.id();
        let look = pythons.look(pid, &mut |path, offset| {
            ends.push((ElfFile::open(path).unwrap(), offset));
            true
        });
        // Too old to be walked.
        let [(file, offset)] = &ends[..] else { continue };
        assert_eq!(look.walk.watched, 1, "{program:?}");
        let look = pythons.look(pid, &mut |_, _| panic!("placed twice"));
        assert_eq!(look.walk.watched, 1, "{program:?}");
        let mut refused = Pythons::default();
        assert_eq!(refused.look(pid, &mut |_, _| false).walk.watched, 0, "{program:?}");
        // It is no exported symbol: stripped files do not name it.
        for definition in file.resolve(["code_dealloc"]).unwrap() {
            let expected = definition.offset.unwrap();
            assert!(*offset == expected || offset + 4 == expected, "{program:?}: {offset:#x}, not {expected:#x}");
            found += 1;
        }
    }
    assert!(found > 0, "no interpreter with a symbol table on this machine");
}

#[test]
fn this_process_has_no_interpreter_and_is_not_asked_all_the_time() {
    let mut pythons = Pythons::default();
    let look = pythons.look(std::process::id(), &mut |_, _| false);
    assert_eq!((look.walk, look.notice), (wire::Python::default(), None));
    assert!(pythons.look_again(std::process::id(), &mut |_, _| false).is_none());
    assert!(pythons.look_again(GONE, &mut |_, _| false).is_some(), "nobody looked for that one's yet");
}

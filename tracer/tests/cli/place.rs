//! A directory with a trace in it, and the command run there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tracer::trace::Writer;
use tracer::trace::record::{Alloc, Footer, Gpu, Header, Image, Op, Outcome, Process, Record, Rm, Step};

const CLIENT: u32 = 0xc1d0_001d;
const DEVICE: u32 = 0x5c00_0002;
pub(crate) const MIB: u64 = 1 << 20;

/// A directory with a trace of one process that held 118 MiB.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new(end: Option<Outcome>) -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let mut writer = Writer::create(&place.trace(), false).unwrap();
        for record in records(end) {
            writer.record(&record).unwrap();
        }
        writer.finish().unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.path("server.vrt")
    }

    pub(crate) fn vramtrace(&self, arguments: &[&str]) -> Output {
        command(self.directory.path(), arguments).output().unwrap()
    }

    /// Standard output of a run that must succeed without a word on standard error.
    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.vramtrace(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The line on standard error of a run that must succeed and print nothing else.
    pub(crate) fn said(&self, arguments: &[&str]) -> String {
        let output = self.vramtrace(arguments);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The one line on standard error of a run that must fail.
    pub(crate) fn failure(&self, arguments: &[&str]) -> String {
        let output = self.vramtrace(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        stderr
    }
}

pub(crate) fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vramtrace"));
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command
}

fn records(end: Option<Outcome>) -> Vec<Record> {
    let argv = vec!["python3".to_owned(), "train.py".to_owned()];
    let gpu = Gpu { uuid: "GPU-1".to_owned(), name: "NVIDIA H200".to_owned(), total_bytes: 1 << 37, ..Gpu::default() };
    let header = Header {
        format: "vramtrace".to_owned(),
        major: 1,
        t: 1000,
        unix_ns: 1_795_963_607_000_000_000,
        command: argv.clone(),
        gpus: vec![gpu],
        ..Header::default()
    };
    let exec = Process { t: 1000, pid: 41, step: Step::Exec(Image { argv, ..Image::default() }) };
    let alloc = |parent, object, class, more: Alloc| {
        let op = Op::Alloc(Alloc { client: CLIENT, parent, object, class, file: 7, ..more });
        Record::Rm(Rm { t: 2000, pid: 41, tid: 41, op, ..Rm::default() })
    };
    let mut records = vec![
        Record::Header(header),
        Record::Process(exec),
        alloc(0, CLIENT, 0x41, Alloc::default()),
        alloc(CLIENT, DEVICE, 0x80, Alloc { device_id: Some(0), ..Alloc::default() }),
        alloc(DEVICE, 0x5c00_0003, 0x40, Alloc { size: Some(118 * MIB), ..Alloc::default() }),
    ];
    let exit = Process { t: 3_000_001_000, pid: 41, step: Step::Exit { code: Some(0), signal: None } };
    if let Some(outcome) = end {
        records.push(Record::Process(exit));
        records.push(Record::Footer(Footer { t: 3_000_001_000, outcome, events: 3 }));
    }
    records
}

pub(crate) const EXITED: Option<Outcome> = Some(Outcome::Exited { code: 0 });

//! Builds ledgers by hand, for tests.

use proptest::prelude::*;

use crate::ledger::{
    Allocation, Book, Communicator, Death, Failure, GpuRef, Kind, LogLine, Owner, ProcessInfo, Reading, Sample,
};
use crate::trace::record::{Frame, FrameKind, Gpu, Header, Outcome};

/// A [`Book`] under construction, with a clock that moves 10 ns a step unless [`TestBook::at`] sets it.
#[derive(Clone, Debug)]
pub(crate) struct TestBook {
    pub(crate) book: Book,
    now: u64,
    set: bool,
}

impl TestBook {
    pub(crate) fn new() -> Self {
        let header = Header {
            tool: "0.1.0".to_owned(),
            unix_ns: 1_795_963_607_000_000_000,
            host: "gpu17".to_owned(),
            kernel: "6.18.0".to_owned(),
            driver: Some("580.159.04".to_owned()),
            command: vec!["python3".to_owned(), "server.py".to_owned()],
            hook: "nvidia_unlocked_ioctl".to_owned(),
            probes: "uprobe_multi".to_owned(),
            ..Header::default()
        };
        let outcome = Some(Outcome::Exited { code: 0 });
        Self { book: Book { header, outcome, ..Book::default() }, now: 0, set: false }
    }

    /// Sets the clock for the next step.
    pub(crate) fn at(&mut self, t: u64) -> &mut Self {
        (self.now, self.set) = (t, true);
        self
    }

    fn tick(&mut self) -> u64 {
        if !std::mem::take(&mut self.set) {
            self.now += 10;
        }
        self.book.end = self.book.end.max(self.now);
        self.now
    }

    pub(crate) fn process(&mut self, pid: u32, title: &str) -> usize {
        let born = self.tick();
        self.book.processes.push(ProcessInfo { pid, title: title.to_owned(), born, ..ProcessInfo::default() });
        self.book.processes.len() - 1
    }

    /// A GPU of 80 GiB.
    pub(crate) fn gpu(&mut self, index: u32) -> usize {
        let uuid = format!("GPU-{index:08x}-aaaa-bbbb-cccc-000000000000");
        let (name, pci) = ("NVIDIA H200".to_owned(), format!("00000000:{index:02X}:00.0"));
        self.book.header.gpus.push(Gpu { index, uuid: uuid.clone(), name, pci, total_bytes: 80 << 30 });
        self.book.gpus.push(GpuRef { index: Some(index), uuid, instance: Some(index) });
        self.book.gpus.len() - 1
    }

    fn row(&mut self, process: usize, gpu: usize, bytes: u64) -> Allocation {
        Allocation {
            process,
            tid: self.book.processes[process].pid,
            gpu,
            bytes,
            born: self.tick(),
            died: None,
            kind: Kind::CudaMalloc,
            owner: Owner("torch".into()),
            calls: ["cudaMalloc".to_owned(), "cuMemAlloc_v2".to_owned()].into(),
            stack: None,
            evidence: "test",
        }
    }

    /// A `cudaMalloc`; gives its row in the ledger.
    pub(crate) fn allocate(&mut self, process: usize, gpu: usize, bytes: u64) -> usize {
        let row = self.row(process, gpu, bytes);
        self.book.allocations.push(row);
        self.book.allocations.len() - 1
    }

    /// A `cudaMalloc` under Python frames.
    pub(crate) fn allocate_by(&mut self, process: usize, gpu: usize, bytes: u64, frames: &[&str]) -> usize {
        let stack = self.python_stack(frames);
        let row = self.allocate(process, gpu, bytes);
        self.book.allocations[row].stack = Some(stack);
        row
    }

    /// Memory of a kind that no API call asked for.
    pub(crate) fn allocate_kind(&mut self, process: usize, gpu: usize, bytes: u64, kind: Kind) -> usize {
        let row = self.allocate(process, gpu, bytes);
        let allocation = &mut self.book.allocations[row];
        (allocation.kind, allocation.owner, allocation.calls) = (kind, Owner("driver".into()), [].into());
        row
    }

    pub(crate) fn pin_host(&mut self, process: usize, gpu: usize, bytes: u64) {
        let row = Allocation { kind: Kind::Host, ..self.row(process, gpu, bytes) };
        self.book.host.push(row);
    }

    pub(crate) fn import(&mut self, process: usize, gpu: usize, bytes: u64) {
        let row = Allocation { kind: Kind::IpcImport, ..self.row(process, gpu, bytes) };
        self.book.imports.push(row);
    }

    pub(crate) fn free(&mut self, row: usize) {
        let t = self.tick();
        self.book.allocations[row].died.get_or_insert((t, Death::Freed));
    }

    /// `torch_memory_saver` gives it back for now.
    pub(crate) fn pause(&mut self, row: usize) {
        let t = self.tick();
        self.book.allocations[row].died = Some((t, Death::Paused));
    }

    /// Takes the place of memory that is paused; gives the new row.
    pub(crate) fn resume(&mut self, paused: usize) -> usize {
        let Allocation { process, gpu, bytes, .. } = self.book.allocations[paused];
        let row = self.allocate_by(process, gpu, bytes, &["resume_memory_occupation"]);
        self.book.allocations[row].calls = ["tms_resume".to_owned(), "cuMemCreate".to_owned()].into();
        let first = self.book.resumed.get(&(paused as u32)).copied().unwrap_or(paused as u32);
        self.book.resumed.insert(row as u32, first);
        row
    }

    /// The process becomes a member of a communicator of two.
    pub(crate) fn join(&mut self, process: usize, id: u64) {
        let t = self.tick();
        self.book.communicators.push(Communicator {
            start: t,
            end: t,
            process,
            tid: 1,
            api: "ncclCommInitRank".to_owned(),
            result: 0,
            id: Some(id),
            size: Some(2),
            rank: None,
            stack: None,
        });
    }

    /// The process exits; the driver takes back what it holds.
    pub(crate) fn exit(&mut self, process: usize, code: Option<i32>) {
        let t = self.tick();
        let info = &mut self.book.processes[process];
        (info.died, info.exit_code) = (Some(t), code);
        for row in self.book.allocations.iter_mut().filter(|row| row.process == process) {
            row.died.get_or_insert((t, Death::Reclaimed));
        }
    }

    /// A `cudaMalloc` that found too little memory.
    pub(crate) fn fail(&mut self, process: usize, gpu: usize, requested: u64) {
        let failure = Failure {
            t: self.tick(),
            process,
            api: "cudaMalloc".to_owned(),
            result: 2,
            status: 0x51,
            requested: Some(requested),
            refused: Some(requested),
            free: Some(1 << 30),
            free_at: Some(self.now),
            gpu: Some(gpu),
            stack: None,
            out_of_memory: true,
        };
        self.book.failures.push(failure);
    }

    /// An NVML sample beside what the ledger holds now.
    pub(crate) fn sample(&mut self, process: usize, gpu: usize, nvml: u64, quiet: bool) {
        let t = self.tick();
        let mine = |row: &&Allocation| row.process == process && row.gpu == gpu && row.live_at(t);
        let live = self.book.allocations.iter().filter(mine).map(|row| row.bytes).sum();
        self.book.samples.push(Sample { t, process, gpu, nvml, live, quiet });
    }

    /// A process writes a line.
    pub(crate) fn log(&mut self, process: usize, text: &str) {
        let t = self.tick();
        self.book.logs.push(LogLine { t, process, fd: 2, text: text.to_owned() });
    }

    /// A process reads its GPU's memory.
    pub(crate) fn read(&mut self, process: usize, free: u64, stack: Option<u32>) {
        let t = self.tick();
        self.book.readings.push(Reading { t, process, free, total: Some(80 << 30), stack });
    }

    /// A stack of Python frames `file: function` and, after them, native ones `module`, outermost first.
    pub(crate) fn python_stack(&mut self, frames: &[&str]) -> u32 {
        let mut numbers = Vec::new();
        for text in frames {
            let id = self.book.frames.len() as u32;
            let frame = match text.split_once(": ") {
                Some((file, function)) => Frame {
                    file: Some(format!("/venv/lib/python3.12/site-packages/{file}")),
                    function: function.to_owned(),
                    kind: FrameKind::Python,
                    ..Frame::default()
                },
                None => Frame { module: format!("/venv/lib/{text}"), ..Frame::default() },
            };
            self.book.frames.push(Frame { id, line: Some(7), ..frame });
            numbers.push(id);
        }
        self.book.stacks.push(numbers);
        self.book.stacks.len() as u32 - 1
    }

    /// A stack of `(function, module)`, outermost first.
    pub(crate) fn stack(&mut self, frames: &[(&str, &str)]) -> u32 {
        let frame = |(function, module): &(&str, &str)| {
            let (function, module) = ((*function).to_owned(), (*module).to_owned());
            Frame { function, module, offset: 0x1234, ..Frame::default() }
        };
        self.frames(&frames.iter().map(frame).collect::<Vec<_>>())
    }

    /// A stack of frames, outermost first.
    pub(crate) fn frames(&mut self, frames: &[Frame]) -> u32 {
        let first = self.book.frames.len() as u32;
        self.book.frames.extend((first..).zip(frames).map(|(id, frame)| Frame { id, ..frame.clone() }));
        self.book.stacks.push((first..self.book.frames.len() as u32).collect());
        self.book.stacks.len() as u32 - 1
    }
}

const KINDS: [Kind; 4] = [Kind::Context, Kind::CudaMalloc, Kind::Vmm, Kind::PreAttach];

/// Any small ledger: three processes on two GPUs that allocate, free, fail, are sampled and exit, some at one instant.
pub(crate) fn any_book() -> impl Strategy<Value = Book> {
    let step = (0..9_u8, 0..3_usize, 0..2_usize, any::<u32>(), any::<bool>());
    prop::collection::vec(step, 0..60).prop_map(|steps| {
        let mut t = TestBook::new();
        for pid in 1..=3 {
            t.process(pid, "server");
        }
        t.gpu(0);
        t.gpu(1);
        let stacks = [None, Some(t.stack(&[("main", "server"), ("grow", "libtorch_cuda.so")])), Some(77)];
        for (what, process, gpu, value, same_time) in steps {
            if same_time {
                t.at(t.now);
            }
            if t.book.processes[process].died.is_some() {
                continue;
            }
            let pick = value as usize;
            match what {
                0..=3 => {
                    let row = t.allocate_kind(process, gpu, u64::from(value) << 8, KINDS[pick % KINDS.len()]);
                    t.book.allocations[row].stack = stacks[pick % stacks.len()];
                }
                4 | 5 if !t.book.allocations.is_empty() => t.free(pick % t.book.allocations.len()),
                6 => t.sample(process, gpu, u64::from(value), same_time),
                7 => t.fail(process, gpu, u64::from(value) << 16),
                8 if pick.is_multiple_of(4) => t.exit(process, Some(1)),
                _ => {}
            }
        }
        t.book
    })
}

//! Bytes to records that make sense together: objects that are made and freed, calls around them, blocks in them. So the
//! fuzzer gets to where rows are attributed, merged and drawn, which lines that were damaged at random seldom do.

use super::Input;
use crate::{
    ledger::Ledger,
    probe,
    trace::record::{
        Alloc, Block, Call, Footer, Frame, FrameKind, Gpu, Header, Image, Library, Log, Loss, Notice, Nvml,
        NvmlProcess, Op, Outcome, Process, Record, Rm, Source, Stack, Step,
    },
};

/// Steps of one scenario at most.
const STEPS: usize = 600;

/// Classes that the ledger tells apart (`cl*.h`): memory, context shares, channels, devices.
const CLASSES: [u32; 8] = [0x40, 0x3e, 0x80, 0x2080, 0x41, 0xc86f, 0x9067, 0xc8b5];
const FUNCTIONS: [&str; 8] = [
    "load_model",
    "init_memory_pool",
    "capture",
    "forward",
    "initialize_model_parallel",
    "CustomAllreduce.__init__",
    "ncclCommInitRank",
    "main",
];
const LINES: [&str; 8] = [
    "[2026-11-29 15:12:32 TP0] Load weight begin. avail mem=94.50 GB",
    "[2026-11-29 15:12:40 TP1] Memory pool end. avail mem=21.70 GB",
    "server_args=ServerArgs(tp_size=2, mem_fraction_static=0.55, enable_dp_attention=True)",
    "[2026-11-29 15:12:50 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=3.10 GB",
    "INFO 03-08 16:44:28 [gpu_worker.py:456] Available KV cache memory: 12.50 GiB",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "The server is fired up and ready to roll!",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
];

/// The records.
pub(super) fn records(data: &[u8]) -> Vec<Record> {
    let mut input = Input::new(data);
    let gpu = |index: u32| Gpu { index, uuid: uuid(index), total_bytes: 95 << 30, ..Gpu::default() };
    let ledger = input.pick(&[Source::Ioctl, Source::Ioctl, Source::Ioctl, Source::DriverApi]);
    let gpus = (0..input.u8() % 3).map(|n| gpu(n.into())).collect();
    let mut all = vec![Record::Header(Header { t: 1, ledger, gpus, ..Header::default() })];
    let mut scenario = Scenario { input, t: 1, frames: 0, stacks: 0 };
    for _ in 0..STEPS {
        if scenario.input.is_empty() {
            break;
        }
        all.push(scenario.step());
    }
    all
}

/// The ledger's books of them.
pub(super) fn book(data: &[u8]) -> crate::ledger::Book {
    let mut ledger = Ledger::new();
    records(data).into_iter().for_each(|record| ledger.push(record));
    ledger.finish()
}

fn uuid(n: u32) -> String {
    format!("GPU-{n}")
}

struct Scenario<'a> {
    input: Input<'a>,
    t: u64,
    frames: u32,
    stacks: u32,
}

impl Scenario<'_> {
    fn step(&mut self) -> Record {
        let what = self.input.u8();
        self.t = match what >> 4 {
            0 => self.input.u64(),
            1 => self.t.saturating_sub(self.input.u8().into()),
            n => self.t.saturating_add(u64::from(n) * 1000),
        };
        match what & 15 {
            0..=3 => self.rm(),
            4..=6 => self.call(),
            7 | 8 => self.block(),
            9 => self.process(),
            10 => self.nvml(),
            11 => self.log(),
            12 => self.frame(),
            13 => self.stack(),
            _ => self.other(),
        }
    }

    fn pid(&mut self) -> u32 {
        100 + u32::from(self.input.u8() % 4)
    }

    fn number(&mut self) -> u32 {
        u32::from(self.input.u8() % 32)
    }

    fn of_stack(&mut self) -> Option<u32> {
        let n = u32::from(self.input.u8());
        (n < 128).then_some(n % self.stacks.max(1))
    }

    fn api(&mut self) -> &'static str {
        let table = probe::table();
        table[usize::from(self.input.u16()) % table.len()].symbol
    }

    fn op(&mut self) -> Op {
        let (client, object, parent) = (self.number(), self.number(), self.number());
        let file = self.number().into();
        match self.input.u8() % 12 {
            0..=3 => Op::Alloc(Alloc {
                client,
                parent,
                object,
                class: self.input.pick(&CLASSES),
                size: Some(self.input.size()),
                requested: Some(self.input.size()),
                device_id: Some(self.number() % 4),
                file,
                ..Alloc::default()
            }),
            4 | 5 => Op::Free { client, object },
            6 => Op::Dup { client, parent, object, source_client: self.number(), source_object: self.number() },
            7 => Op::Export { client, object, file, index: self.number() % 4 },
            8 => Op::Import { client, parent, object, file, index: self.number() % 4 },
            9 => {
                let (base, length) = (u64::from(self.number()) << 21, self.input.size());
                Op::Map { base, length, offset: 0, client, object }
            }
            10 => match self.input.u8() % 4 {
                0 => Op::RegisterVaspace { uuid: uuid(self.number() % 3), client, vaspace: object },
                1 => Op::GpuId { gpu_id: self.number(), instance: self.number() % 4 },
                2 => Op::Unmap { base: u64::from(self.number()) << 21 },
                _ => Op::Unknown { cmd: object, why: "unknown".into() },
            },
            _ => Op::Close { file },
        }
    }

    fn rm(&mut self) -> Record {
        let pid = self.pid();
        let calls = (0..self.input.u8() % 3).map(|_| self.api().to_owned()).collect();
        Record::Rm(Rm {
            t: self.t,
            start: self.t.saturating_sub(self.input.u8().into()),
            unfinished: self.input.u8() == 7,
            pid,
            tid: pid + self.number() % 2,
            status: self.input.pick(&[0, 0, 0, 0x51, 0x1a, 3]),
            calls,
            outer: self.input.pick(&[0, 1, 500, 1000, self.t]),
            stack: self.of_stack(),
            op: self.op(),
        })
    }

    fn call(&mut self) -> Record {
        let pid = self.pid();
        let mut call = Call {
            t: self.t,
            start: self.t.saturating_sub(self.input.u16().into()),
            pid,
            tid: pid + self.number() % 2,
            api: self.api().to_owned(),
            result: self.input.pick(&[0, 0, 0, 2, 1, 600, -1]),
            depth: self.number() % 3,
            outer: self.input.pick(&[0, 1, 500, 1000, self.t]),
            stack: self.of_stack(),
            ..Call::default()
        };
        let has = self.input.u8();
        let mut value = |bit: u8| (has & 1 << bit != 0).then(|| self.input.size());
        (call.address, call.size, call.handle) = (value(0), value(1), value(2));
        (call.free, call.total) = (value(3), value(4));
        for (bit, name) in [(5, "limit"), (5, "ranks"), (6, "rank"), (6, "id")] {
            call.more.extend(value(bit).map(|value| (name.to_owned(), value)));
        }
        call.device = (has & 1 << 7 != 0).then(|| i64::from(self.number()) - 1);
        Record::Call(call)
    }

    fn block(&mut self) -> Record {
        let pid = self.pid();
        let size = self.input.size();
        let bytes = size.cast_signed();
        Record::Block(Block {
            t: self.t,
            pid,
            tid: pid,
            device: self.number() % 3,
            address: u64::from(self.input.u16()) << 9,
            bytes: if self.input.u8().is_multiple_of(2) { bytes } else { bytes.wrapping_neg() },
            allocated: self.input.size(),
            reserved: self.input.size(),
            stack: self.of_stack(),
        })
    }

    fn process(&mut self) -> Record {
        let (pid, parent) = (self.pid(), self.pid());
        let image = Image {
            argv: vec!["python3".into(), "-m".into(), "sglang.launch_server".into()],
            parent,
            env: vec!["RANK=1".into()],
            ..Image::default()
        };
        let step = match self.input.u8() % 6 {
            0 => Step::Attached(image),
            1 => Step::Exec(image),
            2 => Step::Forked { parent },
            3 => Step::Title { title: format!("sglang::scheduler_TP{}", self.number()) },
            4 => Step::Exit { code: Some(0), signal: None },
            _ => Step::Exit { code: None, signal: Some(9) },
        };
        Record::Process(Process { t: self.t, pid, step })
    }

    fn nvml(&mut self) -> Record {
        let process = |this: &mut Self| NvmlProcess { pid: this.pid(), bytes: Some(this.input.size()) };
        Record::Nvml(Nvml {
            begin: self.t.saturating_sub(self.input.u8().into()),
            t: self.t,
            uuid: uuid(self.number() % 3),
            used: self.input.size(),
            free: self.input.size(),
            reserved: self.input.size(),
            processes: (0..self.input.u8() % 4).map(|_| process(self)).collect(),
        })
    }

    fn log(&mut self) -> Record {
        let text = match self.input.u8() {
            n if n < 64 => LINES[usize::from(n) % LINES.len()].to_owned(),
            n => String::from_utf8_lossy(self.input.bytes(n.into())).into_owned(),
        };
        Record::Log(Log { t: self.t, pid: self.pid(), fd: 2, text })
    }

    fn frame(&mut self) -> Record {
        let id = if self.input.u8() == 0 { self.number() } else { self.frames };
        self.frames += 1;
        let kind = self.input.pick(&[FrameKind::Native, FrameKind::Python, FrameKind::Cut]);
        let file = Some(format!("/x/sglang/srt/file{}.py", self.number()));
        let function = self.input.pick(&FUNCTIONS).to_owned();
        Record::Frame(Frame { id, function, file, line: Some(self.number()), kind, ..Frame::default() })
    }

    fn stack(&mut self) -> Record {
        let id = if self.input.u8() == 0 { self.number() } else { self.stacks };
        self.stacks += 1;
        let frames = (0..self.input.u8() % 8).map(|_| self.number()).collect();
        Record::Stack(Stack { id, frames })
    }

    fn other(&mut self) -> Record {
        let t = self.t;
        match self.input.u8() % 4 {
            0 => Record::Loss(Loss { t, why: "ring_full".into(), count: self.input.size(), ..Loss::default() }),
            1 => Record::Notice(Notice { t, text: "something".into() }),
            2 => Record::Library(Library { t, path: "/lib/libcuda.so.1".into(), placed: 3, ..Library::default() }),
            _ => {
                let outcome = match self.input.u8() % 3 {
                    0 => Outcome::Exited { code: 0 },
                    1 => Outcome::Killed { signal: 9 },
                    _ => Outcome::Running { why: "stopped".into() },
                };
                Record::Footer(Footer { t, outcome, events: self.input.size() })
            }
        }
    }
}

/// Bytes of some length that look random, and differ by seed: enough of every step.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let noise = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Some((state >> 24) as u8)
        };
        std::iter::from_fn(next).take(100 + 90 * seed as usize).collect::<Vec<u8>>()
    };
    (1..=12).map(noise).collect()
}

//! Traces of a server that never ran: any number of ranks and events, names as hostile as one likes, with known bytes.
//!
//! For what reads traces (pages, exports) at sizes and with content that no recording has. What is written is what a tracer
//! would write; the bytes of each rank and phase are in [`STEPS`].

mod steps;

use std::path::Path;

use anyhow::Result;
use tracer::trace::Writer;
use tracer::trace::record::{
    Alloc, Call, Footer, Frame, FrameKind, Gpu, Header, Image, Nvml, NvmlProcess, Op, Outcome, Process, Record, Rm,
    Stack, Step,
};

use steps::SERVE;
pub use steps::{HOSTILE, STEPS};

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// GPU of a simulated rank.
const TOTAL: u64 = 95 << 30;
/// When serving begins.
const SERVING: u64 = 40 * SECOND;

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Ranks, each on a GPU of its own.
    pub ranks: u32,
    /// Allocations and frees of each rank while serving.
    pub events: u64,
    /// True for names that try to be markup, to turn the line around, to be endless.
    pub hostile: bool,
    /// True when it dies for want of memory.
    pub dies: bool,
}

/// Writes the trace of `server` to the new file `path`.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(path: &Path, server: &Server) -> Result<()> {
    let mut scene = Scene { server: *server, writer: Writer::create(path, false)?, stacks: 0, frames: 0, objects: 100 };
    scene.begin()?;
    for (ms, phase, mib, api, frames) in STEPS {
        let stack = scene.stack(frames, phase)?;
        // Weights come in pieces, as layers do.
        let pieces = if mib >= 10_000 { 50 } else { 1 };
        for piece in 0..pieces {
            for rank in 0..server.ranks {
                let t = ms * 1_000_000 + piece * SECOND / 10 + u64::from(rank);
                scene.allocate(t, rank, mib / pieces * MIB, api, stack)?;
            }
        }
        (0..server.ranks).try_for_each(|rank| scene.read_free((ms + 900) * 1_000_000, rank))?;
    }
    let end = scene.serve()?;
    scene.finish(end)
}

struct Scene {
    server: Server,
    writer: Writer<std::fs::File>,
    stacks: u32,
    frames: u32,
    objects: u32,
}

impl Scene {
    fn put(&mut self, record: &Record) -> Result<()> {
        Ok(self.writer.record(record)?)
    }

    fn name(&self, n: usize, plain: &str) -> String {
        if self.server.hostile { format!("{} {plain}", HOSTILE[n % HOSTILE.len()]) } else { plain.to_owned() }
    }

    fn begin(&mut self) -> Result<()> {
        let gpu = |index: u32| Gpu {
            index,
            uuid: uuid(index),
            name: self.name(1, "Simulated GPU"),
            total_bytes: TOTAL,
            ..Gpu::default()
        };
        let command: Vec<String> = ["python3", "-m", "sglang.launch_server", "--tp", "8"].map(str::to_owned).to_vec();
        let header = Header {
            format: "vramtrace".to_owned(),
            major: 1,
            tool: "0.1.0".to_owned(),
            unix_ns: 1_795_963_607 * SECOND,
            host: self.name(2, "gpu17"),
            kernel: "6.18.0".to_owned(),
            driver: Some("580.159.04".to_owned()),
            command: command.clone(),
            gpus: (0..self.server.ranks).map(gpu).collect(),
            ..Header::default()
        };
        self.put(&Record::Header(header))?;
        self.put(&Record::Process(Process {
            t: 1,
            pid: 100,
            step: Step::Exec(Image { argv: command, ..Image::default() }),
        }))?;
        for rank in 0..self.server.ranks {
            let title = self.name(0, &format!("sglang::scheduler_TP{rank}"));
            // A title that is not SGLang's names no rank; the process then goes by it.
            for step in [Step::Forked { parent: 100 }, Step::Title { title }] {
                self.put(&Record::Process(Process { t: 2, pid: pid(rank), step }))?;
            }
            let device = Alloc {
                client: client(rank),
                parent: client(rank),
                object: 2,
                class: 0x80,
                device_id: Some(rank),
                file: 7,
                ..Alloc::default()
            };
            let root = Alloc { client: client(rank), object: client(rank), class: 0x41, file: 7, ..Alloc::default() };
            let vaspace = Op::RegisterVaspace { uuid: uuid(rank), client: client(rank), vaspace: 2 };
            for op in [Op::Alloc(root), Op::Alloc(device), vaspace] {
                self.put(&Record::Rm(Rm { t: 3, pid: pid(rank), tid: pid(rank), op, ..Rm::default() }))?;
            }
        }
        Ok(())
    }

    /// A stack of Python frames below `main`, ended by native ones.
    fn stack(&mut self, frames: &[&str], phase: &str) -> Result<u32> {
        let first = self.frames;
        let native = |function: String, module: &str| Frame { function, module: module.to_owned(), ..Frame::default() };
        let python = |(line, text): (u32, &&str)| {
            let (file, function) = text.split_once(": ").expect("file: function");
            let file = Some(format!("/venv/lib/python3.12/site-packages/{file}"));
            Frame {
                function: function.to_owned(),
                file,
                line: Some(40 + line),
                kind: FrameKind::Python,
                ..Frame::default()
            }
        };
        let mut list = vec![
            native("main".to_owned(), "/usr/bin/python3.12"),
            native("Py_RunMain".to_owned(), "/usr/bin/python3.12"),
        ];
        list.extend((0..).zip(frames).map(python));
        let long = if self.server.hostile {
            format!("{}::{}", "x".repeat(10_000), self.name(list.len() + self.stacks as usize, phase))
        } else {
            "c10::cuda::CUDACachingAllocator::raw_alloc".to_owned()
        };
        list.push(native(long, "/venv/lib/libc10_cuda.so"));
        for frame in list {
            let id = self.frames;
            self.frames += 1;
            self.put(&Record::Frame(Frame { id, ..frame }))?;
        }
        let id = self.stacks;
        self.stacks += 1;
        self.put(&Record::Stack(Stack { id, frames: (first..self.frames).collect() }))?;
        Ok(id)
    }

    /// Gives the object's handle.
    fn allocate(&mut self, t: u64, rank: u32, bytes: u64, api: &str, stack: u32) -> Result<u32> {
        self.objects += 1;
        let object = self.objects;
        self.rm(
            t,
            rank,
            0,
            api,
            Some(stack),
            Op::Alloc(Alloc {
                client: client(rank),
                parent: 2,
                object,
                class: 0x40,
                size: Some(bytes),
                ..Alloc::default()
            }),
        )?;
        Ok(object)
    }

    fn rm(&mut self, t: u64, rank: u32, status: u32, api: &str, stack: Option<u32>, op: Op) -> Result<()> {
        let calls = [api.to_owned()].into();
        self.put(&Record::Rm(Rm {
            t,
            pid: pid(rank),
            tid: pid(rank),
            status,
            calls,
            outer: t - 1,
            stack,
            op,
            ..Rm::default()
        }))
    }

    fn read_free(&mut self, t: u64, rank: u32) -> Result<()> {
        let free = Some(TOTAL / 2);
        let call = Call {
            t,
            start: t - 1,
            outer: t - 1,
            pid: pid(rank),
            tid: pid(rank),
            api: "cudaMemGetInfo".to_owned(),
            free,
            total: Some(TOTAL),
            ..Call::default()
        };
        self.put(&Record::Call(call))
    }

    /// Memory that comes and goes, with NVML's figures every second; gives the time of the end.
    fn serve(&mut self) -> Result<u64> {
        let stacks: Vec<u32> = (0..40)
            .map(|n| self.stack(&[SERVE[0], SERVE[1], &format!("model/layer{n}.py: Layer{n}.forward")], "serving"))
            .collect::<Result<_>>()?;
        let held: u64 =
            STEPS.iter().map(|(.., mib, _, _)| if *mib >= 10_000 { mib / 50 * 50 } else { *mib }).sum::<u64>() * MIB;
        let step = (600 * SECOND / self.server.events.max(1)).max(100);
        let mut live: Vec<std::collections::VecDeque<(u32, u64)>> =
            vec![Default::default(); self.server.ranks as usize];
        let (mut t, mut next_sample) = (SERVING, SERVING);
        for event in 0..self.server.events {
            t = SERVING + event * step;
            for rank in 0..self.server.ranks {
                let of_rank = &mut live[rank as usize];
                // Between one and a few hundred pieces live, more and more of them.
                let full = of_rank.len() as u64 > 20 + event % 97 + event * 100 / self.server.events;
                if let Some((object, _)) = if full { of_rank.pop_front() } else { None } {
                    self.rm(t, rank, 0, "cudaFree", None, Op::Free { client: client(rank), object })?;
                } else {
                    let bytes = (2 + event % 7 * 2) * MIB;
                    let object = self.allocate(t, rank, bytes, "cudaMalloc", stacks[(event % 40) as usize])?;
                    live[rank as usize].push_back((object, bytes));
                }
            }
            if t >= next_sample {
                next_sample += SECOND;
                for rank in 0..self.server.ranks {
                    let bytes = held + live[rank as usize].iter().map(|(_, bytes)| bytes).sum::<u64>();
                    let processes = vec![NvmlProcess { pid: pid(rank), bytes: Some(bytes) }];
                    self.put(&Record::Nvml(Nvml {
                        begin: t + step / 2,
                        t: t + step / 2 + 10,
                        uuid: uuid(rank),
                        used: bytes,
                        free: TOTAL - bytes,
                        reserved: 0,
                        processes,
                    }))?;
                }
            }
        }
        if self.server.dies {
            t += SECOND;
            let (stack, size) = (stacks[0], 64 << 30);
            let op = Op::Alloc(Alloc {
                client: client(0),
                parent: 2,
                object: 9,
                class: 0x40,
                requested: Some(size),
                ..Alloc::default()
            });
            self.rm(t, 0, 0x51, "cudaMalloc", Some(stack), op)?;
            let call = Call {
                t: t + 1,
                start: t - 1,
                outer: t - 1,
                pid: pid(0),
                tid: pid(0),
                api: "cudaMalloc".to_owned(),
                result: 2,
                size: Some(size),
                stack: Some(stack),
                ..Call::default()
            };
            self.put(&Record::Call(call))?;
        }
        Ok(t + SECOND)
    }

    fn finish(mut self, end: u64) -> Result<()> {
        let code = i32::from(self.server.dies);
        for pid in (0..self.server.ranks).map(pid).chain([100]) {
            self.put(&Record::Process(Process { t: end, pid, step: Step::Exit { code: Some(code), signal: None } }))?;
        }
        self.put(&Record::Footer(Footer { t: end, outcome: Outcome::Exited { code }, events: 0 }))?;
        self.writer.finish()?;
        Ok(())
    }
}

fn pid(rank: u32) -> u32 {
    200 + rank
}

fn client(rank: u32) -> u32 {
    0xc1d0_0000 + rank
}

fn uuid(rank: u32) -> String {
    format!("GPU-{rank:08x}-0000-0000-0000-000000000000")
}

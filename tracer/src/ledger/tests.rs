//! The ledger against hand-made traces; each case is a fault it must not have.

use super::*;
use crate::trace::record::{
    Alloc, Footer, Frame, Gpu, Image, Loss, Notice, NvmlProcess, Outcome, Process, Stack, Step,
};

mod attach;
mod failures;
mod fallback;
mod kinds;
mod lives;
mod model;
mod sharing;

const MIB: u64 = 1 << 20;
const UUID: [&str; 2] = ["GPU-aaaa", "GPU-bbbb"];

/// Writes a trace, one event a microsecond.
struct Trace {
    ledger: Ledger,
    t: u64,
    calls: Vec<String>,
    outer: u64,
    stack: Option<u32>,
    frames: u32,
    stacks: u32,
}

impl Trace {
    fn new() -> Self {
        Self::with(Source::Ioctl)
    }

    fn with(ledger: Source) -> Self {
        let gpu = |index: u32| Gpu { index, uuid: UUID[index as usize].into(), ..Gpu::default() };
        let header = Header { ledger, gpus: vec![gpu(0), gpu(1)], ..Header::default() };
        let (calls, stack) = (Vec::new(), None);
        let mut trace = Self { ledger: Ledger::new(), t: 1_000_000, calls, outer: 0, stack, frames: 0, stacks: 0 };
        trace.ledger.push(Record::Header(header));
        trace
    }

    fn push(&mut self, record: Record) {
        self.t += 1000;
        self.ledger.push(record);
    }

    /// Inside these API calls until the next `calls`.
    fn calls(&mut self, names: &[&str]) -> &mut Self {
        self.calls = names.iter().map(|&n| n.to_owned()).collect();
        self.outer = if names.is_empty() { 0 } else { self.t };
        self
    }

    /// A new stack of `(function, module)`, outermost first: that of requests until the next.
    fn stack(&mut self, frames: &[(&str, &str)]) {
        let numbers = self.frames..self.frames + frames.len() as u32;
        for (id, (function, module)) in numbers.clone().zip(frames) {
            let (function, module) = ((*function).into(), format!("/usr/lib/{module}"));
            self.push(Record::Frame(Frame { id, function, module, ..Frame::default() }));
        }
        self.push(Record::Stack(Stack { id: self.stacks, frames: numbers.collect() }));
        self.stack = Some(self.stacks);
        self.frames += frames.len() as u32;
        self.stacks += 1;
    }

    fn rm(&mut self, pid: u32, status: u32, op: Op) {
        let (t, calls, outer, stack) = (self.t, self.calls.clone().into(), self.outer, self.stack);
        self.push(Record::Rm(Rm { t, pid, tid: pid, status, calls, outer, stack, op, ..Rm::default() }));
    }

    fn step(&mut self, pid: u32, step: Step) {
        self.push(Record::Process(Process { t: self.t, pid, step }));
    }

    fn exit(&mut self, pid: u32) {
        self.step(pid, Step::Exit { code: Some(0), signal: None });
    }

    fn object(&mut self, pid: u32, client: u32, parent: u32, object: u32, class: u32) {
        let file = u64::from(client) << 8;
        let device_id = (class == 0x80).then_some(object - 2);
        self.rm(pid, 0, Op::Alloc(Alloc { client, parent, object, class, device_id, file, ..Alloc::default() }));
    }

    /// A client with the devices of both GPUs (handles 2 and 3) and an address space on the first.
    fn client(&mut self, pid: u32, client: u32) {
        self.object(pid, client, client, client, 0x41);
        for device in [2, 3] {
            self.object(pid, client, client, device, 0x80);
        }
        self.object(pid, client, 2, 4, 0x90f1);
        self.rm(pid, 0, Op::RegisterVaspace { uuid: UUID[0].into(), client, vaspace: 4 });
        self.object(pid, client, 3, 5, 0x90f1);
        self.rm(pid, 0, Op::RegisterVaspace { uuid: UUID[1].into(), client, vaspace: 5 });
    }

    fn memory(&mut self, pid: u32, client: u32, device: u32, object: u32, bytes: u64) {
        let file = u64::from(client) << 8;
        let (parent, size) = (device, Some(bytes));
        self.rm(pid, 0, Op::Alloc(Alloc { client, parent, object, class: 0x40, size, file, ..Alloc::default() }));
    }

    fn free(&mut self, pid: u32, client: u32, object: u32) {
        self.rm(pid, 0, Op::Free { client, object });
    }

    fn dup(&mut self, pid: u32, client: u32, object: u32, source_client: u32, source_object: u32) {
        self.rm(pid, 0, Op::Dup { client, parent: 2, object, source_client, source_object });
    }

    fn close(&mut self, pid: u32, file: u64) {
        self.rm(pid, 0, Op::Close { file });
    }

    fn nvml(&mut self, gpu: usize, processes: &[(u32, u64)]) {
        let processes = processes.iter().map(|&(pid, bytes)| NvmlProcess { pid, bytes: Some(bytes) }).collect();
        let (begin, t, free) = (self.t, self.t + 500, 7 * MIB);
        self.push(Record::Nvml(Nvml { begin, t, uuid: UUID[gpu].into(), free, processes, ..Nvml::default() }));
    }

    /// Long enough for a sample to be quiet.
    fn wait(&mut self) {
        self.t += 20_000_000;
    }

    fn book(self) -> Book {
        self.ledger.finish()
    }
}

/// Live bytes of a process by pid at the end.
fn held(book: &Book, pid: u32) -> u64 {
    let process = book.processes.iter().position(|p| p.pid == pid).expect("the process");
    book.live_at(book.end_of(process), |a| a.process == process)
}

fn deaths(book: &Book) -> Vec<Option<Death>> {
    book.allocations.iter().map(|a| a.died.map(|(_, how)| how)).collect()
}

#[test]
fn class_0x40_alone_owns_video_memory() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    for (object, class) in [(101, 0x3e), (102, 0x71), (103, 0xf8), (104, 0x50a0), (105, 0xc86f)] {
        let size = Some(8 * MIB);
        trace.rm(1, 0, Op::Alloc(Alloc { client: 10, parent: 2, object, class, size, ..Alloc::default() }));
    }
    let book = trace.book();
    assert_eq!(book.allocations.len(), 1);
    assert_eq!(held(&book, 1), 4 * MIB);
    assert_eq!((book.host.len(), book.host[0].bytes, book.host[0].kind), (1, 8 * MIB, Kind::Host));
}

#[test]
fn each_gpu_has_its_own_sum_and_name() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 3, 100, 4 * MIB);
    trace.memory(1, 10, 2, 101, 2 * MIB);
    let book = trace.book();
    let names: Vec<_> = book.gpus.iter().map(|g| (g.index, g.uuid.as_str(), g.instance)).collect();
    assert_eq!(names, [(Some(0), UUID[0], Some(0)), (Some(1), UUID[1], Some(1))]);
    assert_eq!(book.allocations.iter().map(|a| a.gpu).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn failed_requests_add_nothing() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    let alloc = Alloc { client: 10, parent: 2, object: 100, class: 0x40, size: Some(MIB), ..Alloc::default() };
    trace.rm(1, 0x51, Op::Alloc(alloc));
    trace.memory(1, 10, 2, 101, MIB);
    trace.rm(1, 0x57, Op::Free { client: 10, object: 101 });
    let book = trace.book();
    assert_eq!((book.allocations.len(), held(&book, 1)), (1, MIB), "neither the alloc nor the free took place");
}

#[test]
fn handles_are_reused() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    for bytes in [2 * MIB, 4 * MIB] {
        trace.memory(1, 10, 2, 100, bytes);
        trace.free(1, 10, 100);
    }
    trace.memory(1, 10, 2, 100, 6 * MIB);
    let book = trace.book();
    assert_eq!(deaths(&book), [Some(Death::Freed), Some(Death::Freed), None]);
    assert_eq!(held(&book, 1), 6 * MIB);
}

#[test]
fn a_handle_made_again_without_a_free_replaces_the_old() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    let book = trace.book();
    assert_eq!(held(&book, 1), 4 * MIB);
}

#[test]
fn freeing_a_parent_frees_all_below_it() {
    for top in [2, 10] {
        let mut trace = Trace::new();
        trace.client(1, 10);
        trace.memory(1, 10, 2, 100, 2 * MIB);
        trace.object(1, 10, 2, 50, 0x2080);
        trace.memory(1, 10, 50, 101, 2 * MIB);
        trace.memory(1, 10, 3, 102, 8 * MIB);
        trace.free(1, 10, top);
        assert_eq!(held(&trace.book(), 1), if top == 2 { 8 * MIB } else { 0 });
    }
}

#[test]
fn closing_the_file_frees_its_clients_and_no_others() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.client(1, 11);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    trace.memory(1, 11, 2, 100, 4 * MIB);
    trace.close(1, 10 << 8);
    let book = trace.book();
    assert_eq!(deaths(&book), [Some(Death::Reclaimed), None]);
    assert_eq!(held(&book, 1), 4 * MIB);
}

#[test]
fn the_end_of_a_process_is_what_it_held_not_what_was_reclaimed() {
    for closed in [true, false] {
        let mut trace = Trace::new();
        trace.client(1, 10);
        trace.memory(1, 10, 2, 100, 2 * MIB);
        trace.exit(1);
        if closed {
            trace.close(1, 10 << 8);
        }
        trace.push(Record::Notice(Notice { t: trace.t + 5, text: "later".into() }));
        let book = trace.book();
        assert_eq!(held(&book, 1), 2 * MIB);
        assert_eq!(deaths(&book), [Some(Death::Reclaimed)]);
        assert_eq!(book.live_at(book.end, |_| true), 0);
        let cells = book.group_by(At::End, |a| a.kind);
        assert_eq!(cells.values().map(|c| c.live).sum::<u64>(), 2 * MIB);
    }
}

#[test]
fn a_child_that_inherits_the_file_keeps_the_client_alive() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    trace.step(2, Step::Forked { parent: 1 });
    trace.exit(1);
    trace.t += 1000;
    let late = trace.t;
    trace.close(2, 10 << 8);
    let book = trace.book();
    assert_eq!(book.allocations[0].died, Some((late, Death::Reclaimed)));
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    trace.exit(1);
    trace.close(1, 10 << 8);
    trace.step(1, Step::Exec(Image { argv: vec!["again".into()], ..Image::default() }));
    trace.client(1, 11);
    trace.memory(1, 11, 2, 100, 4 * MIB);
    let book = trace.book();
    assert_eq!(book.processes.len(), 2);
    assert_eq!(book.processes[1].command, ["again"]);
    assert_eq!(book.allocations.iter().map(|a| a.process).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn losses_notices_and_unknown_requests_are_kept() {
    let mut trace = Trace::new();
    for _ in 0..2 {
        trace.push(Record::Loss(Loss { t: 1, why: "ring_full".into(), count: 3, since: 0 }));
        trace.push(Record::Notice(Notice { t: 1, text: "no libnccl".into() }));
        trace.rm(1, 0, Op::Unknown { cmd: 0xc028_462b, why: "its size".into() });
    }
    let outcome = Outcome::Exited { code: 3 };
    trace.push(Record::Footer(Footer { t: 9, outcome: outcome.clone(), events: 0 }));
    let book = trace.book();
    assert_eq!((book.losses["ring_full"], book.losses["undecoded_ioctl"]), (6, 2));
    assert_eq!(book.notices.len(), 2);
    assert!(book.notices[1].contains("0xc028462b"));
    assert_eq!(book.outcome, Some(outcome));
}

#[test]
fn the_stack_of_the_outermost_call_is_that_of_its_memory() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.calls(&["cudaMalloc", "cuMemAlloc_v2"]).memory(1, 10, 2, 100, 2 * MIB);
    let (t, outer) = (trace.t, trace.outer);
    let inner = Call { t, pid: 1, tid: 1, api: "cuMemAlloc_v2".into(), depth: 1, outer, ..Call::default() };
    let outermost = Call { api: "cudaMalloc".into(), depth: 0, start: outer, stack: Some(0), ..inner.clone() };
    trace.push(Record::Stack(Stack { id: 0, frames: vec![] }));
    trace.push(Record::Call(inner));
    trace.push(Record::Call(outermost));
    let book = trace.book();
    assert_eq!((book.allocations[0].stack, book.allocations[0].kind), (Some(0), Kind::CudaMalloc));
}

//! Ring-buffer records of any bytes, to a ledger's books: what a session does, without a kernel and processes.

use std::hint::black_box;

use bytemuck::Pod;
use tracer_ebpf as wire;

use super::{
    ioctl::{self, Abi},
    lines::Lines,
    pending::Pending,
    processes::Processes,
    records,
    wire::Event,
};
use crate::{
    fuzz::Input,
    ledger::Ledger,
    lifecycle::{Rules, logs},
    stack::{Interner, Stacks, fuzz::CODE_TYPE},
    trace::record::{Log, Op, Process, Record, Rm, Step},
};

/// Events of one input at most.
const EVENTS: usize = 400;
/// First process id: above any that there can be (`PID_MAX_LIMIT`, 2^22), so that no real process is asked.
const PID: u32 = 1 << 23;
/// Kinds of records.
const KINDS: [u32; 13] = [
    wire::KIND_CALL,
    wire::KIND_IOCTL,
    wire::KIND_STACK,
    wire::KIND_PYTHON,
    wire::KIND_CODE,
    wire::KIND_FORK,
    wire::KIND_EXEC,
    wire::KIND_EXIT,
    wire::KIND_LIBRARY,
    wire::KIND_OUTPUT,
    wire::KIND_RELEASE,
    wire::KIND_BLOCK,
    wire::KIND_OBJECT,
];

/// Takes bytes for what the ring buffer brings.
pub fn wire(data: &[u8]) {
    let mut input = Input::new(data);
    let mut session = Session::new(&mut input);
    for _ in 0..EVENTS {
        if input.is_empty() {
            break;
        }
        let bytes = next(&mut input);
        if let Some(event) = Event::read(&bytes) {
            session.handle(event);
        }
    }
    session.finish();
}

/// The next record: its kind, few processes and threads, and bytes as they come.
fn next(input: &mut Input<'_>) -> Vec<u8> {
    let (kind, ids, flags) = (input.u8(), input.u8(), input.u8());
    let size = usize::from(input.u16());
    let body = input.bytes(size % 8192);
    // Now and then a record that is nothing but what came.
    if kind == 0xff {
        return body.to_vec();
    }
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let pid = PID + u32::from(ids % 3);
    let header = wire::Header {
        kind,
        flags: (flags & 31).into(),
        time_ns: input.u64() >> (flags & 32),
        tgid: pid,
        tid: pid + u32::from(ids >> 4) % 2,
    };
    let mut bytes = [bytemuck::bytes_of(&header), body].concat();
    // The kernel side sends whole structures: what is missing is 0.
    let whole = size_of_kind(kind);
    if flags & 64 == 0 && bytes.len() < whole {
        bytes.resize(whole, 0);
    }
    if flags & 128 != 0 {
        shape(kind, input, &mut bytes);
    }
    bytes
}

const fn size_of_kind(kind: u32) -> usize {
    match kind {
        wire::KIND_CALL => size_of::<wire::Call>(),
        wire::KIND_IOCTL => size_of::<wire::Ioctl>(),
        wire::KIND_STACK => size_of::<wire::Stack>(),
        wire::KIND_PYTHON => size_of::<wire::PythonStack>(),
        wire::KIND_CODE => size_of::<wire::PythonCode>(),
        wire::KIND_LIBRARY => size_of::<wire::LibraryLoaded>(),
        wire::KIND_OBJECT => size_of::<wire::Object>(),
        wire::KIND_OUTPUT => size_of::<wire::Output>(),
        wire::KIND_RELEASE => size_of::<wire::FileReleased>(),
        wire::KIND_BLOCK => size_of::<wire::Block>(),
        _ => size_of::<wire::Process>(),
    }
}

/// Puts into fields what few bytes would hit by chance.
fn shape(kind: u32, input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    match kind {
        wire::KIND_CALL => change::<wire::Call>(bytes, |call| {
            call.frame.probe = u32::from(input.u16()) % 512;
            call.depth = (input.u8() % 3).into();
        }),
        wire::KIND_IOCTL => change::<wire::Ioctl>(bytes, |ioctl| {
            let nr = input.pick(&[
                ioctl::RM_ALLOC,
                ioctl::RM_FREE,
                ioctl::RM_CONTROL,
                ioctl::RM_DUP_OBJECT,
                ioctl::RM_VID_HEAP_CONTROL,
                ioctl::RM_ALLOC_MEMORY,
            ]);
            let size = input.pick(&[48, 32, 16, 28, 184, 40, 56]);
            let uvm = [
                ioctl::UVM_REGISTER_GPU_VASPACE,
                ioctl::UVM_MAP_EXTERNAL_ALLOCATION,
                ioctl::UVM_FREE,
                ioctl::UVM_UNMAP_EXTERNAL,
            ];
            ioctl.cmd = if input.u8().is_multiple_of(3) { input.pick(&uvm) } else { ioctl::request(nr, size) };
            ioctl.ret = input.pick(&[0, 0, 0, -1]);
            (ioctl.arg_len, ioctl.params_len) = (size, u32::from(input.u8()));
            ioctl.depth = (input.u8() % 12).into();
        }),
        wire::KIND_CODE => change::<wire::PythonCode>(bytes, |code| {
            (code.kind, code.identity, code.code) = (CODE_TYPE, 1, (input.u8() % 4).into());
            code.table_len = u32::from(input.u16()) % 4096;
            code.table_length = code.table_len.into();
            for text in [&mut code.name, &mut code.file] {
                (text.state, text.len) = (1 << 2 | 1 << 5 | 0x40, u32::from(input.u16()) % 600);
                text.length = text.len.into();
            }
        }),
        wire::KIND_PYTHON => change::<wire::PythonStack>(bytes, |stack| {
            stack.len = input.u16().into();
            for frame in &mut stack.frames[..8] {
                (frame.identity, frame.code, frame.position) = (1, (input.u8() % 4).into(), input.u16().into());
            }
        }),
        wire::KIND_OUTPUT => {
            let text = input.bytes(200);
            change::<wire::Output>(bytes, |output| {
                (output.fd, output.len, output.left_out) = (1, text.len() as u32, (text.len() % 2) as u64);
            });
            bytes.truncate(size_of::<wire::Output>());
            bytes.extend(text);
        }
        wire::KIND_OBJECT => {
            // A path that can be opened, and is an ELF file.
            let path = b"/proc/self/exe";
            change::<wire::Object>(bytes, |object| object.name_len = path.len() as u32);
            bytes.truncate(size_of::<wire::Object>());
            bytes.extend(path);
        }
        _ => {}
    }
}

fn change<T: Pod>(bytes: &mut [u8], with: impl FnOnce(&mut T)) {
    if let Some(bytes) = bytes.get_mut(..size_of::<T>()) {
        let mut value: T = bytemuck::pod_read_unaligned(bytes);
        with(&mut value);
        bytes.copy_from_slice(bytemuck::bytes_of(&value));
    }
}

/// A session as far as it needs neither kernel nor processes.
struct Session {
    abi: Abi,
    stacks: Stacks,
    interner: Interner,
    pending: Pending,
    processes: Processes,
    lines: Lines,
    ledger: Ledger,
}

impl Session {
    fn new(input: &mut Input<'_>) -> Self {
        let mut stacks = Stacks::new();
        let version = input.pick(&[(3, 9), (3, 10), (3, 11), (3, 12)]);
        (0..3).for_each(|n| stacks.pretend(PID + n, version));
        Self {
            abi: Abi { branch: input.pick(&[Some(580), Some(580), Some(580), Some(515), Some(545), None]) },
            stacks,
            interner: Interner::new(),
            pending: Pending::default(),
            processes: Processes::default(),
            lines: Lines::default(),
            ledger: Ledger::new(),
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Stack(regs, bytes) => {
                if let Some(stack) = self.stacks.native(regs.header.tgid, &regs, bytes) {
                    self.pending.native(regs.header.tid, stack);
                }
            }
            Event::Python(frames) => self.pending.python(frames),
            Event::Code(code) => _ = self.stacks.code(&code),
            Event::Call(call) => {
                let stack = self.take_stack(&call.header);
                records::call(&call, stack).map(Record::Call).into_iter().for_each(|record| self.record(record));
            }
            Event::Ioctl(ioctl) => {
                let stack = self.take_stack(&ioctl.header);
                let Some(decoded) = ioctl::decode(&ioctl, self.abi) else { return };
                let closed =
                    self.processes.uses(ioctl.header.tgid, ioctl.fd, (ioctl.file, ioctl.inode), ioctl.header.time_ns);
                let of_request: Vec<Record> = records::rm(&ioctl, decoded, stack).map(Record::Rm).collect();
                closed.into_iter().chain(of_request).for_each(|record| self.record(record));
            }
            Event::Fork(fork) => {
                let (parent, pid) = (fork.header.tgid, PID + fork.other % 3);
                let ended = self.processes.fork(parent, pid, fork.header.time_ns);
                ended.into_iter().for_each(|record| self.record(record));
                self.stacks.fork(parent, pid);
                let step = Step::Forked { parent };
                self.record(Record::Process(Process { t: fork.header.time_ns, pid, step }));
            }
            Event::Exec(exec) => {
                self.stacks.forget(exec.header.tgid);
                self.processes.exec(exec.header.tgid, exec.header.time_ns).into_iter().for_each(|r| self.record(r));
            }
            Event::Exit(exit) => {
                let begun = self.lines.of(exit.header.tgid);
                self.keep(begun);
                self.record(Record::Process(records::exit(&exit)));
                self.processes.exit(exit.header.tgid, exit.header.time_ns).into_iter().for_each(|r| self.record(r));
            }
            Event::Library(library) => {
                let name = library.name.get(..library.object.name_len as usize).unwrap_or(&library.name);
                black_box(crate::attach::find::recognise(&String::from_utf8_lossy(name)));
            }
            Event::Object(object, path) => self.stacks.object(object.header.tgid, &object, path),
            Event::Output(output, bytes) => {
                let lines = self.lines.push(&output, bytes);
                self.keep(lines);
            }
            Event::Release(release) => {
                let wire::Header { time_ns: t, tgid: pid, tid, .. } = release.header;
                self.record(Record::Rm(Rm { t, pid, tid, op: Op::Close { file: release.file }, ..Rm::default() }));
            }
            Event::Block(block) => {
                let stack = self.take_stack(&block.header);
                self.record(Record::Block(records::block(&block, stack)));
            }
        }
    }

    fn take_stack(&mut self, header: &wire::Header) -> Option<u32> {
        let (native, python) = self.pending.take(header);
        let stack = self.stacks.number(header.tgid, native, python.as_deref(), &mut self.interner);
        let new: Vec<Record> = self.interner.drain().collect();
        new.into_iter().for_each(|record| self.record(record));
        stack
    }

    fn keep(&mut self, lines: Vec<super::lines::Line>) {
        for line in lines {
            let text = logs::plain(&line.text);
            if Rules::standard().is_interesting(&text) {
                black_box(Rules::standard().phase_of_line(&text));
                let text = logs::clean(&text);
                assert!(text.len() <= logs::MAX_LINE + 8, "a line of any length is kept");
                self.record(Record::Log(Log { t: line.t, pid: line.pid, fd: line.fd, text }));
            }
        }
    }

    /// A record must be the same when it is read back.
    fn record(&mut self, record: Record) {
        let line = serde_json::to_string(&record).expect("a record can be encoded");
        let (back, damage) = crate::trace::reader::records(line.as_bytes());
        assert!(damage.is_none() && back == [record.clone()], "{line} reads as {back:?}, {damage:?}");
        self.ledger.push(record);
    }

    fn finish(mut self) {
        let rest = self.lines.rest();
        self.keep(rest);
        let book = self.ledger.finish();
        let axes = crate::lifecycle::Axes::new(&book);
        let query = crate::report::Query::suiting(&axes, crate::report::At::End);
        let _ = black_box(crate::report::Summary::of(&axes, &query));
    }
}

/// A record of each kind, as the kernel side would send it, and all in a row.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let record = |(n, kind): (usize, &u32)| {
        let body = size_of_kind(*kind) - size_of::<wire::Header>();
        let filler: Vec<u8> = (0..body.min(600)).map(|at| ((at * (n + 3)) >> 2) as u8).collect();
        [&[n as u8, (n * 5) as u8, 128 | 7][..], &(filler.len() as u16).to_le_bytes(), &filler, &[1; 40]].concat()
    };
    let records: Vec<Vec<u8>> = KINDS.iter().enumerate().map(record).collect();
    let begin = |record: &Vec<u8>| [&[2, 0][..], record].concat();
    let all = [&[2, 0][..], &records.concat(), &records.concat()].concat();
    records.iter().map(begin).chain([all]).collect()
}

//! Kernel events to trace records: what needs nothing but the event itself.

use std::sync::Arc;

use tracer_ebpf as wire;

use super::ioctl::Decoded;
use crate::{
    probe,
    trace::record::{Block, Call, Process, Rm, Step},
};

/// A call that returned; `None` for a probe that there is not.
pub(super) fn call(call: &wire::Call, stack: Option<u32>) -> Option<Call> {
    let row = probe::by_id(call.frame.probe)?;
    let values = row.decode(call);
    Some(Call {
        t: call.header.time_ns,
        start: call.frame.enter_ns,
        pid: call.header.tgid,
        tid: call.header.tid,
        api: row.symbol.to_owned(),
        result: row.result(call),
        depth: call.depth,
        inside: if call.depth > 0 { symbol(call.parent.probe) } else { String::new() },
        outer: call.outer_ns,
        library: call.frame.library,
        address: values.address,
        size: values.size,
        handle: values.handle,
        device: values.device,
        free: values.free,
        total: values.total,
        more: values.more,
        unreadable: values.unreadable,
        stack,
    })
}

/// A block of `PyTorch`'s allocator.
pub(super) fn block(block: &wire::Block, stack: Option<u32>) -> Block {
    let wire::Header { time_ns: t, tgid: pid, tid, .. } = block.header;
    let wire::Block { address, bytes, allocated, reserved, device, .. } = *block;
    Block { t, pid, tid, device, address, bytes, allocated, reserved, stack }
}

/// What a driver request did: a record for each operation.
pub(super) fn rm(ioctl: &wire::Ioctl, decoded: Decoded, stack: Option<u32>) -> impl Iterator<Item = Rm> {
    let wire::Header { time_ns: t, tgid: pid, tid, .. } = ioctl.header;
    let frames = &ioctl.calls[..(ioctl.depth as usize).min(wire::DEPTH)];
    let calls: Arc<[String]> = frames.iter().map(|f| symbol(f.probe)).collect();
    let (start, unfinished) = (ioctl.enter_ns, ioctl.unfinished != 0);
    let (status, outer) = (decoded.status, frames.first().map_or(0, |f| f.enter_ns));
    let record = move |op| Rm { t, start, unfinished, pid, tid, status, calls: calls.clone(), outer, stack, op };
    decoded.ops.into_iter().map(record)
}

/// The end of a process.
pub(super) fn exit(exit: &wire::Process) -> Process {
    // wait(2) status: signal in the low 7 bits, else the exit code above them.
    let signal = (exit.value & 0x7f) as i32;
    let (code, signal) = if signal == 0 { (Some((exit.value >> 8) as i32 & 0xff), None) } else { (None, Some(signal)) };
    Process { t: exit.header.time_ns, pid: exit.header.tgid, step: Step::Exit { code, signal } }
}

fn symbol(id: u32) -> String {
    probe::by_id(id).map_or_else(|| format!("probe {id}"), |p| p.symbol.to_owned())
}

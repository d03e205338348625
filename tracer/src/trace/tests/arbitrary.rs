//! Arbitrary records.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::header;
use crate::trace::record::{
    Alloc, Block, Call, Footer, Frame, FrameKind, Gpu, Header, Image, Library, Log, Loss, Notice, Nvml, NvmlProcess,
    Op, Outcome, Process, Record, Rm, Source, Stack, Step,
};

fn step() -> impl Strategy<Value = Step> {
    let image = (vec(".*", 0..3), ".*", any::<u32>(), vec(".*", 0..3)).prop_map(|(argv, exe, parent, env)| Image {
        argv,
        exe,
        parent,
        env,
    });
    prop_oneof![
        image.clone().prop_map(Step::Attached),
        image.prop_map(Step::Exec),
        any::<u32>().prop_map(|parent| Step::Forked { parent }),
        ".*".prop_map(|title| Step::Title { title }),
        (any::<Option<i32>>(), any::<Option<i32>>()).prop_map(|(code, signal)| Step::Exit { code, signal }),
    ]
}

fn alloc() -> impl Strategy<Value = Alloc> {
    (any::<[u32; 4]>(), any::<(Option<u64>, Option<u64>)>(), any::<[Option<u32>; 3]>(), any::<u64>()).prop_map(
        |([client, parent, object, class], (size, requested), [device_id, attr, flags], file)| Alloc {
            client,
            parent,
            object,
            class,
            size,
            requested,
            device_id,
            attr,
            flags,
            file,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let n = any::<[u32; 5]>;
    prop_oneof![
        alloc().prop_map(Op::Alloc),
        n().prop_map(|[client, object, ..]| Op::Free { client, object }),
        n().prop_map(|[client, parent, object, source_client, source_object]| {
            Op::Dup { client, parent, object, source_client, source_object }
        }),
        (n(), any::<u64>()).prop_map(|([client, object, index, ..], file)| Op::Export { client, object, file, index }),
        (n(), any::<u64>()).prop_map(|([client, parent, object, index, _], file)| {
            Op::Import { client, parent, object, file, index }
        }),
        (".*", n()).prop_map(|(uuid, [client, vaspace, ..])| Op::RegisterVaspace { uuid, client, vaspace }),
        n().prop_map(|[gpu_id, instance, ..]| Op::GpuId { gpu_id, instance }),
        (any::<[u64; 3]>(), n()).prop_map(|([base, length, offset], [client, object, ..])| Op::Map {
            base,
            length,
            offset,
            client,
            object
        }),
        any::<u64>().prop_map(|base| Op::Unmap { base }),
        any::<u64>().prop_map(|file| Op::Close { file }),
        (any::<u32>(), ".*").prop_map(|(cmd, why)| Op::Unknown { cmd, why }),
    ]
}

fn rm() -> impl Strategy<Value = Rm> {
    (any::<(u64, u32, u32, u32)>(), vec(".*", 0..3), any::<u64>(), any::<Option<u32>>(), op()).prop_map(
        |((t, pid, tid, status), calls, outer, stack, op)| Rm {
            t,
            start: t / 2,
            unfinished: tid % 2 == 1,
            pid,
            tid,
            status,
            calls: calls.into(),
            outer,
            stack,
            op,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let times = any::<(u64, u64, u64)>();
    let ids = any::<(u32, u32, u32, u32)>();
    let values = any::<([Option<u64>; 5], Option<i64>, Option<u32>, bool)>();
    let more = proptest::collection::btree_map("[a-z]{1,8}", any::<u64>(), 0..3);
    (times, ids, ".*", any::<i64>(), ".*", values, more).prop_map(
        |((t, start, outer), (pid, tid, depth, library), api, result, inside, values, more)| {
            let ([address, size, handle, free, total], device, stack, unreadable) = values;
            let more: BTreeMap<_, _> = more;
            Call {
                t,
                start,
                pid,
                tid,
                api,
                result,
                depth,
                inside,
                outer,
                library,
                address,
                size,
                handle,
                device,
                free,
                total,
                more,
                unreadable,
                stack,
            }
        },
    )
}

fn nvml() -> impl Strategy<Value = Nvml> {
    let process = any::<(u32, Option<u64>)>().prop_map(|(pid, bytes)| NvmlProcess { pid, bytes });
    (any::<[u64; 5]>(), ".*", vec(process, 0..4)).prop_map(|([begin, t, used, free, reserved], uuid, processes)| Nvml {
        begin,
        t,
        uuid,
        used,
        free,
        reserved,
        processes,
    })
}

fn block() -> impl Strategy<Value = Block> {
    (any::<[u64; 4]>(), any::<[u32; 3]>(), any::<i64>(), any::<Option<u32>>()).prop_map(
        |([t, address, allocated, reserved], [pid, tid, device], bytes, stack)| Block {
            t,
            pid,
            tid,
            device,
            address,
            bytes,
            allocated,
            reserved,
            stack,
        },
    )
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    let frame_kind = prop_oneof![Just(FrameKind::Native), Just(FrameKind::Python), Just(FrameKind::Cut)];
    let outcome = prop_oneof![
        any::<i32>().prop_map(|code| Outcome::Exited { code }),
        any::<i32>().prop_map(|signal| Outcome::Killed { signal }),
        ".*".prop_map(|why| Outcome::Running { why }),
    ];
    let gpu = (any::<u32>(), ".*", ".*", ".*", any::<u64>()).prop_map(|(index, uuid, name, pci, total_bytes)| Gpu {
        index,
        uuid,
        name,
        pci,
        total_bytes,
    });
    prop_oneof![
        (any::<u64>(), any::<u32>(), step()).prop_map(|(t, pid, step)| Record::Process(Process { t, pid, step })),
        rm().prop_map(Record::Rm),
        call().prop_map(Record::Call),
        block().prop_map(Record::Block),
        nvml().prop_map(Record::Nvml),
        (any::<u64>(), ".*", any::<u64>(), any::<u64>()).prop_map(|(t, why, count, since)| Record::Loss(Loss {
            t,
            why,
            count,
            since
        })),
        (any::<u64>(), ".*").prop_map(|(t, text)| Record::Notice(Notice { t, text })),
        (any::<u64>(), any::<(u32, u32)>(), ".*").prop_map(|(t, (pid, fd), text)| Record::Log(Log {
            t,
            pid,
            fd,
            text
        })),
        (any::<u32>(), vec(any::<u32>(), 0..9)).prop_map(|(id, frames)| Record::Stack(Stack { id, frames })),
        (any::<u32>(), ".*", ".*", any::<u64>(), option::of(".*"), any::<Option<u32>>(), frame_kind).prop_map(
            |(id, function, module, offset, file, line, kind)| {
                Record::Frame(Frame { id, function, module, offset, file, line, kind })
            }
        ),
        (any::<u64>(), ".*", option::of(".*"), any::<u32>(), vec(".*", 0..3), vec(".*", 0..3), any::<bool>()).prop_map(
            |(t, path, build_id, placed, missing, failed, late)| {
                Record::Library(Library { t, path, build_id, placed, missing, failed, late })
            }
        ),
        (any::<(u64, u64)>(), ".*", option::of(".*"), vec(gpu, 0..3), vec(".*", 0..3), any::<(bool, bool)>()).prop_map(
            |((t, unix_ns), host, driver, gpus, command, (api, attached))| {
                let ledger = if api { Source::DriverApi } else { Source::Ioctl };
                Record::Header(Header { t, unix_ns, host, driver, gpus, command, ledger, attached, ..header() })
            }
        ),
        (any::<(u64, u64)>(), outcome).prop_map(|((t, events), outcome)| Record::Footer(Footer { t, outcome, events })),
    ]
}

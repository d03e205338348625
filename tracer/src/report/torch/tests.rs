use super::*;
use crate::ledger::torch::{Segment, Torch};
use crate::ledger::{Book, Capture, Death};
use crate::report::query::At;
use crate::report::testbook::TestBook;
use crate::report::text::{Style, render};
use crate::report::{Query, Summary};

const MIB: u64 = 1 << 20;

/// One process with a default segment, and one of a graph's pool; blocks in both, from `born` on.
fn book() -> Book {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "server"), t.gpu(0));
    let [first, graph] = [(10, 20 * MIB), (30, 2 * MIB)].map(|(at, bytes)| t.at(at).allocate(process, gpu, bytes));
    let cached = t.at(40).allocate(process, gpu, 20 * MIB);
    t.at(60).free(cached);
    t.at(100);
    let mut book = t.book;
    book.end = 100;
    book.captures = vec![Capture { start: 25, end: 35, process, tid: 1 }];
    let block = |born, died, bytes, in_graph_pool| Block {
        born,
        died,
        bytes,
        address: born << 20,
        device: 0,
        tid: 1,
        stack: None,
        in_graph_pool,
    };
    let segment = |row: usize, in_graph_pool| Segment { row: row as u32, address: 0, in_graph_pool };
    book.torch = Torch {
        devices: vec![TorchDevice {
            process,
            ordinal: 3,
            gpu: Some(gpu),
            segments: vec![segment(first, false), segment(graph, true), segment(cached, false)],
            figures: [(11, 0, 20), (31, 0, 22), (41, 0, 42)]
                .map(|(t, before, mib)| Figures { t, before, reserved: mib * MIB })
                .to_vec(),
            events: 5,
            ..TorchDevice::default()
        }],
        blocks: vec![block(11, None, 5 * MIB, false), block(31, None, MIB, true), block(41, Some(50), 15 * MIB, false)],
        failures: vec![OutOfMemory {
            t: 70,
            process,
            ordinal: 3,
            requested: 60 << 30,
            allocated: 6 * MIB,
            reserved: 22 * MIB,
            stack: None,
        }],
    };
    book
}

fn memory(book: &Book, at: u64) -> TorchMemory {
    let query = Query { at: At::Time(std::time::Duration::from_nanos(at)), ..Query::default() };
    let summary = Summary::new(book, &query).unwrap();
    summary.processes[0].devices[0].torch.clone().unwrap()
}

fn mib(sum: &TorchSum) -> (u64, u64, i64, u64) {
    (sum.allocated_bytes / MIB, sum.reserved_bytes / MIB, sum.slack_bytes / MIB as i64, sum.blocks)
}

#[test]
fn slack_is_what_was_reserved_and_not_handed_out() {
    let book = book();
    assert_eq!(mib(&memory(&book, 45).sum), (21, 42, 21, 3));
    let freed = memory(&book, 55);
    assert_eq!((mib(&freed.sum), mib(&freed.graph_pools)), ((6, 42, 36, 2), (1, 2, 1, 1)));
    // The cache was emptied, which the allocator does not tell.
    let end = memory(&book, 80);
    assert_eq!((mib(&end.sum), end.segments_bytes, end.segments), ((6, 22, 16, 2), 22 * MIB, 2));
    assert_eq!(end.reported, Some(Reported { time_ns: 41, reserved_bytes: 42 * MIB }));
    assert_eq!((end.mismatches, end.reserved_mismatches), (0, 0));
    assert_eq!(mib(&memory(&book, 5).sum), (0, 0, 0, 0), "nothing yet");
}

#[test]
fn phases_sum_to_the_whole() {
    let book = book();
    for at in [12, 32, 45, 55, 80] {
        let memory = memory(&book, at);
        let mut sum = TorchSum::default();
        memory.phases.iter().for_each(|phase| sum.add(&phase.sum));
        assert_eq!(sum, memory.sum, "at {at}");
    }
    let end = memory(&book, 80);
    let graph = end.phases.iter().find(|of| of.phase == "cuda_graph").map(|of| mib(&of.sum));
    // By the capture alone: small blocks bring no stack.
    assert_eq!(graph.map(|(allocated, _, _, blocks)| (allocated, blocks)), Some((1, 1)), "{:?}", end.phases);
}

#[test]
fn what_was_there_before_counts_in_no_phase() {
    let mut book = book();
    book.processes[0].attached = true;
    for figures in &mut book.torch.devices[0].figures {
        (figures.before, figures.reserved) = (3 << 20, figures.reserved + 4 * MIB);
    }
    let end = memory(&book, 80);
    assert_eq!((mib(&end.sum), end.before_bytes, end.reserved_mismatches), ((9, 26, 17, 2), 3 << 20, 0));
    let rest = end.phases.iter().find(|of| of.phase == UNATTRIBUTED).unwrap();
    assert!(rest.sum.allocated_bytes >= 3 * MIB && rest.sum.reserved_bytes >= 4 * MIB, "{rest:?}");
}

#[test]
fn segments_that_the_ledger_has_not_are_counted() {
    let mut book = book();
    book.allocations[0].died = Some((20, Death::Freed));
    assert_eq!(memory(&book, 80).reserved_mismatches, 2, "at 31 and 41");
}

#[test]
fn an_allocator_on_no_known_gpu_is_left_out() {
    let mut book = book();
    book.torch.devices[0].gpu = None;
    let summary = Summary::new(&book, &Query::default()).unwrap();
    assert!(summary.processes[0].devices[0].torch.is_none());
}

#[test]
fn the_section() {
    let summary = Summary::new(&book(), &Query::default()).unwrap();
    let text = render(&summary, "t.vrt", Style::default());
    let from = text.find("PyTorch's caching allocator").unwrap();
    let section: Vec<&str> = text[from..].split("\n\n").take(2).collect();
    insta::assert_snapshot!(section.join("\n\n"));
}

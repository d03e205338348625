//! Books of several hosts.

use super::*;
use crate::report::testbook::{TestBook, any_book};
use proptest::prelude::*;

fn of_host(name: &str, boot: u64, start: u64) -> TestBook {
    let mut t = TestBook::new();
    t.book.header.host = name.to_owned();
    (t.book.header.t, t.book.header.unix_ns) = (boot, start);
    t.at(boot);
    t
}

#[test]
fn times_and_numbers_of_two_hosts_are_one() {
    let (mut one, mut two) = (of_host("a", 1_000, 50_000), of_host("b", 9_000_000, 50_500));
    for (t, bytes) in [(&mut one, 5), (&mut two, 7)] {
        let (process, gpu) = (t.process(1, "x"), t.gpu(0));
        let stack = t.stack(&[("main", "x")]);
        let row = t.allocate(process, gpu, bytes);
        t.book.allocations[row].stack = Some(stack);
        t.free(row);
    }
    two.book.outcome = Some(Outcome::Killed { signal: 9 });
    let book = Book::merge(vec![two.book, one.book]);
    assert_eq!((book.header.t, book.end, book.header.host.as_str()), (50_000, 50_520, "b, a"));
    let rows: Vec<_> =
        book.allocations.iter().map(|row| (row.born, row.bytes, row.process, row.gpu, row.stack)).collect();
    assert_eq!(rows, [(50_010, 5, 1, 1, Some(1)), (50_510, 7, 0, 0, Some(0))]);
    assert_eq!((book.host_name(0), book.host_name(1), book.gpu_host(1)), (Some("b"), Some("a"), Some("a")));
    assert_eq!((book.stacks, book.outcome), (vec![vec![0], vec![1]], Some(Outcome::Killed { signal: 9 })));
}

#[test]
fn traces_of_one_run_are_of_hosts_that_differ_and_overlap() {
    let trace = |host: &str, start: u64| {
        let mut t = of_host(host, 1_000, start);
        t.at(1_500).process(1, "x");
        t.book
    };
    assert!(Book::are_of_one_run(&[trace("a", 9_000), trace("b", 9_400)]));
    assert!(!Book::are_of_one_run(&[trace("a", 9_000), trace("b", 9_600)]), "one after the other");
    assert!(!Book::are_of_one_run(&[trace("a", 9_000), trace("a", 9_000)]), "one host");
    assert!(!Book::are_of_one_run(&[trace("a", 9_000)]) && !Book::are_of_one_run(&[]));
}

#[test]
fn segments_of_allocators_stay_the_rows_that_they_were() {
    use crate::ledger::torch::{Segment, TorchDevice};
    let trace = |host: &str, start: u64, bytes: u64| {
        let mut t = of_host(host, 0, start);
        let (process, gpu) = (t.process(1, "x"), t.gpu(0));
        t.allocate(process, gpu, 1);
        let row = t.allocate(process, gpu, bytes) as u32;
        let segments = vec![Segment { row, address: 0, in_graph_pool: false }];
        t.book.torch.devices.push(TorchDevice { process, gpu: Some(gpu), segments, ..TorchDevice::default() });
        t.book
    };
    // The second began earlier, so that its rows come first.
    let book = Book::merge(vec![trace("a", 9_000, 70), trace("b", 5_000, 80)]);
    let bytes: Vec<_> =
        book.torch.devices.iter().flat_map(|device| device.segments(&book)).map(|row| row.bytes).collect();
    assert_eq!(bytes, [70, 80]);
    assert_eq!(book.torch.devices[1].process, 1);
}

#[test]
fn what_was_resumed_stays_what_it_first_was() {
    let trace = |host: &str, start: u64, bytes: u64| {
        let mut t = of_host(host, 0, start);
        let (process, gpu) = (t.process(1, "x"), t.gpu(0));
        t.allocate(process, gpu, 1);
        let row = t.allocate(process, gpu, bytes);
        t.pause(row);
        t.resume(row);
        t.book
    };
    let book = Book::merge(vec![trace("a", 9_000, 70), trace("b", 5_000, 80)]);
    let bytes = |row: &u32| book.allocations[*row as usize].bytes;
    let resumed: Vec<_> = book.resumed.iter().map(|(row, first)| (bytes(row), bytes(first))).collect();
    assert_eq!(resumed, [(80, 80), (70, 70)]);
    assert!(book.resumed.iter().all(|(row, first)| row > first));
}

#[test]
fn hosts_of_one_name_are_told_apart_and_a_truncated_trace_shows() {
    let mut cut = of_host("a", 0, 0);
    cut.process(1, "x");
    cut.book.outcome = None;
    cut.book.notices.push("odd".to_owned());
    let mut whole = of_host("a", 0, 0);
    whole.process(1, "x");
    let book = Book::merge(vec![whole.book, cut.book]);
    let names: Vec<_> = book.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!((names, book.outcome), (vec!["a", "a #2"], None));
    assert_eq!(book.notices, ["a #2: odd"]);
}

proptest! {
    #[test]
    fn nothing_is_lost_or_moved_within_a_host(books in prop::collection::vec(any_book(), 1..4)) {
        let sum = |books: &[Book], of: fn(&Allocation) -> u64| -> u64 {
            books.iter().flat_map(|book| &book.allocations).map(of).sum()
        };
        let bytes = sum(&books, |row| row.bytes);
        let lives: u64 = sum(&books, |row| row.died.map_or(0, |(died, _)| died - row.born));
        let count: usize = books.iter().map(|book| book.allocations.len()).sum();
        let merged = [Book::merge(books)];
        prop_assert_eq!(sum(&merged, |row| row.bytes), bytes);
        prop_assert_eq!(sum(&merged, |row| row.died.map_or(0, |(died, _)| died - row.born)), lives);
        prop_assert_eq!(merged[0].allocations.len(), count);
        prop_assert!(merged[0].allocations.is_sorted_by_key(|row| row.born));
        let of_its_host = |row: &Allocation| {
            let host = &merged[0].hosts[merged[0].host_of(row.process)];
            host.gpus.contains(&row.gpu)
        };
        prop_assert!(merged[0].allocations.iter().all(of_its_host));
    }
}

/// A server of two ranks on two hosts with the same pids and GPU numbers.
fn of_two_hosts() -> Book {
    let host = |name: &str, rank: u32, boot: u64| {
        let mut t = of_host(name, boot, 1_000_000_000_000);
        let (parent, process) = (t.process(100, ""), t.process(101, &format!("sglang::scheduler_TP{rank}")));
        t.book.processes[parent].command = vec!["python3".to_owned(), "launch.py".to_owned()];
        t.book.processes[process].parent = Some(100);
        let gpu = t.gpu(0);
        t.book.gpus[gpu].uuid = format!("GPU-{name}");
        t.allocate(process, gpu, 1 << 30);
        t.allocate(parent, gpu, 1 << 20);
        let (start, end) = (t.book.end, t.book.end + 5);
        let made = crate::ledger::Communicator {
            start,
            end,
            process,
            tid: 101,
            api: "ncclCommInitRank".to_owned(),
            result: 0,
            id: Some(7),
            size: Some(2),
            rank: Some(rank),
            stack: None,
        };
        t.book.communicators.push(made);
        t.book
    };
    Book::merge(vec![host("node0", 0, 5_000), host("node1", 1, 777_000_000)])
}

#[test]
fn a_server_on_two_hosts_is_one_report() {
    use crate::report::{Query, Summary};
    let book = of_two_hosts();
    let summary = Summary::new(&book, &Query::default()).unwrap();
    let processes: Vec<_> =
        summary.processes.iter().map(|process| (process.rank.as_str(), process.host.as_deref().unwrap())).collect();
    let expected = [
        ("100 python3 launch.py on node0", "node0"),
        ("TP0", "node0"),
        ("100 python3 launch.py on node1", "node1"),
        ("TP1", "node1"),
    ];
    assert_eq!(processes, expected);
    assert_eq!(summary.total.live_bytes, 2 * ((1 << 30) + (1 << 20)));
    let gpus: Vec<_> = summary.gpus.iter().map(|gpu| (gpu.label.as_str(), gpu.bytes.live_bytes)).collect();
    assert_eq!(gpus, [("GPU 0 of node0", (1 << 30) + (1 << 20)), ("GPU 0 of node1", (1 << 30) + (1 << 20))]);
    let [group] = &summary.groups[..] else { panic!("{:?}", summary.groups) };
    assert_eq!((group.size, group.members.len(), group.missing), (2, 2, 0), "no member is missing any more");
    assert_eq!((summary.trace.host.as_str(), summary.trace.start_unix_ns), ("node0, node1", 1_000_000_000_000));
}

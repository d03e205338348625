use super::*;
use crate::ledger::Communicator;
use crate::lifecycle::Axes;
use crate::report::testbook::TestBook;

fn labels(t: &TestBook) -> Vec<String> {
    Axes::new(&t.book).ranks().iter().map(|rank| rank.label.clone()).collect()
}

fn titled(titles: &[&str]) -> Vec<String> {
    let mut t = TestBook::new();
    for (pid, title) in (1..).zip(titles) {
        t.process(pid, title);
    }
    labels(&t)
}

fn join_group(t: &mut TestBook, process: usize, id: u64, rank: u32, size: u32) {
    t.book.communicators.push(Communicator {
        start: 1,
        end: 2,
        process,
        tid: 1,
        api: "ncclCommInitRank".to_owned(),
        result: 0,
        id: Some(id),
        size: Some(size),
        stack: None,
        rank: Some(rank),
    });
}

#[test]
fn titles_of_sglang() {
    let titles = [
        "sglang::scheduler_DP0_PP1_ATTN_CP0_MOE_DP1_TP3_EP3",
        "sglang::scheduler_TP1",
        "sglang::scheduler",
        "sglang::detokenizer",
        "sglang::tokenizer_worker:77",
        "sglang::scheduler_None",
    ];
    let labels = titled(&titles);
    assert_eq!(labels[..2], ["DP0 PP1 ATTN_CP0 MOE_DP1 TP3 EP3", "TP1"]);
    // Tensor parallel 1 has no suffix. 0.4.3 without data parallelism has `_None`, which tells nothing.
    assert_eq!(labels[2..], ["TP0", "4 sglang::detokenizer", "tokenizer 5", "target 6"]);
}

#[test]
fn titles_of_vllm() {
    let mut t = TestBook::new();
    let engine = t.process(10, "VLLM::EngineCore_DP0");
    for n in 0..2 {
        let worker = t.process(11 + n, &format!("VLLM::Worker_DP0_TP{n}"));
        t.book.processes[worker].parent = Some(10);
    }
    t.process(20, "VLLM::APIServer_0");
    let alone = t.process(30, "MyServer::EngineCore");
    assert_eq!(labels(&t), ["target 10", "DP0 TP0", "DP0 TP1", "tokenizer 20", "TP0"]);
    let axes = Axes::new(&t.book);
    assert_eq!(axes.ranks()[engine].evidence, RankEvidence::None, "its workers are the ranks");
    assert_eq!(axes.ranks()[alone].evidence, RankEvidence::OnlyOne);
}

#[test]
fn the_prefix_of_lines_tells_where_the_title_does_not() {
    let mut t = TestBook::new();
    let (first, second) = (t.process(1, ""), t.process(2, "sglang::scheduler_TP1"));
    t.log(first, "[2026-11-29 15:12:32 TP0] Load weight begin. avail mem=1.00 GB");
    t.log(second, "[2026-11-29 15:12:32 TP7] Load weight begin. avail mem=1.00 GB");
    assert_eq!(labels(&t), ["TP0", "TP1"]);
    let axes = Axes::new(&t.book);
    let evidence: Vec<_> = axes.ranks().iter().map(|rank| rank.evidence).collect();
    assert_eq!(evidence, [RankEvidence::LogPrefix, RankEvidence::Title]);
    assert_eq!(axes.role(first), Role::Target);
}

#[test]
fn torchrun_and_communicators_tell_the_rank_of_any_program() {
    let mut t = TestBook::new();
    let (one, two, three) = (t.process(1, "train"), t.process(2, "train"), t.process(3, "loader"));
    t.book.processes[one].env = vec!["LOCAL_RANK=1".to_owned(), "RANK=9".to_owned()];
    join_group(&mut t, two, 0xabc, 3, 8);
    join_group(&mut t, two, 0xdef, 0, 2);
    // A data loader has its parent's variables.
    t.book.processes[three].env = t.book.processes[one].env.clone();
    t.book.processes[three].parent = Some(1);
    assert_eq!(labels(&t), ["rank 9", "rank 3", "3 loader"]);
    assert_eq!(Axes::new(&t.book).ranks()[two].world, Some((3, 8)));
}

#[test]
fn a_group_is_who_gave_the_same_id() {
    let mut t = TestBook::new();
    let ranks = [t.process(1, "sglang::scheduler_TP0"), t.process(2, "sglang::scheduler_TP1")];
    for (process, rank) in ranks.into_iter().zip(0..) {
        join_group(&mut t, process, 0x77, rank, 2);
    }
    join_group(&mut t, ranks[0], 0x88, 0, 4);
    // A refused call makes no group.
    join_group(&mut t, ranks[0], 0x99, 0, 2);
    t.book.communicators.last_mut().unwrap().result = 2;
    let groups = Axes::new(&t.book).groups();
    let seen: Vec<_> = groups.iter().map(|g| (g.id.as_str(), g.size, g.members.len(), g.missing)).collect();
    assert_eq!(seen, [("0000000000000077", 2, 2, 0), ("0000000000000088", 4, 1, 3)]);
    assert_eq!(groups[0].members, [(0, "TP0".to_owned()), (1, "TP1".to_owned())]);
}

#[test]
fn equal_ranks_are_told_apart() {
    let mut t = TestBook::new();
    t.process(1, "sglang::scheduler_TP0");
    t.process(2, "sglang::scheduler_TP0");
    t.process(2, "sglang::scheduler_TP0");
    assert_eq!(labels(&t), ["TP0 (1)", "TP0 (2)", "TP0 (2#2)"]);
}

#[test]
fn ranks_stand_in_the_order_of_their_dimensions() {
    let titles = ["nvtop", "sglang::scheduler_TP10", "sglang::scheduler_TP2", "sglang::scheduler_DP1_TP0"];
    let mut t = TestBook::new();
    for (pid, title) in (1..).zip(titles) {
        t.process(pid, title);
    }
    let axes = Axes::new(&t.book);
    let order: Vec<_> = axes.ranks.order.iter().map(|process| axes.rank(*process)).collect();
    assert_eq!(order, ["DP1 TP0", "TP2", "TP10", "1 nvtop"]);
}

#[test]
fn children_alone_on_a_gpu_each_are_ranks() {
    let mut t = TestBook::new();
    let gpus = [t.gpu(0), t.gpu(1)];
    let ranks = [t.process(5, "worker"), t.process(6, "worker"), t.process(7, "other")];
    for process in ranks {
        t.book.processes[process].parent = Some(1);
    }
    t.allocate(ranks[0], gpus[1], 1);
    t.allocate(ranks[1], gpus[0], 1);
    t.allocate(ranks[2], gpus[0], 1);
    assert_eq!(labels(&t), ["GPU 1", "GPU 0", "7 other"]);
    // Two on one GPU are not.
    t.allocate(ranks[0], gpus[0], 1);
    assert_eq!(labels(&t)[0], "5 worker");
}

#[test]
fn the_main_process_tokenizes() {
    let mut t = TestBook::new();
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let lines = [
        command(&["python3", "-m", "sglang.launch_server", "--tp", "2"]),
        command(&["python3", "/opt/venv/bin/sglang", "serve", "--model-path", "x"]),
        command(&["python", "/opt/bin/vllm", "serve", "x"]),
        command(&["python3", "-c", "from multiprocessing.spawn import spawn_main"]),
    ];
    for (pid, line) in (1..).zip(lines) {
        let process = t.process(pid, "");
        t.book.processes[process].command = line;
    }
    assert_eq!(labels(&t), ["tokenizer 1", "tokenizer 2", "tokenizer 3", "4 python3 -c"]);
}

#[test]
fn hostile_titles_and_lines_are_inert() {
    let long = format!("sglang::scheduler{}", "_TP1".repeat(100_000));
    let titles = [
        "sglang::scheduler_TP99999999999999999999",
        "sglang::scheduler_TP0\x1b[31m",
        &long,
        "::Worker_TP0",
        "a b::Worker_TP0",
    ];
    let mut t = TestBook::new();
    for (pid, title) in (1..).zip(titles) {
        let process = t.process(pid, title);
        // A parent of itself, and a ring of two.
        t.book.processes[process].parent = Some(if pid == 2 { 3 } else { 2 });
        t.log(process, "\x1b[2J[2026-11-29 15:12:32 TP0] The server is fired up and ready to roll!");
        t.log(process, &"\r[".repeat(10_000));
    }
    let labels = labels(&t);
    assert!(
        labels.iter().all(|label| label.starts_with(|c: char| c.is_ascii_digit()) || label.starts_with("t")),
        "{labels:?}"
    );
    assert!(labels.iter().all(|label| label.chars().count() < 60));
}

//! Runs that differ in one thing.

use super::books::{GIB, MIB, compare, compare_at, dies_of_memory, gives_up, server, try_compare};
use crate::ledger::{Book, Kind};
use crate::report::diff::{Change, Diff, Error, Question, Source, When};
use crate::report::query::At;
use crate::report::testbook::TestBook;

const SIZES: [u64; 5] = [100, 200, 300, 40, 5];

fn phases(diff: &Diff, rank: &str) -> Vec<(String, i64)> {
    let rank = diff.ranks.iter().find(|known| known.rank == rank).unwrap();
    let changed = rank.phases.iter().filter(|phase| phase.bytes.delta_bytes != 0);
    changed.map(|phase| (phase.phase.clone(), phase.bytes.delta_bytes / MIB as i64)).collect()
}

fn settings(diff: &Diff, noise: bool) -> Vec<(&str, &str, &str)> {
    fn of(value: Option<&String>) -> &str {
        value.map_or("-", String::as_str)
    }
    let settings = diff.configuration.iter().filter(|setting| setting.noise == noise);
    settings.map(|setting| (setting.key.as_str(), of(setting.base.as_ref()), of(setting.other.as_ref()))).collect()
}

#[test]
fn a_phase_that_grew_is_named_in_each_rank() {
    let other = server(2, 5, [100, 200, 450, 40, 5]);
    let diff = compare(&server(2, 5, SIZES).book, &other.book);
    assert_eq!(diff.bytes.delta_bytes, 300 * MIB as i64);
    for rank in ["TP0", "TP1"] {
        assert_eq!(phases(&diff, rank), [("kv_cache".to_owned(), 150)]);
    }
    let [stack] = &diff.stacks[..] else { panic!("{:?}", diff.stacks) };
    assert_eq!((stack.change, stack.phase.as_str(), stack.ranks.len()), ("grew", "kv_cache", 2));
    assert!(stack.frames[0].starts_with("ModelRunner.init_memory_pool (model_runner.py"), "{:?}", stack.frames);
}

#[test]
fn lines_that_moved_are_the_same_stack() {
    let mut other = server(2, 5, SIZES);
    for frame in &mut other.book.frames {
        frame.line = frame.line.map(|line| line + 100);
        frame.offset += 0x40;
        frame.file = frame.file.take().map(|file| file.replace("/venv/", "/opt/other/"));
    }
    assert!(compare(&server(2, 5, SIZES).book, &other.book).is_empty());
}

#[test]
fn ranks_of_one_run_alone_are_shown_so() {
    let diff = compare(&server(2, 5, SIZES).book, &server(4, 5, SIZES).book);
    let presence: Vec<_> = diff.ranks.iter().map(|rank| (rank.rank.as_str(), rank.base_pid, rank.other_pid)).collect();
    let expected = [
        ("TP0", Some(101), Some(101)),
        ("TP1", Some(102), Some(102)),
        ("TP2", None, Some(103)),
        ("TP3", None, Some(104)),
    ];
    assert_eq!(presence, expected);
    assert_eq!(diff.bytes.delta_bytes, 2 * (518 + 645) * MIB as i64);
}

#[test]
fn a_run_that_died_is_compared_where_both_had_come_to() {
    let base = server(2, 5, SIZES);
    let mut other = server(2, 2, [124, 200, 0, 0, 0]);
    dies_of_memory(&mut other, 1, 2);
    let diff = compare(&base.book, &other.book);
    assert_eq!((diff.compared.at.as_str(), diff.compared.phase.as_deref()), ("common", Some("weights")));
    assert_eq!(diff.compared.why.as_deref(), Some("OTHER failed in kv_cache"));
    assert_eq!(diff.other.failed_in.as_deref(), Some("kv_cache"));
    assert_eq!(diff.bytes.delta_bytes, 48 * MIB as i64, "all that differs by then: 24 MiB in each rank");
    assert_eq!(phases(&diff, "TP0"), [("distributed_init".to_owned(), 24)]);
    // Asked for, the ends are compared.
    let at_end = compare_at(&base.book, &other.book, When::At(At::End));
    assert_eq!((at_end.compared.at.as_str(), at_end.compared.phase), ("end", None));
    assert_eq!(at_end.bytes.delta_bytes, -2 * (300 + 40 + 5 - 24) * MIB as i64);
}

#[test]
fn a_run_that_gave_up_before_it_asked_is_compared_there_too() {
    let mut other = server(2, 2, SIZES);
    gives_up(&mut other, 2);
    let diff = compare(&server(2, 5, SIZES).book, &other.book);
    assert_eq!(diff.compared.phase.as_deref(), Some("weights"));
    assert_eq!(diff.bytes.delta_bytes, 0);
}

#[test]
fn what_is_freed_within_a_phase_does_not_count_at_its_end() {
    let mut base = server(1, 2, SIZES);
    let transient = base.allocate(1, 0, GIB);
    let stack = base.book.allocations.iter().rev().find_map(|row| row.stack);
    base.book.allocations[transient].stack = stack;
    base.free(transient);
    let kv = super::books::stack_of(&mut base, 2);
    let row = base.allocate(1, 0, GIB);
    base.book.allocations[row].stack = Some(kv);
    let mut other = server(1, 2, SIZES);
    dies_of_memory(&mut other, 0, 2);
    assert_eq!(compare(&base.book, &other.book).bytes, Change::new(818 * MIB, 818 * MIB));
}

#[test]
fn runs_that_died_in_the_same_phase_are_compared_at_their_ends() {
    let died = |init: u64| {
        let mut t = server(2, 2, [init, 200, 0, 0, 0]);
        dies_of_memory(&mut t, 0, 2);
        t
    };
    let diff = compare(&died(100).book, &died(124).book);
    assert_eq!((diff.compared.at.as_str(), diff.compared.why), ("end", None));
    assert_eq!(diff.bytes.delta_bytes, 48 * MIB as i64);
}

#[test]
fn a_phase_to_compare_at_must_be_in_both() {
    let base = server(1, 5, SIZES);
    let mut other = server(1, 2, SIZES);
    dies_of_memory(&mut other, 0, 2);
    let at = |when: &str| {
        try_compare(&base.book, &other.book, &Question { when: when.parse().unwrap(), ..Question::default() })
    };
    assert_eq!(at("distributed_init").unwrap().bytes, Change::new(618 * MIB, 618 * MIB));
    let error = at("kv_cache").unwrap_err().to_string();
    assert!(error.starts_with("b.vrt did not get through kv_cache"), "{error}");
    let error = at("oom").unwrap_err().to_string();
    assert!(error.starts_with("a.vrt: no call failed for want of memory"), "{error}");
    assert!("later".parse::<When>().unwrap_err().contains("weights"));
    let scripts = [TestBook::new(), TestBook::new()];
    let question = Question { when: When::Common, ..Question::default() };
    assert_eq!(try_compare(&scripts[0].book, &scripts[1].book, &question).unwrap_err(), Error::NoCommonPhase);
}

/// A script without ranks.
fn script(pid: u32, command: &[&str], bytes: u64) -> TestBook {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(pid, ""), t.gpu(0));
    t.book.header.command = command.iter().map(|&word| word.to_owned()).collect();
    t.book.processes[process].command = t.book.header.command.clone();
    t.allocate(process, gpu, bytes);
    t
}

#[test]
fn a_renamed_script_is_compared_with_what_it_was() {
    let diff = compare(&script(7, &["python3", "a.py"], 5).book, &script(9, &["python3", "b.py", "-n", "2"], 9).book);
    assert_eq!(diff.ranks.len(), 1);
    assert_eq!((diff.ranks[0].rank.as_str(), diff.bytes.delta_bytes), ("python3 a.py → python3 b.py", 4));
    assert_eq!(settings(&diff, false), [("-n", "-", "2"), ("command", "python3 a.py", "python3 b.py")]);
    assert_eq!(diff.by, ["rank", "kind"], "no phase is known");
}

#[test]
fn a_process_that_died_before_its_title_is_found_by_its_gpu() {
    let mut other = server(2, 0, SIZES);
    for process in &mut other.book.processes[1..] {
        process.title.clear();
        process.command = ["python3", "-c", "spawn_main"].map(str::to_owned).to_vec();
        process.parent = None;
    }
    let diff = compare(&server(2, 0, SIZES).book, &other.book);
    let labels: Vec<_> = diff.ranks.iter().map(|rank| rank.rank.as_str()).collect();
    // Two of one command on a GPU each: roles differ, so that nothing pairs them.
    assert_eq!(labels, ["TP0", "TP1", "python3 -c", "python3 -c #2"]);
    for process in &mut other.book.processes[1..] {
        process.title = "sglang::scheduler".to_owned();
    }
    let diff = compare(&server(2, 0, SIZES).book, &other.book);
    assert!(diff.is_empty(), "{:?}", diff.ranks);
}

#[test]
fn imported_and_host_memory_stand_apart() {
    let (base, mut other) = (server(2, 5, SIZES), server(2, 5, SIZES));
    other.import(1, 1, 24 * MIB);
    other.pin_host(2, 1, 70 * MIB);
    let diff = compare(&base.book, &other.book);
    assert_eq!(diff.bytes.delta_bytes, 0);
    assert!(!diff.is_empty());
    assert_eq!(diff.ranks[0].imported, Change::new(0, 24 * MIB));
    assert_eq!(diff.ranks[1].host, Change::new(0, 70 * MIB));
}

fn with(change: impl Fn(&mut Book)) -> Book {
    let mut t = server(2, 5, SIZES);
    change(&mut t.book);
    t.book
}

/// A server as it is started, with what it prints of its arguments.
fn started(options: &str, printed: &str, env: &[&str]) -> Book {
    let mut t = server(2, 5, SIZES);
    t.log(0, &format!("[2026-11-29 15:12:32] server_args=ServerArgs({printed})"));
    let words = options.split_whitespace().map(str::to_owned);
    t.book.header.command.extend(words);
    t.book.processes[1].env = env.iter().map(|&variable| variable.to_owned()).collect();
    t.book
}

#[test]
fn an_option_has_the_value_that_the_server_printed() {
    let base =
        started("--tp 2", "tp_size=2, mem_fraction_static=0.88, disable_x=False, random_seed=1", &["SGLANG_RUN_ID=a"]);
    let other = started(
        "--tp 2 --mem-fraction-static 0.55 --disable-x --page-size 1",
        "tp_size=2, mem_fraction_static=0.55, disable_x=True, page_size=1, cuda_graph_bs=[1, 2], random_seed=2",
        &["SGLANG_RUN_ID=b", "SGLANG_FORCE_CUSTOM_AR_PCIE=1"],
    );
    let diff = compare(&base, &other);
    let expected = [
        ("--disable-x", "False", "True"),
        ("--mem-fraction-static", "0.88", "0.55"),
        ("--page-size", "-", "1"),
        ("cuda_graph_bs", "-", "[1, 2]"),
        ("SGLANG_FORCE_CUSTOM_AR_PCIE", "-", "1"),
    ];
    assert_eq!(settings(&diff, false), expected);
    assert_eq!(settings(&diff, true), [("random_seed", "1", "2"), ("SGLANG_RUN_ID", "a", "b")]);
    assert!(diff.configuration[1].is("mem_fraction_static"));
}

#[test]
fn an_option_that_changes_nothing_the_server_says_is_noise() {
    let printed = "mem_fraction_static=0.88";
    let diff = compare(&started("", printed, &[]), &started("--mem-fraction-static 0.88", printed, &[]));
    assert_eq!(settings(&diff, true), [("--mem-fraction-static", "-", "0.88")]);
    assert!(diff.is_empty());
}

#[test]
fn host_and_libraries_are_compared() {
    use crate::trace::record::Library;
    let library =
        |path: &str, id: &str| Library { path: path.to_owned(), build_id: Some(id.to_owned()), ..Library::default() };
    let base =
        with(|book| book.libraries = vec![library("/a/libnccl.so.2", "00aa"), library("/a/libcuda.so.580.1", "11")]);
    let other = with(|book| {
        book.libraries = vec![library("/b/libnccl.so.2", "00bb"), library("/b/libcuda.so.580.1", "11")];
        book.header.driver = Some("590.1".to_owned());
        book.header.gpus.pop();
    });
    let diff = compare(&base, &other);
    let expected = [
        ("libnccl.so", "2 (build 00aa)", "2 (build 00bb)"),
        ("GPUs", "2 × NVIDIA H200", "1 × NVIDIA H200"),
        ("driver", "580.159.04", "590.1"),
    ];
    assert_eq!(settings(&diff, false), expected);
    assert_eq!(diff.configuration[0].source, Source::Library);
}

#[test]
fn without_a_command_that_of_the_ranks_parent_counts() {
    let attached = |script: &str| {
        let mut t = server(2, 5, SIZES);
        t.book.header.command.clear();
        t.book.processes[0].command = vec!["python3".to_owned(), script.to_owned()];
        t.book
    };
    assert_eq!(
        settings(&compare(&attached("a.py"), &attached("b.py")), false),
        [("command", "python3 a.py", "python3 b.py")]
    );
}

#[test]
fn a_second_process_of_a_kind_is_told_from_the_first() {
    let two = |kind: Kind| {
        let mut t = script(7, &["python3", "a.py"], 5);
        let (second, gpu) = (t.process(8, ""), 0);
        t.book.processes[second].command = t.book.header.command.clone();
        t.allocate_kind(second, gpu, 50, kind);
        t
    };
    let diff = compare(&two(Kind::Context).book, &two(Kind::Module).book);
    let labels: Vec<_> = diff.ranks.iter().map(|rank| rank.rank.as_str()).collect();
    assert_eq!(labels, ["python3 a.py", "python3 a.py #2"]);
    let changed: Vec<_> =
        diff.cells.iter().filter(|cell| cell.bytes.delta_bytes != 0).map(|cell| cell.bytes.delta_bytes).collect();
    assert_eq!(changed, [-50, 50]);
}

//! The screen on a terminal made of memory.

use insta::assert_snapshot;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tracer::ledger::{Allocation, Book, Card, Death, Failure, GpuRef, Kind, Owner, Past, ProcessInfo};
use tracer::lifecycle::Rules;
use tracer::live::Snapshot;
use tracer::trace::record::{Frame, FrameKind, Gpu, Header};

use super::draw::{Theme, draw};
use super::levels::View;
use super::state::{Sort, Top};

const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

/// A server of two ranks, one of them bigger, and its parent; made up at `t` seconds.
fn server(t: u64, grown: u64) -> Snapshot {
    let frame = |function: &str, file: &str| Frame {
        function: function.to_owned(),
        file: Some(format!("/venv/lib/python3.12/site-packages/sglang/srt/{file}")),
        line: Some(7),
        kind: FrameKind::Python,
        ..Frame::default()
    };
    let frames = vec![
        frame("run_scheduler_process", "managers/scheduler.py"),
        frame("ModelRunner.load_model", "model_executor/model_runner.py"),
        frame("ModelRunner.init_memory_pool", "model_executor/model_runner.py"),
    ];
    let mut book = Book {
        header: Header { host: "gpu17".into(), driver: Some("580.159.04".into()), ..Header::default() },
        frames,
        stacks: vec![vec![0, 1], vec![0, 2]],
        gpus: (0..2).map(|n| GpuRef { index: Some(n), uuid: format!("GPU-{n}"), instance: Some(n) }).collect(),
        end: t * SECOND,
        ..Book::default()
    };
    for (pid, title) in
        [(4710, "python3 -m sglang.launch_server"), (4711, "sglang::scheduler_TP0"), (4712, "sglang::scheduler_TP1")]
    {
        book.processes.push(ProcessInfo { pid, title: title.into(), ..ProcessInfo::default() });
    }
    let rows = [
        (1, 0, GIB / 2, Kind::Context, None),
        (1, 0, 16 * GIB, Kind::CudaMalloc, Some(0)),
        (1, 0, 90 * GIB, Kind::CudaMalloc, Some(1)),
        (2, 1, GIB / 2, Kind::Context, None),
        (2, 1, 16 * GIB, Kind::CudaMalloc, Some(0)),
        (2, 1, 90 * GIB + grown, Kind::CudaMalloc, Some(1)),
    ];
    for (process, gpu, bytes, kind, stack) in rows {
        let owner = if kind == Kind::Context { "driver" } else { "unknown" };
        book.allocations.push(Allocation {
            process,
            tid: 1,
            gpu,
            bytes,
            born: 10,
            died: None,
            kind,
            owner: Owner(owner.into()),
            calls: [].into(),
            stack,
            evidence: "",
        });
    }
    book.failures.push(Failure {
        t: 20,
        process: 2,
        api: "cudaMalloc".into(),
        result: 2,
        status: 0x51,
        requested: Some(64 * GIB),
        refused: None,
        free: None,
        free_at: None,
        gpu: Some(1),
        stack: None,
        out_of_memory: true,
    });
    let mut shown = snapshot(book, 2);
    shown.status.processes = 3;
    shown.status.events = 1234;
    shown
}

/// `cards` GPUs of 140 GiB.
fn snapshot(book: Book, cards: u32) -> Snapshot {
    let card = |n: u32| {
        let used = book.allocations.iter().filter(|row| row.gpu == n as usize).map(|row| row.bytes).sum::<u64>() + GIB;
        let total_bytes = 140 * GIB;
        let gpu = Gpu { index: n, uuid: format!("GPU-{n}"), name: "NVIDIA H200".into(), total_bytes, ..Gpu::default() };
        Card { gpu, memory: Some((used, total_bytes.saturating_sub(used))) }
    };
    let cards: Vec<Card> = (0..cards).map(card).collect();
    Snapshot::of_book(book, &cards, &Past::default(), Rules::standard())
}

fn press(top: &mut Top, keys: &str) -> bool {
    keys.chars().fold(false, |_, c| {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        top.key(KeyEvent::new(code, KeyModifiers::NONE))
    })
}

fn screen(top: &Top, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, top, Theme::plain())).unwrap();
    terminal.backend().to_string()
}

fn top() -> Top {
    let mut top = Top::new(None);
    top.update(server(100, 0));
    top.update(server(102, 2 * GIB));
    top
}

const SSH: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (120, 40);

#[test]
fn ranks_over_ssh_and_on_a_wide_screen() {
    assert_snapshot!("ranks_80x24", screen(&top(), SSH));
    assert_snapshot!("ranks_120x40", screen(&top(), WIDE));
}

#[test]
fn into_a_rank_a_cell_a_stack_and_out() {
    let mut top = top();
    press(&mut top, "j\n");
    assert_snapshot!("cells_80x24", screen(&top, SSH));
    press(&mut top, "\n");
    assert_snapshot!("stacks_80x24", screen(&top, SSH));
    press(&mut top, "\n");
    assert_snapshot!("frames_120x40", screen(&top, WIDE));
    press(&mut top, "\n\x1b\x1b\x1b\x1b");
    assert_eq!((top.levels.len(), &top.level().view), (1, &View::Ranks));
    assert_eq!(top.level().selected, 1, "where we were");
}

#[test]
fn before_anything_is_there_the_screen_says_what_it_waits_for() {
    let mut waits = Top::new(Some("sglang|vllm".to_owned()));
    assert!(screen(&waits, SSH).contains("reading"));
    waits.update(snapshot(Book::default(), 8));
    assert_snapshot!("waiting_80x24", screen(&waits, SSH));
}

#[test]
fn sorted_by_each_column() {
    let mut top = top();
    let pids = |top: &Top| top.ranks().iter().map(|row| row.pid).collect::<Vec<_>>();
    assert_eq!((top.sort, pids(&top)), (Sort::Rank, vec![4711, 4712]));
    for sort in [Sort::Live, Sort::Peak, Sort::Rate, Sort::Failures] {
        press(&mut top, "s");
        assert_eq!((top.sort, pids(&top)), (sort, vec![4712, 4711]), "{sort:?}");
    }
    press(&mut top, "r");
    assert_eq!(pids(&top), [4711, 4712]);
    press(&mut top, "s");
    assert_eq!((top.sort, pids(&top)), (Sort::Rank, vec![4712, 4711]));
}

#[test]
fn the_rate_is_what_came_in_a_second() {
    let mut top = top();
    let rates = |top: &Top| {
        let snapshot = top.snapshot.as_ref().unwrap();
        snapshot.rows.iter().map(|row| top.rate(snapshot, row)).collect::<Vec<_>>()
    };
    assert_eq!(rates(&top), [0, GIB as i64]);
    top.update(server(103, 0));
    assert_eq!(rates(&top), [0, -2 * GIB as i64]);
    top.update(server(103, 5));
    assert_eq!(rates(&top), [0, -2 * GIB as i64], "in no time nothing can be told");
}

#[test]
fn a_filter_holds_for_its_level() {
    let mut top = top();
    press(&mut top, "/tp1q");
    assert!(screen(&top, SSH).contains("/ tp1q_"), "letters are typed, not obeyed");
    top.key(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
    press(&mut top, "\n");
    assert_eq!(top.ranks().iter().map(|row| row.pid).collect::<Vec<_>>(), [4712]);
    press(&mut top, "\n/DRIVER\n");
    assert_eq!(top.count(), 1);
    assert!(screen(&top, SSH).contains("[filter: DRIVER]"));
    press(&mut top, "\x1b");
    assert_eq!(top.count(), 3);
    press(&mut top, "\x1b");
    assert_eq!(top.count(), 1, "the outer filter is there still");
    press(&mut top, "/\x1b");
    assert_eq!(top.count(), 2);
}

#[test]
fn the_gone_stand_last_and_say_how_they_went() {
    let mut gone = Top::new(None);
    let mut book = Book { end: 50, ..Book::default() };
    let info = ProcessInfo { pid: 7, died: Some(40), exit_signal: Some(9), ..ProcessInfo::default() };
    book.processes = vec![info, ProcessInfo { pid: 8, ..ProcessInfo::default() }];
    book.gpus = vec![GpuRef { index: Some(0), uuid: "GPU-0".into(), instance: None }];
    for process in 0..2 {
        book.allocations.push(Allocation {
            process,
            tid: 1,
            gpu: 0,
            bytes: GIB,
            born: 10,
            died: (process == 0).then_some((40, Death::Reclaimed)),
            kind: Kind::Other,
            owner: Owner("unknown".into()),
            calls: [].into(),
            stack: None,
            evidence: "",
        });
    }
    gone.update(snapshot(book, 1));
    assert_eq!(
        gone.ranks().iter().map(|row| (row.pid, row.live, row.peak)).collect::<Vec<_>>(),
        [(8, GIB, GIB), (7, 0, GIB)]
    );
    assert!(screen(&gone, SSH).contains("killed (9)"));
    // What was gone into may go: the screen stays.
    press(&mut gone, "\n\n\n");
    gone.update(snapshot(Book::default(), 0));
    screen(&gone, SSH);
}

#[test]
fn quitting() {
    let mut top = top();
    assert!(press(&mut top, "q"));
    assert!(top.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!press(&mut top, "?x"), "a key closes the help");
    press(&mut top, "?");
    assert_snapshot!("help_80x24", screen(&top, SSH));
    assert!(press(&mut top, "q"), "and q quits there too");
    press(&mut top, "/");
    assert!(top.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), "Ctrl-C always");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_typed_at_whatever_size(keys in "[\\nsr/?jkgGl\\x1b \\PC]{0,40}", width in 1..200_u16, height in 1..60_u16) {
        let mut top = top();
        press(&mut top, &keys);
        screen(&top, (width, height));
        top.update(snapshot(Book::default(), 9));
        screen(&top, (width, height));
    }
}

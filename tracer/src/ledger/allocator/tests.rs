use super::super::{Book, Ledger};
use crate::ledger::query::Timeline;
use crate::ledger::torch::Torch;
use crate::trace::record::{Alloc, Block, Call, Op, Process, Record, Rm, Step};

const MIB: u64 = 1 << 20;

/// A trace with one process, one client and segments at addresses of their number times 1 GiB.
#[derive(Clone, Default)]
struct Scene {
    ledger: Ledger,
    t: u64,
    allocated: u64,
    reserved: u64,
    /// Around all driver requests.
    calls: Vec<String>,
}

impl Scene {
    fn rm(&mut self, op: Op) {
        self.t += 10;
        let calls = self.calls.as_slice().into();
        self.ledger.push(Record::Rm(Rm { t: self.t, pid: 7, tid: 7, calls, op, ..Rm::default() }));
    }

    /// A segment, mapped.
    fn segment(&mut self, number: u32, bytes: u64) -> u64 {
        let base = u64::from(number) << 30;
        let alloc =
            Alloc { client: 1, parent: 2, object: number + 100, class: 0x40, size: Some(bytes), ..Alloc::default() };
        self.rm(Op::Alloc(alloc));
        self.rm(Op::Map { base, length: bytes, offset: 0, client: 1, object: number + 100 });
        self.reserved += bytes;
        base
    }

    fn release(&mut self, number: u32, bytes: u64) {
        self.rm(Op::Unmap { base: u64::from(number) << 30 });
        self.rm(Op::Free { client: 1, object: number + 100 });
        self.reserved -= bytes;
    }

    fn block(&mut self, address: u64, bytes: i64) {
        self.t += 10;
        self.allocated = self.allocated.wrapping_add(bytes as u64);
        let Self { t, allocated, reserved, .. } = *self;
        let block = Block { t, pid: 7, tid: 7, address, bytes, allocated, reserved, ..Block::default() };
        self.ledger.push(Record::Block(block));
    }

    fn call(&mut self, api: &str) {
        self.t += 10;
        let Self { t, .. } = *self;
        self.ledger.push(Record::Call(Call {
            t,
            start: t,
            outer: t,
            pid: 7,
            tid: 7,
            api: api.into(),
            ..Call::default()
        }));
    }

    fn finish(self) -> Book {
        self.ledger.finish()
    }
}

fn allocated(torch: &Torch, t: u64) -> u64 {
    torch.blocks.iter().filter(|block| block.live_at(t)).map(|block| block.bytes).sum()
}

#[test]
fn blocks_lie_in_the_segments_mapped_under_them() {
    let mut scene = Scene::default();
    let unrelated = scene.segment(1, 64 * MIB);
    scene.reserved = 0;
    let (first, second) = (scene.segment(2, 2 * MIB), scene.segment(3, 20 * MIB));
    scene.block(first, 512);
    scene.block(second + 5 * MIB, 9 << 20);
    let both = scene.t;
    scene.block(first, -512);
    scene.release(2, 2 * MIB);
    let emptied = scene.t;
    let book = scene.finish();
    let torch = &book.torch;
    let device = &torch.devices[0];
    let bytes: Vec<u64> = device.segments(&book).map(|row| row.bytes / MIB).collect();
    assert_eq!((bytes, unrelated), (vec![2, 20], 1 << 30));
    assert_eq!((allocated(torch, both), allocated(torch, emptied)), (512 + 9 * MIB, 9 * MIB));
    let segments = Timeline::of(device.segments(&book));
    assert_eq!(device.reserved_at(both, &segments), 22 * MIB);
    // Nothing was reported since, but a segment went.
    assert_eq!(device.reserved_at(emptied, &segments), 20 * MIB);
    assert_eq!((device.events, device.mismatches, device.reserved_mismatches(&segments, false)), (3, 0, 0));
}

/// The allocator counts a segment on while `torch_memory_saver` has it paused, and when other memory has taken its place.
#[test]
fn what_is_paused_stays_reserved() {
    let mut scene = Scene::default();
    let (weights, cache) = (scene.segment(2, 2 * MIB), scene.segment(3, 20 * MIB));
    scene.block(weights, 512);
    scene.block(cache, 9 << 20);
    scene.calls = vec!["tms_pause".into(), "cuMemUnmap".into()];
    scene.release(3, 20 * MIB);
    scene.release(2, 2 * MIB);
    scene.reserved = 22 * MIB;
    let paused = scene.t;
    scene.block(weights + MIB, 1024);
    scene.calls = vec!["tms_resume".into(), "cuMemCreate".into()];
    scene.segment(3, 20 * MIB);
    scene.reserved = 22 * MIB;
    let half = scene.t;
    scene.block(cache + 10 * MIB, 1 << 20);
    scene.calls.clear();
    scene.release(3, 20 * MIB);
    let freed = scene.t;
    scene.block(weights + MIB, -1024);
    let book = scene.finish();
    let device = &book.torch.devices[0];
    let segments = Timeline::of(&device.kept(&book));
    let reserved = [paused, half, freed].map(|t| device.reserved_at(t, &segments) / MIB);
    assert_eq!(reserved, [22, 22, 2]);
    assert_eq!(device.reserved_mismatches(&segments, false), 0);
    let held = Timeline::of(device.segments(&book));
    assert_eq!([paused, half, freed].map(|t| held.at(t) / MIB), [0, 20, 0]);
}

/// Each time it is another row; its address tells which it first was. To fold rows changes nothing of that.
#[test]
fn what_is_resumed_is_known_by_its_address() {
    let pause = |scene: &mut Scene, pieces: &[(u32, u64)]| {
        scene.calls = vec!["tms_pause".into()];
        pieces.iter().for_each(|(number, mib)| scene.release(*number, mib * MIB));
    };
    let map = |scene: &mut Scene, by: &str, pieces: &[(u32, u64)]| {
        scene.calls = vec![by.into()];
        pieces.iter().for_each(|(number, mib)| _ = scene.segment(*number, mib * MIB));
    };
    let mut scene = Scene::default();
    map(&mut scene, "cuMemCreate", &[(1, 10), (2, 20), (3, 30)]);
    pause(&mut scene, &[(1, 10), (2, 20), (3, 30)]);
    map(&mut scene, "tms_resume", &[(3, 30), (1, 10)]);
    pause(&mut scene, &[(1, 10)]);
    let mut folded = scene.clone();
    folded.ledger.fold(folded.t + 1);
    for (mut scene, expected) in [(scene, vec![30, 10, 10, 50]), (folded, vec![30, 10, 50])] {
        map(&mut scene, "tms_resume", &[(1, 10)]);
        // Other memory at the address of what was freed while it was paused.
        map(&mut scene, "cuMemCreate", &[(2, 50)]);
        pause(&mut scene, &[(2, 50)]);
        map(&mut scene, "tms_resume", &[(2, 50)]);
        let book = scene.finish();
        let mib = |row: u32| book.allocations[row as usize].bytes / MIB;
        assert_eq!(book.resumed.keys().map(|row| mib(*row)).collect::<Vec<_>>(), expected);
        for (row, first) in &book.resumed {
            assert_eq!(mib(*row), mib(*first));
            assert!((0..*first).all(|earlier| mib(earlier) != mib(*first)), "{first} is not the first");
        }
    }
}

#[test]
fn a_block_may_lie_in_several_pieces() {
    let mut scene = Scene::default();
    let base = 1 << 40;
    for n in 0..3 {
        let object = 100 + n as u32;
        let alloc = Alloc { client: 1, parent: 2, object, class: 0x40, size: Some(20 * MIB), ..Alloc::default() };
        scene.rm(Op::Alloc(alloc));
        scene.rm(Op::Map { base: base + n * 20 * MIB, length: 20 * MIB, offset: 0, client: 1, object });
        scene.reserved += 20 * MIB;
    }
    scene.block(base + 10 * MIB, 30 << 20);
    let book = scene.finish();
    let rows: Vec<u32> = book.torch.devices[0].segments.iter().map(|segment| segment.row).collect();
    assert_eq!(rows, [0, 1], "not the third: the block ends where it begins");
}

#[test]
fn what_was_there_before_is_known_by_the_allocators_account() {
    let mut scene = Scene { allocated: 100 * MIB, reserved: 120 * MIB, ..Scene::default() };
    scene.block(5 << 30, 1 << 20);
    scene.block(6 << 30, -(30 << 20));
    let t = scene.t;
    let book = scene.finish();
    let device = &book.torch.devices[0];
    assert_eq!(device.figures_at(t).unwrap().before, 70 << 20);
    assert_eq!((device.mismatches, device.gpu), (0, None));
    assert!(book.notices[0].starts_with("PyTorch's device 0 of process 7 is on no known GPU"), "{:?}", book.notices);
    let segments = Timeline::of(device.segments(&book));
    assert_eq!((device.reserved_at(t, &segments), device.reserved_at(0, &segments)), (120 * MIB, 0));
    assert_eq!((device.reserved_mismatches(&segments, true), device.reserved_mismatches(&segments, false)), (0, 2));
}

#[test]
fn lost_reports_are_counted() {
    let mut scene = Scene::default();
    let base = scene.segment(1, 20 * MIB);
    scene.block(base, 512);
    // A block whose report was lost.
    scene.allocated += 4096;
    scene.block(base + 512, 512);
    // The end of the first was lost, too: its address comes again.
    scene.allocated -= 512;
    scene.block(base, 1024);
    let t = scene.t;
    let book = scene.finish();
    let device = &book.torch.devices[0];
    assert_eq!(device.mismatches, 2);
    let figures = device.figures_at(t).unwrap();
    assert_eq!(allocated(&book.torch, t) + figures.before as u64, 4096 + 512 + 1024, "its own account holds");
}

#[test]
fn segments_made_during_a_capture_are_a_graphs_pool() {
    let mut scene = Scene::default();
    let outside = scene.segment(1, 2 * MIB);
    scene.block(outside, 512);
    scene.call("cuStreamBeginCapture_v2");
    let inside = scene.segment(2, 2 * MIB);
    scene.block(inside, 512);
    scene.call("cuStreamEndCapture");
    scene.block(inside + 512, 512);
    scene.block(outside + 512, 512);
    let torch = scene.finish().torch;
    let pools: Vec<bool> = torch.blocks.iter().map(|block| block.in_graph_pool).collect();
    assert_eq!(pools, [false, true, true, false]);
    let pools: Vec<bool> = torch.devices[0].segments.iter().map(|segment| segment.in_graph_pool).collect();
    assert_eq!(pools, [false, true]);
}

/// Blocks come again and again above pieces that were looked at before, and above others in their place.
#[test]
fn a_large_block_is_of_a_graphs_pool_while_one_of_its_pieces_is() {
    let mut scene = Scene::default();
    let gib = |n: u64| n << 30;
    let first = scene.segment(1, gib(1));
    scene.call("cuStreamBeginCapture_v2");
    scene.segment(2, gib(1));
    scene.call("cuStreamEndCapture");
    scene.segment(3, gib(1));
    let both = |scene: &mut Scene| {
        scene.block(first + MIB, 3 << 30);
        scene.block(first + MIB, -(3 << 30));
    };
    both(&mut scene);
    both(&mut scene);
    // Freed without its mapping being seen to, as memory is that a closed file takes along.
    scene.rm(Op::Free { client: 1, object: 102 });
    both(&mut scene);
    scene.rm(Op::Unmap { base: gib(2) });
    scene.segment(2, gib(1) / 2);
    both(&mut scene);
    let book = scene.finish();
    let pools: Vec<bool> = book.torch.blocks.iter().map(|block| block.in_graph_pool).collect();
    assert_eq!(pools, [true, true, false, false]);
    let segments: Vec<u32> = book.torch.devices[0].segments.iter().map(|segment| segment.row).collect();
    assert_eq!(segments, [0, 1, 2, 3], "what took the place of another piece is a segment, too");
}

#[test]
fn the_same_address_in_two_processes_and_hostile_numbers() {
    let mut ledger = Ledger::new();
    let block = |pid: u32, bytes: i64, allocated: u64| {
        Record::Block(Block { t: 5, pid, tid: pid, address: u64::MAX, bytes, allocated, ..Block::default() })
    };
    for record in [block(1, 512, 512), block(2, 1024, 1024), block(1, i64::MIN, 0), block(1, i64::MAX, u64::MAX)] {
        ledger.push(record);
    }
    ledger.push(Record::Process(Process { t: 9, pid: 1, step: Step::Exit { code: Some(0), signal: None } }));
    let book = ledger.finish();
    // What no machine can have is left out, and counted.
    assert_eq!(book.torch.devices.iter().map(|device| device.events).collect::<Vec<_>>(), [1, 1]);
    assert_eq!((book.torch.blocks.len(), book.losses["impossible_figure"]), (2, 2));
}

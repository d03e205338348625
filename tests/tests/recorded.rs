//! Traces recorded on real GPUs, with what `nvidia-smi` said at the time.
//!
//! `NAME.vrt` is the trace, `NAME.txt` the traced script's own output (tests/gpu): `step NAME t=NS smi=MIB` lines. Where a
//! reading was taken, the ledger must hold exactly that many bytes; where PyTorch's own figures stand beside it, so must the
//! books of its caching allocator.

use live_tests::recorded::{field, path, samples_agree};
use tracer::ledger::{Book, Kind, Timeline};
use tracer::lifecycle::{Axes, Axis, UNATTRIBUTED};
use tracer::report::diff::{Diff, Question, Run};
use tracer::trace::record::FrameKind;

const MIB: u64 = 1 << 20;

struct Step {
    name: String,
    t: u64,
    smi: u64,
    /// What PyTorch says: allocated bytes, reserved bytes, blocks.
    torch: Option<[u64; 3]>,
}

fn steps(output: &str) -> Vec<Step> {
    let required = |line: &str, name: &str| field(line, name).unwrap_or_else(|| panic!("{name} in {line:?}"));
    output
        .lines()
        .filter_map(|line| {
            let name = line.strip_prefix("step ")?.split(' ').next()?.to_owned();
            let torch = || Some([field(line, "allocated")?, field(line, "reserved")?, field(line, "blocks")?]);
            Some(Step { name, t: required(line, "t"), smi: required(line, "smi"), torch: torch() })
        })
        .collect()
}

fn recorded(name: &str) -> (Book, Vec<Step>) {
    let book = Book::read(&path(&format!("{name}.vrt"))).unwrap();
    let steps = steps(&std::fs::read_to_string(path(&format!("{name}.txt"))).unwrap());
    (book, steps)
}

/// At each step PyTorch's allocator had what PyTorch itself said, to the byte.
fn torch_agrees(book: &Book, steps: &[Step]) {
    let device = &book.torch.devices[0];
    let segments = Timeline::of(device.segments(book));
    for Step { name, t, torch, .. } in steps {
        let live = || book.torch.blocks.iter().filter(|block| block.device == 0 && block.live_at(*t));
        let ours = [live().map(|block| block.bytes).sum(), device.reserved_at(*t, &segments), live().count() as u64];
        assert_eq!(Some(ours), *torch, "{name}");
    }
    assert_eq!((device.mismatches, device.reserved_mismatches(&segments, false)), (0, 0));
}

/// At least 99 of 100 bytes that the first process held at its peak have a Python frame or an owner.
fn is_explained(book: &Book) {
    let axes = Axes::new(book);
    let peak = book.peaks()[&(0, 0)].t;
    let python = |stack: u32| {
        let frames = book.stacks.get(stack as usize).map_or(&[][..], Vec::as_slice);
        frames.iter().any(|frame| book.frames[*frame as usize].kind == FrameKind::Python)
    };
    let (mut all, mut explained) = (0, 0);
    for row in book.allocations.iter().filter(|row| row.process == 0 && row.live_at(peak)) {
        let owner = axes.label(Axis::Owner, axes.cell(Axis::Owner, row)) != UNATTRIBUTED;
        all += row.bytes;
        explained += if owner || row.stack.is_some_and(python) { row.bytes } else { 0 };
    }
    assert!(all > 0 && explained * 100 >= all * 99, "{explained} of {all} bytes");
}

/// `tests/gpu/torch_training.py` on an H200; or, to check a run of it on another GPU, what `VRAMTRACE_RECORDED=PATH` names by
/// `PATH.vrt` and `PATH.txt`.
#[test]
fn torch_training() {
    let recorded = || path("h200-torch-training").display().to_string();
    let name = std::env::var("VRAMTRACE_RECORDED").unwrap_or_else(|_| recorded());
    let book = Book::read(format!("{name}.vrt").as_ref()).unwrap();
    let steps = steps(&std::fs::read_to_string(format!("{name}.txt")).unwrap());
    assert!(steps.len() > 15, "{} steps", steps.len());
    agrees(&book, &steps, 1);
    torch_agrees(&book, &steps);
    is_explained(&book);
    let pools = book.torch.devices[0].segments.iter().filter(|segment| segment.in_graph_pool).count();
    assert!(pools > 0, "a graph was captured");
    assert_eq!(book.torch.failures.iter().map(|failure| failure.requested).collect::<Vec<_>>(), [1 << 42]);
}

/// At each step the first process held what `nvidia-smi` said, and no sample differs from the ledger.
fn agrees(book: &Book, steps: &[Step], quiet_samples: usize) {
    for Step { name, t, smi, .. } in steps {
        let live = book.live_at(*t, |a| a.process == 0);
        assert_eq!(live, smi * MIB, "{name}: the ledger holds {} MiB", live / MIB);
    }
    assert_eq!(book.losses.get("ring_full"), None);
    samples_agree("recorded", book, quiet_samples);
}

/// PyTorch on an H200, through every route to GPU memory.
#[test]
fn h200_torch_routes() {
    let (book, steps) = recorded("h200-torch-routes");
    assert_eq!(steps.len(), 35);
    agrees(&book, &steps, 80);
    assert!(book.losses.is_empty(), "{:?}", book.losses);
    // Two children map memory of the first process: 118 MiB by IPC, 64 MiB by a VMM handle. That costs them nothing, until
    // the VMM handle's owner lets go of it while the child still has it mapped.
    let largest = |process: usize| book.samples.iter().filter(|s| s.process == process).map(|s| s.nvml / MIB).max();
    let mut importers: Vec<_> =
        book.imports.iter().map(|import| (import.bytes / MIB, largest(import.process))).collect();
    importers.sort_unstable();
    assert_eq!(importers, [(64, Some(612 + 64)), (118, Some(612))]);
    let inherited: Vec<_> =
        book.allocations.iter().filter(|a| a.kind == Kind::IpcImport).map(|a| a.bytes / MIB).collect();
    assert_eq!(inherited, [64]);
    let failure = book.failures.iter().find(|f| f.out_of_memory).expect("cudaMalloc of 4 TiB");
    assert_eq!((failure.api.as_str(), failure.requested), ("cudaMalloc", Some(4 << 40)));
}

/// PyTorch on an H200 with and without a communicator of NCCL, and with expandable segments: the differences are named.
#[test]
fn h200_torch_pair() {
    let runs = ["h200-torch-pair", "h200-torch-pair-nccl", "h200-torch-pair-expandable"].map(|name| {
        let (book, steps) = recorded(name);
        assert!(steps.len() >= 3);
        agrees(&book, &steps, 10);
        assert!(book.losses.is_empty(), "{:?}", book.losses);
        book
    });
    let axes = [0, 1, 2].map(|n| Axes::new(&runs[n]));
    let first = |other: usize| {
        let [base, other] = [0, other].map(|n| Run { axes: &axes[n], name: "run" });
        Diff::new(&base, &other, &Question::default()).unwrap().verdict.suspects[0].clone()
    };
    // What NCCL and the driver for it take; the local memory that its first look-up of a kernel grows is there in both.
    assert_eq!((first(1).kind, first(1).bytes), ("nccl", Some(102 << 20)));
    assert_eq!((first(2).kind, first(2).bytes), ("expandable_segments", Some(-(4 << 20))));
}

/// A program with a static runtime on an H200: libcuda alone tells all.
#[test]
fn h200_static_runtime() {
    let (book, steps) = recorded("h200-static-runtime");
    assert_eq!(steps.len(), 7);
    agrees(&book, &steps, 10);
    assert!(book.libraries.iter().all(|l| !l.path.contains("libcudart")), "no shared runtime was there");
    // One launch with an 80,000-byte frame for each of the card's resident threads.
    let local: u64 = book.allocations.iter().filter(|a| a.kind == Kind::LocalMemory).map(|a| a.bytes).sum();
    assert_eq!(local, (21_180 - 820 + 414) * MIB, "it replaces the context's 414 MiB");
}

//! Traces recorded on real GPUs, with what `nvidia-smi` said at the time.
//!
//! `NAME.vrt` is the trace, `NAME.txt` the traced script's own output (tests/gpu): `step NAME t=NS smi=MIB` lines. Where a
//! reading was taken, the ledger must hold exactly that many bytes.

use std::path::PathBuf;

use tracer::ledger::{Book, Kind};

const MIB: u64 = 1 << 20;

struct Step {
    name: String,
    t: u64,
    smi: u64,
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces").join(file)
}

fn steps(output: &str) -> Vec<Step> {
    let field = |line: &str, name: &str| -> u64 {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("{name} in {line:?}"))
    };
    output
        .lines()
        .filter_map(|line| {
            let name = line.strip_prefix("step ")?.split(' ').next()?.to_owned();
            Some(Step { name, t: field(line, "t"), smi: field(line, "smi") })
        })
        .collect()
}

fn recorded(name: &str) -> (Book, Vec<Step>) {
    let book = Book::read(&path(&format!("{name}.vrt"))).unwrap();
    let steps = steps(&std::fs::read_to_string(path(&format!("{name}.txt"))).unwrap());
    (book, steps)
}

/// At each step the first process held what `nvidia-smi` said, and no sample differs from the ledger.
fn agrees(book: &Book, steps: &[Step], quiet_samples: usize) {
    for Step { name, t, smi } in steps {
        let live = book.live_at(*t, |a| a.process == 0);
        assert_eq!(live, smi * MIB, "{name}: the ledger holds {} MiB", live / MIB);
    }
    assert_eq!(book.losses.get("ring_full"), None);
    let quiet: Vec<_> = book.samples.iter().filter(|s| s.quiet).collect();
    assert!(quiet.len() >= quiet_samples, "{} quiet samples", quiet.len());
    for sample in quiet {
        assert_eq!(sample.live, sample.nvml, "at {} of process {}", sample.t, sample.process);
    }
}

/// PyTorch on an H200, through every route to GPU memory.
#[test]
fn h200_torch_routes() {
    let (book, steps) = recorded("h200-torch-routes");
    assert!(steps.len() > 20, "{} steps", steps.len());
    agrees(&book, &steps, 40);
    // Mapping another process's memory costs nothing: the importer stays what it was, 612 MiB.
    assert_eq!(book.imports.len(), 1);
    let importer = book.samples.iter().filter(|s| s.process == book.imports[0].process && s.quiet);
    assert!(importer.map(|s| s.nvml).all(|bytes| bytes <= 612 * MIB));
    let failure = book.failures.iter().find(|f| f.out_of_memory).expect("cudaMalloc of 4 TiB");
    assert_eq!((failure.api.as_str(), failure.requested), ("cudaMalloc", Some(4 << 40)));
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

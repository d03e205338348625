//! Traces recorded on real GPUs, with what `nvidia-smi` said at the time.
//!
//! `NAME.vrt` is the trace, `NAME.txt` the traced script's own output (tests/gpu): `step NAME t=NS smi=MIB` lines. Where a
//! reading was taken, the ledger must hold exactly that many bytes.

use std::path::PathBuf;

use tracer::ledger::Book;

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

/// PyTorch on an H200, through every route to GPU memory.
#[test]
fn h200_torch_routes() {
    let book = Book::read(&path("h200-torch-routes.vrt")).unwrap();
    let steps = steps(&std::fs::read_to_string(path("h200-torch-routes.txt")).unwrap());
    assert!(steps.len() > 20, "{} steps", steps.len());
    // The script's own process is the first; nvidia-smi and a child that imports an IPC handle come later.
    for Step { name, t, smi } in &steps {
        let live = book.live_at(*t, |a| a.process == 0);
        assert_eq!(live, smi * MIB, "{name}: the ledger holds {} MiB", live / MIB);
    }
    assert_eq!(book.losses.get("ring_full"), None);
    let quiet: Vec<_> = book.samples.iter().filter(|s| s.quiet).collect();
    assert!(quiet.len() >= 40, "{} quiet samples", quiet.len());
    for sample in quiet {
        assert_eq!(sample.live, sample.nvml, "at {} of process {}", sample.t, sample.process);
    }
    // Mapping another process's memory costs nothing: the importer stays what it was, 612 MiB.
    assert_eq!(book.imports.len(), 1);
    let importer = book.samples.iter().filter(|s| s.process == book.imports[0].process && s.quiet);
    assert!(importer.map(|s| s.nvml).all(|bytes| bytes <= 612 * MIB));
    let failure = book.failures.iter().find(|f| f.out_of_memory).expect("cudaMalloc of 4 TiB");
    assert_eq!((failure.api.as_str(), failure.requested), ("cudaMalloc", Some(4 << 40)));
}

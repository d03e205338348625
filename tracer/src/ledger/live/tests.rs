use std::path::Path;

use super::*;
use crate::trace::Reader;

/// What a ledger says at its end: live bytes by process, GPU and kind, peaks and failures by process and GPU.
type Figures = (BTreeMap<(usize, String, Kind), u64>, BTreeMap<(usize, GpuKey), u64>, u64);

fn figures(ledger: &Ledger) -> Figures {
    let past = ledger.past().clone();
    let book = ledger.clone().finish();
    let mut live = BTreeMap::new();
    for row in book.allocations.iter().filter(|row| row.died.is_none()) {
        *live.entry((row.process, book.gpus[row.gpu].uuid.clone(), row.kind)).or_default() += row.bytes;
    }
    let mut peaks = past.peaks.clone();
    for ((process, gpu), peak) in book.peaks() {
        let known = peaks.entry((process, key(&book.gpus[gpu]))).or_default();
        *known = peak.bytes.max(*known);
    }
    let folded: u64 = past.failures().map(|(.., count)| count).sum();
    (live, peaks, folded + book.failures.len() as u64)
}

fn records(name: &str) -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traces").join(name);
    Reader::open(&path).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Recorded on an H200: PyTorch with its children, IPC imports, handles sent through files, graphs, failures.
#[test]
fn folding_a_recorded_run_changes_no_figure() {
    let records = records("h200-torch-routes.vrt");
    let (mut whole, mut folded) = (Ledger::new(), Ledger::new());
    let mut most = 0;
    for (n, record) in records.iter().enumerate() {
        whole.push(record.clone());
        folded.push(record.clone());
        if n % 97 == 0 {
            folded.fold(folded.book.end.saturating_sub(2_000_000_000));
        }
        if n % 997 == 0 {
            assert_eq!(figures(&folded), figures(&whole), "after record {n}");
        }
        most = most.max(folded.rows.gpu.len());
    }
    assert_eq!(figures(&folded), figures(&whole));
    assert!(most < whole.rows.gpu.len(), "{most} rows of {} were kept: nothing was folded", whole.rows.gpu.len());
}

#[test]
fn a_run_of_any_length_stays_small() {
    let records = records("h200-torch-routes.vrt");
    let last = records.iter().map(time).max().unwrap_or(0) + 1;
    let first = records.iter().map(time).find(|t| *t > 0).unwrap_or(0);
    let mut ledger = Ledger::new();
    let mut sizes = Vec::new();
    // The same run over and over, each later than the one before.
    for round in 0..6 {
        for record in &records {
            let mut record = record.clone();
            shift(&mut record, round * (last - first));
            ledger.push_live(&record);
        }
        ledger.fold(ledger.book.end.saturating_sub(KEPT));
        let tables = [ledger.rows.gpu.len(), ledger.rows.host.len(), ledger.rows.imports.len(), ledger.nvml.len()];
        sizes.push(tables.iter().sum::<usize>());
    }
    // Two rows a process stay; of those there are more with each round.
    let processes = ledger.processes.list.len();
    assert!(sizes[5] <= sizes[0] + 4 * processes, "{sizes:?}, {processes} processes");
}

fn time(record: &Record) -> u64 {
    match record {
        Record::Rm(rm) => rm.t,
        Record::Call(call) => call.t,
        Record::Process(step) => step.t,
        Record::Nvml(nvml) => nvml.t,
        _ => 0,
    }
}

/// Moves a record in time.
fn shift(record: &mut Record, by: u64) {
    match record {
        Record::Rm(rm) => {
            rm.t += by;
            rm.outer += if rm.outer == 0 { 0 } else { by };
            rm.start += if rm.start == 0 { 0 } else { by };
        }
        Record::Call(call) => {
            call.t += by;
            call.start += by;
            call.outer += if call.outer == 0 { 0 } else { by };
        }
        Record::Process(step) => step.t += by,
        Record::Nvml(nvml) => {
            nvml.t += by;
            nvml.begin += by;
        }
        _ => {}
    }
}

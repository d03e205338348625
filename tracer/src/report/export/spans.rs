//! Phases as stretches of time.

use crate::lifecycle::{Axes, Axis, UNATTRIBUTED};

/// A stretch in which a process asked for memory in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The process.
    pub(super) process: usize,
    /// Phase by cell number.
    pub(super) phase: u32,
    /// When its first memory came, on the trace's clock.
    pub(super) start: u64,
    /// When its last memory came.
    pub(super) end: u64,
    /// Bytes that came in it.
    pub(super) bytes: u64,
}

/// For each process, in order of time, from the first to the last memory asked for in a phase without memory of another
/// between. Memory without a phase neither makes nor ends one. That is what a trace shows of phases: when one ended and the
/// next began lies somewhere between.
pub(super) fn spans(axes: &Axes<'_>) -> Vec<Span> {
    let book = axes.book();
    let mut spans: Vec<Span> = Vec::new();
    let mut current: Vec<Option<usize>> = vec![None; book.processes.len()];
    for row in &book.allocations {
        let phase = axes.cell(Axis::Phase, row);
        if axes.label(Axis::Phase, phase) == UNATTRIBUTED {
            continue;
        }
        let span = current[row.process].map(|at| &mut spans[at]).filter(|span| span.phase == phase);
        if let Some(span) = span {
            span.end = span.end.max(row.born);
            span.bytes = span.bytes.saturating_add(row.bytes);
        } else {
            current[row.process] = Some(spans.len());
            spans.push(Span { process: row.process, phase, start: row.born, end: row.born, bytes: row.bytes });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Kind;
    use crate::report::testbook::TestBook;

    #[test]
    fn a_span_runs_from_first_to_last_memory_of_a_phase() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        t.at(10).allocate_kind(process, gpu, 5, Kind::Context);
        t.at(20).allocate(process, gpu, 7); // no phase
        t.at(30).allocate_kind(process, gpu, 6, Kind::Context);
        let axes = Axes::new(&t.book);
        let phase = axes.cell(Axis::Phase, &t.book.allocations[0]);
        assert_eq!(spans(&axes), [Span { process, phase, start: 10, end: 30, bytes: 11 }]);
    }
}

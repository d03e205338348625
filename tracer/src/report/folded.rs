//! Folded stacks: `rank;frame;frame;call bytes`, one a line, for flame graphs and every tool that reads them. What stands
//! before the frames is asked for: `rank`, or any axes (`rank;phase;frame…`).

use std::collections::BTreeMap;
use std::str::FromStr;

use super::frames;
use super::query::{self, At, Moments};
use super::text::plain::plain;
use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis};
use crate::trace::record::Frame;

/// What a stack counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Bytes live at the moment asked for.
    #[default]
    Live,
    /// Bytes live when each process held most on each GPU.
    Peak,
    /// Bytes of all allocations there ever were.
    Allocated,
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "live" => Ok(Self::Live),
            "peak" => Ok(Self::Peak),
            "allocated" => Ok(Self::Allocated),
            _ => Err("choose from live, peak, allocated".to_owned()),
        }
    }
}

/// Axes that stand before the frames unless others are asked for.
pub const ROOTS: [Axis; 1] = [Axis::Rank];

/// Bytes by folded stack, in order of name. Labels on the axes `by` stand before the frames.
///
/// # Errors
///
/// When the trace has no such moment as `at`, which counts for [`Value::Live`] alone.
pub fn collapse(axes: &Axes<'_>, by: &[Axis], value: Value, at: At) -> Result<BTreeMap<String, u64>, query::Error> {
    let moments = Moments::new(axes, if value == Value::Peak { At::Peak } else { at })?;
    let names = Names {
        root: &|axis, row| axes.label(axis, axes.cell(axis, row)).into_owned(),
        frame: &|frame| match frames::nameless_module(frame) {
            Some(module) => format!("[{module}]"),
            None => frames::function(frame).into_owned(),
        },
    };
    Ok(sums(axes, by, |row| value == Value::Allocated || moments.is_live(row), &names))
}

/// What boxes are called.
pub(super) struct Names<'n> {
    /// A row's on an axis.
    pub(super) root: &'n dyn Fn(Axis, &Allocation) -> String,
    /// A frame's.
    pub(super) frame: &'n dyn Fn(&Frame) -> String,
}

/// Bytes of the rows that count, by folded stack.
pub(super) fn sums(
    axes: &Axes<'_>,
    by: &[Axis],
    counts: impl Fn(&Allocation) -> bool,
    names: &Names<'_>,
) -> BTreeMap<String, u64> {
    let all: Vec<Axis> = by.iter().copied().chain([Axis::Stack, Axis::Api, Axis::Kind]).collect();
    // By number first: a name is made once a stack, not once an allocation.
    let mut sums: BTreeMap<_, (&Allocation, u64)> = BTreeMap::new();
    for row in axes.book().allocations.iter().filter(|row| counts(row)) {
        let cell: Vec<u32> = all.iter().map(|axis| axes.cell(*axis, row)).collect();
        let (_, sum) = sums.entry(cell).or_insert((row, 0));
        *sum = sum.saturating_add(row.bytes);
    }
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for (row, sum) in sums.into_values().filter(|(_, sum)| *sum > 0) {
        let total = folded.entry(fold(axes, by, row, names)).or_default();
        *total = total.saturating_add(sum);
    }
    folded
}

/// Folded stacks as lines.
#[must_use]
pub fn render(folded: &BTreeMap<String, u64>) -> String {
    folded.iter().map(|(stack, bytes)| format!("{stack} {bytes}\n")).collect()
}

fn fold(axes: &Axes<'_>, by: &[Axis], row: &Allocation, called: &Names<'_>) -> String {
    let roots = by.iter().map(|axis| frame_name(&(called.root)(*axis, row)));
    let boxes = frames::way(axes.book(), row).into_iter().map(|step| match step.frame {
        Some(frame) => frame_name(&(called.frame)(frame)),
        None => frame_name(&step.name),
    });
    roots.chain(boxes).collect::<Vec<_>>().join(";")
}

/// A name that cannot be taken for the format's own separators.
fn frame_name(name: &str) -> String {
    let name = plain(name).replace(';', ":");
    if name.trim().is_empty() { "[unknown]".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Kind;
    use crate::report::testbook::{TestBook, any_book};
    use crate::report::text::tests::exact_run;
    use proptest::prelude::*;

    fn folded(t: &TestBook, value: Value) -> String {
        render(&collapse(&Axes::new(&t.book), &ROOTS, value, At::End).unwrap())
    }

    #[test]
    fn a_stack_runs_from_the_rank_to_the_call() {
        let stack = "490 python3 train.py;_start;main;_PyEval_EvalFrameDefault;at::native::empty_cuda;\
                     c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc;cudaMalloc (cuda_malloc)";
        let context = "490 python3 train.py;[no stack];[no API call] (context) 543162368";
        assert_eq!(folded(&exact_run(), Value::Live), format!("{context}\n{stack} 247463936\n"));
        assert_eq!(folded(&exact_run(), Value::Peak), format!("{context}\n{stack} 371195904\n"));
        assert_eq!(folded(&exact_run(), Value::Allocated), format!("{context}\n{stack} 371195904\n"));
    }

    #[test]
    fn axes_stand_before_the_frames() {
        let t = exact_run();
        let by = [Axis::Phase, Axis::Role];
        let folded = collapse(&Axes::new(&t.book), &by, Value::Live, At::End).unwrap();
        let roots: Vec<_> = folded.keys().map(|stack| stack.split(';').take(3).collect::<Vec<_>>()).collect();
        assert_eq!(roots, [["cuda_context", "other", "[no stack]"], ["unattributed", "other", "_start"]]);
    }

    #[test]
    fn separators_in_names_are_replaced() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a;b\nc"), t.gpu(0));
        let stack = t.stack(&[("x;y 12", "m"), ("", "/lib/l.so"), (" ", "m")]);
        let row = t.allocate_kind(process, gpu, 5, Kind::Module);
        t.book.allocations[row].stack = Some(stack);
        assert_eq!(folded(&t, Value::Live), "1 a:b;x:y 12;[l.so];[unknown];[no API call] (module) 5\n");
    }

    proptest! {
        #[test]
        fn folded_bytes_sum_to_the_live_ones(book in any_book()) {
            let moments = Moments::new(&Axes::new(&book), At::End).unwrap();
            let live: u64 = book.allocations.iter().filter(|row| moments.is_live(row)).map(|row| row.bytes).sum();
            for by in [&ROOTS[..], &[], &[Axis::Phase, Axis::Rank, Axis::Owner, Axis::Role]] {
                let folded = collapse(&Axes::new(&book), by, Value::Live, At::End).unwrap();
                prop_assert_eq!(folded.values().sum::<u64>(), live);
            }
        }
    }
}

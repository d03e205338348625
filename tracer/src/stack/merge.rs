//! One stack of two: native frames, with Python frames in place of the interpreter's.
//!
//! Each run of the interpreter (a call of its evaluation loop from C) is one native frame and any number of Python frames.
//! Since 3.10 the outermost of these tells an address in that native frame, by which runs find their place. Before, each
//! Python frame is a run, and the evaluation loop is known by its name.

/// What a native frame is to the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Not the interpreter's: kept.
    Other,
    /// The evaluation loop: replaced.
    Evaluation,
    /// The interpreter's own C code: left out.
    Interpreter,
}

/// A native frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Native {
    pub(super) role: Role,
    /// Where it ends on the stack (the caller's stack pointer); none when that is not known.
    pub(super) end: Option<u64>,
    /// Its numbers, innermost first.
    pub(super) frames: Vec<u32>,
}

/// A run of the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Address in its native frame; 0 when not known.
    pub(super) anchor: u64,
    /// Numbers of its Python frames, innermost first.
    pub(super) frames: Vec<u32>,
}

/// Merges frames, innermost first. `anchored`: runs tell where they are. `whole`: the native stack reaches its outer end.
pub(super) fn merge(native: Vec<Native>, runs: Vec<Run>, anchored: bool, whole: bool) -> Vec<u32> {
    let evaluations = native.iter().filter(|frame| frame.role == Role::Evaluation).count();
    // Where some evaluation frames went unrecognised, no more is certain than that Python called what is innermost.
    let counted = evaluations == runs.len() || (!whole && evaluations < runs.len());
    let mut merged = Vec::new();
    let mut runs = runs.into_iter().peekable();
    for frame in native {
        let here = |run: &Run| {
            if anchored {
                run.anchor != 0 && frame.end.is_some_and(|end| run.anchor < end)
            } else if counted {
                frame.role == Role::Evaluation
            } else {
                frame.role != Role::Other
            }
        };
        while let Some(run) = runs.next_if(here) {
            merged.extend(run.frames);
            if !anchored && counted {
                break;
            }
        }
        if frame.role == Role::Other {
            merged.extend(frame.frames);
        }
    }
    merged.extend(runs.flat_map(|run| run.frames));
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stack from text, innermost first: `c` a frame of C, `i` of the interpreter's C, `E` of its evaluation loop. Each
    /// takes ten bytes of stack.
    fn native(text: &str) -> Vec<Native> {
        let role = |kind| match kind {
            'E' => Role::Evaluation,
            'i' => Role::Interpreter,
            _ => Role::Other,
        };
        let frame = |(n, kind)| Native { role: role(kind), end: Some(10 * (n as u64 + 1)), frames: vec![n as u32] };
        text.chars().enumerate().map(frame).collect()
    }

    fn run(anchor: u64, frames: &[u32]) -> Run {
        Run { anchor, frames: frames.to_vec() }
    }

    #[test]
    fn runs_take_the_place_of_the_frames_they_are_anchored_in() {
        // CUDA, ctypes, the loop, its callers; qsort; the loop again, and how the program began.
        let stack = native("ccEiicEiicc");
        let runs = || vec![run(25, &[100, 101]), run(65, &[102])];
        assert_eq!(merge(stack.clone(), runs(), true, true), [0, 1, 100, 101, 5, 102, 9, 10]);
        // The loop's name is not needed for it.
        let nameless = stack.into_iter().map(|frame| Native {
            role: if frame.role == Role::Evaluation { Role::Interpreter } else { frame.role },
            ..frame
        });
        assert_eq!(merge(nameless.collect(), runs(), true, true), [0, 1, 100, 101, 5, 102, 9, 10]);
    }

    #[test]
    fn runs_beyond_a_short_native_stack_come_after_it() {
        let mut stack = native("ccEic");
        stack[4].end = None;
        let runs = vec![run(25, &[100]), run(900, &[101]), run(0, &[102])];
        assert_eq!(merge(stack, runs, true, false), [0, 1, 100, 4, 101, 102]);
    }

    #[test]
    fn without_anchors_each_python_frame_is_one_evaluation() {
        let runs = || vec![run(0, &[100]), run(0, &[101]), run(0, &[102])];
        assert_eq!(merge(native("ccEiEicEicc"), runs(), false, true), [0, 1, 100, 101, 6, 102, 9, 10]);
        // Cut short: the outermost evaluation was not copied.
        assert_eq!(merge(native("ccEiE"), runs(), false, false), [0, 1, 100, 101, 102]);
        // An evaluation in code without a name: nothing is certain but the order.
        assert_eq!(merge(native("cciiEicEicc"), runs(), false, true), [0, 1, 100, 101, 102, 6, 9, 10]);
    }

    #[test]
    fn without_native_frames_python_is_all_there_is() {
        assert_eq!(merge(Vec::new(), vec![run(25, &[100]), run(65, &[101])], true, true), [100, 101]);
    }

    proptest! {
        /// Whatever a process makes us believe, no Python frame is lost or turned round, and no frame of C is.
        #[test]
        fn nothing_is_lost(
            kinds in "[ciE]{0,12}",
            ends in prop::collection::vec(prop::option::of(any::<u64>()), 12),
            anchors in prop::collection::vec(any::<u64>(), 0..6),
            anchored: bool,
            whole: bool,
        ) {
            let mut stack = native(&kinds);
            for (frame, end) in stack.iter_mut().zip(ends) {
                frame.end = end;
            }
            let runs: Vec<Run> =
                anchors.iter().enumerate().map(|(n, &anchor)| run(anchor, &[100 + n as u32])).collect();
            let python = 100..100 + runs.len() as u32;
            let c: Vec<u32> = stack.iter().filter(|f| f.role == Role::Other).flat_map(|f| f.frames.clone()).collect();
            let merged = merge(stack, runs, anchored, whole);
            let (ours, others): (Vec<u32>, Vec<u32>) = merged.into_iter().partition(|frame| *frame >= 100);
            prop_assert!(ours.into_iter().eq(python));
            prop_assert_eq!(others, c);
        }
    }
}

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

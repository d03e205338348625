//! Stacks that changed most.

use super::ranks::span;
use crate::lifecycle::{NO_API, UNATTRIBUTED};
use crate::report::bytes::signed;
use crate::report::diff::{Diff, StackChange};
use crate::report::text::Style;
use crate::report::text::plain::{columns, fit, plain};
use crate::report::text::stacks::short_frame;
use crate::report::text::table::WIDTH;

/// Stacks shown.
const STACKS: usize = 8;
const INDENT: &str = "               ";

/// Stacks that changed most, with the frames that say who asked.
pub(super) fn changed(diff: &Diff, style: Style) -> String {
    if diff.stacks.is_empty() {
        return String::new();
    }
    let shown = || diff.stacks.iter().take(STACKS);
    let about = match shown().all(|stack| stack.frames.is_empty()) {
        true => "Calls that changed most (no stacks were recorded)",
        false => "Stacks that changed most, innermost frame first",
    };
    let mut text = style.title(about) + "\n";
    for stack in shown() {
        text += &(fit(&plain(&line(diff, stack)), WIDTH) + "\n");
        text += &frames(&stack.frames);
    }
    if diff.stacks.len() > STACKS {
        text += &format!("  … and {} more (--format json lists all)\n", diff.stacks.len() - STACKS);
    }
    text
}

fn line(diff: &Diff, stack: &StackChange) -> String {
    let members: Vec<usize> = (0..diff.ranks.len()).filter(|n| stack.ranks.contains(&diff.ranks[*n].rank)).collect();
    let known = |label: &str| (label != UNATTRIBUTED && label != NO_API).then(|| label.to_owned());
    // What the driver takes for itself is told by its kind.
    let owner = known(&stack.owner).filter(|owner| owner != "driver").map(|owner| format!("of {owner}"));
    let api = known(&stack.api).map(|api| format!("by {api}"));
    let what: Vec<String> = [Some(stack.kind.clone()), owner, api].into_iter().flatten().collect();
    let phase = known(&stack.phase).map(|phase| format!("{phase}, ")).unwrap_or_default();
    let delta = signed(stack.bytes.delta_bytes);
    format!("  {delta:>11}  {} in {}: {phase}{}", stack.change, span(diff, &members), what.join(" "))
}

/// As many frames as a line holds, the innermost with its place; a run of frames of one library without symbols is one.
fn frames(frames: &[String]) -> String {
    let mut names = frames.iter().enumerate().map(|(n, frame)| plain(&short(frame, n == 0))).collect::<Vec<_>>();
    names.dedup();
    let Some((first, rest)) = names.split_first() else { return String::new() };
    let room = WIDTH - columns(INDENT);
    let mut line = fit(first, room);
    for frame in rest {
        let next = format!(" < {frame}");
        if columns(&line) + columns(&next) > room {
            break;
        }
        line += &next;
    }
    format!("{INDENT}{line}\n")
}

/// `CustomAllreduce.__init__ (custom_all_reduce.py:60)`, `DeviceCachingAllocator::malloc`, `[libcublas.so.13]`.
fn short(frame: &str, with_place: bool) -> String {
    let (function, place) = match frame.rsplit_once(" (") {
        Some((function, place)) => (function, format!(" ({place}")),
        None => (frame, String::new()),
    };
    if let Some((module, offset)) = function.rsplit_once("+0x")
        && offset.chars().all(|c| c.is_ascii_hexdigit())
    {
        return format!("[{module}]");
    }
    // Only names in C++ are long enough to shorten; Python's have angle brackets of their own.
    let function = if place.contains(".py") { function.to_owned() } else { short_frame(frame) };
    if with_place { function + &place } else { function }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_short() {
        let cases = [
            (
                "CustomAllreduce.__init__ (custom_all_reduce.py:60)",
                "CustomAllreduce.__init__ (custom_all_reduce.py:60)",
            ),
            ("f.<locals>.<lambda> (a.py:1)", "f.<locals>.<lambda> (a.py:1)"),
            ("c10::cuda::Device::malloc(int, long) (libc10_cuda.so)", "Device::malloc (libc10_cuda.so)"),
            ("libcublas.so.13+0x5b45ee", "[libcublas.so.13]"),
            ("main", "main"),
        ];
        for (frame, expected) in cases {
            assert_eq!(short(frame, true), expected);
        }
        assert_eq!(short("f (a.py:1)", false), "f");
    }

    #[test]
    fn a_line_has_the_frames_that_fit() {
        let stack = ["f (a.py:1)", "l.so+0x1", "l.so+0x2", &"g".repeat(200)].map(str::to_owned);
        assert_eq!(frames(&stack), format!("{INDENT}f (a.py:1) < [l.so]\n"));
        assert_eq!(columns(frames(&stack[3..]).trim_end()), WIDTH);
        assert_eq!(frames(&[]), "");
    }
}

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
    let mut text = style.title("Stacks that changed most, innermost frame first") + "\n";
    for stack in diff.stacks.iter().take(STACKS) {
        text += &(fit(&plain(&line(stack)), WIDTH) + "\n");
        text += &frames(&stack.frames);
    }
    if diff.stacks.len() > STACKS {
        text += &format!("  … and {} more (--format json lists all)\n", diff.stacks.len() - STACKS);
    }
    text
}

fn line(stack: &StackChange) -> String {
    let names: Vec<&str> = stack.ranks.iter().map(String::as_str).collect();
    let known = |label: &str| (label != UNATTRIBUTED && label != NO_API).then(|| label.to_owned());
    let owner = known(&stack.owner).map(|owner| format!("of {owner}"));
    let api = known(&stack.api).map(|api| format!("by {api}"));
    let what: Vec<String> = [Some(stack.kind.clone()), owner, api].into_iter().flatten().collect();
    let phase = known(&stack.phase).map(|phase| format!("{phase}, ")).unwrap_or_default();
    let delta = signed(stack.bytes.delta_bytes);
    format!("  {delta:>11}  {} in {}: {phase}{}", stack.change, span(&names), what.join(" "))
}

/// As many frames as a line holds; a run of frames of one library without symbols is one.
fn frames(frames: &[String]) -> String {
    let mut names: Vec<String> = frames.iter().map(|frame| short(frame)).collect();
    names.dedup();
    let Some((first, rest)) = names.split_first() else { return format!("{INDENT}(no stack recorded)\n") };
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

/// `DeviceCachingAllocator::malloc (libc10_cuda.so)`, `[libcublas.so.13]`.
fn short(frame: &str) -> String {
    let place = frame.rsplit_once(" (").map(|(_, place)| format!(" ({place}")).unwrap_or_default();
    let frame = plain(&(short_frame(frame) + &place));
    match frame.rsplit_once("+0x") {
        Some((module, offset)) if offset.chars().all(|c| c.is_ascii_hexdigit()) => format!("[{module}]"),
        _ => frame,
    }
}

//! Stacks that hold most.

use super::plain::{columns, fit, plain};
use super::table::WIDTH;
use super::{Style, counted, moment};
use crate::lifecycle::NO_API;
use crate::report::bytes;
use crate::report::summary::Summary;

/// Stacks that hold most.
pub(super) fn biggest(summary: &Summary, style: Style) -> String {
    if summary.stacks.is_empty() {
        return String::new();
    }
    let mut text = style.title(&format!("Biggest stacks {}", moment(summary))) + "\n";
    for row in &summary.stacks {
        let via = if row.api == NO_API { "outside API calls".to_owned() } else { format!("via {}", row.api) };
        let processes = if row.processes > 1 { format!(", {} processes", row.processes) } else { String::new() };
        let count = counted(row.live_count, "allocation");
        let line = format!("  {:>10}  {} {via}: {count}{processes}", bytes::human(row.live_bytes), row.kind);
        text += &(fit(&plain(&line), WIDTH) + "\n");
        text += &frame_lines(&row.frames, "no stack recorded");
    }
    text
}

/// A frame for a narrow column: the last two parts of the function's name, without arguments, template and place.
pub(in crate::report) fn short_frame(frame: &str) -> String {
    let function = frame.rsplit_once(" (").map_or(frame, |(function, _)| function);
    let mut bare = String::new();
    let mut depth = 0_usize;
    for c in function.chars() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    let parts: Vec<&str> = bare.split("::").filter(|part| !part.trim().is_empty()).collect();
    // An operator or a lambda alone leaves nothing to name it by.
    if parts.is_empty() {
        function.to_owned()
    } else {
        parts[parts.len().saturating_sub(2)..].join("::").trim().to_owned()
    }
}

/// Frames, one a line, innermost first.
pub(super) fn frame_lines(frames: &[String], none: &str) -> String {
    const INDENT: &str = "                ";
    if frames.is_empty() {
        return format!("{INDENT}({none})\n");
    }
    frames.iter().map(|frame| format!("{INDENT}{}\n", fit(&plain(frame), WIDTH - columns(INDENT)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shortened_to_what_tells_them_apart() {
        let cases = [
            ("c10::cuda::CachingAllocator::Native::Device::malloc (libc10_cuda.so)", "Device::malloc"),
            ("at::detail::fill<c10::ArrayRef<long> >(int, char (*)[2]) (lib.so)", "detail::fill"),
            ("void (anonymous namespace)::grow(long) (x.cpp:7)", "void ::grow"),
            ("load_model (loader.py:12)", "load_model"),
            ("libcublas.so+0x12", "libcublas.so+0x12"),
            ("{lambda()#1}", "{lambda()#1}"),
            ("", ""),
        ];
        for (frame, short) in cases {
            assert_eq!(short_frame(frame), short);
        }
    }
}

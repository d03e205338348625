//! Lines of what processes write, put together from writes.

use std::{collections::HashMap, mem};

use tracer_ebpf::Output;

use crate::lifecycle::logs::{CUT, MAX_LINE};

/// Lines begun and not ended that are kept at a time.
const OPEN: usize = 1024;

/// A line that was written, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// When the write with its first byte began.
    pub(super) t: u64,
    /// Process.
    pub(super) pid: u32,
    /// Descriptor.
    pub(super) fd: u32,
    /// What is not UTF-8 in it is replaced; [`CUT`] stands at its end if that is missing.
    pub(super) text: String,
}

/// A line whose end was not written yet.
#[derive(Debug, Default)]
struct Open {
    t: u64,
    pid: u32,
    text: Vec<u8>,
    cut: bool,
}

/// The lines that threads are about to write, by thread and descriptor: what other threads write meanwhile is no part of
/// them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    open: HashMap<(u32, u32), Open>,
}

impl Lines {
    /// A piece of a write; gives the lines that it ends. A carriage return ends one too: so do progress bars write.
    pub(super) fn push(&mut self, output: &Output, bytes: &[u8]) -> Vec<Line> {
        let key = (output.header.tid, output.fd);
        let mut lines = Vec::new();
        let mut open = self.open.remove(&key).unwrap_or_default();
        let mut parts = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).peekable();
        while let Some(part) = parts.next() {
            open.add(part, output);
            if parts.peek().is_some() {
                lines.extend(mem::take(&mut open).line(output.fd));
            }
        }
        if output.left_out > 0 {
            open.add(&[], output);
            open.cut = true;
            lines.extend(mem::take(&mut open).line(output.fd));
        }
        if !open.text.is_empty() {
            if self.open.len() >= OPEN {
                lines.extend(self.take_oldest());
            }
            self.open.insert(key, open);
        }
        lines
    }

    /// What a process has begun, at its end.
    pub(super) fn of(&mut self, pid: u32) -> Vec<Line> {
        self.take(|open| open.pid == pid)
    }

    /// What all have begun, at the end of tracing.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        self.take(|_| true)
    }

    fn take(&mut self, which: impl Fn(&Open) -> bool) -> Vec<Line> {
        let taken = self.open.extract_if(|_, open| which(open));
        let mut lines: Vec<Line> = taken.filter_map(|((_, fd), open)| open.line(fd)).collect();
        lines.sort_by_key(|line| line.t);
        lines
    }

    fn take_oldest(&mut self) -> Option<Line> {
        let key = *self.open.iter().min_by_key(|(_, open)| open.t)?.0;
        self.open.remove(&key)?.line(key.1)
    }
}

impl Open {
    fn add(&mut self, bytes: &[u8], output: &Output) {
        if self.text.is_empty() {
            (self.t, self.pid) = (output.header.time_ns, output.header.tgid);
        }
        let room = MAX_LINE - self.text.len();
        self.cut |= bytes.len() > room;
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(self, fd: u32) -> Option<Line> {
        let mut text = String::from_utf8_lossy(&self.text).into_owned();
        if self.cut {
            text.push(CUT);
        }
        (!text.is_empty()).then_some(Line { t: self.t, pid: self.pid, fd, text })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracer_ebpf::Header;

    use super::*;

    fn output(t: u64, tid: u32, fd: u32) -> Output {
        Output { header: Header { time_ns: t, tgid: tid / 10, tid, ..Header::default() }, fd, len: 0, left_out: 0 }
    }

    fn texts(lines: &[Line]) -> Vec<(u64, &str)> {
        lines.iter().map(|line| (line.t, line.text.as_str())).collect()
    }

    #[test]
    fn lines_are_put_together_by_thread_and_descriptor() {
        let mut lines = Lines::default();
        assert!(lines.push(&output(1, 70, 1), b"one ").is_empty());
        assert!(lines.push(&output(2, 70, 2), b"other ").is_empty());
        assert!(lines.push(&output(3, 71, 1), b"thread ").is_empty());
        assert_eq!(texts(&lines.push(&output(4, 70, 1), b"line\nnext\n\nbegun")), [(1, "one line"), (4, "next")]);
        assert_eq!(texts(&lines.push(&output(5, 71, 1), b"two\r\n")), [(3, "thread two")]);
        assert_eq!(texts(&lines.of(7)), [(2, "other "), (4, "begun")]);
        assert!(lines.open.is_empty() && lines.rest().is_empty());
    }

    #[test]
    fn a_progress_bar_writes_lines() {
        let mut lines = Lines::default();
        assert!(lines.push(&output(1, 70, 2), b"\r  0%|").is_empty());
        assert_eq!(texts(&lines.push(&output(2, 70, 2), b"\r 50%|")), [(1, "  0%|")]);
        assert_eq!(texts(&lines.push(&output(3, 70, 2), b"\r100%|\n")), [(2, " 50%|"), (3, "100%|")]);
    }

    #[test]
    fn what_is_missing_is_shown() {
        let mut lines = Lines::default();
        let cut = Output { left_out: 9, ..output(1, 70, 1) };
        assert_eq!(texts(&lines.push(&cut, b"a\nb")), [(1, "a"), (1, "b…")]);
        assert_eq!(texts(&lines.push(&cut, b"")), [(1, "…")]);
        assert_eq!(texts(&lines.push(&output(2, 70, 1), b"c\xff\xc3\n")), [(2, "c\u{fffd}\u{fffd}")]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut lines = Lines::default();
        for _ in 0..10 {
            assert!(lines.push(&output(1, 70, 1), &[b'x'; MAX_LINE / 4]).is_empty());
        }
        assert_eq!(lines.push(&output(2, 70, 1), b"\n")[0].text, "x".repeat(MAX_LINE) + "…");
        for tid in 0..2 * OPEN as u32 {
            lines.push(&output(u64::from(tid), tid, 1), b"x");
        }
        assert_eq!(lines.open.len(), OPEN);
    }

    proptest! {
        /// However a text is written, its lines are the same.
        #[test]
        fn writes_make_no_difference(text in "[a-zé\r\n]{0,60}", cuts in prop::collection::vec(0..200_usize, 0..8)) {
            let mut lines = Lines::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut got = Vec::new();
            let mut begin = 0;
            for end in cuts.into_iter().chain([text.len()]) {
                got.extend(lines.push(&output(1, 70, 1), &text.as_bytes()[begin..end]));
                begin = end;
            }
            got.extend(lines.rest());
            let got: Vec<String> = got.into_iter().map(|line| line.text).collect();
            let expected: Vec<&str> = text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(got, expected);
        }
    }
}

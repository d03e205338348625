//! Which of a process's own memory readings is which: by the Python frame around it, else by its place among log lines.

use super::lines::Said;
use crate::ledger::{Book, Reading};
use crate::report::frames;
use crate::trace::record::{Frame, FrameKind};

/// Functions that only read: the one around them says what for.
const READERS: [&str; 4] = ["mem_get_info", "get_available_gpu_memory", "measure", "cuda_mem_get_info"];

/// Frames outside the readers that are looked at.
const NEAR: usize = 3;

/// A Python function by the end of its file's path and its name.
pub(super) type Function = (&'static str, &'static str);

/// A reading and the function that asked for it.
#[derive(Clone, Debug)]
pub(super) struct Asked<'b> {
    pub(super) reading: Reading,
    /// Innermost Python frames that are no mere readers: a helper may stand between.
    by: Vec<&'b Frame>,
    /// True inside the speculative worker: the draft model's own sizing.
    pub(super) is_draft: bool,
}

impl Asked<'_> {
    /// The function among `functions` that asked.
    pub(super) fn among(&self, functions: &[Function]) -> Option<Function> {
        self.by.iter().find_map(|frame| functions.iter().copied().find(|function| is_function(frame, *function)))
    }
}

/// The readings of each process, in order of time.
pub(super) fn by_process(book: &Book) -> Vec<Vec<Asked<'_>>> {
    let mut readings = vec![Vec::new(); book.processes.len()];
    for reading in &book.readings {
        if let Some(readings) = readings.get_mut(reading.process) {
            readings.push(asked(book, *reading));
        }
    }
    readings.iter_mut().for_each(|readings| readings.sort_by_key(|asked| asked.reading.t));
    readings
}

fn asked(book: &Book, reading: Reading) -> Asked<'_> {
    let python = || {
        let frames = reading.stack.into_iter().flat_map(|stack| frames::of_stack(book, stack).rev());
        frames.filter(|frame| frame.kind == FrameKind::Python)
    };
    let by = python().filter(|frame| !READERS.contains(&name(frame))).take(NEAR).collect();
    let is_draft = python().any(|frame| {
        name(frame) == "maybe_init_draft_worker"
            || frame
                .file
                .as_deref()
                .is_some_and(|file| file.contains("sglang/srt/speculative/") && file.contains("worker"))
    });
    Asked { reading, by, is_draft }
}

/// Last part of a qualified name: Python before 3.11 has no more.
fn name(frame: &Frame) -> &str {
    frame.function.rsplit('.').next().unwrap_or_default()
}

/// True when `frame` runs `function`.
fn is_function(frame: &Frame, (file, function): Function) -> bool {
    name(frame) == function && frame.file.as_deref().is_some_and(|path| path.ends_with(file))
}

/// Readings made after `from` and before `to`.
pub(super) fn between<'a, 'b>(readings: &'a [Asked<'b>], from: u64, to: u64) -> &'a [Asked<'b>] {
    let first = readings.partition_point(|asked| asked.reading.t < from);
    let end = readings.partition_point(|asked| asked.reading.t < to);
    readings.get(first..end).unwrap_or_default()
}

/// The first line that begins with one of `begins`.
pub(super) fn first_line<'a, 'b>(lines: &'a [Said<'b>], begins: &[&str]) -> Option<&'a Said<'b>> {
    lines.iter().find(|said| begins.iter().any(|begin| said.message.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    #[test]
    fn the_function_around_the_readers_asked() {
        let mut t = TestBook::new();
        let process = t.process(1, "");
        let stack = t.python_stack(&[
            "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.__init__",
            "sglang/srt/model_executor/model_runner.py: ModelRunner.init_torch_distributed",
            "sglang/srt/utils/common.py: get_available_gpu_memory",
            "torch/cuda/memory.py: mem_get_info",
            "libtorch_python.so",
        ]);
        t.read(process, 5, Some(stack));
        t.read(process, 6, None);
        let readings = by_process(&t.book).remove(0);
        let function = ("sglang/srt/model_executor/model_runner.py", "init_torch_distributed");
        assert_eq!(readings[0].among(&[function]), Some(function));
        assert_eq!(readings[0].among(&[("model_runner.py", "get_available_gpu_memory")]), None);
        assert!(readings[0].is_draft && !readings[1].is_draft && readings[1].by.is_empty());
    }
}

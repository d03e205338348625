//! Stack frames for people.

use std::borrow::Cow;

use crate::ledger::{Allocation, Book};
use crate::lifecycle::{NO_API, NO_STACK, kind_name};
use crate::trace::record::{Frame, FrameKind};

/// Libraries between an API call and its caller: they tell nothing about who asked.
const PLUMBING_MODULES: [&str; 3] = ["libcuda.so", "libcudart.so", "libnvidia-"];

/// Libraries of `PyTorch` below its Python functions: dispatch and allocator. Where Python frames tell who asked, they are
/// two dozen frames of detail.
const TORCH_MODULES: [&str; 4] = ["libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so"];

/// Native frames shown inside the innermost Python frame.
const NATIVE_DETAIL: usize = 2;

/// Functions that only pass control on: `CPython`'s evaluation loop and calls, thread and process starts, static cudart
/// (its own functions are named by hashes in the libraries that NVIDIA ships).
const PLUMBING_FUNCTIONS: [&str; 24] = [
    "libcudart_static_",
    "_PyEval_",
    "PyEval_",
    "_PyFunction_",
    "PyObject_",
    "_PyObject_",
    "PyVectorcall_",
    "_PyVectorcall_",
    "cfunction_",
    "method_vectorcall",
    "slot_tp_",
    "type_call",
    "pymain_",
    "Py_RunMain",
    "Py_BytesMain",
    "run_mod",
    "run_eval_code_obj",
    "pyrun_",
    "_PyRun_",
    "__libc_start",
    "start_thread",
    "__clone",
    "cudart::",
    "libcudart_static_",
];

/// Python functions that only pass control on.
const PYTHON_PLUMBING: [&str; 7] = [
    "Module._call_impl",
    "Module._wrapped_call_impl",
    "OpOverload.__call__",
    "OpOverloadPacket.__call__",
    "DeviceContext.__torch_function__",
    "context_decorator.<locals>.decorate_context",
    "_call_with_frames_removed",
];

/// The frames of a stack, outermost first. Empty for a stack or frames that the trace does not hold.
pub(crate) fn of_stack(book: &Book, stack: u32) -> impl DoubleEndedIterator<Item = &Frame> {
    let numbers = book.stacks.get(stack as usize).map_or(&[][..], Vec::as_slice);
    numbers.iter().filter_map(|number| book.frames.get(*number as usize))
}

/// One box of a picture of stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step<'b> {
    /// Its name, as the trace has it: anything may stand in it.
    pub(super) name: Cow<'b, str>,
    /// The frame it stands for, where it is one.
    pub(super) frame: Option<&'b Frame>,
}

/// The boxes of a stack, outermost first.
pub(super) fn boxes(book: &Book, stack: u32) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut nameless = None;
    for frame in of_stack(book, stack) {
        // A run of frames without symbols (the inside of libcuda) is one box: their offsets tell a reader nothing.
        let module = nameless_module(frame);
        if module.is_none() || module != nameless {
            let name = module.map_or_else(|| function(frame), |m| format!("[{m}]").into());
            steps.push(Step { name, frame: Some(frame) });
        }
        nameless = module;
    }
    steps
}

/// The way to a piece of memory, outermost first: its frames, then the call with the kind. Every picture shows these boxes.
pub(super) fn way<'b>(book: &'b Book, row: &'b Allocation) -> Vec<Step<'b>> {
    let api = row.calls.first().map_or(NO_API, String::as_str);
    let mut steps = row.stack.map(|stack| boxes(book, stack)).unwrap_or_default();
    if steps.is_empty() {
        steps.push(Step { name: NO_STACK.into(), frame: None });
    }
    // The stack was copied at the call's entry, where the call itself is the innermost frame.
    if steps.last().is_some_and(|innermost| innermost.name == api) {
        steps.pop();
    }
    steps.push(Step { name: format!("{api} ({})", kind_name(row.kind)).into(), frame: None });
    steps
}

/// Function of a frame; where it is unknown, `library+0xoffset`.
#[must_use]
pub(super) fn function(frame: &Frame) -> Cow<'_, str> {
    match frame.kind {
        FrameKind::Cut => "[stack cut here]".into(),
        _ if !frame.function.is_empty() => frame.function.as_str().into(),
        _ if !frame.module.is_empty() => format!("{}+{:#x}", file_name(&frame.module), frame.offset).into(),
        _ => "[unknown]".into(),
    }
}

/// The library of a native frame whose function is not known.
#[must_use]
pub(super) fn nameless_module(frame: &Frame) -> Option<&str> {
    let nameless = frame.kind == FrameKind::Native && frame.function.is_empty() && !frame.module.is_empty();
    nameless.then(|| file_name(&frame.module))
}

/// Where a frame's code is: `file.py:12`, or the library; empty when nothing is known beyond [`function`].
#[must_use]
pub(super) fn place(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file_name(file)),
        (Some(file), None) => file_name(file).to_owned(),
        _ if frame.function.is_empty() => String::new(),
        _ => file_name(&frame.module).to_owned(),
    }
}

/// `function (place)`.
#[must_use]
pub(crate) fn describe(frame: &Frame) -> String {
    let (function, place) = (function(frame), place(frame));
    if place.is_empty() { function.into_owned() } else { format!("{function} ({place})") }
}

/// Up to `limit` innermost frames that say who asked, innermost first: without plumbing, unless there is nothing else.
/// Of what Python code called, only as much that its own lines still come first.
#[must_use]
pub(crate) fn innermost_useful(book: &Book, stack: u32, limit: usize) -> Vec<String> {
    let innermost_first = || of_stack(book, stack).rev();
    let has_python = innermost_first().any(|frame| frame.kind == FrameKind::Python);
    let mut native = 0;
    let is_useful = |frame: &&Frame| {
        if !has_python || frame.kind != FrameKind::Native {
            return !is_plumbing(frame);
        }
        let useful = !is_plumbing(frame) && !TORCH_MODULES.contains(&file_name(&frame.module));
        native += usize::from(useful);
        useful && native <= NATIVE_DETAIL
    };
    let useful: Vec<_> = innermost_first().filter(is_useful).take(limit).map(describe).collect();
    if useful.is_empty() { innermost_first().take(limit).map(describe).collect() } else { useful }
}

/// The frames of a stack that say who asked, innermost first: the Python ones where there are any, since what lies between
/// them and the driver is `PyTorch`'s way of doing things; else the native ones without plumbing.
pub(super) fn who_asked(book: &Book, stack: u32) -> Vec<&Frame> {
    let innermost_first = || of_stack(book, stack).rev();
    let is_telling =
        |frame: &&Frame| frame.kind == FrameKind::Python && !PYTHON_PLUMBING.contains(&frame.function.as_str());
    let python: Vec<_> = innermost_first().filter(is_telling).collect();
    if !python.is_empty() {
        return python;
    }
    innermost_first().filter(|frame| !is_plumbing(frame)).collect()
}

/// True for a frame that only passes control on.
pub(super) fn is_plumbing(frame: &Frame) -> bool {
    let module = file_name(&frame.module);
    frame.kind == FrameKind::Native
        && (PLUMBING_MODULES.iter().any(|prefix| module.starts_with(prefix))
            || PLUMBING_FUNCTIONS.iter().any(|prefix| frame.function.starts_with(prefix))
            || matches!(frame.function.as_str(), "_start" | "clone" | "clone3"))
}

/// Last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    #[test]
    fn frames_are_named_by_what_is_known() {
        let native =
            Frame { function: "grow".into(), module: "/opt/lib/libtorch.so".into(), offset: 16, ..Frame::default() };
        assert_eq!(describe(&native), "grow (libtorch.so)");
        assert_eq!(describe(&Frame { function: String::new(), ..native.clone() }), "libtorch.so+0x10");
        let line = Frame { file: Some("/src/grow.cpp".into()), line: Some(7), ..native };
        assert_eq!(describe(&line), "grow (grow.cpp:7)");
        assert_eq!(describe(&Frame::default()), "[unknown]");
        assert_eq!(describe(&Frame { kind: FrameKind::Cut, ..Frame::default() }), "[stack cut here]");
    }

    #[test]
    fn python_frames_say_who_asked_where_there_are_any() {
        let mut t = TestBook::new();
        let asked = |t: &TestBook, stack: u32| {
            who_asked(&t.book, stack).into_iter().map(|frame| frame.function.clone()).collect::<Vec<_>>()
        };
        let python =
            t.python_stack(&["a.py: load", "torch/nn/module.py: Module._call_impl", "a.py: forward", "libc10.so"]);
        assert_eq!(asked(&t, python), ["forward", "load"]);
        let native = t.stack(&[("main", "server"), ("grow", "libtorch.so"), ("cudaMalloc", "libcudart.so.12")]);
        assert_eq!(asked(&t, native), ["grow", "main"]);
        assert!(who_asked(&t.book, 99).is_empty());
    }

    #[test]
    fn plumbing_is_left_out_unless_it_is_all_there_is() {
        let mut t = TestBook::new();
        let full = t.stack(&[
            ("_start", "python3.12"),
            ("main", "server"),
            ("_PyEval_EvalFrameDefault", "python3.12"),
            ("at::empty", "libtorch.so"),
            ("cudaMalloc", "/opt/libcudart.so.12"),
            ("cuMemAlloc_v2", "/usr/lib/libcuda.so.1"),
        ]);
        assert_eq!(innermost_useful(&t.book, full, 9), ["at::empty (libtorch.so)", "main (server)"]);
        assert_eq!(innermost_useful(&t.book, full, 1), ["at::empty (libtorch.so)"]);
        let plumbing = t.stack(&[("cudart::init", "app"), ("cuInit", "libcuda.so.1")]);
        assert_eq!(innermost_useful(&t.book, plumbing, 9), ["cuInit (libcuda.so.1)", "cudart::init (app)"]);
    }

    #[test]
    fn python_lines_come_before_what_they_called() {
        let mut t = TestBook::new();
        let native = |function: &str, module: &str| Frame {
            function: function.to_owned(),
            module: module.to_owned(),
            ..Frame::default()
        };
        let python = |function: &str| Frame { kind: FrameKind::Python, ..native(function, "") };
        let frames = [
            native("main", "python3"),
            python("serve"),
            python("allocate"),
            native("THPVariable_zeros", "/lib/libtorch_python.so"),
            native("at::zeros", "/lib/libtorch_cpu.so"),
            native("alloc_block", "/lib/libc10_cuda.so"),
        ];
        let stack = t.frames(&frames);
        assert_eq!(
            innermost_useful(&t.book, stack, 3),
            ["THPVariable_zeros (libtorch_python.so)", "allocate", "serve"]
        );
        let nccl: Vec<_> = (0..5).map(|n| native(&format!("nccl{n}"), "libnccl.so.2")).collect();
        let stack = t.frames(&[&[python("init")], nccl.as_slice()].concat());
        assert_eq!(innermost_useful(&t.book, stack, 9), ["nccl4 (libnccl.so.2)", "nccl3 (libnccl.so.2)", "init"]);
    }

    #[test]
    fn stacks_the_trace_does_not_hold_are_empty() {
        let mut t = TestBook::new();
        t.book.stacks.push(vec![5]);
        assert!(innermost_useful(&t.book, 0, 9).is_empty());
        assert!(innermost_useful(&t.book, 1, 9).is_empty());
    }
}

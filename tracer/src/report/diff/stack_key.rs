//! What makes two call stacks of different runs the same.
//!
//! Lines move when code is edited, addresses when it is built or loaded, paths when it is installed elsewhere, and names of
//! files compiled at run time hold a hash. None of these is part of a key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;

use regex::Regex;

use crate::ledger::Book;
use crate::lifecycle::NO_STACK;
use crate::report::frames;
use crate::trace::record::{Frame, FrameKind};

/// Innermost frames that count: what differs further out is how the server was started.
const FRAMES: usize = 24;

/// Hashes and build tags in names of libraries compiled or renamed at run time or install time:
/// `norm_0a1b2c3d4e.so`, `libcudart.faf08d9a.so.13`, `__triton_launcher.cpython-312-x86_64-linux-gnu.so`.
static HASH: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:[._-][0-9a-f]{8,}|\.cpython-[0-9a-z_-]+|\.abi3)(?P<end>\.so\b|\.py\b)"));
/// Files of generated code whose whole name is a hash: `cabc…xyz.py` of inductor, base 32.
static NAMELESS: LazyLock<Regex> = LazyLock::new(|| regex(r"^[0-9a-z]{32,}(?P<end>\.so|\.py)"));
/// Marks that the compiler puts on parts and copies of a function.
static CLONE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?: \[clone [^\]]*\]|\.(?:isra|constprop|part|cold|lto_priv|llvm)(?:\.\d+)*)+$"));

#[expect(clippy::expect_used, reason = "constant patterns: a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Keys of a book's stacks, each made once.
#[derive(Debug)]
pub(in crate::report) struct StackKeys<'b> {
    book: &'b Book,
    keys: HashMap<u32, Rc<str>>,
}

impl<'b> StackKeys<'b> {
    pub(in crate::report) fn new(book: &'b Book) -> Self {
        Self { book, keys: HashMap::new() }
    }

    /// The key of a stack: names of its frames that say who asked, innermost first.
    pub(in crate::report) fn key(&mut self, stack: Option<u32>) -> Rc<str> {
        let Some(stack) = stack else { return NO_STACK.into() };
        self.keys.entry(stack).or_insert_with(|| key(self.book, stack).into()).clone()
    }
}

fn key(book: &Book, stack: u32) -> String {
    let mut names: Vec<String> = Vec::new();
    for frame in frames::who_asked(book, stack) {
        let name = frame_key(frame);
        // A run of frames without symbols is one: their offsets are what differs between builds.
        if frames::nameless_module(frame).is_none() || names.last() != Some(&name) {
            names.push(name);
        }
        if names.len() == FRAMES {
            break;
        }
    }
    if names.is_empty() { NO_STACK.to_owned() } else { names.join(" < ") }
}

/// Name of a frame in a flame graph of two runs: without what differs between runs of the same code.
pub(super) fn flame_name(frame: &Frame) -> String {
    match frames::nameless_module(frame) {
        Some(module) => format!("[{}]", library(module)),
        None => CLONE.replace(&frames::function(frame), "").into_owned(),
    }
}

/// Name of a frame without what differs between runs of the same code: `load_model (srt/model_loader/loader.py)`.
pub(in crate::report) fn frame_key(frame: &Frame) -> String {
    if let Some(module) = frames::nameless_module(frame) {
        return format!("[{}]", library(module));
    }
    let function = CLONE.replace(&frame.function, "");
    match (&frame.file, frame.kind) {
        (Some(file), FrameKind::Python) => format!("{function} ({})", source(file)),
        (_, FrameKind::Native) if !frame.function.is_empty() => {
            format!("{function} ({})", library(frames::file_name(&frame.module)))
        }
        _ => frames::function(frame).into_owned(),
    }
}

/// A library's name without version and hash: `libcuda.so` of `libcuda.so.580.159.04`.
pub(in crate::report) fn library(file_name: &str) -> Cow<'_, str> {
    let bare = match file_name.find(".so.") {
        Some(at) => &file_name[..at + 3],
        None => file_name,
    };
    let bare = HASH.replace(bare, "$end");
    match bare {
        Cow::Borrowed(bare) => NAMELESS.replace(bare, "[generated]$end"),
        Cow::Owned(bare) => NAMELESS.replace(&bare, "[generated]$end").into_owned().into(),
    }
}

/// A source file below where packages are installed; of others, the name.
fn source(file: &str) -> Cow<'_, str> {
    const ROOTS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3."];
    let below = ROOTS.iter().find_map(|root| file.rsplit_once(root)).map(|(_, below)| below);
    match below {
        // What follows `/lib/python3.` begins with the minor version.
        Some(below) if file.contains("-packages/") => below.into(),
        Some(below) => below.split_once('/').map_or(below, |(_, below)| below).into(),
        None => library(frames::file_name(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    #[test]
    fn names_of_libraries_lose_versions_and_hashes() {
        let cases = [
            ("libcuda.so.580.159.04", "libcuda.so"),
            ("libcudart.faf08d9a.so.13", "libcudart.so"),
            ("sgl_kernel_jit_activation_0a1b2c3d4e5f6071.so", "sgl_kernel_jit_activation.so"),
            ("__triton_launcher.cpython-312-x86_64-linux-gnu.so", "__triton_launcher.so"),
            ("common_ops.abi3.so", "common_ops.so"),
            ("cabcdefghijklmnopqrstuvwxyz234567abcdefghijklmno.py", "[generated].py"),
            ("libc10_cuda.so", "libc10_cuda.so"),
            ("train.py", "train.py"),
            ("", ""),
        ];
        for (name, bare) in cases {
            assert_eq!(library(name), bare);
        }
    }

    #[test]
    fn files_are_named_below_their_packages() {
        let cases = [
            ("/venv/lib/python3.12/site-packages/sglang/srt/a.py", "sglang/srt/a.py"),
            ("/usr/lib/python3/dist-packages/torch/a.py", "torch/a.py"),
            ("/usr/lib/python3.12/threading.py", "threading.py"),
            ("/usr/lib/python3.12/multiprocessing/spawn.py", "multiprocessing/spawn.py"),
            ("/home/me/train.py", "train.py"),
        ];
        for (file, bare) in cases {
            assert_eq!(source(file), bare);
        }
    }

    #[test]
    fn lines_addresses_and_paths_make_no_difference() {
        let key_of = |line: u32, offset: u64, prefix: &str, hash: &str| {
            let mut t = TestBook::new();
            t.python_stack(&["sglang/a.py: load", "libc10_cuda.so"]);
            t.stack(&[("cudaMalloc", "libcudart.so.12")]);
            for frame in &mut t.book.frames {
                (frame.line, frame.offset) = (Some(line), offset);
                frame.file = frame.file.take().map(|file| file.replace("/venv", prefix));
                frame.module = frame.module.replace("libc10_cuda", &format!("jit_{hash}"));
            }
            t.book.stacks[0].push(2);
            StackKeys::new(&t.book).key(Some(0)).to_string()
        };
        let key = key_of(7, 0x1234, "/venv", "00112233445566");
        assert_eq!(key, "load (sglang/a.py)");
        assert_eq!(key, key_of(99, 0x8888, "/opt/other", "deadbeefdeadbeef"));
    }

    #[test]
    fn copies_of_a_function_are_the_function() {
        let frame =
            |function: &str| Frame { function: function.to_owned(), module: "/l/x.so".into(), ..Frame::default() };
        for copy in ["grow", "grow.isra.0", "grow.part.0.cold", "grow [clone .constprop.0]", "grow.llvm.1234"] {
            assert_eq!(frame_key(&frame(copy)), "grow (x.so)", "{copy}");
        }
        assert_eq!(StackKeys::new(&TestBook::new().book).key(None).as_ref(), NO_STACK);
    }
}

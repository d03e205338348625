//! Patterns of frames, modules and calls.

use std::fmt;

use crate::trace::record::Frame;

/// True when `text` is of the form `pattern`, in which `*` stands for any text. Takes at most as many steps as the product
/// of their lengths.
pub(in crate::lifecycle) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last `*` does not fit.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// End of a path, from the beginning of one of its parts on: `srt/managers/scheduler.py`, `libnccl.so*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suffix {
    text: String,
    /// `*/text`, where `text` holds a `*`.
    glob: Option<String>,
}

impl Suffix {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), glob: text.contains('*').then(|| format!("*/{text}")) }
    }

    fn matches(&self, path: &str) -> bool {
        match &self.glob {
            Some(anywhere) => glob(&self.text, path) || glob(anywhere, path),
            None => path.strip_suffix(self.text.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')),
        }
    }
}

/// `file: function function`, of Python frames; `module` or `module: function`, of native ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) struct FramePattern {
    place: Suffix,
    /// Empty: any.
    functions: Vec<String>,
}

impl FramePattern {
    /// Reads a pattern.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let (place, functions) = text.split_once(": ").unwrap_or((text, ""));
        let (place, functions) = (place.trim(), functions.split_whitespace().map(str::to_owned).collect());
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.+*/".contains(c);
        if place.is_empty() || place.starts_with('/') || !place.chars().all(fits) {
            return Err(format!("`{text}` is no frame: write the end of a path, like `srt/file.py: function other_*`"));
        }
        Ok(Self { place: Suffix::new(place), functions })
    }

    /// Names under which a Python function may go: what a table can be looked up by. `None` when a `*` is in one.
    pub(super) fn plain_functions(&self) -> Option<impl Iterator<Item = &str>> {
        let plain = !self.functions.is_empty() && self.functions.iter().all(|name| !last_part(name).contains('*'));
        plain.then(|| self.functions.iter().map(|name| last_part(name)))
    }

    /// True for any function of the place.
    pub(in crate::lifecycle) fn is_any_function(&self) -> bool {
        self.functions.is_empty()
    }

    /// True when a Python frame fits.
    pub(in crate::lifecycle) fn is_python(&self, frame: &Frame) -> bool {
        self.place.matches(frame.file.as_deref().unwrap_or_default())
            && (self.functions.is_empty() || self.functions.iter().any(|name| is_function(name, &frame.function)))
    }

    /// True when a native frame fits.
    pub(in crate::lifecycle) fn is_native(&self, frame: &Frame) -> bool {
        self.place.matches(&frame.module)
            && (self.functions.is_empty() || self.functions.iter().any(|name| glob(name, &frame.function)))
    }
}

impl fmt::Display for FramePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place.text)?;
        if !self.functions.is_empty() {
            write!(f, ": {}", self.functions.join(" "))?;
        }
        Ok(())
    }
}

/// `f` of `Class.method.<locals>.f`: what `co_name` is.
pub(super) fn last_part(qualname: &str) -> &str {
    qualname.rsplit('.').next().unwrap_or(qualname)
}

/// A pattern with a class (`Worker.load_model`) looks at the end of the qualified name. `CPython` before 3.11 has none, so
/// that there the function's own name decides.
fn is_function(pattern: &str, name: &str) -> bool {
    if !glob(last_part(pattern), last_part(name)) {
        return false;
    }
    let mut parts = name.rsplit('.').skip(1);
    let with_class = name.contains('.');
    !with_class || pattern.rsplit('.').skip(1).all(|class| parts.next().is_some_and(|part| glob(class, part)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn python(pattern: &str, file: &str, function: &str) -> bool {
        let frame = Frame { file: Some(file.into()), function: function.into(), ..Frame::default() };
        FramePattern::new(pattern).unwrap().is_python(&frame)
    }

    #[test]
    fn python_frames_fit_by_the_end_of_the_path_and_the_function() {
        let pattern = "srt/managers/scheduler.py: run_* Scheduler.__init__";
        let file = "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py";
        assert!(python(pattern, file, "run_scheduler_process"));
        assert!(python(pattern, file, "Scheduler.__init__"));
        // CPython 3.10 tells the function alone.
        assert!(python(pattern, file, "__init__"));
        assert!(!python(pattern, file, "Other.__init__"));
        assert!(python(pattern, file, "Scheduler.__init__.<locals>.run_later"));
        assert!(!python(pattern, "/x/other_srt/managers/scheduler.py", "run_a"));
        assert!(!python(pattern, "/x/srt/managers/scheduler.py.bak", "run_a"));
        assert!(python("srt/managers/scheduler.py: run", "srt/managers/scheduler.py", "run"));
        assert!(python("sglang/srt/speculative/*worker*.py", "/a/sglang/srt/speculative/eagle_worker_v2.py", "draft"));
        assert!(!python("sglang/srt/speculative/*worker*.py", "/a/sglang/srt/speculative/eagle_info.py", "draft"));
        assert!(!python("a.py: f", "", "f"));
    }

    #[test]
    fn native_frames_fit_by_module_and_function() {
        let frame = |module: &str, function: &str| Frame {
            module: module.into(),
            function: function.into(),
            ..Frame::default()
        };
        let fits = |pattern: &str, frame: &Frame| FramePattern::new(pattern).unwrap().is_native(frame);
        assert!(fits("libnccl.so*", &frame("/opt/nccl/lib/libnccl.so.2", "")));
        assert!(!fits("libnccl.so*", &frame("/opt/nccl/lib/libmynccl.so.2", "")));
        let alloc = frame("/t/libtorch_cuda.so", "c10d::CUDASymmetricMemoryAllocator::alloc(unsigned long)");
        assert!(fits("libtorch_cuda*: *CUDASymmetricMemoryAllocator::alloc*", &alloc));
        assert!(!fits("libtorch_cuda*: *CUDASymmetricMemoryAllocator::free*", &alloc));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/abs/path.py", "a b.py: f", "x;y", ": f"] {
            assert!(FramePattern::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(FramePattern::new("a/b.py:  f   g*").unwrap().to_string(), "a/b.py: f g*");
    }

    /// What `*` means, said the slow way.
    fn by_regex(pattern: &str, text: &str) -> bool {
        let parts: Vec<_> = pattern.split('*').map(regex::escape).collect();
        regex::Regex::new(&format!("^(?s:{})$", parts.join(".*"))).unwrap().is_match(text)
    }

    proptest! {
        #[test]
        fn stars_stand_for_any_text(pattern in "[ab*]{0,8}", text in "[ab]{0,12}") {
            prop_assert_eq!(glob(&pattern, &text), by_regex(&pattern, &text));
        }

        #[test]
        fn any_text_is_survived(pattern: String, text: String) {
            glob(&pattern, &text);
            is_function(&pattern, &text);
            if let Ok(read) = FramePattern::new(&pattern) {
                prop_assert_eq!(FramePattern::new(&read.to_string()).unwrap(), read);
            }
        }
    }
}

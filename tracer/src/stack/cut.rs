//! Why an unwind stopped before the outermost frame.

/// Reason for the [`Cut`](crate::trace::record::FrameKind::Cut) frame at a stack's outer end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cut {
    /// A frame lies beyond the copied slice of stack.
    SliceEnd,
    /// No unwind information covers the code, and guessing gave nothing that holds.
    NoUnwindInfo,
    /// The code is in no file (a JIT compiler's), and guessing gave nothing that holds.
    NoFile,
    /// The file could not be opened or is no 64-bit ELF file.
    BadFile,
    /// What should be a return address is not in executable memory.
    NotCode,
    /// The rule needs a register whose value was not recorded.
    Register,
    /// The unwind information is damaged or of a kind not known.
    BadRule,
    /// More frames than are kept.
    TooDeep,
    /// The process had ended before its memory map was read.
    Gone,
}

impl Cut {
    /// What the frame shows as its function.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::SliceEnd => "[deeper than the copied stack]",
            Self::NoUnwindInfo => "[no unwind information]",
            Self::NoFile => "[code in no file]",
            Self::BadFile => "[file could not be read]",
            Self::NotCode => "[return address is not code]",
            Self::Register => "[needs a register that was not recorded]",
            Self::BadRule => "[damaged unwind information]",
            Self::TooDeep => "[more frames than are kept]",
            Self::Gone => "[process had ended]",
        }
    }
}

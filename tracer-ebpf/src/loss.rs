//! What is counted when it is lost.

/// Why something was lost; index of the loss counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Loss {
    /// No room in the ring buffer for a driver request, a closed file or a library: bytes may be missing.
    RingFull = 0,
    /// A return probe did not fire for a call that was entered (counted when noticed).
    MissedReturn = 1,
    /// A return fired for a call whose entry was not seen (entered before the probe was placed).
    UnknownReturn = 2,
    /// More than [`crate::DEPTH`] probed calls nested.
    TooDeep = 3,
    /// An ioctl's argument could not be read.
    UnreadableIoctl = 4,
    /// A map was full: a thread's calls could not be followed.
    MapFull = 5,
    /// A user stack could not be copied at all.
    UnreadableStack = 6,
    /// The names of a Python code object could not be sent.
    PythonCode = 7,
    /// Output of a process was not read, or not all of it.
    Output = 8,
    /// A process ended before its writes were probed.
    Unfollowed = 9,
    /// No room for a step in a process's life.
    RingFullProcess = 10,
    /// No room for an API call. Refused before room for driver requests runs out.
    RingFullCall = 11,
    /// No room for a block of `PyTorch`'s allocator. Refused as calls are.
    RingFullBlock = 12,
    /// No room for a native or Python stack. Refused before all others.
    RingFullStack = 13,
}

/// Number of loss counters.
pub const LOSSES: usize = 15;

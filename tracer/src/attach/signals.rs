//! No signal while a child begins: it would run our handlers, on memory that is not its own.

use nix::{
    Result,
    sys::signal::{SigSet, SigmaskHow, sigprocmask},
};

/// All signals are blocked for this thread, and for children that it makes, until this is dropped.
pub(super) struct Blocked {
    before: SigSet,
}

impl Blocked {
    /// Blocks them.
    pub(super) fn all() -> Result<Self> {
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        Ok(Self { before })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // A mask that was set before can be set again.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

//! Loads that a stop of the tracer interrupted.

use std::io;

use aya::programs::ProgramError;

/// Tries at most; each is interrupted anew where the tracer is stopped all the time.
const TRIES: usize = 50;

/// An error of loading a program.
pub(super) trait Interruptible {
    /// True where the verifier gave up because a signal waited (`EAGAIN`; `do_check` in kernel/bpf/verifier.c). Ours are
    /// blocked, but a stop that ends again looks the same: Ctrl-Z and `fg`, a frozen container, a debugger.
    fn is_interruption(&self) -> bool;
}

impl Interruptible for io::Error {
    fn is_interruption(&self) -> bool {
        self.raw_os_error() == Some(libc::EAGAIN)
    }
}

impl Interruptible for ProgramError {
    fn is_interruption(&self) -> bool {
        matches!(self, Self::LoadError { io_error, .. } if io_error.is_interruption())
    }
}

/// Loads until nothing interrupts it, as libbpf does (`PROG_LOAD_ATTEMPTS`). Any other failure is final.
pub(super) fn load<T, E: Interruptible>(mut load: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..TRIES {
        match load() {
            Err(error) if error.is_interruption() => {}
            other => return other,
        }
    }
    load()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads that fail with these, one after the other, and then succeed: the result, and how often it was tried.
    fn tried(errors: &[i32]) -> (Option<i32>, usize) {
        let mut tries = 0;
        let result = load(|| {
            tries += 1;
            errors.get(tries - 1).map_or(Ok(()), |&error| Err(io::Error::from_raw_os_error(error)))
        });
        (result.err().and_then(|e| e.raw_os_error()), tries)
    }

    #[test]
    fn only_interruptions_are_tried_again() {
        assert_eq!(tried(&[]), (None, 1));
        assert_eq!(tried(&[libc::EAGAIN, libc::EAGAIN]), (None, 3));
        assert_eq!(tried(&[libc::EAGAIN, libc::EPERM]), (Some(libc::EPERM), 2));
        assert_eq!(tried(&[libc::EAGAIN; 2 * TRIES]), (Some(libc::EAGAIN), TRIES));
    }
}

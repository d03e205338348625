//! Work that is spread over threads.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Most threads at work.
const WORKERS: usize = 8;

/// Threads to spread work over.
pub(crate) fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(WORKERS)
}

/// What `work` makes of each of `parts`, in their order.
pub(crate) fn in_parallel<P: Send, T: Send>(parts: Vec<P>, work: impl Fn(P) -> T + Sync) -> Vec<T> {
    if parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    let workers = workers().min(parts.len());
    let queue = Mutex::new(parts.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || std::iter::from_fn(next).map(|(n, part)| (n, work(part))).collect::<Vec<_>>();
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_unstable_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_order() {
        for n in [0, 1, 2, 100] {
            assert_eq!(
                in_parallel((0..n).collect(), |part| part * 2),
                (0..n).map(|part| part * 2).collect::<Vec<u32>>()
            );
        }
    }
}

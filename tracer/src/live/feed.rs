//! From a session's ledger to snapshots, beside the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::Snapshot;
use crate::collect::{clock::monotonic_ns, session::Session};
use crate::ledger::Ledger;
use crate::lifecycle::Rules;

/// Time between copies of the ledger.
const EVERY: Duration = Duration::from_secs(1);

/// What a session says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub t: u64,
    /// Events seen.
    pub events: u64,
    /// Probes placed.
    pub probes: usize,
    /// Live traced processes.
    pub processes: usize,
}

impl Status {
    fn of(session: &Session) -> Self {
        Self { t: monotonic_ns(), events: session.count(), probes: session.placed(), processes: session.live() }
    }
}

/// Hands a session's ledger to a thread that makes snapshots of it.
pub struct Feed {
    to: SyncSender<(Ledger, Status)>,
    /// A snapshot is in the making.
    busy: Arc<AtomicBool>,
    last: Option<Instant>,
}

impl Feed {
    /// Starts the thread; `show` gets each snapshot, in order.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(rules: Rules, mut show: impl FnMut(Snapshot) + Send + 'static) -> io::Result<Self> {
        let (to, from): (_, Receiver<(Ledger, Status)>) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&busy);
        thread::Builder::new().name("snapshots".into()).spawn(move || {
            while let Ok((ledger, status)) = from.recv() {
                show(Snapshot::new(ledger, status, &rules));
                done.store(false, Ordering::Release);
            }
        })?;
        Ok(Self { to, busy, last: None })
    }

    /// Called as often as you like: makes a snapshot when it is time for one.
    pub fn update(&mut self, session: &Session) {
        let Some(ledger) = session.ledger() else { return };
        // A thread that is still busy gets the next one.
        if self.last.is_some_and(|last| last.elapsed() < EVERY) || self.busy.swap(true, Ordering::Acquire) {
            return;
        }
        self.last = Some(Instant::now());
        // It has room for one, and waits for this one; where it is gone (it panicked), there is nobody to tell.
        _ = self.to.try_send((ledger.clone(), Status::of(session)));
    }
}

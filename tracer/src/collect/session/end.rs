//! What a session does now and then, and at its end.

use std::time::{Duration, Instant};

use super::{Error, Session};
use crate::{
    collect::{clock::monotonic_ns, nvml::Sampler},
    trace::record::{Footer, Loss, Outcome, Record},
};

/// Quiet time after the last change of memory before NVML is asked: what it says is then comparable.
const QUIET_NS: u64 = 30_000_000;
/// Longest wait for such a rest before the last sample.
const REST: Duration = Duration::from_millis(300);
/// Longest wait for the last sample.
const SAMPLE: Duration = Duration::from_secs(3);
/// Longest look at the last events for somebody in a hurry. The rest are counted as lost.
const DRAIN: Duration = Duration::from_secs(1);

impl Session {
    /// Asks NVML when memory has changed and then rested.
    pub fn sample_when_quiet(&mut self) {
        let has_rested = self.changed.is_some() && !self.is_busy();
        if let Some(nvml) = self.nvml.as_mut().filter(|_| has_rested) {
            nvml.request();
            self.changed = None;
        }
    }

    /// True when memory has changed just now.
    fn is_busy(&self) -> bool {
        self.changed.is_some_and(|t| monotonic_ns().saturating_sub(t) <= QUIET_NS)
    }

    /// Writes an NVML sample that has come.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn receive_sample(&mut self) -> Result<(), Error> {
        let samples = self.nvml.as_mut().and_then(Sampler::receive).unwrap_or_default();
        for sample in samples {
            self.writer.record(&Record::Nvml(sample))?;
        }
        Ok(())
    }

    /// Has the kernel side look at files that carry objects between processes: between driver requests nothing else does.
    pub fn settle(&mut self) {
        if !self.transfers.is_empty() {
            self.kernel.check_transfers();
        }
    }

    /// Once a second: titles, closed files, losses, the guard, an NVML sample.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn tick(&mut self) -> Result<(), Error> {
        let t = monotonic_ns();
        // What is to be seen in /proc is ahead of events that wait: a process that is gone there may have much to tell yet.
        if std::mem::take(&mut self.caught_up) {
            let found = self.processes.poll(t);
            self.write(found)?;
        }
        for record in self.losses.update(t, &self.kernel.losses(), self.malformed) {
            self.writer.record(&record)?;
        }
        self.guard.renew(self.kernel.held().map());
        if let Some(nvml) = &mut self.nvml
            && !self.processes.is_empty()
        {
            nvml.request();
        }
        Ok(())
    }

    /// Makes all that was seen so far readable in the file.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(self.writer.flush()?)
    }

    /// A last sample. What memory does meanwhile is still seen: else the sample could not be held against the ledger.
    fn last_sample(&mut self) -> Result<(), Error> {
        let until = Instant::now() + REST;
        // Of a process that allocated a moment ago it would tell nothing, and may be the only one.
        self.drain()?;
        while self.nvml.is_some() && self.is_busy() && Instant::now() < until {
            self.wait(&[], Duration::from_millis(1))?;
            self.drain()?;
        }
        let until = Instant::now() + SAMPLE;
        // One that is on its way began too early.
        for fresh in [false, true] {
            if let Some(nvml) = self.nvml.as_mut().filter(|_| fresh) {
                nvml.request();
            }
            while self.nvml.as_ref().is_some_and(Sampler::in_flight) && Instant::now() < until {
                self.drain()?;
                self.receive_sample()?;
                self.wait(&[], Duration::from_millis(1))?;
            }
        }
        Ok(())
    }

    /// Ends the session: a last sample (unless in a `hurry`), probes out, the last events in, the footer written.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn finish(mut self, outcome: Outcome, hurry: bool) -> Result<Summary, Error> {
        if !hurry {
            self.last_sample()?;
        }
        self.kernel.detach();
        let (until, ended) = (Instant::now() + DRAIN, monotonic_ns());
        let mut unread = 0;
        while self.drain()? {
            if hurry && Instant::now() > until {
                unread = self.discard();
                break;
            }
        }
        let begun = self.lines.rest();
        self.keep(begun)?;
        let t = monotonic_ns();
        for record in self.losses.update(t, &self.kernel.losses(), self.malformed) {
            self.writer.record(&record)?;
        }
        if unread > 0 {
            self.writer.record(&Record::Loss(Loss { t, why: "unread".to_owned(), count: unread, since: ended }))?;
        }
        let (events, lost, running) = (self.count, self.losses.events() + unread, self.processes.len());
        self.writer.record(&Record::Footer(Footer { t, outcome, events }))?;
        Ok(Summary { events, lost, running, bytes: self.writer.finish()? })
    }

    /// Takes out what is left without looking at it; gives how much that was.
    fn discard(&mut self) -> u64 {
        let mut count = 0;
        while self.events.as_mut().is_some_and(|events| events.next().is_some()) {
            count += 1;
        }
        count
    }
}

/// What a finished session has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events seen.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Traced processes that still run.
    pub running: usize,
    /// Size of the trace file.
    pub bytes: u64,
}

//! Log lines: which are kept, and what they tell while tracing goes on.

use tracer_ebpf as wire;

use super::{Error, Session};
use crate::{
    collect::lines::Line,
    lifecycle::logs,
    trace::record::{Log, Record},
};

/// The phase that ends `--until serving`.
const SERVING: &str = "serving";

impl Session {
    /// True once a log line said that the server serves.
    #[must_use]
    pub const fn serving(&self) -> bool {
        self.serving
    }

    /// Why no log lines are seen, if they are not.
    #[must_use]
    pub fn no_output(&self) -> Option<&str> {
        self.follower.refused()
    }

    /// Probes the writes of a traced process.
    pub(super) fn follow(&mut self, pid: u32) -> Result<(), Error> {
        let notices = self.follower.process(&mut self.kernel, pid);
        self.followed(pid, notices)
    }

    /// The same for a child just forked.
    pub(super) fn follow_child(&mut self, parent: u32, pid: u32) -> Result<(), Error> {
        let notices = self.follower.forked(&mut self.kernel, parent, pid);
        self.followed(pid, notices)
    }

    fn followed(&mut self, pid: u32, notices: Vec<String>) -> Result<(), Error> {
        for text in notices {
            self.notice(text)?;
        }
        Ok(self.kernel.know_followed(pid)?)
    }

    /// A piece of what a process writes.
    pub(super) fn output(&mut self, output: &wire::Output, bytes: &[u8]) -> Result<(), Error> {
        let lines = self.lines.push(output, bytes);
        self.keep(lines)
    }

    /// Writes those lines to the trace that rules name.
    pub(super) fn keep(&mut self, lines: Vec<Line>) -> Result<(), Error> {
        for Line { t, pid, fd, text } in lines {
            let text = logs::plain(&text);
            if !self.rules.is_interesting(&text) {
                continue;
            }
            self.serving |= self.rules.phase_of_line(&text) == Some(SERVING);
            self.writer.record(&Record::Log(Log { t, pid, fd, text: logs::clean(&text) }))?;
        }
        Ok(())
    }
}

//! Traced processes, by pid and time.

use super::{Map, ProcessInfo};
use crate::trace::record::{Image, Process, Step};

/// All processes of a trace; a reused pid gets a new entry.
#[derive(Clone, Default)]
pub(super) struct Processes {
    pub(super) list: Vec<ProcessInfo>,
    newest: Map<u32, usize>,
}

impl Processes {
    /// The process that an event of `pid` belongs to, made if it is new. Events after a process's exit (the driver
    /// releasing what it held) still belong to it.
    pub(super) fn of(&mut self, pid: u32, t: u64) -> usize {
        self.newest.get(&pid).copied().unwrap_or_else(|| self.add(pid, t))
    }

    /// The process that had `pid` at time `t`, while it lived.
    pub(super) fn at(&self, pid: u32, t: u64) -> Option<usize> {
        let newest = *self.newest.get(&pid)?;
        let lived = |p: &ProcessInfo| p.pid == pid && p.born <= t && p.died.is_none_or(|died| t <= died);
        if lived(&self.list[newest]) { Some(newest) } else { self.list.iter().position(lived) }
    }

    /// True for a pid that a traced process had at any time.
    pub(super) fn had(&self, pid: u32) -> bool {
        self.newest.contains_key(&pid)
    }

    fn add(&mut self, pid: u32, t: u64) -> usize {
        self.list.push(ProcessInfo { pid, born: t, ..ProcessInfo::default() });
        self.newest.insert(pid, self.list.len() - 1);
        self.list.len() - 1
    }

    /// The living process `pid`: a new one when the last with that pid has exited.
    fn living(&mut self, pid: u32, t: u64) -> usize {
        match self.newest.get(&pid) {
            Some(&index) if self.list[index].died.is_none() => index,
            _ => self.add(pid, t),
        }
    }

    /// Applies a step; gives the process that exited, if that was it.
    pub(super) fn step(&mut self, record: Process) -> Option<usize> {
        let Process { t, pid, step } = record;
        match step {
            Step::Attached(image) => {
                let index = self.living(pid, t);
                self.list[index].attached = true;
                self.runs(index, image);
            }
            Step::Exec(image) => {
                let index = self.living(pid, t);
                self.runs(index, image);
            }
            Step::Forked { parent } => {
                let parents = self.newest.get(&parent).map(|&i| &self.list[i]);
                let (command, env) = parents.map(|p| (p.command.clone(), p.env.clone())).unwrap_or_default();
                let index = self.living(pid, t);
                let process = &mut self.list[index];
                process.parent = Some(parent);
                if process.command.is_empty() {
                    process.command = command;
                    process.env = env;
                }
            }
            Step::Title { title } => {
                let index = self.living(pid, t);
                self.list[index].title = title;
            }
            Step::Exit { code, signal } => {
                let index = self.of(pid, t);
                let process = &mut self.list[index];
                if process.died.is_none() {
                    (process.died, process.exit_code, process.exit_signal) = (Some(t), code, signal);
                    return Some(index);
                }
            }
        }
        None
    }

    fn runs(&mut self, index: usize, image: Image) {
        let process = &mut self.list[index];
        process.parent = Some(image.parent);
        process.command = image.argv;
        process.env = image.env;
        process.title.clear();
    }
}

//! Traced processes, by pid and time.

use super::ProcessInfo;
use crate::map::Map;
use crate::trace::record::{Image, Process, Step};

/// Bytes of arguments and environments that forked processes may have from their parents: a fork says it in a few bytes.
const INHERITED: usize = 256 << 20;

/// All processes of a trace; a reused pid gets a new entry.
#[derive(Clone, Default)]
pub(super) struct Processes {
    pub(super) list: Vec<ProcessInfo>,
    /// Entries of each pid, in order of appearance.
    lives: Map<u32, Vec<usize>>,
    inherited: usize,
    /// Forked processes whose arguments and environment are not kept.
    bare: u64,
}

impl Processes {
    /// The process that an event of `pid` belongs to, made if it is new. Events after a process's exit (the driver
    /// releasing what it held) still belong to it.
    pub(super) fn of(&mut self, pid: u32, t: u64) -> usize {
        self.newest(pid).unwrap_or_else(|| self.add(pid, t))
    }

    /// The process that began something at time `began`: one that was dead by then began nothing, so it is another, whose
    /// birth was lost. `t` is when that is known of it.
    pub(super) fn acting(&mut self, pid: u32, began: u64, t: u64) -> usize {
        self.newest(pid).filter(|&index| self.is_alive(index, began)).unwrap_or_else(|| self.add(pid, t))
    }

    /// The process that had `pid` at time `t`, while it lived.
    pub(super) fn at(&self, pid: u32, t: u64) -> Option<usize> {
        let lives = self.lives.get(&pid)?;
        // In order: the last that had begun.
        let life = lives[..lives.partition_point(|&n| self.list[n].born <= t)].last().copied()?;
        self.is_alive(life, t).then_some(life)
    }

    /// True unless the process had ended before time `t`.
    fn is_alive(&self, index: usize, t: u64) -> bool {
        self.list[index].died.is_none_or(|died| t <= died)
    }

    fn newest(&self, pid: u32) -> Option<usize> {
        self.lives.get(&pid)?.last().copied()
    }

    /// True for a pid that a traced process had at any time.
    pub(super) fn had(&self, pid: u32) -> bool {
        self.lives.contains_key(&pid)
    }

    fn add(&mut self, pid: u32, t: u64) -> usize {
        self.list.push(ProcessInfo { pid, born: t, ..ProcessInfo::default() });
        self.lives.entry(pid).or_default().push(self.list.len() - 1);
        self.list.len() - 1
    }

    /// The living process `pid`: a new one when the last with that pid has exited.
    fn living(&mut self, pid: u32, t: u64) -> usize {
        match self.newest(pid) {
            Some(index) if self.list[index].died.is_none() => index,
            _ => self.add(pid, t),
        }
    }

    /// Applies a step, and takes what it tells out of it; gives the process that exited, if that was it.
    pub(super) fn step(&mut self, record: &mut Process) -> Option<usize> {
        let Process { t, pid, ref mut step } = *record;
        match step {
            Step::Attached(image) => {
                let index = self.living(pid, t);
                self.runs(index, std::mem::take(image));
                let process = &mut self.list[index];
                process.attached = true;
                // A process that has run for a while may have put a title in the place of its arguments.
                process.title = process.command.join(" ");
            }
            Step::Exec(image) => {
                let index = self.living(pid, t);
                self.runs(index, std::mem::take(image));
            }
            &mut Step::Forked { parent } => {
                let (command, env) = self.inherit(parent, t);
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
                self.list[index].title = std::mem::take(title);
            }
            &mut Step::Exit { code, signal } => {
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

    /// Arguments and environment that a child has from its parent at time `t`.
    fn inherit(&mut self, parent: u32, t: u64) -> (Vec<String>, Vec<String>) {
        let parent = self.newest(parent).filter(|&index| self.is_alive(index, t));
        let Some(parent) = parent.map(|n| &self.list[n]) else { return Default::default() };
        let size = parent.command.iter().chain(&parent.env).map(|word| size_of::<String>() + word.len()).sum::<usize>();
        if self.inherited + size > INHERITED {
            self.bare += 1;
            return Default::default();
        }
        self.inherited += size;
        (parent.command.clone(), parent.env.clone())
    }

    /// What of all this is not whole.
    pub(super) fn notice(&self) -> Option<String> {
        let bare = self.bare;
        (bare > 0).then(|| format!("{bare} processes forked without end: their arguments and environment are not kept"))
    }

    fn runs(&mut self, index: usize, image: Image) {
        let process = &mut self.list[index];
        process.parent = Some(image.parent);
        process.command = image.argv;
        process.env = image.env;
        process.title.clear();
    }
}

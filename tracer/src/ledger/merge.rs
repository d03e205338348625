//! Traces of one server on several hosts, as one book.
//!
//! Each host has a clock of its own that counts from its boot. The header of a trace gives its start in Unix time too, and by
//! that the clocks are laid over each other: as well as the hosts' own clocks agree, which is enough to say who holds what
//! when, and not enough to order events of two hosts within milliseconds.

use std::collections::HashSet;
use std::ops::Range;

use super::model::{Allocation, Book, Host};
use super::rows::sort;
use super::torch::Torch;
use crate::trace::record::{Header, Outcome, Source};

impl Book {
    /// One book of several, of different hosts each. Indices, frames and stacks are numbered through, and times are moved to
    /// one clock: nanoseconds since the Unix epoch.
    #[must_use]
    pub fn merge(books: Vec<Self>) -> Self {
        let mut merged = Self { outcome: books.first().and_then(|book| book.outcome.clone()), ..Self::default() };
        for book in books {
            merged.take_in(book);
        }
        merged.sort_allocations();
        merged.torch.blocks.sort_by_key(|block| block.born);
        merged.torch.failures.sort_by_key(|failure| failure.t);
        merged.host.sort_by_key(|row| row.born);
        merged.imports.sort_by_key(|row| row.born);
        merged.failures.sort_by_key(|failure| failure.t);
        merged.samples.sort_by_key(|sample| sample.t);
        merged.logs.sort_by_key(|log| log.t);
        merged.readings.sort_by_key(|reading| reading.t);
        merged.communicators.sort_by_key(|made| made.end);
        merged.captures.sort_by_key(|capture| capture.end);
        merged
    }

    /// True for traces that can be of one server: of hosts that differ, and all under way at some moment.
    #[must_use]
    pub fn are_of_one_run(books: &[Self]) -> bool {
        let hosts: HashSet<&str> = books.iter().map(|book| book.header.host.as_str()).collect();
        let ends = |book: &Self| book.header.unix_ns.saturating_add(book.end.saturating_sub(book.header.t));
        let last_start = books.iter().map(|book| book.header.unix_ns).max();
        let first_end = books.iter().map(ends).min();
        books.len() > 1 && hosts.len() == books.len() && last_start <= first_end
    }

    fn take_in(&mut self, book: Self) {
        // Every field by name: one that is added must be merged.
        let Self {
            header,
            gpus,
            processes,
            allocations,
            resumed,
            host,
            imports,
            failures,
            samples,
            strangers,
            stacks,
            frames,
            libraries,
            logs,
            readings,
            communicators,
            captures,
            losses,
            notices,
            outcome,
            end,
            unknown_records,
            torch,
            hosts: _,
        } = book;
        // A file that breaks off within its header knows no date: it is taken to begin with the others.
        let start = if header.unix_ns == 0 { self.header.t } else { header.unix_ns };
        let shift = Shift {
            process: self.processes.len(),
            gpu: self.gpus.len(),
            stack: self.stacks.len() as u32,
            row: self.allocations.len() as u32,
            clock: i128::from(start) - i128::from(header.t),
        };
        let name = self.name_host(&header.host);
        self.hosts.push(Host {
            name: name.clone(),
            processes: range(shift.process, processes.len()),
            gpus: range(shift.gpu, gpus.len()),
        });
        self.join_header(header, &shift);
        self.end = self.end.max(shift.time(end));
        self.outcome = worse(self.outcome.take(), outcome);

        let first_frame = self.frames.len() as u32;
        self.stacks.extend(stacks.into_iter().map(|stack| stack.into_iter().map(|n| n + first_frame).collect()));
        self.frames.extend(frames.into_iter().map(|mut frame| {
            frame.id += first_frame;
            frame
        }));
        self.gpus.extend(gpus);
        self.processes.extend(processes.into_iter().map(|mut process| {
            process.born = shift.time(process.born);
            process.died = process.died.map(|died| shift.time(died));
            process
        }));
        self.allocations.extend(allocations.into_iter().map(|row| shift.row(row)));
        self.resumed.extend(resumed.into_iter().map(|(row, first)| (row + shift.row, first + shift.row)));
        self.host.extend(host.into_iter().map(|row| shift.row(row)));
        self.imports.extend(imports.into_iter().map(|row| shift.row(row)));
        self.failures.extend(failures.into_iter().map(|mut failure| {
            (failure.t, failure.process) = (shift.time(failure.t), shift.process + failure.process);
            (failure.gpu, failure.stack) = (failure.gpu.map(|gpu| shift.gpu + gpu), shift.stack(failure.stack));
            failure.free_at = failure.free_at.map(|t| shift.time(t));
            failure
        }));
        self.samples.extend(samples.into_iter().map(|mut sample| {
            (sample.process, sample.gpu) = (shift.process + sample.process, shift.gpu + sample.gpu);
            sample.t = shift.time(sample.t);
            sample
        }));
        self.strangers.extend(strangers.into_iter().map(|mut stranger| {
            (stranger.first, stranger.last) = (shift.time(stranger.first), shift.time(stranger.last));
            stranger.gpu += shift.gpu;
            stranger
        }));
        self.logs.extend(logs.into_iter().map(|mut log| {
            (log.t, log.process) = (shift.time(log.t), shift.process + log.process);
            log
        }));
        self.readings.extend(readings.into_iter().map(|mut reading| {
            (reading.t, reading.process) = (shift.time(reading.t), shift.process + reading.process);
            reading.stack = shift.stack(reading.stack);
            reading
        }));
        self.communicators.extend(communicators.into_iter().map(|mut made| {
            (made.start, made.end) = (shift.time(made.start), shift.time(made.end));
            (made.process, made.stack) = (shift.process + made.process, shift.stack(made.stack));
            made
        }));
        self.captures.extend(captures.into_iter().map(|mut capture| {
            (capture.start, capture.end) = (shift.time(capture.start), shift.time(capture.end));
            capture.process += shift.process;
            capture
        }));
        self.take_torch(torch, &shift);
        self.libraries.extend(libraries.into_iter().map(|mut library| {
            library.path = format!("{name}: {}", library.path);
            library
        }));
        for (why, count) in losses {
            let sum = self.losses.entry(why).or_default();
            *sum = sum.saturating_add(count);
        }
        self.notices.extend(notices.into_iter().map(|notice| format!("{name}: {notice}")));
        self.unknown_records += unknown_records;
    }

    fn take_torch(&mut self, torch: Torch, shift: &Shift) {
        let Torch { devices, blocks, failures } = torch;
        let first_device = self.torch.devices.len() as u32;
        self.torch.devices.extend(devices.into_iter().map(|mut device| {
            (device.process, device.gpu) = (shift.process + device.process, device.gpu.map(|gpu| shift.gpu + gpu));
            device.segments.iter_mut().for_each(|segment| segment.row += shift.row);
            device.figures.iter_mut().for_each(|figures| figures.t = shift.time(figures.t));
            device
        }));
        self.torch.blocks.extend(blocks.into_iter().map(|mut block| {
            (block.born, block.died) = (shift.time(block.born), block.died.map(|died| shift.time(died)));
            (block.device, block.stack) = (first_device + block.device, shift.stack(block.stack));
            block
        }));
        self.torch.failures.extend(failures.into_iter().map(|mut failure| {
            (failure.t, failure.process) = (shift.time(failure.t), shift.process + failure.process);
            failure.stack = shift.stack(failure.stack);
            failure
        }));
    }

    /// Puts rows in order of birth, and with them what refers to them.
    fn sort_allocations(&mut self) {
        let Some(places) = sort(&mut self.allocations) else { return };
        let at = |row: u32| places.get(row as usize).copied().unwrap_or(row);
        self.resumed = std::mem::take(&mut self.resumed).into_iter().map(|(row, first)| (at(row), at(first))).collect();
        for segment in self.torch.devices.iter_mut().flat_map(|device| &mut device.segments) {
            segment.row = at(segment.row);
        }
    }

    /// A name for the next host that no other has.
    fn name_host(&self, host: &str) -> String {
        let host = if host.is_empty() { "host" } else { host };
        let same = |name: &str| self.hosts.iter().any(|known| known.name == name);
        let numbered = (2..).map(|n| format!("{host} #{n}"));
        std::iter::once(host.to_owned()).chain(numbered).find(|name| !same(name)).unwrap_or_default()
    }

    fn join_header(&mut self, header: Header, shift: &Shift) {
        let began = shift.time(header.t);
        if self.hosts.len() == 1 {
            self.header = header;
            (self.header.t, self.header.unix_ns) = (began, began);
            return;
        }
        let known = &mut self.header;
        (known.t, known.unix_ns) = (known.t.min(began), known.unix_ns.min(began));
        known.attached |= header.attached;
        known.gpus.extend(header.gpus);
        let join = |known: &mut String, more: &str| {
            if !more.is_empty() && !known.split(", ").any(|part| part == more) {
                *known = if known.is_empty() { more.to_owned() } else { format!("{known}, {more}") };
            }
        };
        join(&mut known.host, &header.host);
        join(&mut known.kernel, &header.kernel);
        join(known.driver.get_or_insert_default(), header.driver.as_deref().unwrap_or_default());
        known.driver = known.driver.take().filter(|driver| !driver.is_empty());
        // One ledger without what drivers take for themselves makes the sum one.
        known.ledger = if header.ledger == known.ledger { known.ledger } else { Source::DriverApi };
    }

    /// Host of a process, by its number in [`Book::hosts`]; 0 for all processes of one trace.
    #[must_use]
    pub fn host_of(&self, process: usize) -> usize {
        self.hosts.iter().position(|host| host.processes.contains(&process)).unwrap_or(0)
    }

    /// Name of a process's host, where the book is of several.
    #[must_use]
    pub fn host_name(&self, process: usize) -> Option<&str> {
        self.hosts.iter().find(|host| host.processes.contains(&process)).map(|host| host.name.as_str())
    }

    /// Name of a GPU's host, where the book is of several.
    #[must_use]
    pub fn gpu_host(&self, gpu: usize) -> Option<&str> {
        self.hosts.iter().find(|host| host.gpus.contains(&gpu)).map(|host| host.name.as_str())
    }
}

/// How a book's numbers and times are moved.
struct Shift {
    process: usize,
    gpu: usize,
    stack: u32,
    row: u32,
    clock: i128,
}

impl Shift {
    /// [`u64::MAX`] stands for what was not seen.
    fn time(&self, t: u64) -> u64 {
        if t == u64::MAX { t } else { u64::try_from((i128::from(t) + self.clock).max(0)).unwrap_or(u64::MAX - 1) }
    }

    fn stack(&self, stack: Option<u32>) -> Option<u32> {
        stack.map(|stack| stack.saturating_add(self.stack))
    }

    fn row(&self, mut row: Allocation) -> Allocation {
        (row.process, row.gpu) = (self.process + row.process, self.gpu + row.gpu);
        (row.born, row.stack) = (self.time(row.born), self.stack(row.stack));
        row.died = row.died.map(|(died, how)| (self.time(died), how));
        row
    }
}

fn range(start: usize, length: usize) -> Range<usize> {
    start..start + length
}

/// The outcome that says more of what went wrong. A file that breaks off makes the whole one.
fn worse(one: Option<Outcome>, other: Option<Outcome>) -> Option<Outcome> {
    let (one, other) = (one?, other?);
    let rank = |outcome: &Outcome| match outcome {
        Outcome::Exited { code: 0 } => 0,
        Outcome::Running { .. } => 1,
        Outcome::Exited { .. } => 2,
        Outcome::Killed { .. } => 3,
    };
    Some(if rank(&other) > rank(&one) { other } else { one })
}

#[cfg(test)]
mod tests;

//! Closing the books: kinds, GPUs and samples need to know all of a trace.

use super::rows::{Place, Row, Rows, resumed, sort, used};
use super::{Allocation, Book, Ledger, kind, samples, strangers};
use crate::map::{Map, Set};

impl Ledger {
    /// Closes the books.
    #[must_use]
    pub fn finish(mut self) -> Book {
        for process in 0..self.processes.list.len() {
            if self.processes.list[process].died.is_some() {
                self.exit(process, true);
            }
        }
        if self.fallback.unsized_calls > 0 {
            let count = self.fallback.unsized_calls;
            self.lost("unsized_allocation".to_owned(), count);
        }
        std::mem::take(&mut self.witness).finish(&mut self.book);
        let mut rows = std::mem::take(&mut self.rows);
        let budget = std::mem::take(&mut rows.budget);
        // A process that takes memory over when another's exit is settled does so before later events.
        rows.gpu.sort_by_key(|row| row.allocation.born);
        kind::classify(&mut rows.gpu, &self.channels, &self.processes.list);
        self.arrange(&rows);
        for text in [self.requests.notice(), self.processes.notice()].into_iter().flatten() {
            self.notice(text);
        }
        let Self { mut book, gpus, processes, nvml, requests, allocators, past, .. } = self;
        let segment = |(n, row): (usize, &Row)| row.segment().map(|s| (n as u32, s.0, s.1, row.capture));
        let segments: Vec<_> = rows.gpu.iter().enumerate().filter_map(segment).collect();
        let resumed = resumed(&rows.gpu);
        let mut positions: Map<(Place, usize), usize> = Map::default();
        let mut place = |rows: Vec<Row>| -> Vec<Allocation> {
            let mut at = |row: &Row| {
                let key = (row.place, row.allocation.process);
                *positions.entry(key).or_insert_with(|| gpus.position(&gpus.resolve(key.0, key.1)).unwrap_or(0))
            };
            rows.into_iter().map(|row| Allocation { gpu: at(&row), ..row.allocation }).collect()
        };
        (book.allocations, book.host, book.imports) = (place(rows.gpu), place(rows.host), place(rows.imports));
        let by_uuid = |uuid: &str| gpus.position(&gpus.by_uuid(uuid, None));
        book.samples = samples::compare(
            &mut book.allocations,
            &nvml,
            &processes,
            &self.unknown_frees,
            &requests,
            &past.before,
            by_uuid,
        );
        budget.close(&mut book);
        book.strangers = strangers::find(&nvml, &processes, by_uuid);
        let places = sort(&mut book.allocations);
        let used = used(&book.allocations);
        let place = |n: u32| places.as_ref().map_or(n, |places| places[n as usize]);
        book.resumed = resumed.into_iter().map(|(row, first)| (place(row), place(first))).collect();
        let segments = segments.into_iter().map(|(n, device, address, capture)| (place(n), device, address, capture));
        book.torch = allocators.finish(segments, |place, process| {
            let only = used.get(&process).copied().flatten();
            place.map_or(only, |place| gpus.position(&gpus.resolve(place, process)))
        });
        book.notices.extend(book.torch.lost_devices(&processes.list));
        book.failures = self.failures.finish(&nvml, |failed, process| {
            let only = used.get(&process).copied().flatten();
            let position = failed.map_or(only, |failed| gpus.position(&gpus.resolve(failed, process)))?;
            Some((position, gpus.at(position)?.uuid.clone()))
        });
        book.processes = processes.list;
        book.gpus = gpus.into_order();
        book
    }

    /// Fixes the order of GPUs.
    fn arrange(&mut self, rows: &Rows) {
        let all = [&rows.gpu, &rows.host, &rows.imports].into_iter().flatten();
        let owned = all.map(|row| (row.place, row.allocation.process));
        let places: Set<(Place, usize)> = owned.chain(self.failures.places()).collect();
        let sampled = samples::gpus(&self.nvml, &self.processes, |uuid| self.gpus.by_uuid(uuid, None));
        let folded = self.past.before.keys().map(|(_, uuid)| self.gpus.by_uuid(uuid, None));
        let refs = places.into_iter().map(|(place, process)| self.gpus.resolve(place, process));
        self.gpus.arrange(refs.chain(sampled).chain(folded).collect());
    }
}

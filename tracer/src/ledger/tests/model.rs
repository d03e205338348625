//! Random operations against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Clients 10…13 belong to processes 1…4.
const CLIENTS: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Alloc { client: u32, parent: u32, object: u32, mib: u64 },
    Dup { client: u32, object: u32, source_client: u32, source_object: u32 },
    Free { client: u32, object: u32 },
    Close { client: u32 },
    Open { client: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, object) = (|| 0..CLIENTS, || 100u32..108);
    prop_oneof![
        4 => (client(), prop_oneof![2u32..4, 100u32..108], object(), 0u64..9)
            .prop_map(|(client, parent, object, mib)| Step::Alloc { client, parent, object, mib }),
        3 => (client(), object(), client(), object())
            .prop_map(|(client, object, source_client, source_object)| Step::Dup { client, object, source_client, source_object }),
        3 => (client(), object()).prop_map(|(client, object)| Step::Free { client, object }),
        1 => client().prop_map(|client| Step::Close { client }),
        1 => client().prop_map(|client| Step::Open { client }),
    ]
}

/// The resource manager as simply as can be: a map of handles, and a list of holders for each piece.
#[derive(Default)]
struct Model {
    open: BTreeSet<u32>,
    parents: BTreeMap<(u32, u32), u32>,
    pieces: BTreeMap<(u32, u32), usize>,
    /// Owner first, then in the order in which they inherit.
    holders: Vec<(u64, Vec<(u32, u32)>)>,
}

impl Model {
    fn free(&mut self, client: u32, object: u32) {
        let mut doomed = BTreeSet::from([object]);
        loop {
            let below = self.parents.iter().filter(|((c, _), parent)| *c == client && doomed.contains(parent));
            let more: Vec<u32> = below.map(|((_, o), _)| *o).filter(|o| !doomed.contains(o)).collect();
            if more.is_empty() {
                break;
            }
            doomed.extend(more);
        }
        for object in doomed {
            self.parents.remove(&(client, object));
            if let Some(piece) = self.pieces.remove(&(client, object)) {
                let holders = &mut self.holders[piece].1;
                let at = holders.iter().position(|h| *h == (client, object)).unwrap();
                // The ring from the next on: the owner stays first, or the next becomes it.
                holders.remove(at);
            }
        }
    }

    fn exists(&self, client: u32, object: u32) -> bool {
        self.parents.contains_key(&(client, object))
    }

    fn apply(&mut self, trace: &mut Trace, step: &Step) {
        // A closed client can do nothing.
        let (Step::Alloc { client, .. } | Step::Dup { client, .. } | Step::Free { client, .. }) = *step else {
            return self.reopen(trace, step);
        };
        if !self.open.contains(&client) {
            return;
        }
        match *step {
            Step::Alloc { client, parent, object, mib } => {
                // Real requests name a living parent and a free handle.
                if self.exists(client, object) || (parent >= 100 && !self.exists(client, parent)) {
                    return;
                }
                trace.memory(client + 1, client + 10, parent, object, mib * MIB);
                self.parents.insert((client, object), parent);
                if mib > 0 {
                    self.pieces.insert((client, object), self.holders.len());
                    self.holders.push((mib * MIB, vec![(client, object)]));
                }
            }
            Step::Dup { client, object, source_client, source_object } => {
                if self.exists(client, object) || !self.exists(source_client, source_object) {
                    return;
                }
                trace.dup(client + 1, client + 10, object, source_client + 10, source_object);
                self.parents.insert((client, object), 2);
                if let Some(&piece) = self.pieces.get(&(source_client, source_object)) {
                    self.pieces.insert((client, object), piece);
                    let holders = &mut self.holders[piece].1;
                    let at = holders.iter().position(|h| *h == (source_client, source_object)).unwrap();
                    holders.insert(at + 1, (client, object));
                }
            }
            Step::Free { client, object } => {
                trace.free(client + 1, client + 10, object);
                if self.exists(client, object) {
                    self.free(client, object);
                }
            }
            Step::Close { .. } | Step::Open { .. } => {}
        }
    }

    fn reopen(&mut self, trace: &mut Trace, step: &Step) {
        match *step {
            Step::Close { client } => {
                trace.close(client + 1, u64::from(client + 10) << 8);
                self.open.remove(&client);
                self.free_devices(client);
            }
            Step::Open { client } => {
                trace.client(client + 1, client + 10);
                self.open.insert(client);
                self.free_devices(client);
            }
            _ => {}
        }
    }

    fn free_devices(&mut self, client: u32) {
        for device in [2, 3] {
            self.free(client, device);
        }
    }

    fn held(&self, client: u32) -> u64 {
        let owned = self.holders.iter().filter(|(_, h)| h.first().is_some_and(|h| h.0 == client));
        owned.map(|(bytes, _)| bytes).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_ledger_is_the_models(steps in vec(step(), 1..80)) {
        let mut trace = Trace::new();
        let mut model = Model::default();
        for client in 0..CLIENTS {
            model.apply(&mut trace, &Step::Open { client });
        }
        let mut truth = Vec::new();
        for step in &steps {
            model.apply(&mut trace, step);
            truth.push((trace.t - 1, (0..CLIENTS).map(|c| model.held(c)).collect::<Vec<_>>()));
        }
        let book = trace.book();
        for (t, held) in truth {
            for (process, bytes) in held.iter().enumerate() {
                prop_assert_eq!(book.live_at(t, |a| a.process == process), *bytes, "process {} at {}", process, t);
            }
        }

        // Sums of cells are totals, whatever the key and the moment.
        let total: u64 = (0..4).map(|p| book.live_at(book.end, |a| a.process == p)).sum();
        for at in [At::End, At::Oom, At::Time(book.end)] {
            let cells = book.group_by(at, |a| (a.kind, a.gpu, a.tid));
            prop_assert_eq!(cells.values().map(|c| c.live).sum::<u64>(), total);
            prop_assert_eq!(cells.values().map(|c| c.count).sum::<u64>(), book.allocations.len() as u64);
        }
        for (place, peak) in book.peaks() {
            let at_peak = book.group_by(At::Peak, |a| (a.process, a.gpu))[&place];
            prop_assert_eq!((at_peak.live, at_peak.peak), (peak.bytes, peak.bytes));
        }

        // A transfer keeps the total: each such end is the beginning of an equal row.
        for row in &book.allocations {
            if let Some((t, Death::Transferred)) = row.died {
                let heir = book.allocations.iter().any(|a| {
                    a.born == t && a.bytes == row.bytes && a.kind == Kind::IpcImport && a.process != row.process
                });
                prop_assert!(heir);
            }
        }
    }

    #[test]
    fn folding_changes_no_live_byte(steps in vec((step(), any::<bool>()), 1..60)) {
        let (mut trace, mut model) = (Trace::new(), Model::default());
        let (mut whole, mut other) = (Trace::new(), Model::default());
        for client in 0..CLIENTS {
            model.apply(&mut trace, &Step::Open { client });
            other.apply(&mut whole, &Step::Open { client });
        }
        for (step, folds) in &steps {
            model.apply(&mut trace, step);
            other.apply(&mut whole, step);
            if *folds {
                trace.ledger.fold(trace.t);
            }
            let book = trace.ledger.clone().finish();
            for client in 0..CLIENTS {
                let live = book.live_at(book.end, |a| a.process == client as usize && a.died.is_none());
                prop_assert_eq!(live, model.held(client), "process {}", client);
            }
        }
        let (past, book, whole) = (trace.ledger.past().clone(), trace.book(), whole.book());
        let peaks = book.peaks();
        for ((process, gpu), peak) in whole.peaks() {
            let gpu = &whole.gpus[gpu];
            // One on which nothing is left is not in the book.
            let number = book.gpus.iter().position(|known| known == gpu);
            let late = number.and_then(|gpu| peaks.get(&(process, gpu))).map_or(0, |peak| peak.bytes);
            prop_assert_eq!(late.max(past.peak(process, gpu)), peak.bytes, "process {}", process);
        }
    }

    #[test]
    fn any_operations_are_survived(ops in vec((0u32..9, 0u32..4, 0u32..12, 0u32..4, 0u32..12, 0u64..3), 0..120)) {
        let mut trace = Trace::new();
        for (what, client, a, other, b, n) in ops {
            let (pid, file) = (client + 1, n);
            let class = [0x0, 0x41, 0x80, 0x40, 0x3e, 0xa06c][a as usize % 6];
            match what {
                0 | 1 => {
                    let size = Some(n << 62);
                    let alloc = Alloc { client, parent: b, object: a, class, size, file, device_id: Some(n as u32), ..Alloc::default() };
                    trace.rm(pid, (n == 2).into(), Op::Alloc(alloc));
                }
                2 => trace.free(pid, client, a),
                3 => trace.dup(pid, client, a, other, b),
                4 => trace.rm(pid, 0, Op::Export { client, object: a, file, index: b % 2 }),
                5 => trace.rm(pid, 0, Op::Import { client, parent: b, object: a, file, index: b % 2 }),
                6 => trace.close(pid, file),
                7 => trace.exit(pid),
                8 if n == 1 => trace.ledger.fold(trace.t - 3000),
                _ => trace.nvml(n as usize % 2, &[(pid, u64::MAX - n)]),
            }
        }
        let book = trace.book();
        let places: BTreeSet<_> = book.allocations.iter().map(|a| a.gpu).collect();
        prop_assert!(places.iter().all(|&gpu| gpu < book.gpus.len()));
        prop_assert!(book.allocations.is_sorted_by_key(|a| a.born));
        drop(book.group_by(At::Peak, |a| a.kind));
    }
}

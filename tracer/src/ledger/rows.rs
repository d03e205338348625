//! Rows of the ledger while it is being written.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::plausible::Budget;
use super::{Allocation, Death, Kind, Owner};
use crate::map::{Map, Set};

/// How the trace names a GPU before its UUID is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// Device instance, from the device object above.
    Instance(u32),
    /// Below a device object made before tracing began; the client may tell.
    Client(u32),
    /// Only the process may tell.
    Process,
}

/// One piece of memory while one process owned it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) allocation: Allocation,
    pub(super) place: Place,
    /// Entry time of the outermost probed API call, 0 without one.
    pub(super) outer: u64,
    /// The thread was capturing a stream.
    pub(super) capture: bool,
    /// What few rows have.
    rare: Option<Box<Rare>>,
}

#[derive(Clone, Debug, Default)]
struct Rare {
    /// The limit (`CUlimit`) that the call around it changed.
    limit: Option<u64>,
    /// Number of the `PyTorch` allocator whose blocks lie in it, and where it was mapped then.
    segment: Option<(u32, u64)>,
    /// Of memory that was paused.
    piece: Option<Piece>,
}

/// Memory that is paused and resumed: one row each time, all with the same number.
#[derive(Clone, Copy, Debug)]
struct Piece {
    number: u32,
    /// The row is what it was before it was first paused.
    is_first: bool,
}

impl Row {
    pub(super) fn limit(&self) -> Option<u64> {
        self.rare.as_ref()?.limit
    }

    pub(super) fn segment(&self) -> Option<(u32, u64)> {
        self.rare.as_ref()?.segment
    }

    /// Notes the allocator whose blocks lie in it, the first time.
    pub(super) fn is_segment_of(&mut self, allocator: u32, base: u64) {
        self.rare.get_or_insert_default().segment.get_or_insert((allocator, base));
    }

    fn piece(&self) -> Option<Piece> {
        self.rare.as_ref()?.piece
    }

    /// It takes the place of memory that was paused.
    pub(super) fn is_resumed(&mut self, piece: u32) {
        self.rare.get_or_insert_default().piece = Some(Piece { number: piece, is_first: false });
    }
}

/// Which table a row stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Gpu,
    Host,
    Imports,
}

/// A row's place, good until rows are folded ([`Rows::fold`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowId {
    pub(super) table: Table,
    pub(super) index: usize,
}

/// What an event knows that a row needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) t: u64,
    pub(super) process: usize,
    pub(super) tid: u32,
    pub(super) calls: &'a [String],
    pub(super) outer: u64,
    pub(super) stack: Option<u32>,
    /// How memory that goes with this event goes.
    pub(super) death: Death,
}

/// Rows made inside one outermost API call, waiting for what its return tells.
#[derive(Clone, Default)]
struct Open {
    /// Entry time of that call.
    outer: u64,
    /// In order of birth.
    made: Vec<RowId>,
    /// Changes of a limit inside it.
    limits: usize,
}

/// Changes of a limit inside one API call that count: a runtime's call makes one of the driver's. More is a damaged trace.
const LIMITS: usize = 16;

/// The three tables.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) gpu: Vec<Row>,
    pub(super) host: Vec<Row>,
    pub(super) imports: Vec<Row>,
    /// Threads that are capturing a stream into a graph.
    pub(super) capturing: HashSet<(usize, u32)>,
    /// Lists of calls that rows have, each once.
    calls: Set<Arc<[String]>>,
    /// What each thread made inside the API call that it is in.
    open: Map<(usize, u32), Open>,
    /// Number of the next [`Piece`].
    pieces: u32,
    /// Of all rows there ever were.
    pub(super) budget: Budget,
}

impl Rows {
    fn table(&mut self, table: Table) -> &mut Vec<Row> {
        match table {
            Table::Gpu => &mut self.gpu,
            Table::Host => &mut self.host,
            Table::Imports => &mut self.imports,
        }
    }

    pub(super) fn get(&mut self, id: RowId) -> &mut Row {
        &mut self.table(id.table)[id.index]
    }

    /// The one list of these calls.
    fn shared(&mut self, calls: &[String]) -> Arc<[String]> {
        if let Some(known) = self.calls.get(calls) {
            return Arc::clone(known);
        }
        let calls: Arc<[String]> = calls.into();
        self.calls.insert(Arc::clone(&calls));
        calls
    }

    /// Adds a row owned by `process`. Its kind is decided at the end, except for host memory.
    pub(super) fn born(&mut self, table: Table, process: usize, bytes: u64, place: Place, event: &Event<'_>) -> RowId {
        let bytes = self.budget.take(bytes);
        let kind = match table {
            Table::Gpu => Kind::Other,
            Table::Host => Kind::Host,
            Table::Imports => Kind::IpcImport,
        };
        let allocation = Allocation {
            process,
            tid: event.tid,
            gpu: 0,
            bytes,
            born: event.t,
            died: None,
            kind,
            owner: Owner(Cow::Borrowed("unknown")),
            calls: self.shared(event.calls),
            stack: event.stack,
            evidence: "",
        };
        let capture = !self.capturing.is_empty() && self.capturing.contains(&(event.process, event.tid));
        let rows = self.table(table);
        rows.push(Row { allocation, place, outer: event.outer, capture, rare: None });
        let id = RowId { table, index: rows.len() - 1 };
        if event.outer != 0 {
            let open = self.open.entry((event.process, event.tid)).or_default();
            if open.outer != event.outer {
                (open.outer, open.limits) = (event.outer, 0);
                // Keeps its memory: most calls make a row or two.
                open.made.clear();
            }
            open.made.push(id);
        }
        id
    }

    /// Ends a row.
    pub(super) fn died(&mut self, id: RowId, t: u64, death: Death) {
        let row = &mut self.get(id).allocation;
        if row.died.is_none() {
            row.died = Some((t.max(row.born), death));
        }
    }

    /// Number of the piece of memory that a row is, which is about to be paused.
    pub(super) fn paused(&mut self, id: RowId) -> u32 {
        let next = self.pieces;
        let piece = &mut self.get(id).rare.get_or_insert_default().piece;
        let number = piece.get_or_insert(Piece { number: next, is_first: true }).number;
        self.pieces += u32::from(number == next);
        number
    }

    /// Takes out what died before `t`, but for rows that tell of others what they are. `classify` gives the rows of GPU
    /// memory, in order of birth, their kinds, and says which tell; the kinds of those born before `t` are settled by it.
    pub(super) fn fold(&mut self, t: u64, classify: impl FnOnce(&mut [Row]) -> Vec<bool>) -> Numbers {
        let gpu = number(&mut self.gpu, |rows| {
            let mut classified = rows.to_vec();
            let tells = classify(&mut classified);
            for (row, known) in rows.iter_mut().zip(classified).filter(|(row, _)| row.allocation.born < t) {
                (row.allocation.kind, row.allocation.evidence) = (known.allocation.kind, known.allocation.evidence);
            }
            rows.iter().zip(tells).map(|(row, tells)| tells || is_kept(row, t)).collect()
        });
        let kept = |rows: &mut [Row]| rows.iter().map(|row| is_kept(row, t)).collect();
        let numbers = Numbers([gpu, number(&mut self.host, kept), number(&mut self.imports, kept)]);
        self.calls.retain(|calls| Arc::strong_count(calls) > 1);
        for open in self.open.values_mut() {
            open.made = open.made.iter().filter_map(|id| numbers.of(*id)).collect();
        }
        numbers
    }

    /// A call that changed a limit returned: rows made since `start`, inside the outermost call of `outer`, are for that.
    pub(super) fn limited(&mut self, process: usize, tid: u32, outer: u64, start: u64, limit: u64) {
        let open = self.open.get_mut(&(process, tid)).filter(|open| open.outer == outer && open.limits < LIMITS);
        let Some(open) = open else { return };
        open.limits += 1;
        for id in open.made.clone() {
            let row = self.get(id);
            if row.allocation.born >= start {
                row.rare.get_or_insert_default().limit = Some(limit);
            }
        }
    }

    /// The outermost API call of a thread returned: rows made inside without a stack of their own get its.
    pub(super) fn returned(&mut self, process: usize, tid: u32, outer: u64, stack: Option<u32>) {
        let std::collections::hash_map::Entry::Occupied(open) = self.open.entry((process, tid)) else { return };
        if open.get().outer != outer {
            return;
        }
        for id in open.remove().made {
            let own = &mut self.get(id).allocation.stack;
            *own = own.or(stack);
        }
    }
}

/// Where rows are after they were folded.
pub(super) struct Numbers([Vec<Option<usize>>; 3]);

impl Numbers {
    /// The new place of a row; `None` for one that was taken out.
    pub(super) fn of(&self, id: RowId) -> Option<RowId> {
        let index = self.0[id.table as usize].get(id.index).copied().flatten()?;
        Some(RowId { index, ..id })
    }
}

fn is_kept(row: &Row, t: u64) -> bool {
    // What is resumed is what it first was.
    row.allocation.died.is_none_or(|(died, _)| died >= t) || row.piece().is_some_and(|piece| piece.is_first)
}

/// Which of the rows are memory that was resumed, each with the row that it first was.
pub(super) fn resumed(rows: &[Row]) -> Vec<(u32, u32)> {
    let pieces = || (0..).zip(rows).filter_map(|(n, row)| Some((n, row.piece()?)));
    let firsts: Map<u32, u32> = pieces().filter(|(_, piece)| piece.is_first).map(|(n, p)| (p.number, n)).collect();
    let resumed = pieces().filter(|(_, piece)| !piece.is_first);
    resumed.filter_map(|(n, piece)| Some((n, *firsts.get(&piece.number)?))).collect()
}

/// Puts rows in order of birth and keeps those that `which` says; gives the new number of each old one.
fn number(rows: &mut Vec<Row>, which: impl FnOnce(&mut [Row]) -> Vec<bool>) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&n| rows[n].allocation.born);
    let mut sorted: Vec<Row> = order.iter().map(|&n| rows[n].clone()).collect();
    let kept = which(&mut sorted);
    let mut numbers = vec![None; rows.len()];
    rows.clear();
    for ((old, row), _) in order.into_iter().zip(sorted).zip(kept).filter(|(_, kept)| *kept) {
        numbers[old] = Some(rows.len());
        rows.push(row);
    }
    numbers
}

/// Puts rows in order of birth. Gives where each now is, unless that is where it was.
pub(super) fn sort(rows: &mut [Allocation]) -> Option<Vec<u32>> {
    if rows.is_sorted_by_key(|row| row.born) {
        return None;
    }
    let mut order: Vec<u32> = (0..rows.len() as u32).collect();
    order.sort_by_key(|&n| rows[n as usize].born);
    let mut places = vec![0; rows.len()];
    for (at, &n) in (0..).zip(&order) {
        places[n as usize] = at;
    }
    // The same order: both sorts are stable.
    rows.sort_by_key(|row| row.born);
    Some(places)
}

/// The GPU that each process has memory on, where it is one.
pub(super) fn used(allocations: &[Allocation]) -> BTreeMap<usize, Option<usize>> {
    let mut used = BTreeMap::new();
    for Allocation { process, gpu, .. } in allocations {
        let known = used.entry(*process).or_insert(Some(*gpu));
        if *known != Some(*gpu) {
            *known = None;
        }
    }
    used
}

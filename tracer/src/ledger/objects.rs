//! The resource manager's object tree, rebuilt from ioctls.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::{Client, Clients};
use super::memory::{Holder, Memory};
use super::rows::{Event, Numbers, Place, RowId, Rows, Table};
use crate::map::Map;
use crate::trace::record::Alloc;

/// `NV01_ROOT`, `NV01_ROOT_NON_PRIV`, `NV01_ROOT_CLIENT`.
const CLASS_ROOT: [u32; 3] = [0x0, 0x1, 0x41];
/// `NV01_DEVICE_0`.
const CLASS_DEVICE: u32 = 0x80;
/// `NV01_MEMORY_SYSTEM`: pinned host memory.
const CLASS_MEMORY_SYSTEM: u32 = 0x3e;
/// `NV01_MEMORY_LOCAL_USER`: video memory, the only class that NVML counts for a process.
pub(super) const CLASS_MEMORY_LOCAL_USER: u32 = 0x40;

/// Client and object handle: unique on the system while the object lives.
type Key = (u32, u32);

/// An object.
#[derive(Clone)]
struct Object {
    /// `None`: made before tracing began, known from its children only.
    class: Option<u32>,
    parent: Option<u32>,
    children: BTreeSet<u32>,
    place: Place,
    /// Piece of memory that the handle holds.
    piece: Option<u64>,
    /// Row of an import whose source is unknown.
    import: Option<RowId>,
}

/// Clients, objects, and what is behind exported files.
#[derive(Clone, Default)]
pub(super) struct Objects {
    objects: Map<Key, Object>,
    clients: Clients,
    /// Pieces of memory behind each file, by index.
    exports: Map<u64, BTreeMap<u32, u64>>,
    memory: Memory,
}

impl Objects {
    /// The GPU of an object, or how to find it.
    pub(super) fn place(&self, client: u32, object: u32) -> Place {
        self.objects.get(&(client, object)).map_or(Place::Client(client), |o| o.place)
    }

    /// The process that `client` belongs to.
    pub(super) fn process(&self, client: u32) -> Option<usize> {
        self.clients.get(client).map(|c| c.process)
    }

    /// The row of the memory behind a handle.
    pub(super) fn row(&self, client: u32, object: u32) -> Option<RowId> {
        self.memory.row(self.objects.get(&(client, object))?.piece?)
    }

    /// An object was made.
    pub(super) fn alloc(&mut self, alloc: &Alloc, event: &Event<'_>, rows: &mut Rows) {
        let key = (alloc.client, alloc.object);
        if CLASS_ROOT.contains(&alloc.class) {
            // A living client of that handle: its end was missed.
            self.free(alloc.client, alloc.client, event, rows);
            self.clients.insert(alloc.client, Client { process: event.process, file: alloc.file });
            self.insert(key, Some(alloc.class), None, Place::Client(alloc.client));
            return;
        }
        let place = self.node(key, alloc.parent, alloc.class, event, rows);
        let bytes = alloc.size.unwrap_or(0);
        let table = match alloc.class {
            CLASS_MEMORY_LOCAL_USER => Table::Gpu,
            CLASS_MEMORY_SYSTEM => Table::Host,
            CLASS_DEVICE => {
                if let (Some(id), Some(device)) = (alloc.device_id, self.objects.get_mut(&key)) {
                    device.place = Place::Instance(id);
                }
                return;
            }
            _ => return,
        };
        if bytes > 0 {
            let client = self.clients.get(alloc.client);
            // Video memory is made through the client's own file (nvidiactl), so it tells the file of a client that was
            // there before; pinned memory may be made through a GPU's.
            if let Some(client) = client.filter(|c| c.file == 0 && table == Table::Gpu) {
                self.clients.insert(alloc.client, Client { file: alloc.file, ..client });
            }
            let process = client.map_or(event.process, |c| c.process);
            let holder = Holder::Handle { key, process, import: None };
            let piece = self.memory.make(table, bytes, place, holder, event, rows);
            self.attach(key, Some(piece), None);
        }
    }

    /// Makes the node of a new object; gives its GPU. One that lives under the handle is freed first: its end was missed.
    fn node(&mut self, key: Key, parent: u32, class: u32, event: &Event<'_>, rows: &mut Rows) -> Place {
        let (client, object) = key;
        self.clients.meet(client, event.process);
        if self.objects.get(&key).is_some_and(|o| o.class.is_some()) {
            self.free(client, object, event, rows);
            self.clients.meet(client, event.process);
        }
        self.implied((client, client), None);
        let parent = if parent == object { client } else { parent };
        self.implied((client, parent), Some(client));
        let place = self.place(client, parent);
        self.insert(key, Some(class), Some(parent), place);
        place
    }

    /// An object known only because another names it.
    fn implied(&mut self, key: Key, parent: Option<u32>) {
        if !self.objects.contains_key(&key) {
            self.insert(key, None, parent, Place::Client(key.0));
        }
    }

    fn insert(&mut self, key: Key, class: Option<u32>, parent: Option<u32>, place: Place) {
        let children = BTreeSet::new();
        let new = Object { class, parent, children, place, piece: None, import: None };
        let old = self.objects.insert(key, new);
        // An object that was only implied keeps its children.
        if let Some(old) = old {
            if let Some(from) = old.parent.and_then(|p| self.objects.get_mut(&(key.0, p))) {
                from.children.remove(&key.1);
            }
            if let Some(new) = self.objects.get_mut(&key) {
                new.children = old.children;
            }
        }
        if let Some(parent) = parent.and_then(|p| self.objects.get_mut(&(key.0, p))) {
            parent.children.insert(key.1);
        }
    }

    fn attach(&mut self, key: Key, piece: Option<u64>, import: Option<RowId>) {
        if let Some(object) = self.objects.get_mut(&key) {
            (object.piece, object.import) = (piece, import);
        }
    }

    /// An object and all below it was freed. False when the handle is unknown: made before tracing began.
    pub(super) fn free(&mut self, client: u32, object: u32, event: &Event<'_>, rows: &mut Rows) -> bool {
        let Some(top) = self.objects.remove(&(client, object)) else { return false };
        let known = top.class.is_some();
        if let Some(parent) = top.parent.and_then(|p| self.objects.get_mut(&(client, p))) {
            parent.children.remove(&object);
        }
        let mut next = Some((object, top));
        let mut doomed = Vec::new();
        while let Some((handle, gone)) = next {
            doomed.extend(gone.children);
            if let Some(piece) = gone.piece {
                let holder = Holder::Handle { key: (client, handle), process: 0, import: None };
                self.memory.release(piece, &holder, event, rows);
            }
            if let Some(row) = gone.import {
                rows.died(row, event.t, event.death);
            }
            let mut below = std::iter::from_fn(|| doomed.pop());
            next = below.find_map(|handle| Some((handle, self.objects.remove(&(client, handle))?)));
        }
        if client == object {
            self.clients.remove(client);
        }
        known
    }

    /// A second handle was made for an object.
    pub(super) fn dup(&mut self, new: Key, parent: u32, source: Key, event: &Event<'_>, rows: &mut Rows) {
        let class = self.objects.get(&source).and_then(|o| o.class);
        self.node(new, parent, class.unwrap_or(u32::MAX), event, rows);
        match self.objects.get(&source) {
            Some(object) => {
                if let Some(piece) = object.piece {
                    let source = Holder::Handle { key: source, process: 0, import: None };
                    self.hold(new, piece, &source, event, rows);
                }
            }
            None => self.import_unknown(new, event, rows),
        }
    }

    /// An object was put behind a file.
    pub(super) fn export(&mut self, source: Key, file: u64, index: u32, event: &Event<'_>, rows: &mut Rows) {
        let Some(piece) = self.objects.get(&source).and_then(|o| o.piece) else { return };
        let holder = Holder::File { file, index };
        if let Some(old) = self.exports.entry(file).or_default().insert(index, piece) {
            self.memory.release(old, &holder, event, rows);
        }
        self.memory.hold(piece, &Holder::Handle { key: source, process: 0, import: None }, holder);
    }

    /// A handle was made for what is behind a file.
    pub(super) fn import(&mut self, new: Key, parent: u32, file: u64, index: u32, event: &Event<'_>, rows: &mut Rows) {
        self.node(new, parent, CLASS_MEMORY_LOCAL_USER, event, rows);
        match self.exports.get(&file).and_then(|slots| slots.get(&index)) {
            Some(&piece) => self.hold(new, piece, &Holder::File { file, index }, event, rows),
            None => self.import_unknown(new, event, rows),
        }
    }

    /// Ties a new handle to a piece; a process that does not pay for it imports it.
    fn hold(&mut self, new: Key, piece: u64, source: &Holder, event: &Event<'_>, rows: &mut Rows) {
        let process = self.process(new.0).unwrap_or(event.process);
        let mut import = None;
        if let Some((bytes, place)) = self.memory.size(piece)
            && !self.memory.is_paid_by(piece, process)
        {
            import = Some(rows.born(Table::Imports, process, bytes, place, event));
        }
        self.memory.hold(piece, source, Holder::Handle { key: new, process, import });
        self.attach(new, Some(piece), None);
    }

    /// An import from a process that is not traced, or from before tracing began: its size is not known.
    fn import_unknown(&mut self, new: Key, event: &Event<'_>, rows: &mut Rows) {
        let process = self.process(new.0).unwrap_or(event.process);
        let row = rows.born(Table::Imports, process, 0, self.place(new.0, new.1), event);
        self.attach(new, None, Some(row));
    }

    /// A driver file was closed: what it exported and its clients go.
    pub(super) fn close(&mut self, file: u64, event: &Event<'_>, rows: &mut Rows) {
        if file == 0 {
            return;
        }
        for (index, piece) in self.exports.remove(&file).unwrap_or_default() {
            self.memory.release(piece, &Holder::File { file, index }, event, rows);
        }
        self.free_clients(self.clients.of_file(file), event, rows);
    }

    /// Rows have new numbers.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        for object in self.objects.values_mut() {
            object.import = object.import.and_then(|row| numbers.of(row));
        }
        self.memory.renumber(numbers);
    }

    /// A process exited. Clients whose file is known go when that is closed, unless tracing ends before (`all`).
    pub(super) fn exit(&mut self, all: bool, event: &Event<'_>, rows: &mut Rows) {
        let mut doomed = self.clients.of_process(event.process);
        doomed.retain(|&client| all || self.clients.get(client).is_some_and(|client| client.file == 0));
        self.free_clients(doomed, event, rows);
    }

    fn free_clients(&mut self, doomed: Vec<u32>, event: &Event<'_>, rows: &mut Rows) {
        for client in doomed {
            self.free(client, client, event, rows);
            self.clients.remove(client);
        }
    }
}

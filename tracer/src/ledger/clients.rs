//! Clients of the resource manager: the roots of its object trees, by handle, by driver file and by process.

use std::collections::BTreeSet;

use crate::map::Map;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) process: usize,
    /// Closing this file frees the client; 0 where it is not known.
    pub(super) file: u64,
}

/// Living clients by handle, which is unique on the system.
#[derive(Clone, Default)]
pub(super) struct Clients {
    by_handle: Map<u32, Client>,
    /// Handles by file, where it is known.
    of_file: Map<u64, BTreeSet<u32>>,
    of_process: Map<usize, BTreeSet<u32>>,
}

impl Clients {
    pub(super) fn get(&self, handle: u32) -> Option<Client> {
        self.by_handle.get(&handle).copied()
    }

    /// Takes a client in, in the place of another by that handle.
    pub(super) fn insert(&mut self, handle: u32, client: Client) {
        self.remove(handle);
        self.by_handle.insert(handle, client);
        self.of_process.entry(client.process).or_default().insert(handle);
        if client.file != 0 {
            self.of_file.entry(client.file).or_default().insert(handle);
        }
    }

    /// A client of a process was named; one that is new was made before tracing began.
    pub(super) fn meet(&mut self, handle: u32, process: usize) {
        if !self.by_handle.contains_key(&handle) {
            self.insert(handle, Client { process, file: 0 });
        }
    }

    pub(super) fn remove(&mut self, handle: u32) {
        let Some(gone) = self.by_handle.remove(&handle) else { return };
        take(&mut self.of_process, &gone.process, handle);
        take(&mut self.of_file, &gone.file, handle);
    }

    /// Handles of the clients that go when `file` is closed, in order.
    pub(super) fn of_file(&self, file: u64) -> Vec<u32> {
        self.of_file.get(&file).into_iter().flatten().copied().collect()
    }

    /// Handles of a process's clients, in order.
    pub(super) fn of_process(&self, process: usize) -> Vec<u32> {
        self.of_process.get(&process).into_iter().flatten().copied().collect()
    }
}

fn take<K: Eq + std::hash::Hash>(of: &mut Map<K, BTreeSet<u32>>, key: &K, handle: u32) {
    let Some(handles) = of.get_mut(key) else { return };
    handles.remove(&handle);
    if handles.is_empty() {
        of.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_found_where_it_now_belongs() {
        let mut clients = Clients::default();
        clients.meet(5, 1);
        clients.meet(5, 2);
        assert_eq!((clients.get(5), clients.of_process(1)), (Some(Client { process: 1, file: 0 }), vec![5]));
        clients.insert(5, Client { process: 1, file: 9 });
        clients.insert(3, Client { process: 1, file: 9 });
        assert_eq!((clients.of_file(9), clients.of_file(0)), (vec![3, 5], vec![]));
        clients.insert(5, Client { process: 2, file: 8 });
        assert_eq!([clients.of_process(1), clients.of_process(2)], [vec![3], vec![5]]);
        assert_eq!([clients.of_file(9), clients.of_file(8)], [vec![3], vec![5]]);
        clients.remove(5);
        clients.remove(5);
        assert_eq!((clients.get(5), clients.of_file(8), clients.of_process(2)), (None, vec![], vec![]));
    }
}

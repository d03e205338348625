//! The ledger from driver-API calls.

use super::*;

struct Api(Trace);

impl Api {
    fn new() -> Self {
        Self(Trace::with(Source::DriverApi))
    }

    fn call(&mut self, api: &str, change: impl FnOnce(&mut Call)) {
        let t = self.0.t;
        let mut call = Call { t, start: t, outer: t, pid: 1, tid: 1, api: api.into(), ..Call::default() };
        change(&mut call);
        self.0.push(Record::Call(call));
    }

    fn alloc(&mut self, api: &str, address: u64, size: u64) {
        self.call(api, |c| (c.address, c.size) = (Some(address), Some(size)));
    }

    fn held(self) -> u64 {
        held(&self.0.book(), 1)
    }
}

#[test]
fn allocations_and_frees_by_address() {
    let mut api = Api::new();
    api.alloc("cuMemAlloc_v2", 0x1000, 5 * MIB);
    api.alloc("cudaMalloc", 0x1000, 5 * MIB);
    api.alloc("cuMemAllocAsync_ptsz", 0x2000, 3 * MIB);
    api.alloc("cuMemAllocManaged", 0x3000, 9 * MIB);
    api.alloc("cuMemHostAlloc", 0x4000, 9 * MIB);
    api.call("cuMemFree_v2", |c| c.address = Some(0x1000));
    api.call("cudaFree", |c| c.address = Some(0x1000));
    let book = api.0.book();
    assert_eq!(held(&book, 1), 3 * MIB);
    assert_eq!(book.allocations.iter().map(|a| a.kind).collect::<Vec<_>>(), [Kind::CudaMalloc, Kind::Pool]);
    assert_eq!(book.host.len(), 1);
}

#[test]
fn failed_calls_and_ioctls_add_nothing() {
    let mut api = Api::new();
    api.call("cuMemAlloc_v2", |c| (c.address, c.size, c.result) = (Some(1), Some(MIB), 2));
    api.0.memory(1, 10, 2, 100, MIB);
    let book = api.0.book();
    assert!(book.allocations.is_empty());
    assert_eq!(book.failures.len(), 1);
}

#[test]
fn vmm_memory_stays_while_mapped() {
    for release_first in [true, false] {
        let mut api = Api::new();
        api.call("cuMemCreate", |c| (c.handle, c.size) = (Some(7), Some(2 * MIB)));
        api.call("cuMemMap", |c| (c.address, c.size, c.handle) = (Some(0x1000), Some(2 * MIB), Some(7)));
        if release_first {
            api.call("cuMemRelease", |c| c.handle = Some(7));
        } else {
            api.call("cuMemUnmap", |c| (c.address, c.size) = (Some(0x1000), Some(2 * MIB)));
        }
        assert_eq!(api.held(), 2 * MIB);
    }
    let mut api = Api::new();
    api.call("cuMemCreate", |c| (c.handle, c.size) = (Some(7), Some(2 * MIB)));
    for address in [0x1000, 0x2000] {
        api.call("cuMemMap", |c| (c.address, c.size, c.handle) = (Some(address), Some(0x1000), Some(7)));
    }
    api.call("cuMemRelease", |c| c.handle = Some(7));
    api.call("cuMemUnmap", |c| (c.address, c.size) = (Some(0x1000), Some(0x2000)));
    assert_eq!(api.held(), 0, "one unmap may cover several mappings");
}

#[test]
fn contexts_take_their_memory_with_them() {
    let mut api = Api::new();
    for _ in 0..2 {
        api.call("cuDevicePrimaryCtxRetain", |_| {});
    }
    api.alloc("cuMemAlloc_v2", 0x1000, MIB);
    api.call("cuDevicePrimaryCtxRelease_v2", |_| {});
    let live = api.0.t;
    api.call("cuDevicePrimaryCtxRelease_v2", |_| {});
    let book = api.0.book();
    assert_eq!(book.live_at(live - 1, |_| true), MIB, "retained twice");
    assert_eq!(held(&book, 1), 0);

    let mut api = Api::new();
    api.alloc("cuMemAlloc_v2", 0x1000, MIB);
    api.call("cudaDeviceReset", |_| {});
    assert_eq!(api.held(), 0);
}

#[test]
fn exit_keeps_what_was_held() {
    let mut api = Api::new();
    api.alloc("cuMemAlloc_v2", 0x1000, MIB);
    api.0.exit(1);
    let book = api.0.book();
    assert_eq!(held(&book, 1), MIB);
    assert_eq!(deaths(&book), [Some(Death::Reclaimed)]);
}

#[test]
fn imports_and_unknown_sizes_are_told() {
    let mut api = Api::new();
    api.alloc("cuIpcOpenMemHandle_v2", 0x1000, 0);
    api.call("cuArrayCreate_v2", |c| c.handle = Some(5));
    let book = api.0.book();
    assert_eq!((book.imports.len(), held(&book, 1)), (1, 0));
    assert_eq!(book.losses["unsized_allocation"], 1);
}

//! Memory that several processes hold.

use super::*;

/// Process 1 makes 4 MiB under client 10 as object 100.
fn owner() -> Trace {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.client(2, 20);
    trace.client(3, 30);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    trace
}

#[test]
fn an_import_adds_no_bytes() {
    let mut trace = owner();
    trace.calls(&["cuIpcOpenMemHandle_v2"]).dup(2, 20, 200, 10, 100);
    trace.calls(&[]).free(2, 20, 200);
    let book = trace.book();
    assert_eq!((held(&book, 1), held(&book, 2)), (4 * MIB, 0));
    let import = &book.imports[0];
    assert_eq!((book.imports.len(), import.process, import.bytes), (1, 1, 4 * MIB));
    assert_eq!(import.died.map(|(_, how)| how), Some(Death::Freed));
}

#[test]
fn when_the_owner_frees_first_the_importer_pays() {
    let mut trace = owner();
    trace.calls(&["cuIpcOpenMemHandle_v2"]).dup(2, 20, 200, 10, 100);
    trace.calls(&["cudaFree"]).free(1, 10, 100);
    let book = trace.book();
    assert_eq!((held(&book, 1), held(&book, 2)), (0, 4 * MIB));
    assert_eq!(deaths(&book), [Some(Death::Transferred), None]);
    let taken = &book.allocations[1];
    assert_eq!((taken.kind, &taken.calls[..]), (Kind::IpcImport, &["cuIpcOpenMemHandle_v2".to_owned()][..]));
    assert_eq!(book.imports[0].died.map(|(_, how)| how), Some(Death::Transferred));
    assert_eq!(book.allocations[0].died.map(|d| d.0), Some(taken.born), "no moment without an owner");
}

#[test]
fn the_latest_duplicate_is_next() {
    // As in the resource manager's ring: a duplicate goes in behind its source.
    let mut trace = owner();
    trace.dup(2, 20, 200, 10, 100);
    trace.dup(3, 30, 300, 10, 100);
    trace.free(1, 10, 100);
    let book = trace.book();
    assert_eq!((held(&book, 2), held(&book, 3)), (0, 4 * MIB));

    let mut trace = owner();
    trace.dup(2, 20, 200, 10, 100);
    trace.dup(3, 30, 300, 20, 200);
    trace.free(1, 10, 100);
    trace.free(2, 20, 200);
    let book = trace.book();
    assert_eq!((held(&book, 2), held(&book, 3)), (0, 4 * MIB));
    assert_eq!(deaths(&book), [Some(Death::Transferred), Some(Death::Transferred), None]);
}

#[test]
fn a_process_that_dies_leaves_shared_memory_to_the_others() {
    let mut trace = owner();
    trace.dup(2, 20, 200, 10, 100);
    trace.exit(1);
    trace.close(1, 10 << 8);
    let book = trace.book();
    assert_eq!((held(&book, 1), held(&book, 2)), (4 * MIB, 4 * MIB), "each at its own end");
    assert_eq!(book.live_at(book.end, |_| true), 4 * MIB);
}

#[test]
fn a_second_handle_in_the_same_process_changes_nothing() {
    let mut trace = owner();
    trace.dup(1, 10, 101, 10, 100);
    trace.free(1, 10, 100);
    trace.t += 5000;
    let freed = trace.t;
    trace.free(1, 10, 101);
    let book = trace.book();
    assert!(book.imports.is_empty());
    assert_eq!(book.allocations.len(), 1);
    assert_eq!(book.allocations[0].died, Some((freed, Death::Freed)));
}

#[test]
fn handles_pass_through_files() {
    let (file, index) = (0x900, 1);
    let mut trace = owner();
    trace.rm(1, 0, Op::Export { client: 10, object: 100, file, index });
    trace.rm(2, 0, Op::Import { client: 20, parent: 2, object: 200, file, index });
    trace.close(2, file);
    trace.free(1, 10, 100);
    let book = trace.book();
    assert_eq!((held(&book, 1), held(&book, 2)), (0, 4 * MIB));
    assert_eq!(book.imports[0].bytes, 4 * MIB);
}

#[test]
fn while_a_file_owns_memory_nobody_is_charged() {
    let mut trace = owner();
    trace.rm(1, 0, Op::Export { client: 10, object: 100, file: 0x900, index: 0 });
    trace.rm(2, 0, Op::Import { client: 20, parent: 2, object: 200, file: 0x900, index: 0 });
    trace.free(1, 10, 100);
    let between = trace.t;
    trace.close(1, 0x900);
    let book = trace.book();
    assert_eq!(book.live_at(between - 1, |_| true), 0);
    assert_eq!((held(&book, 2), book.allocations[1].kind), (4 * MIB, Kind::IpcImport));
}

#[test]
fn an_exported_file_alone_keeps_no_process_charged() {
    let mut trace = owner();
    trace.rm(1, 0, Op::Export { client: 10, object: 100, file: 0x900, index: 0 });
    trace.free(1, 10, 100);
    trace.close(1, 0x900);
    let book = trace.book();
    assert_eq!((held(&book, 1), deaths(&book)), (0, vec![Some(Death::Transferred)]));
}

#[test]
fn an_empty_slot_or_unknown_source_is_an_import_of_unknown_size() {
    let mut trace = owner();
    trace.rm(2, 0, Op::Import { client: 20, parent: 2, object: 200, file: 0x900, index: 0 });
    trace.dup(2, 20, 201, 99, 1);
    let book = trace.book();
    assert_eq!(book.imports.iter().map(|i| i.bytes).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(held(&book, 2), 0);
}

#[test]
fn shared_host_memory_stays_host_memory() {
    let mut trace = owner();
    let size = Some(8 * MIB);
    trace.rm(1, 0, Op::Alloc(Alloc { client: 10, parent: 2, object: 101, class: 0x3e, size, ..Alloc::default() }));
    trace.dup(2, 20, 200, 10, 101);
    trace.free(1, 10, 101);
    let book = trace.book();
    assert_eq!(book.host.iter().map(|h| (h.process, h.kind)).collect::<Vec<_>>(), [(0, Kind::Host), (1, Kind::Host)]);
    assert_eq!(held(&book, 2), 0);
}

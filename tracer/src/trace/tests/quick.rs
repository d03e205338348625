//! Lines read without a reader of JSON are read as that would.

use proptest::prelude::*;
use proptest::sample::Index;

use super::arbitrary::record;
use crate::trace::quick::Quick;
use crate::trace::record::{Alloc, Block, Op, Record, Rm};

fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("serialize") + "\n"
}

fn read(line: &[u8]) -> Option<Record> {
    Quick::default().record(line)
}

/// Records that long traces are made of.
fn frequent() -> Vec<Record> {
    let alloc = Alloc { client: 1, object: u32::MAX, class: 0x40, size: Some(2 << 20), ..Alloc::default() };
    let more =
        Alloc { requested: Some(0), device_id: Some(3), attr: Some(4), flags: Some(5), file: 6, ..alloc.clone() };
    let calls = ["cudaMalloc".to_owned(), "cuMemAlloc_v2".to_owned()].into();
    let bare = |op| Record::Rm(Rm { t: 1, pid: 2, tid: 3, op, ..Rm::default() });
    let free = Op::Free { client: 1, object: 2 };
    let full = Rm { t: 9, start: 8, unfinished: true, status: 81, calls, outer: 7, stack: Some(0), ..Rm::default() };
    let block = Block { t: 1, pid: 2, tid: 3, address: 1 << 47, bytes: 512, ..Block::default() };
    vec![
        bare(Op::Alloc(alloc)),
        Record::Rm(Rm { op: Op::Alloc(more), ..full.clone() }),
        bare(free.clone()),
        Record::Rm(Rm { op: free, ..full }),
        bare(Op::Map { base: 1 << 40, length: 2 << 20, offset: 0, client: 1, object: 2 }),
        bare(Op::Unmap { base: 1 << 40 }),
        Record::Block(block.clone()),
        Record::Block(Block { bytes: -512, stack: Some(4), ..block }),
    ]
}

#[test]
fn frequent_lines_are_read() {
    for record in frequent() {
        assert_eq!(read(line(&record).as_bytes()), Some(record));
    }
}

#[test]
fn lists_of_calls_are_shared() {
    let line = line(&frequent()[1]);
    let mut quick = Quick::default();
    let [one, other] = [(); 2].map(|()| match quick.record(line.as_bytes()) {
        Some(Record::Rm(rm)) => rm.calls,
        other => panic!("{other:?}"),
    });
    assert!(std::sync::Arc::ptr_eq(&one, &other));
}

#[test]
fn what_is_written_in_another_form_is_left_to_json() {
    let line = line(&frequent()[6]);
    for (from, to) in [
        ("512", "-0"),
        ("512", "0512"),
        ("512", "512.0"),
        ("512", ""),
        ("512", "null"),
        ("512", "9223372036854775808"),
        ("\"pid\":2", "\"pid\":4294967296"),
        ("\"t\":1", "\"t\":18446744073709551615"),
        ("\"t\":1", "\"t\": 1"),
        ("}}", "}"),
        ("}}\n", "}}x"),
    ] {
        let line = line.replace(from, to);
        assert_eq!(read(line.as_bytes()), None, "{line}");
    }
    for calls in ["", "\"a\",", "\"a b\"", "\"\\u0061\"", "\"]\"", "a", "\"a\" ,\"b\""] {
        let line = line.replace("{\"block\":{\"t\":1,\"pid\":2,\"tid\":3,", "{\"rm\":{\"t\":1,\"pid\":2,\"tid\":3,");
        let head = line.split_once(",\"device\"").expect("a block").0;
        let line = format!("{head},\"calls\":[{calls}],\"unmap\":{{\"base\":1}}}}}}\n");
        assert_eq!(read(line.as_bytes()), None, "{line}");
    }
}

proptest! {
    #[test]
    fn records_are_read_as_by_json(record in record()) {
        if let Some(read) = read(line(&record).as_bytes()) {
            prop_assert_eq!(read, record);
        }
    }

    /// A byte is put in, taken out or changed.
    #[test]
    fn nothing_is_read_that_json_would_not_read(
        which in any::<Index>(), at in any::<Index>(), byte in "[-0-9a-z\":,{}\\[\\] .\\\\\n]", how in 0..3,
    ) {
        let records = frequent();
        let mut line = line(which.get(&records)).into_bytes();
        let at = at.index(line.len());
        let byte = byte.as_bytes()[0];
        match how {
            0 => line.insert(at, byte),
            1 => _ = line.remove(at),
            _ => line[at] = byte,
        }
        if let Some(read) = read(&line) {
            prop_assert_eq!(serde_json::from_slice::<Record>(&line).ok(), Some(read));
        }
    }
}

//! Files in place of libraries and programs: symbols, identity, unwind tables, names.

use std::hint::black_box;

use super::traces::Memory;
use crate::{attach::elf::ElfFile, probe, stack::fuzz as stack};

/// Names that an interpreter is found by, and one that the vDSO has.
const NAMES: [&str; 4] = ["_PyRuntime", "PyCode_Type", "Py_Version", "__vdso_clock_gettime"];
/// Bytes at the end that say where to look, and are the stack.
const TAIL: usize = 256;

/// Any file in place of an ELF file; its end is the stack of what runs in it as well.
pub fn elf(data: &[u8]) {
    let Ok(memory) = Memory::new(data) else { return };
    if let Ok(file) = ElfFile::open(&memory.path()) {
        black_box((file.build_id(), file.soname()));
        let names = probe::table().iter().map(|probe| probe.symbol).chain(NAMES);
        for found in file.resolve(names).unwrap_or_default() {
            assert!(found.offset.is_ok_and(|at| at < data.len() as u64) || found.offset.is_err(), "beyond the file");
        }
        for name in NAMES {
            let _ = file.dynamic_address(name);
            black_box(file.bias(0x5555_5555_4000, 0x1000));
        }
    }
    let tail = &data[data.len().saturating_sub(TAIL)..];
    stack::unwind(memory.into_file(), tail);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    vec![stack::image()]
}

pub(super) fn words() -> Vec<String> {
    NAMES.iter().map(|&name| name.to_owned()).chain(["\x7fELF".into(), "GNU\0".into(), ".eh_frame".into()]).collect()
}

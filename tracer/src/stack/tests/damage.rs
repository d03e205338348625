//! Damaged files: no panic, whatever the bytes.

use std::{cell::Cell, fs::File, os::unix::fs::FileExt};

use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;

use super::super::{Interner, maps, module::Module, rule::Registers, symbols::Symbols};
use crate::attach::elf;

/// A small ELF file with symbols, `.eh_frame` and `.eh_frame_hdr`: the vDSO.
fn image() -> Vec<u8> {
    let own = maps::read(std::process::id()).unwrap().into_iter().find(|mapping| &*mapping.path == "[vdso]").unwrap();
    let file = own.open(std::process::id()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn module(bytes: &[u8]) -> Result<Module, elf::Error> {
    let file = File::from(memfd_create(c"damaged", MFdFlags::MFD_CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    Module::read(0, "damaged".into(), file)
}

/// Applies the rules of all code, and counts those that there are.
fn use_up(module: &Module) -> usize {
    let registers = Registers::new(0x1000, 0x7fff_0000, 0x7fff_0100);
    let calls = Cell::new(0_u64);
    let read = |address: u64| {
        calls.set(calls.get() + 1);
        (!calls.get().is_multiple_of(3)).then_some(address ^ 0x55)
    };
    let mut rules = 0;
    for offset in (0..0x2000).step_by(7) {
        let Some(address) = module.address(offset) else { continue };
        module.follows_call(address);
        if let Some(rule) = module.tables.rule(address) {
            rules += 1;
            rule.undo(&registers, &read).ok();
        }
    }
    rules
}

#[test]
fn the_whole_image_has_rules_and_symbols() {
    let module = module(&image()).unwrap();
    assert!(use_up(&module) > 20);
    let mut names = Interner::new();
    let mut symbols = Symbols::default();
    for address in (0..0x2000).step_by(16) {
        symbols.frames(&module, address, false, &mut names);
    }
    assert!(names.drain().any(|record| format!("{record:?}").contains("clock_gettime")));
}

/// The sections are gone through from front to back instead.
#[test]
fn a_search_table_that_claims_more_than_there_is_is_not_used() {
    let whole = image();
    let rules = use_up(&module(&whole).unwrap());
    // Version 1; pointer: sdata4 from here; count: udata4; entries: sdata4 from the section's start.
    let header = whole.windows(4).position(|bytes| bytes == [1, 0x1b, 3, 0x3b]).unwrap();
    for (encoding, count) in [(4, u64::MAX), (4, 1 << 60), (3, u64::from(u32::MAX)), (3, 100_000)] {
        let mut bytes = whole.clone();
        bytes[header + 2] = encoding;
        let size = if encoding == 4 { 8 } else { 4 };
        bytes[header + 8..][..size].copy_from_slice(&count.to_le_bytes()[..size]);
        assert_eq!(use_up(&module(&bytes).unwrap()), rules, "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_files_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        head in prop::collection::vec((0_usize..512, any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = image();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in head {
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        if let Ok(module) = module(&bytes) {
            use_up(&module);
            let mut symbols = Symbols::default();
            for address in (0..0x2000).step_by(512) {
                symbols.frames(&module, address, false, &mut Interner::new());
            }
        }
    }
}

//! Each target, with its seeds and with damaged ones.

use proptest::prelude::*;

use super::{Input, TARGETS};

#[test]
fn seeds_do_no_harm() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in &seeds {
            (target.run)(seed);
        }
    }
}

#[test]
fn no_bytes_do_no_harm() {
    for target in TARGETS {
        for bytes in [&[][..], &[0], &[0; 64], &[0xff; 64]] {
            (target.run)(bytes);
        }
    }
}

/// How many damaged seeds: a few, or as many as the variable says.
fn cases() -> u32 {
    std::env::var("VRAMTRACE_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damaged_seeds_do_no_harm(
        seed: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut: prop::sample::Index,
        is_cut: bool,
    ) {
        for target in TARGETS {
            let seeds = (target.seeds)();
            let mut bytes = seeds[seed.index(seeds.len())].clone();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            (target.run)(&bytes);
        }
    }
}

#[test]
fn input_ends_in_zeros() {
    let mut input = Input::new(&[1, 2, 3]);
    assert_eq!((input.u8(), input.u64(), input.u8(), input.is_empty()), (1, 0x0302, 0, true));
}

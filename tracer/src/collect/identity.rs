//! Open files as a trace names them.

use std::hash::{BuildHasher as _, RandomState};

/// The kernel side tells an open file by the address of its `struct file`. Who reads a trace may not be allowed to know
/// where the kernel keeps things (`kernel.kptr_restrict`), so a trace has a hash of it, with a key that is forgotten.
#[derive(Debug, Default)]
pub(super) struct Identities(RandomState);

impl Identities {
    /// The same for the same address; 0 stays 0, which is no file, and others are larger than any count.
    pub(super) fn of(&self, address: u64) -> u64 {
        if address == 0 { 0 } else { self.0.hash_one(address) | 1 << 63 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_and_addresses_are_not_told() {
        let (one, other) = (Identities::default(), Identities::default());
        let address = 0xffff_8881_0a2b_3c00;
        assert_eq!(one.of(0), 0);
        assert_eq!(one.of(address), one.of(address));
        assert_ne!(one.of(address), one.of(address + 0x100));
        assert_ne!(one.of(address), other.of(address), "each run has a key of its own");
        assert!(one.of(address) != address && one.of(1) > u64::from(u32::MAX));
    }
}

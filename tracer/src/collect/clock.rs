//! The clock of all records.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: what `bpf_ktime_get_ns` gives.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // The clock exists on every Linux; a kernel without it could not run BPF.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| t.tv_sec().cast_unsigned() * 1_000_000_000 + t.tv_nsec().cast_unsigned())
}

/// Wall clock, nanoseconds since the Unix epoch.
#[must_use]
pub fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

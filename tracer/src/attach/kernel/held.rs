//! Processes that the kernel side stopped for us.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use aya::maps::{HashMap, Map, MapData, MapError};
use nix::{sys::signal::Signal, unistd::Pid};

use super::sys::value;
use crate::{
    attach::{
        guard::LONGEST_HOLD_NS,
        spawn::{pidfd_open, pidfd_send_signal},
    },
    collect::clock::monotonic_ns,
};

/// Processes that are stopped until their probes are placed, by thread group id.
pub struct Held {
    map: HashMap<MapData, u32, u64>,
    fd: OwnedFd,
}

impl Held {
    pub(super) fn new(map: Map) -> Result<Self, MapError> {
        let Map::HashMap(data) = map else { return Err(MapError::InvalidMapType { map_type: 0 }) };
        let fd = data.fd().as_fd().try_clone_to_owned().map_err(io_error)?;
        Ok(Self { map: Map::HashMap(data).try_into()?, fd })
    }

    /// True while a process is held, and the guard has not thought that we take too long.
    #[must_use]
    pub fn contains(&self, tgid: u32) -> bool {
        self.map.get(&tgid, 0).is_ok_and(|since| monotonic_ns().saturating_sub(since) < LONGEST_HOLD_NS)
    }

    /// Lets a process go on. A stop that was not delivered yet is cancelled by it (signal(7)).
    pub fn release(&mut self, tgid: u32) {
        let Ok(since) = self.map.get(&tgid, 0) else { return };
        // Gone already: nothing to continue. In this order, so that a process is never stopped and forgotten.
        resume(self.fd.as_raw_fd(), tgid);
        // It may be held for the next library by now.
        if self.map.get(&tgid, 0).is_ok_and(|now| now == since) {
            let _ = self.map.remove(&tgid);
        }
    }

    /// Lets all of them go on. They stay in the map: one of them may be about to be stopped.
    pub fn release_all(&self) {
        for tgid in self.map.keys().filter_map(Result::ok) {
            resume(self.fd.as_raw_fd(), tgid);
        }
    }

    /// The map, for whoever lets them go when we cannot.
    #[must_use]
    pub fn map(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Continues a process that is held, by the map's word; never one that has taken its id since. Allocates nothing.
///
/// A process leaves the map as it begins to end, which is before its id can be given to another. So if it is in the map
/// after the descriptor was had, that descriptor is its own.
pub(in crate::attach) fn resume(map: RawFd, tgid: u32) {
    let Ok(process) = pidfd_open(Pid::from_raw(tgid.cast_signed())) else { return };
    let mut since = 0;
    if value(map, &tgid, &mut since).is_ok() {
        // It may have ended by itself.
        let _ = pidfd_send_signal(process.as_fd(), Signal::SIGCONT);
    }
}

fn io_error(io_error: io::Error) -> MapError {
    MapError::IoError(io_error)
}

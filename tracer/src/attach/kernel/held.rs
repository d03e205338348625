//! Processes that the kernel side stopped for us.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use aya::maps::{HashMap, Map, MapData, MapError};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
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

    /// True while a process is held.
    #[must_use]
    pub fn contains(&self, tgid: u32) -> bool {
        self.map.get(&tgid, 0).is_ok()
    }

    /// Lets a process go on. A stop that was not delivered yet is cancelled by it (signal(7)).
    pub fn release(&mut self, tgid: u32) {
        // Gone already: nothing to continue. In this order, so that a process is never stopped and forgotten.
        let _ = kill(Pid::from_raw(tgid.cast_signed()), Signal::SIGCONT);
        let _ = self.map.remove(&tgid);
    }

    /// Lets all of them go on. They stay in the map: one of them may be about to be stopped.
    pub fn release_all(&self) {
        for tgid in self.map.keys().filter_map(Result::ok) {
            let _ = kill(Pid::from_raw(tgid.cast_signed()), Signal::SIGCONT);
        }
    }

    /// The map, for whoever lets them go when we cannot.
    #[must_use]
    pub fn map(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn io_error(io_error: io::Error) -> MapError {
    MapError::IoError(io_error)
}

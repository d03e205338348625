//! Processes that the kernel side stopped for us.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    thread::sleep,
    time::{Duration, Instant},
};

use aya::maps::{HashMap, Map, MapData, MapError};
use nix::{sys::signal::Signal, unistd::Pid};
use tracer_ebpf as wire;

use super::sys::{take, value};
use crate::{
    attach::{
        guard::LONGEST_HOLD_NS,
        spawn::{pidfd_open, pidfd_send_signal},
    },
    collect::clock::monotonic_ns,
};

/// Longest time in which all threads of a process come to stop.
const LONGEST_STOP: Duration = Duration::from_millis(200);
/// SIGSTOP in the masks of `/proc/PID/status` (proc(5)).
const SIGSTOP_BIT: u64 = 1 << (Signal::SIGSTOP as u64 - 1);

/// One stop of one process, as a record told it. A process that somebody else continued may be stopped again, for another
/// library, before the first stop is dealt with.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    tgid: u32,
    /// When the record was made, just after the stop.
    told: u64,
}

impl Stop {
    /// The stop that came with a record, if one did.
    #[must_use]
    pub fn of(header: &wire::Header) -> Option<Self> {
        let is_held = header.flags & wire::FLAG_HELD != 0;
        is_held.then_some(Self { tgid: header.tgid, told: header.time_ns })
    }
}

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

    /// True while a process is held: neither the guard, which may have thought that we take too long, nor anybody else
    /// has continued it.
    #[must_use]
    pub fn lasts(&self, stop: Stop) -> bool {
        let until = Instant::now() + LONGEST_STOP;
        while self.since(stop).is_some_and(|since| monotonic_ns().saturating_sub(since) < LONGEST_HOLD_NS) {
            if is_stopped(stop.tgid) {
                return true;
            }
            if Instant::now() > until {
                break;
            }
            sleep(LONGEST_STOP / 100);
        }
        false
    }

    /// Lets a process go on. A stop that was not delivered yet is cancelled by it (signal(7)).
    pub fn release(&mut self, stop: Stop) {
        let Some(since) = self.since(stop) else { return };
        // Gone already: nothing to continue. In this order, so that a process is never stopped and forgotten.
        resume(self.fd.as_raw_fd(), stop.tgid);
        // It may be held for the next library by now.
        let mut removed = 0;
        if take(self.fd.as_raw_fd(), &stop.tgid, &mut removed).is_ok() && removed != since {
            let _ = self.map.insert(stop.tgid, removed, 0);
        }
    }

    /// When a stop was made, if it is the last one of its process and nobody has let that go on.
    fn since(&self, stop: Stop) -> Option<u64> {
        self.map.get(&stop.tgid, 0).ok().filter(|since| *since <= stop.told)
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

/// True for a process that is stopped, or will be before it goes on.
fn is_stopped(tgid: u32) -> bool {
    let status = procfs::process::Process::new(tgid.cast_signed()).and_then(|process| process.status());
    status.is_ok_and(|status| status.state.starts_with(['T', 't']) || status.shdpnd & SIGSTOP_BIT != 0)
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

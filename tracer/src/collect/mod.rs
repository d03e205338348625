//! Ring buffer to trace records.

pub mod clock;
mod descriptor;
pub mod drive;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod identity;
pub mod ioctl;
mod lines;
mod losses;
pub mod nvml;
mod pending;
mod processes;
mod records;
mod rm;
pub mod session;
pub mod setup;
pub mod signals;
pub mod sink;
mod uvm;
mod wire;

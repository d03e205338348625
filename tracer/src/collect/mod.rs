//! Ring buffer to trace records.

pub mod clock;
pub mod drive;
mod identity;
pub mod ioctl;
mod lines;
mod losses;
pub mod nvml;
mod pending;
mod processes;
mod rm;
pub mod session;
pub mod setup;
pub mod signals;
pub mod sink;
mod uvm;
mod wire;

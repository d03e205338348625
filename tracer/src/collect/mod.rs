//! Ring buffer to trace records.

pub mod ioctl;
mod rm;
mod uvm;

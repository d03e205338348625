//! Finding libraries and symbols, following processes, placing probes.

pub mod kernel;

//! Finding libraries and symbols, following processes, placing probes.

pub mod elf;
mod files;
pub mod find;
pub mod plan;

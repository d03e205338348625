//! The trace file: zstd-compressed JSON lines, a [`record::Record`] a line.

mod error;
mod inflate;
mod lines;
mod quick;
pub mod reader;
pub mod record;
pub mod writer;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use reader::Reader;
pub use writer::Writer;

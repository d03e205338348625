//! The trace file: zstd-compressed JSON lines.

pub mod record;

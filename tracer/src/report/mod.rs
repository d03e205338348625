//! Reports: a renderer a file, all over what [`summary`] or [`folded`] computed.

mod apart;
pub mod bytes;
pub mod cells;
pub mod clock;
pub mod diff;
mod ends;
pub mod errors;
pub mod explain;
pub mod export;
pub mod failures;
pub mod flamegraph;
pub mod folded;
pub(crate) mod frames;
pub mod holdings;
pub mod html;
pub mod json;
pub mod paused;
pub mod physical;
pub mod printed;
pub mod query;
pub mod summary;
pub mod tables;
pub mod text;
pub mod torch;
pub mod trust;

#[cfg(test)]
pub(crate) mod testbook;

pub use query::{At, Query};
pub use summary::Summary;

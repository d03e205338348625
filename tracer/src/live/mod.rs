//! The ledger while tracing goes on: for `vramtrace top`, and for Prometheus.
//!
//! The session keeps a [`Ledger`](crate::ledger::Ledger) beside its file, or in place of one. About once a second a copy of it
//! goes to a thread of its own ([`Feed`]), which closes the copy's books as a report's are closed, and so attributes by the
//! same rules, and sums up what is live: a [`Snapshot`]. The collector itself only makes the copy. While a snapshot is in the
//! making no further copy is made, so that at most one waits.

mod feed;
pub mod http;
pub mod metrics;
mod snapshot;

pub use feed::{Feed, Status};
pub use snapshot::{Cell, Gpu, Part, Row, Snapshot, State};

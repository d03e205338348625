//! Bytes: who owns which, live at any time.
//!
//! A [`Book`] is computed from a trace's records. Its one table, [`Book::allocations`], has a row for each stretch of
//! time in which a process owned a piece of physical memory on a GPU; every figure of every report is a sum over it.

pub mod model;

pub use model::{Allocation, Book, Death, Failure, GpuRef, Kind, Owner, ProcessInfo, Sample};

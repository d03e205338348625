//! vramtrace: where every byte of GPU memory went in an unmodified CUDA process.
//!
//! Data flows one way: kernel → [`collect`] → [`trace`] file → [`ledger`] → [`lifecycle`] → [`report`]; or, while tracing
//! goes on, past the file from [`collect`] to a ledger of its own, which [`live`] shows.
//! Nothing from [`trace`] on needs root, a GPU or the traced machine.

pub mod attach;
pub mod collect;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod ledger;
pub mod lifecycle;
pub mod live;
mod map;
mod parallel;
pub mod probe;
pub mod report;
pub mod stack;
mod text;
pub mod trace;

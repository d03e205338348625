//! The simulated CUDA stack and what the live tests share.

pub mod rawlog;

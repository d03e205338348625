//! Why: what figures of a trace mean together. The KV budget recomputes how the server sized its KV cache.

pub(in crate::report) mod figure;
pub mod kv_budget;
pub(in crate::report) mod lines;
mod readings;
mod server;
mod sglang;
pub mod verdict;
mod vllm;

pub use figure::{Figure, Found};
pub use kv_budget::KvBudget;
pub use verdict::Verdict;

#[cfg(test)]
mod tests;

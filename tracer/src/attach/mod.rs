//! Finding libraries and symbols, following processes, placing probes; and what the host allows of it.

pub mod check;
pub mod host;
pub mod image;
pub mod kernel;
mod secret;
pub mod spawn;
pub mod user;

//! Finding libraries and symbols, following processes, placing probes; and what the host allows of it.

pub mod arch;
pub mod check;
pub mod elf;
pub(crate) mod files;
pub mod find;
pub mod follow;
pub mod guard;
pub mod host;
pub mod image;
pub mod kernel;
pub mod place;
pub mod plan;
pub(crate) mod secret;
mod signals;
pub mod spawn;
pub mod user;

//! Starting processes, following them, and placing probes in them.

pub mod image;
mod secret;
pub mod spawn;
pub mod user;

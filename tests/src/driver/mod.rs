//! The simulated NVIDIA kernel driver: device files in a FUSE mount, RM ioctls with the real layouts, one memory for all
//! processes, and a truth log.
//!
//! | module | concern |
//! |---|---|
//! | [`abi`] | numbers and offsets of the real interface |
//! | [`ioctl`] | from ioctl bytes to the resource manager and back |
//! | [`rm`] | clients and objects |
//! | [`sharing`] | duplicates, objects behind file descriptors |
//! | `freeing` | how objects go |
//! | [`memory`] | who pays for a piece of memory, and who inherits it |
//! | [`fault`] | failures, delays and kills on request |
//! | [`private`] | what the simulated libraries ask beyond the real interface |
//! | [`caller`] | memory and files of the requesting process |
//! | [`serve`] | one ioctl, from the mount to the reply |
//! | [`fs`] | the mount |

pub mod abi;
pub mod caller;
pub mod fault;
mod freeing;
pub mod fs;
pub mod ioctl;
pub mod memory;
pub mod private;
pub mod rm;
pub mod serve;
pub mod sharing;

#[cfg(test)]
mod properties;

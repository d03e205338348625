//! The simulated CUDA stack and what the live tests share.

pub mod browser;
pub mod disk;
pub mod driver;
pub mod faults;
pub mod live;
pub mod paused;
pub mod pythons;
pub mod rawlog;
pub mod recorded;
pub mod servers;
pub mod shims;
pub mod sim;
pub mod sim_server;
pub mod synthetic;
pub mod truth;

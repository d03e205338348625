//! The simulated CUDA stack and what the live tests share.

<<<<<<< HEAD
pub mod rawlog;
=======
pub mod driver;
pub mod shims;
pub mod sim;
pub mod truth;
>>>>>>> sim

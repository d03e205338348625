//! Who may be traced at the same time. A tracer that watches for whatever uses CUDA holds the servers of other tests too, and
//! lets them go on while their own tracer still places its probes.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static ALONE: RwLock<()> = RwLock::new(());

/// For a test whose tracers look at processes that they know.
pub fn in_company() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test whose tracer watches all.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    ALONE.write().unwrap_or_else(PoisonError::into_inner)
}

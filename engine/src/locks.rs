//! Locks, condition variables and atomics of the protocols between threads.
//!
//! They are those of [`std::sync`]. With the feature `shuttle` they are shuttle's, whose scheduler
//! decides at each operation which thread continues; a database then only works inside
//! `shuttle::check_*` (`tests/shuttle.rs`). Storages and plain counters keep those of the standard
//! library: no thread waits for another there.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};

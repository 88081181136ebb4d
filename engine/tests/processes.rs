//! Tests that start processes, in one program.

#[cfg(unix)]
mod evicted;
mod lock;
mod process_kill;
mod read_only;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serializes the tests. Between fork and exec, a new child holds copies of this process's open
/// files, and with them its locks.
fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

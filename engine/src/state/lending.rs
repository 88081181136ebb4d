//! Lending the merge to a thread of its own, so that commits go on beside it.
//!
//! The thread takes the [`Merging`](super::Merging) out of the writer, and goes on with it without the writer's lock: it writes to free extents, which it
//! shares with the writer ([`FreeSpace`](crate::pages::FreeSpace)), and reads trees and memtables that do not change. Only a checkpoint
//! makes merged nodes part of the database, and it holds the writer's lock. A thread that holds the lock and needs the merge recalls it, and waits until
//! the slice in progress ends.

use super::Merging;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;
use std::time::Duration;

/// What came back from the thread.
pub(super) enum Returned {
    Merging(Box<Merging>),
    /// A slice failed; what was merged since the last checkpoint has to be undone.
    Failed(Box<Merging>),
    /// The thread panicked.
    Lost,
}

#[derive(Default)]
struct State {
    returned: Option<Returned>,
    /// Something was frozen since the thread last looked.
    has_work: bool,
}

/// Between the writer and the thread that merges. Its lock is taken with or without the writer's, and no other while it is held.
#[derive(Default)]
pub(crate) struct Lending {
    state: Mutex<State>,
    changed: Condvar,
    /// The writer waits for the merge.
    is_wanted: AtomicBool,
    /// Thousandths of the entries that are merged.
    part: AtomicUsize,
    /// Threads that merge.
    mergers: AtomicUsize,
}

impl Lending {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that merges came or went.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn count_merger(&self, is_there: bool) {
        if is_there {
            self.mergers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.mergers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn has_merger(&self) -> bool {
        self.mergers.load(Ordering::Relaxed) > 0
    }

    /// Wakes the thread.
    pub(crate) fn announce(&self) {
        self.lock().has_work = true;
        self.changed.notify_all();
    }

    /// Waits until there may be something to merge; not longer than `timeout`.
    pub(crate) fn await_work(&self, timeout: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |state| !state.has_work);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.has_work = false;
    }

    pub(super) fn begin(&self, part: usize) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn part(&self) -> usize {
        self.part.load(Ordering::Relaxed)
    }

    pub(super) fn set_part(&self, part: usize) {
        self.part.store(part, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, returned: Returned) {
        self.lock().returned = Some(returned);
        self.changed.notify_all();
    }

    /// Whether the thread has given the merge back by itself.
    pub(super) fn has_returned(&self) -> bool {
        self.lock().returned.is_some()
    }

    /// What the thread gives back, once it does.
    pub(super) fn recall(&self) -> Returned {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        loop {
            if let Some(returned) = state.returned.take() {
                return returned;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The merge while a thread has it. Dropping it gives it back.
pub(super) struct Loan<'s> {
    lending: &'s Lending,
    merging: Option<Box<Merging>>,
    pub has_failed: bool,
}

impl<'s> Loan<'s> {
    pub(super) fn new(lending: &'s Lending, merging: Merging) -> Self {
        Self {
            lending,
            merging: Some(Box::new(merging)),
            has_failed: false,
        }
    }

    /// The merge; out of the loan, so that a panic loses it instead of giving it back half-changed.
    pub(super) fn slice<T>(&mut self, work: impl FnOnce(&mut Merging) -> T) -> Option<T> {
        let mut merging = self.merging.take()?;
        let result = work(&mut merging);
        self.merging = Some(merging);
        Some(result)
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.lending.give_back(match self.merging.take() {
            None => Returned::Lost,
            Some(merging) if self.has_failed => Returned::Failed(merging),
            Some(merging) => Returned::Merging(merging),
        });
    }
}

//! Lends the merge to a separate thread, so that commits continue meanwhile.
//!
//! The thread takes the [`Merging`](super::Merging) out of the writer and advances it without the
//! writer lock. It writes to free extents, which it shares with the writer
//! ([`FreeSpace`](crate::pages::FreeSpace)), and reads trees and memtables that do not change. Only
//! a checkpoint makes merged nodes part of the database, and it holds the writer lock. A thread
//! that holds the lock and needs the merge recalls it, and waits until the slice in progress ends.

use super::Merging;
use crate::locks::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::locks::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;
use std::time::Duration;

/// The merge as the thread returned it.
pub(super) enum Returned {
    Merging(Box<Merging>),
    /// A slice failed; the merge must be reset to the last checkpoint.
    Failed(Box<Merging>),
    /// The thread panicked.
    Lost,
}

#[derive(Default)]
struct State {
    returned: Option<Returned>,
    /// Something was frozen since the thread last checked.
    has_work: bool,
}

/// Shared by the writer and the merging thread. Its lock is taken with or without the writer lock;
/// no other lock is taken while it is held.
#[derive(Default)]
pub(crate) struct MergeThread {
    state: Mutex<State>,
    changed: Condvar,
    /// The writer waits for the merge.
    is_wanted: AtomicBool,
    /// Merged entries, in thousandths.
    part: AtomicUsize,
    /// The thread makes a checkpoint of the merge.
    is_sealing: AtomicBool,
    /// Number of merging threads.
    mergers: AtomicUsize,
}

impl MergeThread {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when a merging thread starts or ends.
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

    /// Wakes the merging thread.
    pub(crate) fn announce(&self) {
        self.lock().has_work = true;
        self.changed.notify_all();
    }

    /// Waits until there may be something to merge, at most for `timeout`.
    pub(crate) fn await_work(&self, timeout: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |state| !state.has_work);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.has_work = false;
    }

    pub(super) fn begin(&self, part: usize, is_sealing: bool) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
        self.is_sealing.store(is_sealing, Ordering::Relaxed);
    }

    /// Whether the thread makes a checkpoint, during which the merge makes no progress.
    pub(super) fn is_sealing(&self) -> bool {
        self.is_sealing.load(Ordering::Relaxed)
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

    /// Whether the thread has returned the merge unasked.
    pub(super) fn has_returned(&self) -> bool {
        self.lock().returned.is_some()
    }

    /// Recalls the merge and waits until the thread returns it.
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

/// The merge while a thread has it. Dropping the borrowed returns it.
pub(super) struct BorrowedMerge<'s> {
    merge_thread: &'s MergeThread,
    merging: Option<Box<Merging>>,
    pub has_failed: bool,
}

impl<'s> BorrowedMerge<'s> {
    pub(super) fn new(merge_thread: &'s MergeThread, merging: Merging) -> Self {
        Self {
            merge_thread,
            merging: Some(Box::new(merging)),
            has_failed: false,
        }
    }

    /// Runs `work` on the merge. Meanwhile the merge is out of the borrowed, so that a panic loses it
    /// instead of returning it half-changed.
    pub(super) fn slice<T>(&mut self, work: impl FnOnce(&mut Merging) -> T) -> Option<T> {
        let mut merging = self.merging.take()?;
        let result = work(&mut merging);
        self.merging = Some(merging);
        Some(result)
    }
}

impl Drop for BorrowedMerge<'_> {
    fn drop(&mut self) {
        self.merge_thread.give_back(match self.merging.take() {
            None => Returned::Lost,
            Some(merging) if self.has_failed => Returned::Failed(merging),
            Some(merging) => Returned::Merging(merging),
        });
    }
}

//! Gaps: ranges of keys in which a cursor found no visible record, only removed and expired ones,
//! which it passed one by one. The next cursor passes each gap with a seek.
//!
//! Each state of a collection has its own gaps, which cursors over that state find. The next state
//! begins with a copy, in which each record that is stored divides the gap around it. So a gap never
//! hides a record. Gaps are not stored.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::locks::{Mutex, MutexGuard};
use crate::range::Direction;

/// Number of gaps that are kept.
const MAX_GAPS: usize = 8;

/// The keys between two keys, both excluded.
#[derive(Clone)]
struct Gap {
    above: Vec<u8>,
    below: Vec<u8>,
    /// When the last record in it expired; 0 if all were removed.
    expired_at: u64,
}

impl Gap {
    fn contains(&self, key: &[u8]) -> bool {
        *self.above < *key && *key < *self.below
    }
}

/// The known gaps of one state of a collection. They do not overlap.
#[derive(Default)]
pub(crate) struct Gaps {
    gaps: Mutex<Vec<Gap>>,
    /// Number of gaps, so that threads do not contend for the lock where there are none.
    count: AtomicUsize,
}

impl Gaps {
    fn lock(&self) -> MutexGuard<'_, Vec<Gap>> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end, in a direction, of a gap around a key in which all had expired by `now`, and when the
    /// last of them did.
    pub(super) fn end(&self, key: &[u8], direction: Direction, now: u64) -> Option<(Vec<u8>, u64)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let gaps = self.lock();
        let gap = gaps.iter().find(|gap| gap.expired_at <= now && gap.contains(key))?;
        let end = match direction {
            Direction::Forward => &gap.below,
            Direction::Reverse => &gap.above,
        };
        Some((end.clone(), gap.expired_at))
    }

    /// Adds the gap between two keys, whichever is the lower, and those that overlap it to it.
    pub(super) fn add(&self, one: Vec<u8>, other: Vec<u8>, mut expired_at: u64) {
        let (mut above, mut below) = if one < other { (one, other) } else { (other, one) };
        let mut gaps = self.lock();
        while let Some(index) = gaps.iter().position(|gap| gap.above < below && above < gap.below) {
            let gap = gaps.swap_remove(index);
            above = above.min(gap.above);
            below = below.max(gap.below);
            expired_at = expired_at.max(gap.expired_at);
        }
        if gaps.len() == MAX_GAPS {
            gaps.pop();
        }
        gaps.push(Gap {
            above,
            below,
            expired_at,
        });
        self.count.store(gaps.len(), Ordering::Relaxed);
    }

    /// Divides the gap around a key, whose record is stored.
    pub(crate) fn cut(&mut self, key: &[u8]) {
        let gaps = self.gaps.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_full = gaps.len() == MAX_GAPS;
        let Some(gap) = gaps.iter_mut().find(|gap| gap.contains(key)) else {
            return;
        };
        let below = std::mem::replace(&mut gap.below, key.to_vec());
        let behind = Gap {
            above: key.to_vec(),
            below,
            expired_at: gap.expired_at,
        };
        if !is_full {
            gaps.push(behind);
        }
        *self.count.get_mut() = gaps.len();
    }
}

impl Clone for Gaps {
    fn clone(&self) -> Self {
        let gaps = self.lock().clone();
        Self {
            count: AtomicUsize::new(gaps.len()),
            gaps: Mutex::new(gaps),
        }
    }
}

impl fmt::Debug for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gaps").finish_non_exhaustive()
    }
}

//! A cursor that records what it has read.

use std::ops::Bound;
use std::sync::Arc;

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::Direction;

use super::MemoryTransaction;
use crate::MemoryCursor;
use crate::state::Record;

/// Iterates over a range as the transaction sees it.
pub struct MemoryTransactionCursor<'t, I: OrderedIndex<Record> = BTree<Record>> {
    pub(super) transaction: &'t MemoryTransaction<I>,
    pub(super) inner: MemoryCursor<'t, I>,
    pub(super) direction: Direction,
    /// Where its range was recorded as read: the collection's name in the snapshot, and the index
    /// among the ranges.
    pub(super) noted: Option<(Arc<str>, usize)>,
    pub(super) is_done: bool,
}

impl<'t, I: OrderedIndex<Record>> MemoryTransactionCursor<'t, I> {
    /// Advances to the next record; `false` at the end of the range.
    pub fn advance(&mut self) -> bool {
        let advanced = self.inner.advance();
        self.is_done |= !advanced;
        advanced
    }

    /// Key of the current record; after the end, of the last one.
    #[must_use]
    pub fn key(&self) -> &'t [u8] {
        self.inner.key()
    }

    /// Value of the current record; empty if there is none.
    #[must_use]
    pub fn value(&self) -> &'t [u8] {
        self.inner.value()
    }
}

/// Limits the recorded range to what was read, if the cursor did not reach the end.
impl<I: OrderedIndex<Record>> Drop for MemoryTransactionCursor<'_, I> {
    fn drop(&mut self) {
        let Some((name, at)) = self.noted.take().filter(|_| !self.is_done) else {
            return;
        };
        let mut reads = self.transaction.reads();
        let Some(range) = reads
            .footprints
            .get_mut(&name)
            .and_then(|footprint| footprint.ranges.get_mut(at))
        else {
            return;
        };
        if !self.inner.has_advanced() {
            // Replaced by an empty range, because the other ranges are identified by index.
            *range = (Bound::Unbounded, Bound::Excluded(Vec::new()));
            return;
        }
        let here = Bound::Included(self.inner.key().to_vec());
        match self.direction {
            Direction::Forward => range.1 = here,
            Direction::Reverse => range.0 = here,
        }
    }
}

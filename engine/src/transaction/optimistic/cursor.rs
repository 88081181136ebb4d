//! Ranges in an optimistic transaction: the snapshot's records merged with the transaction's own
//! writes.

use std::ops::Bound;

use super::overlay::{Overlay, visible};
use super::{OptimisticTransaction, OwnedRange};

use crate::error::Result;
use crate::memtable::MAX_PASSED;
use crate::range::{Direction, KeyRange};
use crate::snapshot::{Cursor, CursorRecords, SnapshotCollection, Steps};

/// Where the current record comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nowhere,
    Base,
    Own,
}

/// A cursor over a range as the transaction sees it. A loop over it gets copies of keys and values, up to
/// the first error.
pub struct TransactionCursor<'t> {
    transaction: &'t OptimisticTransaction,
    scan: TransactionScan,
}

impl IntoIterator for TransactionCursor<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;
    type IntoIter = CursorRecords<Self>;

    fn into_iter(self) -> Self::IntoIter {
        CursorRecords::new(self)
    }
}

impl Steps for TransactionCursor<'_> {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(Some((self.key().to_vec(), self.value()?)))
    }
}

impl<'t> TransactionCursor<'t> {
    pub(super) fn new(transaction: &'t OptimisticTransaction, scan: TransactionScan) -> Self {
        Self { transaction, scan }
    }

    /// Key of the current record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// Value of the current record; empty if there is none.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        self.scan.value()
    }

    /// Moves to the next record; `false` at the end of the range.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn advance(&mut self) -> Result<bool> {
        self.scan.advance(self.transaction)
    }
}

/// As [`TransactionCursor`], but separate from its transaction, which may continue meanwhile. It
/// sees what the transaction wrote before it was created.
pub struct TransactionScan {
    tree: Option<SnapshotCollection>,
    overlay: Option<Overlay>,
    range: OwnedRange,
    direction: Direction,
    /// Time of the transaction's snapshot.
    now: u64,
    base: Option<Cursor>,
    /// The base's cursor is on a record that was not returned yet.
    base_is_ahead: bool,
    /// Key of the current record, or target of a seek.
    key: Vec<u8>,
    source: Source,
    /// The search for the next own write starts at `key`, inclusive.
    is_sought: bool,
    is_done: bool,
}

impl TransactionScan {
    pub(super) fn new(
        transaction: &OptimisticTransaction,
        collection: &str,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Self {
        let (overlay, tree) = transaction.view(collection);
        Self::over(transaction, overlay.cloned(), tree, range, direction)
    }

    /// A scan over a tree and what the transaction has written to it.
    pub(super) fn over(
        transaction: &OptimisticTransaction,
        overlay: Option<Overlay>,
        tree: Option<SnapshotCollection>,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Self {
        Self {
            base: tree.as_ref().map(|tree| tree.cursor(*range, direction)),
            overlay,
            tree,
            range: OwnedRange::new(range),
            direction,
            now: transaction.snapshot.now(),
            base_is_ahead: false,
            key: Vec::new(),
            source: Source::Nowhere,
            is_sought: false,
            is_done: false,
        }
    }

    /// Key of the current record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the current record; empty if there is none.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        match (self.source, &self.base) {
            (Source::Base, Some(cursor)) => cursor.value(),
            _ => Ok(self.own().map_or_else(Vec::new, |(value, _)| value.to_vec())),
        }
    }

    /// Version of the commit that wrote the current record; 0 if this transaction wrote it, or if
    /// there is none.
    #[must_use]
    pub fn version(&self) -> u64 {
        match (self.source, &self.base) {
            (Source::Base, Some(cursor)) => cursor.version(),
            _ => 0,
        }
    }

    /// When the current record expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        match (self.source, &self.base) {
            (Source::Base, Some(cursor)) => cursor.expires_at(),
            _ => self.own()?.1,
        }
    }

    /// The current record, if the transaction wrote it.
    fn own(&self) -> Option<(&[u8], Option<u64>)> {
        if self.source != Source::Own {
            return None;
        }
        visible(self.overlay.as_ref()?.writes.get(&self.key)?, self.now)
    }

    /// Moves to the next record; `false` at the end of the range. Records that it passes count as read by
    /// `transaction`, which must be the one that created it.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn advance(&mut self, transaction: &OptimisticTransaction) -> Result<bool> {
        if self.is_done {
            return Ok(false);
        }
        let advanced = self.step()?;
        self.note(transaction, advanced);
        self.is_done = !advanced;
        Ok(advanced)
    }

    /// Makes the first record at or past `key`, in the scan's direction and within its range, the
    /// next one. Seeking backwards is possible.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.key = key.to_vec();
        self.is_sought = true;
        self.is_done = false;
        self.base_is_ahead = false;
        self.source = Source::Nowhere;
        self.base = match &self.tree {
            Some(tree) => {
                let mut cursor = tree.cursor(self.range.borrow(), self.direction);
                cursor.seek(&self.key)?;
                Some(cursor)
            }
            None => None,
        };
        Ok(())
    }

    /// Records as read the part of the range up to the current record, or all of it at the end.
    fn note(&self, transaction: &OptimisticTransaction, advanced: bool) {
        let Some(tree) = &self.tree else { return };
        let whole = self.range.borrow();
        let here = Bound::Included(self.key.as_slice());
        // Once the base is at its end, all of it was read.
        let range = match (advanced && self.base.is_some(), self.direction) {
            (false, _) => whole,
            (true, Direction::Forward) => KeyRange { upper: here, ..whole },
            (true, Direction::Reverse) => KeyRange { lower: here, ..whole },
        };
        transaction.note(tree, |footprint| footprint.extend_range(&range, self.direction));
    }

    fn step(&mut self) -> Result<bool> {
        let mut removed = 0;
        loop {
            if !self.base_is_ahead
                && let Some(cursor) = &mut self.base
            {
                self.base_is_ahead = cursor.advance()?;
                if !self.base_is_ahead {
                    self.base = None;
                }
            }
            let base_key = self.base.as_ref().filter(|_| self.base_is_ahead).map(Cursor::key);
            let own = self.overlay.as_ref().and_then(|overlay| {
                let start = match self.source {
                    Source::Nowhere => own_start(&self.range, self.is_sought.then_some(&self.key), self.direction),
                    Source::Base | Source::Own => Bound::Excluded(self.key.as_slice()),
                };
                let write = overlay.writes.seek(start, self.direction)?;
                self.range.contains(write.key).then_some(write)
            });
            let own_first = match (own, base_key) {
                (None, None) => return Ok(false),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(own), Some(base)) => match self.direction {
                    Direction::Forward => own.key <= base,
                    Direction::Reverse => own.key >= base,
                },
            };
            if own_first && let Some(written) = own {
                if base_key == Some(written.key) {
                    self.base_is_ahead = false;
                }
                let is_there = visible(written, self.now).is_some();
                let key = written.key.to_vec();
                self.key = key;
                self.source = Source::Own;
                if is_there {
                    return Ok(true);
                }
                removed += 1;
                if removed % MAX_PASSED == 0 {
                    self.pass_removed()?;
                }
                continue;
            }
            let Some(key) = base_key else { return Ok(false) };
            key.clone_into(&mut self.key);
            self.source = Source::Base;
            self.base_is_ahead = false;
            let Some(cleared) = self.overlay.as_ref().and_then(|overlay| overlay.cleared(&self.key)) else {
                return Ok(true);
            };
            match cleared.end(self.direction) {
                // A range that ends here is behind the cursor.
                Bound::Included(end) | Bound::Excluded(end) if *end != self.key => {
                    if let Some(cursor) = &mut self.base {
                        cursor.seek(end)?;
                    }
                }
                Bound::Unbounded => self.base = None,
                _ => {}
            }
        }
    }

    /// Moves over a run of removed records to just before the last one of which it is certain that
    /// only removed ones precede it.
    #[cold]
    fn pass_removed(&mut self) -> Result<()> {
        let Some(overlay) = &self.overlay else { return Ok(()) };
        // A shortcut: where it cannot read a page, the steps go on.
        let Ok(Some(end)) = overlay.end_of_removed(&self.key, self.direction) else {
            return Ok(());
        };
        if let Some(cursor) = &mut self.base {
            cursor.seek(&end)?;
        }
        self.base_is_ahead = false;
        self.key = end;
        self.source = Source::Nowhere;
        self.is_sought = true;
        Ok(())
    }
}

/// Where the search for the first own write starts: at the start of the range, or at a seek's
/// target inside it.
fn own_start<'a>(range: &'a OwnedRange, sought: Option<&'a Vec<u8>>, direction: Direction) -> Bound<&'a [u8]> {
    let range = range.borrow();
    let start = match direction {
        Direction::Forward => range.lower,
        Direction::Reverse => range.upper,
    };
    let Some(key) = sought.map(Vec::as_slice) else {
        return start;
    };
    let is_inside = match (start, direction) {
        (Bound::Unbounded, _) => true,
        (Bound::Included(bound) | Bound::Excluded(bound), Direction::Forward) => key > bound,
        (Bound::Included(bound) | Bound::Excluded(bound), Direction::Reverse) => key < bound,
    };
    if is_inside { Bound::Included(key) } else { start }
}

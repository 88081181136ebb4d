//! Iterating over the records of a snapshot.

use super::SnapshotCollection;
use super::cursor_records::{CursorRecords, Steps};

use crate::error::{Error, Result};
use crate::memtable::LayeredCursor;
use crate::tree::value;

/// Iterates over the records in a range of a snapshot.
///
/// A cursor lends the current record, and does not allocate within a leaf. A loop over it gets copies
/// of keys and values instead, up to the first error.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Direction, Durability, KeyRange, Options, Result, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// database.set("cities", b"Quito", b"2.0 M", Durability::Relaxed)?;
/// let cities = database.snapshot().collection("cities").expect("it was just written");
/// for record in cities.cursor(KeyRange::new("A".."R"), Direction::Forward) {
///     let (city, inhabitants) = record?;
///     assert_eq!((&city[..], &inhabitants[..]), (&b"Quito"[..], &b"2.0 M"[..]));
/// }
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct Cursor {
    pub(super) inner: LayeredCursor,
    pub(super) tree: SnapshotCollection,
    /// The cursor need not check for expired records.
    pub(super) is_plain: bool,
}

impl IntoIterator for Cursor {
    type Item = Result<(Vec<u8>, Vec<u8>)>;
    type IntoIter = CursorRecords<Self>;

    fn into_iter(self) -> Self::IntoIter {
        CursorRecords::new(self)
    }
}

impl Steps for Cursor {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(Some((self.key().to_vec(), self.value()?)))
    }
}

impl Cursor {
    /// Advances to the next record; `false` at the end of the range. Does not allocate within a
    /// leaf.
    ///
    /// # Errors
    /// Storage errors and corruption; the cursor may be advanced again.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        if self.is_plain && self.inner.step_inside() {
            return Ok(true);
        }
        self.advance_further()
    }

    fn advance_further(&mut self) -> Result<bool> {
        let advanced = self.inner.advance(&self.tree.records());
        self.tree.named(advanced)
    }

    /// Key of the current record; after the end, of the last one.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// Value of the current record.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] before the first record and after the last one; storage errors
    /// and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.value_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the value of the current record to `into`.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub fn value_into(&self, into: &mut Vec<u8>) -> Result<()> {
        if let Some(value) = self.value_ref() {
            into.extend_from_slice(value);
            return Ok(());
        }
        self.read_value(into)
    }

    #[cold]
    fn read_value(&self, into: &mut Vec<u8>) -> Result<()> {
        let record = self.inner.record().ok_or_else(|| Error::InvalidArgument {
            what: "the cursor is not on a record; advance it first".into(),
        })?;
        let blocks = &self.tree.pager().blocks;
        self.tree.named(value::read(blocks, self.tree.id(), &record, into))
    }

    /// Value of the current record without a copy, if it is stored in the leaf, as small values
    /// are. `None` if [`value_into`](Self::value_into) must read it, or if there is no current
    /// record.
    #[inline]
    #[must_use]
    pub fn value_ref(&self) -> Option<&[u8]> {
        self.inner.inline_value()
    }

    /// Passes the current record's value to `each` in parts, none longer than a value chunk. Errors
    /// do not name the collection.
    pub(crate) fn value_parts<E: From<Error>>(
        &self,
        each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.inner.record() {
            Some(record) => value::read_parts(&self.tree.pager().blocks, self.tree.id(), &record, each),
            None => Ok(()),
        }
    }

    /// Length of the current record's value in bytes, without reading it; 0 if there is no current
    /// record.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.inner.record().map_or(0, |record| record.value_len)
    }

    /// Version of the commit that wrote the current record; 0 if there is no current record.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.record().map_or(0, |record| record.version)
    }

    /// When the current record expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        let record = self.inner.record()?;
        (record.expires != 0).then_some(record.expires)
    }

    /// Skips the next `count` records: O(log n), or O(count) while expired records await purging.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn skip(&mut self, count: u64) -> Result<()> {
        if !self.tree.expired()?.is_empty() {
            for _ in 0..count {
                if !self.advance()? {
                    break;
                }
            }
            return Ok(());
        }
        let skipped = self.inner.skip(&self.tree.records(), count);
        self.tree.named(skipped)
    }

    /// Moves to just before the first record at or past `key` in the cursor's direction, within its
    /// range. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let found = self.inner.seek(self.tree.pager(), key);
        self.tree.named(found)
    }
}

//! Reading a collection through one of its indexes.

use super::{Cursor, CursorRecords, Snapshot, SnapshotCollection, Steps};

use crate::error::{Error, Result};
use crate::range::{Direction, KeyRange};
use crate::state::index::{EntryRange, index_of, seek_key, split_entry_key};
use crate::state::{Entry, Index, IndexProgress};

/// An index of a collection in a snapshot. Cheap to clone.
///
/// It orders the collection's records by index key, and those with the same index key by their own
/// keys. A record with several index keys appears several times.
#[derive(Clone)]
pub struct SnapshotIndex {
    entries: SnapshotCollection,
    records: SnapshotCollection,
    index: Index,
}

/// An index of a collection, and its size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexInfo {
    /// The collection's name.
    pub collection: String,
    /// Definition and progress.
    pub index: Index,
    /// Number of its entries: one for each index key of each record.
    pub count: u64,
    /// Number of the collection's records up to the place that a build has reached; all of them
    /// once the index is complete.
    pub covered: u64,
    /// Number of the collection's records.
    pub records: u64,
}

impl Snapshot {
    /// Indexes of all collections, those that are being built included, by name of the collection
    /// and id of the index. O(log n) for each.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn index_infos(&self) -> Result<Vec<IndexInfo>> {
        let mut infos = Vec::new();
        for collection in self.collections() {
            let Some(records) = self.collection(&collection.name) else {
                continue;
            };
            for index in records.indexes().into_iter().flat_map(|indexes| indexes.iter()) {
                infos.push(IndexInfo {
                    collection: collection.name.clone(),
                    index: index.clone(),
                    count: self.tree(&index_of(index.id)).map_or(0, |entries| entries.len()),
                    covered: match &index.progress {
                        IndexProgress::Complete => records.len(),
                        IndexProgress::Building(None) => 0,
                        // The record itself is covered, if it still exists.
                        IndexProgress::Building(Some(key)) => records.rank(key)? + u64::from(records.contains(key)?),
                    },
                    records: records.len(),
                });
            }
        }
        Ok(infos)
    }

    /// Indexes of a collection, those that are being built included, ascending by id.
    #[must_use]
    pub fn indexes(&self, collection: &str) -> Vec<Index> {
        let tree = self.collection(collection);
        tree.as_ref()
            .and_then(SnapshotCollection::indexes)
            .map_or_else(Vec::new, |indexes| indexes.to_vec())
    }

    /// An index of a collection as of this version.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such collection or index, [`Error::IndexIncomplete`]
    /// while the index is being built.
    pub fn index(&self, collection: &str, name: &str) -> Result<SnapshotIndex> {
        let records = self.collection(collection);
        let indexes = records.as_ref().and_then(SnapshotCollection::indexes);
        let index = indexes.and_then(|indexes| indexes.iter().find(|index| index.definition.name == name));
        let (Some(records), Some(index)) = (&records, index) else {
            return Err(Error::NotFound {
                what: format!("the index \"{name}\" of collection \"{collection}\"").into(),
            });
        };
        let entries = self.tree(&index_of(index.id)).filter(|_| index.is_complete());
        Ok(SnapshotIndex {
            entries: entries.ok_or_else(|| Error::index_incomplete(collection, name))?,
            records: records.clone(),
            index: index.clone(),
        })
    }
}

fn malformed(entry: &[u8]) -> Error {
    Error::corrupt("an index holds a malformed key").covering(entry, Some(entry))
}

/// Splits a key in an index into the index key and the key of the record.
pub(crate) fn split(entry: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let (index_key, key) = split_entry_key(entry).ok_or_else(|| malformed(entry))?;
    Ok((index_key, key.to_vec()))
}

fn record(records: &SnapshotCollection, key: &[u8]) -> Result<Entry> {
    let lost = || Error::corrupt("an index refers to a record that does not exist").covering(key, Some(key));
    records.entry(key)?.ok_or_else(lost)
}

impl SnapshotIndex {
    /// Its definition.
    #[must_use]
    pub fn info(&self) -> &Index {
        &self.index
    }

    /// Number of its entries: one for each index key of each record.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.len()
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries in a range of index keys, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn count(&self, range: KeyRange<'_>) -> Result<u64> {
        self.entries.count(EntryRange::new(&range).borrow())
    }

    /// Number of entries with index keys below `index_key`, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn rank(&self, index_key: &[u8]) -> Result<u64> {
        self.entries.rank(&seek_key(index_key, false))
    }

    /// Positions of the entries in a range of index keys: of the first, and past the last.
    /// O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn positions(&self, range: KeyRange<'_>) -> Result<(u64, u64)> {
        self.entries.positions(&EntryRange::new(&range).borrow())
    }

    /// Index key and key of the record at position `position`, O(log n); `None` past the end.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn at(&self, position: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.entries.at(position)?.map(|(entry, _)| split(&entry)).transpose()
    }

    /// The record with this key, which the index refers to. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn record(&self, key: &[u8]) -> Result<Entry> {
        record(&self.records, key)
    }

    /// Returns a cursor positioned before the first entry of a range of index keys in the given
    /// direction.
    #[must_use]
    pub fn cursor(&self, range: KeyRange<'_>, direction: Direction) -> IndexCursor {
        IndexCursor {
            inner: self.entries.cursor(EntryRange::new(&range).borrow(), direction),
            records: self.records.clone(),
            is_reverse: direction == Direction::Reverse,
            index_key: Vec::new(),
            key: Vec::new(),
        }
    }
}

/// Iterates over the entries of an index. A loop over it gets keys and values of their records, up to
/// the first error.
pub struct IndexCursor {
    inner: Cursor,
    records: SnapshotCollection,
    is_reverse: bool,
    index_key: Vec<u8>,
    key: Vec<u8>,
}

impl IntoIterator for IndexCursor {
    type Item = Result<(Vec<u8>, Vec<u8>)>;
    type IntoIter = CursorRecords<Self>;

    fn into_iter(self) -> Self::IntoIter {
        CursorRecords::new(self)
    }
}

impl Steps for IndexCursor {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(Some((self.key.clone(), self.value()?)))
    }
}

impl IndexCursor {
    /// Advances to the next entry; `false` at the end of the range.
    ///
    /// # Errors
    /// Storage errors and corruption; the cursor may be advanced again.
    pub fn advance(&mut self) -> Result<bool> {
        let advanced = self.inner.advance()?;
        if advanced {
            (self.index_key, self.key) = split(self.inner.key())?;
        }
        Ok(advanced)
    }

    /// Index key of the current entry.
    #[must_use]
    pub fn index_key(&self) -> &[u8] {
        &self.index_key
    }

    /// Key of the current entry's record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Place of the current entry, for [`seek_to`](Self::seek_to) in the same version.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        self.inner.key()
    }

    /// Value of the current entry's record, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        Ok(self.entry()?.value)
    }

    /// As [`value`](Self::value), with version and expiry.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn entry(&self) -> Result<Entry> {
        record(&self.records, &self.key)
    }

    /// Skips the next `count` entries: O(log n), or O(count) while expired ones await purging.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn skip(&mut self, count: u64) -> Result<()> {
        self.inner.skip(count)
    }

    /// Moves to just before the first entry at or past `index_key` in the cursor's direction,
    /// within its range. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek(&mut self, index_key: &[u8]) -> Result<()> {
        self.inner.seek(&seek_key(index_key, self.is_reverse))
    }

    /// Moves to just before the entry at a [`place`](Self::place), or the next one in the cursor's
    /// direction and range. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek_to(&mut self, place: &[u8]) -> Result<()> {
        self.inner.seek(place)
    }
}

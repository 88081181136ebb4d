//! Read views: a snapshot of the whole database, and a collection within it.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{CollectionInfo, Direction, Entry, KeyRange};

use super::MemoryCursor;
use super::state::{Collection, Record, State};

/// A read view of one version of the database. Cheap to clone; the version is kept until the last
/// clone is dropped.
pub struct MemorySnapshot<I: OrderedIndex<Record> = BTree<Record>> {
    state: Arc<State<I>>,
    now: u64,
}

impl<I: OrderedIndex<Record>> Clone for MemorySnapshot<I> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            now: self.now,
        }
    }
}

impl<I: OrderedIndex<Record>> MemorySnapshot<I> {
    pub(super) fn new(state: Arc<State<I>>, now: u64) -> Self {
        Self { state, now }
    }

    pub(super) fn state(&self) -> &State<I> {
        &self.state
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Commit sequence number of the newest commit in the snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.version
    }

    /// A collection as of this version; `None` if there was none of that name.
    #[must_use]
    pub fn collection(&self, name: &str) -> Option<MemoryTree<I>> {
        let collection = self.state.collections.get(name)?;
        Some(MemoryTree::new(Arc::clone(collection), self.now))
    }

    /// All collections, ordered by name. Expired records count until they are purged.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        let collections = self.state.collections.iter();
        let info = collections.map(|(name, collection)| CollectionInfo {
            name: (**name).to_owned(),
            count: collection.records.len() as u64,
            key_codec: collection.key_codec.clone(),
            value_codec: collection.value_codec.clone(),
        });
        info.collect()
    }
}

/// One collection as of one moment. References it returns live as long as it does; a clone costs
/// O(1).
pub struct MemoryTree<I: OrderedIndex<Record> = BTree<Record>> {
    collection: Arc<Collection<I>>,
    now: u64,
    /// Positions of the expired records, computed on first use.
    expired: Arc<OnceLock<Vec<usize>>>,
}

impl<I: OrderedIndex<Record>> Clone for MemoryTree<I> {
    fn clone(&self) -> Self {
        Self {
            collection: Arc::clone(&self.collection),
            now: self.now,
            expired: Arc::clone(&self.expired),
        }
    }
}

impl<I: OrderedIndex<Record>> MemoryTree<I> {
    pub(super) fn new(collection: Arc<Collection<I>>, now: u64) -> Self {
        Self {
            collection,
            now,
            expired: Arc::default(),
        }
    }

    /// Positions of expired records not yet purged, ascending. Purging keeps them few.
    fn expired(&self) -> &[usize] {
        self.expired.get_or_init(|| self.collection.expired_positions(self.now))
    }

    /// Converts a position among all records to one among those that have not expired.
    fn visible_position(&self, position: usize) -> u64 {
        (position - self.expired().partition_point(|hidden| *hidden < position)) as u64
    }

    /// Number of records: O(1), plus O(log n) once for each expired record not yet purged. That
    /// also applies to the positions below.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.collection.records.len() - self.expired().len()) as u64
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key, O(log n).
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let record = self.collection.find(key, self.now)?;
        Some(&record.value)
    }

    /// Returns a record with its version and expiry, O(log n).
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.collection.find(key, self.now).map(Record::entry)
    }

    /// Whether a key exists, O(log n).
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.collection.find(key, self.now).is_some()
    }

    /// Number of records in a range, O(log n).
    #[must_use]
    pub fn count(&self, range: KeyRange<'_>) -> u64 {
        let (from, to) = self.positions(&range);
        to - from
    }

    /// Positions in key order of the first record in a range and the first one past it, O(log n).
    #[must_use]
    pub fn positions(&self, range: &KeyRange<'_>) -> (u64, u64) {
        let records = &self.collection.records;
        let from = match range.lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => records.rank(key),
            Bound::Excluded(key) => records.rank(key) + usize::from(records.get(key).is_some()),
        };
        let to = from + records.range(range.lower, range.upper, Direction::Forward).len();
        (self.visible_position(from), self.visible_position(to))
    }

    /// Number of records with keys below `key`, O(log n).
    #[must_use]
    pub fn rank(&self, key: &[u8]) -> u64 {
        self.visible_position(self.collection.records.rank(key))
    }

    /// Returns the key and value at position `index` in key order, O(log n); `None` past the end.
    #[must_use]
    pub fn at(&self, index: u64) -> Option<(&[u8], &[u8])> {
        let mut position = usize::try_from(index).ok()?;
        for hidden in self.expired() {
            if *hidden > position {
                break;
            }
            position += 1;
        }
        let (key, record) = self.collection.records.at(position)?;
        Some((key, &record.value))
    }

    /// Returns the lowest key and its value.
    #[must_use]
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        self.at(0)
    }

    /// Returns the highest key and its value.
    #[must_use]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.at(self.len().checked_sub(1)?)
    }

    /// Returns a cursor positioned before the first record of a range in the given direction.
    #[must_use]
    pub fn cursor(&self, range: KeyRange<'_>, direction: Direction) -> MemoryCursor<'_, I> {
        MemoryCursor::new(Some(&*self.collection), self.now, &range, direction)
    }
}

//! Read views: a snapshot of the whole database, a collection inside it.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{CollectionInfo, Direction, Entry, KeyRange};

use super::MemoryCursor;
use super::state::{Collection, Record, State};

/// A read view of one version of the database. Cheap to clone; what later commits replace is kept until the last clone is dropped.
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

    /// Commit sequence number of the newest commit it contains.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.version
    }

    /// A collection as it was; `None` if there was none of that name.
    #[must_use]
    pub fn collection(&self, name: &str) -> Option<MemoryTree<I>> {
        let collection = self.state.collections.get(name)?;
        Some(MemoryTree::new(Arc::clone(collection), self.now))
    }

    /// All collections in the order of their names. Expired records count until they are purged.
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

/// One collection as it was at one moment. What it lends lives as long as it does; a clone costs O(1).
pub struct MemoryTree<I: OrderedIndex<Record> = BTree<Record>> {
    collection: Arc<Collection<I>>,
    now: u64,
    /// Positions of the expired records, once something needed them.
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

    /// Positions of records that have expired but are still there, ascending. Purging keeps them few.
    fn expired(&self) -> &[usize] {
        self.expired.get_or_init(|| self.collection.expired_positions(self.now))
    }

    /// Position among the records that have not expired, of a position among all.
    fn visible_position(&self, position: usize) -> u64 {
        (position - self.expired().partition_point(|hidden| *hidden < position)) as u64
    }

    /// Number of records. O(1), and O(log n) once for each record that has expired and was not purged yet; so are the positions below.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.collection.records.len() - self.expired().len()) as u64
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value of a key, O(log n).
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let record = self.collection.find(key, self.now)?;
        Some(&record.value)
    }

    /// A record with its version and expiry, O(log n).
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.collection.find(key, self.now).map(Record::entry)
    }

    /// Whether a key is there, O(log n).
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

    /// Positions in key order of the first record of a range and of the first one after it, O(log n).
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

    /// Key and value at position `index` in key order, O(log n); `None` past the end.
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

    /// Key and value of the lowest key.
    #[must_use]
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        self.at(0)
    }

    /// Key and value of the highest key.
    #[must_use]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.at(self.len().checked_sub(1)?)
    }

    /// A cursor before the first record of a range in the given direction.
    #[must_use]
    pub fn cursor(&self, range: KeyRange<'_>, direction: Direction) -> MemoryCursor<'_, I> {
        MemoryCursor::new(Some(&*self.collection), self.now, &range, direction)
    }
}

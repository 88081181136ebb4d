//! One version of the database: collections of records with their expiry hints.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{Direction, Entry, KeyRange};

use crate::limits::hint;

/// An index entry: the value, shared between versions, with the commit that wrote it and its
/// expiry.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) value: Arc<[u8]>,
    /// 0 inside the optimistic transaction that wrote it.
    pub(super) version: u64,
    /// 0: never.
    pub(super) expires: u64,
}

impl Record {
    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    pub(super) fn entry(&self) -> Entry {
        Entry::new(self.value.to_vec(), self.version, self.expires_at())
    }

    pub(super) fn expires_at(&self) -> Option<u64> {
        (self.expires != 0).then_some(self.expires)
    }
}

/// One collection of one version.
#[derive(Clone)]
pub(super) struct Collection<I> {
    /// Never reused for another collection.
    pub id: u64,
    pub records: I,
    /// Expiry and key of each record that expires, the earliest first.
    hints: BTree<()>,
    pub key_codec: String,
    pub value_codec: String,
}

impl<I: OrderedIndex<Record>> Collection<I> {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            records: I::default(),
            hints: BTree::default(),
            key_codec: String::new(),
            value_codec: String::new(),
        }
    }

    pub(super) fn find(&self, key: &[u8], now: u64) -> Option<&Record> {
        self.records.get(key).filter(|record| !record.is_expired(now))
    }

    pub(super) fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        let expires = record.expires;
        let former = self.records.insert(key, record);
        self.forget_hint(key, former.as_ref());
        if expires != 0 {
            self.hints.insert(&hint(expires, key), ());
        }
        former
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Record> {
        let former = self.records.remove(key);
        self.forget_hint(key, former.as_ref());
        former
    }

    fn forget_hint(&mut self, key: &[u8], former: Option<&Record>) {
        if let Some(expires) = former.and_then(Record::expires_at) {
            self.hints.remove(&hint(expires, key));
        }
    }

    /// Removes all records of a range; returns how many there were, including expired ones.
    pub(super) fn clear(&mut self, range: &KeyRange<'_>) -> usize {
        if range.is_all() {
            self.hints.clear();
            let count = self.records.len();
            self.records.clear();
            return count;
        }
        let inside = self.records.range(range.lower, range.upper, Direction::Forward);
        let keys: Vec<Vec<u8>> = inside.map(|(key, _)| key.to_vec()).collect();
        for key in &keys {
            self.remove(key);
        }
        keys.len()
    }

    /// Keys of the records that have expired, the earliest first.
    pub(super) fn due(&self, now: u64) -> impl ExactSizeIterator<Item = &[u8]> {
        let end = now.saturating_add(1).to_be_bytes();
        let due = self
            .hints
            .range(Bound::Unbounded, Bound::Excluded(&end), Direction::Forward);
        due.map(|(hint, ())| &hint[8..])
    }

    /// Positions of the records that have expired, ascending.
    pub(super) fn expired_positions(&self, now: u64) -> Vec<usize> {
        let mut positions: Vec<usize> = self.due(now).map(|key| self.records.rank(key)).collect();
        positions.sort_unstable();
        positions
    }
}

pub(super) type Collections<I> = BTreeMap<Arc<str>, Arc<Collection<I>>>;

/// An immutable state of the whole database.
pub(super) struct State<I> {
    pub version: u64,
    pub collections: Collections<I>,
    pub next_id: u64,
}

impl<I> Default for State<I> {
    fn default() -> Self {
        Self {
            version: 0,
            collections: Collections::new(),
            next_id: 1,
        }
    }
}

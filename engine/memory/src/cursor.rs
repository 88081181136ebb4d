//! Iterating over a range.

use std::ops::Bound;

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{Direction, KeyRange};

use super::state::{Collection, Record};

/// Iterates over the records of a range. Keys and values are references into the index.
pub struct MemoryCursor<'t, I: OrderedIndex<Record> = BTree<Record>> {
    collection: Option<&'t Collection<I>>,
    now: u64,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    /// The entries ahead.
    ahead: Option<I::Range<'t>>,
    key: &'t [u8],
    has_advanced: bool,
    record: Option<&'t Record>,
}

impl<'t, I: OrderedIndex<Record>> MemoryCursor<'t, I> {
    pub(super) fn new(
        collection: Option<&'t Collection<I>>,
        now: u64,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Self {
        Self {
            collection,
            now,
            lower: range.lower.map(<[u8]>::to_vec),
            upper: range.upper.map(<[u8]>::to_vec),
            direction,
            ahead: collection.map(|collection| collection.records.range(range.lower, range.upper, direction)),
            key: &[],
            has_advanced: false,
            record: None,
        }
    }

    /// Advances to the next record; `false` at the end of the range. O(1) on average, without
    /// allocation.
    pub fn advance(&mut self) -> bool {
        let now = self.now;
        let next = self
            .ahead
            .as_mut()
            .and_then(|ahead| ahead.find(|(_, record)| !record.is_expired(now)));
        if let Some((key, _)) = next {
            self.key = key;
            self.has_advanced = true;
        }
        self.record = next.map(|(_, record)| record);
        next.is_some()
    }

    /// Whether the cursor has reached a record.
    pub(super) fn has_advanced(&self) -> bool {
        self.has_advanced
    }

    /// Key of the current record; after the end, of the last one.
    #[must_use]
    pub fn key(&self) -> &'t [u8] {
        self.key
    }

    /// Value of the current record; empty if there is none.
    #[must_use]
    pub fn value(&self) -> &'t [u8] {
        self.record.map_or(&[], |record| &record.value)
    }

    /// Version of the commit that wrote the current record; 0 if there is no current record.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.record.map_or(0, |record| record.version)
    }

    /// When the current record expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.record.and_then(Record::expires_at)
    }

    /// Skips the next `count` records: O(log n), or O(count) while expired records await purging.
    pub fn skip(&mut self, count: u64) {
        let (Some(collection), Some(ahead)) = (self.collection, &mut self.ahead) else {
            return;
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 {
            return;
        }
        self.record = None;
        if collection.due(self.now).len() > 0 {
            for _ in 0..count {
                if !self.advance() {
                    break;
                }
            }
            self.record = None;
            return;
        }
        if ahead.len() <= count {
            self.ahead = None;
            return;
        }
        let Some((next, _)) = ahead.next() else { return };
        let position = collection.records.rank(next);
        let target = match self.direction {
            Direction::Forward => position + count,
            Direction::Reverse => position - count,
        };
        if let Some((key, _)) = collection.records.at(target) {
            self.go_to(key);
        }
    }

    /// Moves to just before the first record at or past `key` in the cursor's direction, within its
    /// range. O(log n).
    pub fn seek(&mut self, key: &[u8]) {
        self.record = None;
        self.go_to(key);
    }

    fn go_to(&mut self, key: &[u8]) {
        let forward = self.direction == Direction::Forward;
        let start = if forward { &self.lower } else { &self.upper };
        let is_inside = match start {
            Bound::Unbounded => true,
            Bound::Included(start) | Bound::Excluded(start) if forward => key > start.as_slice(),
            Bound::Included(start) | Bound::Excluded(start) => key < start.as_slice(),
        };
        self.ahead = self.collection.map(|collection| {
            let (mut lower, mut upper) = (
                self.lower.as_ref().map(Vec::as_slice),
                self.upper.as_ref().map(Vec::as_slice),
            );
            match self.direction {
                _ if !is_inside => {}
                Direction::Forward => lower = Bound::Included(key),
                Direction::Reverse => upper = Bound::Included(key),
            }
            collection.records.range(lower, upper, self.direction)
        });
    }
}

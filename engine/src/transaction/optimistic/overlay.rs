//! The writes of an optimistic transaction to one collection, on top of its snapshot.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::indexed::indexed;
use crate::error::Result;
use crate::memtable::{Cut, Entry, MAX_PASSED, Memtable, MemtableCursor};
use crate::node::{LeafCell, ValuePlace};
use crate::range::{Direction, KeyRange};
use crate::snapshot::SnapshotCollection;
use crate::state::Index;
use crate::transaction::ExclusiveTransaction;
use crate::transaction::write::stored_expiry;

/// Keys between two owned bounds.
#[derive(Clone, Debug)]
pub(in crate::transaction) struct OwnedRange {
    pub lower: Bound<Vec<u8>>,
    pub upper: Bound<Vec<u8>>,
}

impl OwnedRange {
    pub(super) fn new(range: &KeyRange<'_>) -> Self {
        Self {
            lower: range.lower.map(<[u8]>::to_vec),
            upper: range.upper.map(<[u8]>::to_vec),
        }
    }

    pub(in crate::transaction) fn borrow(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }

    /// The bound at which a cursor leaves the range.
    pub(super) fn end(&self, direction: Direction) -> &Bound<Vec<u8>> {
        match direction {
            Direction::Forward => &self.upper,
            Direction::Reverse => &self.lower,
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let range = self.borrow();
        is_above(key, range.lower) && is_below(key, range.upper)
    }

    /// Whether the two ranges share a key, judging by their bounds.
    pub(super) fn overlaps(&self, other: &KeyRange<'_>) -> bool {
        let own = self.borrow();
        !ends_before(own.upper, other.lower) && !ends_before(other.upper, own.lower)
    }
}

fn is_above(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    }
}

fn is_below(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    }
}

fn ends_before(upper: Bound<&[u8]>, lower: Bound<&[u8]>) -> bool {
    let (Bound::Included(end) | Bound::Excluded(end), Bound::Included(start) | Bound::Excluded(start)) = (upper, lower)
    else {
        return false;
    };
    let both_included = matches!((upper, lower), (Bound::Included(_), Bound::Included(_)));
    match end.cmp(start) {
        Ordering::Less => true,
        Ordering::Equal => !both_included,
        Ordering::Greater => false,
    }
}

/// One collection as the transaction sees it. The cost of a clone does not depend on the number of
/// written records.
#[derive(Clone)]
pub(in crate::transaction) struct Overlay {
    /// The collection in the snapshot; `None` if it did not exist or has since been dropped or
    /// emptied.
    pub base: Option<SnapshotCollection>,
    /// Cleared ranges of the base.
    pub cleared: Vec<OwnedRange>,
    /// The new state of each written key.
    pub writes: Memtable,
    /// Whether the collection exists at the end.
    pub exists: bool,
    /// Whether everything that it held before was removed.
    pub emptied: bool,
    pub codecs: Option<(String, String)>,
    /// Id and indexes of the collection in the snapshot, if it has any, or those that the transaction
    /// declares.
    pub indexed: Option<(u32, Arc<[Index]>)>,
    /// The transaction declares these indexes, or this is one of them.
    pub is_provisional: bool,
}

impl Overlay {
    pub(super) fn new(base: Option<SnapshotCollection>) -> Self {
        Self {
            exists: base.is_some(),
            indexed: indexed(base.as_ref()),
            base,
            cleared: Vec::new(),
            writes: Memtable::default(),
            emptied: false,
            codecs: None,
            is_provisional: false,
        }
    }

    /// Stores a record with its index keys.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires_at: Option<u64>, index_keys: &[u8]) {
        let cell = LeafCell {
            expires: stored_expiry(expires_at),
            index_keys,
            ..LeafCell::new(value.len(), ValuePlace::Inline(value))
        };
        let mut payload = Vec::new();
        cell.encode_into(&mut payload);
        self.writes.put(key, Some(&payload), None);
    }

    /// Clears the ranges that this transaction has cleared.
    pub(in crate::transaction) fn clear_in(
        &self,
        transaction: &mut ExclusiveTransaction<'_>,
        name: &str,
    ) -> Result<()> {
        if self.emptied {
            transaction.clear_records(name, KeyRange::all())?;
        }
        for range in &self.cleared {
            transaction.clear_records(name, range.borrow())?;
        }
        Ok(())
    }

    /// Removes a record. `is_in_base` is whether the base has one, where that is known.
    pub(super) fn remove(&mut self, key: &[u8], is_in_base: Option<bool>) {
        self.writes.put(key, None, is_in_base);
    }

    /// The cleared range that hides the base's record of this key.
    pub(super) fn cleared(&self, key: &[u8]) -> Option<&OwnedRange> {
        self.cleared.iter().find(|range| range.contains(key))
    }

    /// Whether a cleared range hides the base's record of this key.
    pub(super) fn is_cleared(&self, key: &[u8]) -> bool {
        self.cleared(key).is_some()
    }

    /// Key of the furthest own write for which it is certain that no record is between it and `key`,
    /// in a direction; `None` if none of those that are far enough to be worth a seek is.
    /// O(log n log m) for m own writes, once they have been looked up in the base.
    pub(super) fn end_of_removed(&self, key: &[u8], direction: Direction) -> Result<Option<Vec<u8>>> {
        let after = direction == Direction::Forward;
        let here = self.writes.position(Cut { key, after });
        let ahead = match direction {
            Direction::Forward => self.writes.len() - here,
            Direction::Reverse => here,
        };
        // The own write with `distance` others between it and `key`.
        let write = |distance: usize| match direction {
            Direction::Forward => self.writes.at(here + distance),
            Direction::Reverse => self.writes.at(here - 1 - distance),
        };
        let is_empty_before = |distance: usize| {
            let Some(end) = write(distance) else { return Ok(false) };
            let (lower, upper) = if after { (key, end.key) } else { (end.key, key) };
            let between = KeyRange {
                lower: Bound::Excluded(lower),
                upper: Bound::Excluded(upper),
            };
            let positions = match direction {
                Direction::Forward => here..here + distance,
                Direction::Reverse => here - distance..here,
            };
            // What was cleared, and own records that have expired, count as well: then the run seems to
            // end before them.
            let own = self.writes.weight(positions, |entry| self.weigh(entry))?;
            let base = self.base.as_ref().map_or(Ok(0), |base| base.count(between))?;
            Ok(base.checked_add_signed(own) == Some(0))
        };
        // Doubles the distance, so that it looks up hardly more writes than it passes.
        let (mut empty, mut other) = (0, MAX_PASSED);
        while other < ahead && is_empty_before(other)? {
            (empty, other) = (other, other * 2);
        }
        if empty == 0 {
            return Ok(None);
        }
        other = other.min(ahead);
        while empty + 1 < other {
            let middle = empty.midpoint(other);
            if is_empty_before(middle)? {
                empty = middle;
            } else {
                other = middle;
            }
        }
        Ok(write(empty).map(|entry| entry.key.to_vec()))
    }

    /// Number of records that a write adds to the base.
    fn weigh(&self, entry: Entry<'_>) -> Result<i64> {
        let look = || self.base.as_ref().map_or(Ok(false), |base| base.contains(entry.key));
        let is_in_base = entry.below.resolve(look)?;
        Ok(i64::from(entry.payload.is_some()) - i64::from(is_in_base))
    }

    pub(super) fn clear(&mut self, range: &KeyRange<'_>) {
        if range.is_all() {
            self.base = None;
            self.cleared.clear();
            self.writes = Memtable::default();
            self.emptied = true;
            return;
        }
        let mut hidden = MemtableCursor::new(&self.writes, range, Direction::Forward);
        while let Some(entry) = hidden.entry() {
            self.writes.remove(entry.key);
            hidden.step();
        }
        self.cleared.push(OwnedRange::new(range));
    }
}

/// Index keys of a written record; empty if it was removed.
pub(in crate::transaction) fn index_keys(entry: Entry<'_>) -> &[u8] {
    entry
        .payload
        .map_or(&[], |payload| LeafCell::decode(payload).index_keys)
}

/// Value and expiry of a written record; `None` if it was removed.
pub(in crate::transaction) fn record(entry: Entry<'_>) -> Option<(&[u8], Option<u64>)> {
    parts(&LeafCell::decode(entry.payload?))
}

/// As [`record`], for readers: `None` also if the record has expired.
pub(super) fn visible(entry: Entry<'_>, now: u64) -> Option<(&[u8], Option<u64>)> {
    let cell = LeafCell::decode(entry.payload?);
    parts(&cell).filter(|_| !cell.is_expired(now))
}

fn parts<'a>(cell: &LeafCell<'a>) -> Option<(&'a [u8], Option<u64>)> {
    let ValuePlace::Inline(value) = cell.place else {
        return None;
    };
    Some((value, (cell.expires != 0).then_some(cell.expires)))
}

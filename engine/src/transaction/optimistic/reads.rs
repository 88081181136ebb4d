//! The read set of an optimistic transaction, and whether later commits changed it.

use std::ops::Bound;

use super::overlay::OwnedRange;
use crate::error::{ConflictReason, Error, Result};
use crate::log::{Operation, Operations};
use crate::memtable::{Memtable, MemtableCursor};
use crate::range::{Direction, KeyRange};
use crate::small_map::SmallMap;
use crate::state::Missed;
use crate::state::expiry::HIDDEN;

/// Keys and ranges of one collection.
#[derive(Clone, Default, Debug)]
pub(super) struct Footprint {
    /// A memtable, because the module has that map already. Its entries have no payload.
    keys: Memtable,
    ranges: Vec<OwnedRange>,
}

impl Footprint {
    pub(super) fn add_key(&mut self, key: &[u8]) {
        if self.keys.get(key).is_none() {
            self.keys.put(key, None, Some(false));
        }
    }

    pub(super) fn add_range(&mut self, range: &KeyRange<'_>) {
        self.ranges.push(OwnedRange::new(range));
    }

    /// As [`add_range`](Self::add_range), for a range that grows in one direction from call to
    /// call: extends the last range if it starts at the same bound.
    pub(super) fn extend_range(&mut self, range: &KeyRange<'_>, direction: Direction) {
        let same_start = |last: &OwnedRange| {
            let last = last.borrow();
            match direction {
                Direction::Forward => last.lower == range.lower,
                Direction::Reverse => last.upper == range.upper,
            }
        };
        match self.ranges.last_mut() {
            Some(last) if same_start(last) && !last.borrow().is_all() => {
                let end = match direction {
                    Direction::Forward => (&mut last.upper, range.upper),
                    Direction::Reverse => (&mut last.lower, range.lower),
                };
                extend(end.0, end.1, direction);
            }
            Some(last) if last.borrow().is_all() => {}
            _ => self.add_range(range),
        }
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some() || self.ranges.iter().any(|range| range.contains(key))
    }

    fn overlaps(&self, range: &KeyRange<'_>) -> bool {
        if self.ranges.iter().any(|own| own.overlaps(range)) {
            return true;
        }
        MemtableCursor::new(&self.keys, range, Direction::Forward)
            .entry()
            .is_some()
    }
}

/// Moves a bound outwards, never inwards.
fn extend(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>, direction: Direction) {
    let (Bound::Included(own) | Bound::Excluded(own)) = bound else {
        return;
    };
    match to {
        Bound::Unbounded => *bound = Bound::Unbounded,
        Bound::Included(key) | Bound::Excluded(key) => {
            let outwards = match direction {
                Direction::Forward => key >= own.as_slice(),
                Direction::Reverse => key <= own.as_slice(),
            };
            if outwards {
                *bound = to.map(<[u8]>::to_vec);
            }
        }
    }
}

/// Footprints by collection id.
pub(super) type Footprints = SmallMap<u32, Footprint>;

/// Fails if any of `later` touches a key or range in the footprints.
pub(super) fn check<'a>(
    footprints: &Footprints,
    later: &[Missed],
    name_of: impl Fn(u32) -> Option<&'a str>,
) -> Result<()> {
    if footprints.is_empty() {
        return Ok(());
    }
    let conflict = |collection: u32, key: Option<&[u8]>| {
        // A change in an index is a change of a record, whose name and key are not known here.
        let name = name_of(collection).filter(|name| !name.starts_with(HIDDEN));
        let key = key.filter(|_| name.is_some());
        Err(Error::conflict(name, key, ConflictReason::Changed))
    };
    for changes in later {
        let Some(record) = &changes.record else {
            return conflict(footprints.keys().next().copied().unwrap_or(0), None);
        };
        for operation in Operations::new(record) {
            let (collection, key, range) = match operation? {
                Operation::Set { collection, key, .. }
                | Operation::SetOutOfLine { collection, key, .. }
                | Operation::Delete { collection, key } => (collection, Some(key), None),
                Operation::Clear {
                    collection,
                    lower,
                    upper,
                } => (collection, None, Some(KeyRange { lower, upper })),
                Operation::Drop { collection } => (collection, None, Some(KeyRange::all())),
                // Writes to a collection whose indexes changed are refused at the commit.
                Operation::Create { .. }
                | Operation::Codecs { .. }
                | Operation::Rename { .. }
                | Operation::Indexes { .. }
                | Operation::Expire { .. }
                | Operation::End => continue,
            };
            let Some(footprint) = footprints.get(&collection) else {
                continue;
            };
            let touched = match (key, range) {
                (Some(key), _) => footprint.has_key(key),
                (None, Some(range)) => footprint.overlaps(&range),
                (None, None) => false,
            };
            if touched {
                return conflict(collection, key);
            }
        }
    }
    Ok(())
}

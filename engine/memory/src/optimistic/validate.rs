//! Checks whether what a transaction read is unchanged.

use crate::index::OrderedIndex;
use mangrove_engine::Direction;
use mangrove_engine::{ConflictReason, Error, Result};

use super::{Footprint, borrowed};
use crate::state::{Collection, Record};

/// Fails if the two versions differ in which commits wrote the records of a footprint.
pub(super) fn compare<I: OrderedIndex<Record>>(
    name: &str,
    before: &Collection<I>,
    after: &Collection<I>,
    footprint: &Footprint,
) -> Result<()> {
    let writer = |collection: &Collection<I>, key: &[u8]| collection.records.get(key).map(|record| record.version);
    for key in &footprint.keys {
        if writer(before, key) != writer(after, key) {
            return Err(conflict(name, Some(key)));
        }
    }
    for range in &footprint.ranges {
        let range = borrowed(range);
        let records = |collection| -> I::Range<'_> {
            let collection: &Collection<I> = collection;
            collection.records.range(range.lower, range.upper, Direction::Forward)
        };
        let (mut before, mut after) = (records(before), records(after));
        loop {
            let (one, other) = (before.next(), after.next());
            let identity = |(key, record): (_, &Record)| (key, record.version);
            if one.map(identity) != other.map(identity) {
                return Err(conflict(name, one.or(other).map(|(key, _)| key)));
            }
            if one.is_none() {
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn conflict(collection: &str, key: Option<&[u8]>) -> Error {
    Error::conflict(Some(collection), key, ConflictReason::Changed)
}

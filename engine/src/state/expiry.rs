//! Time to live: records that expire, and how the expired ones are found.
//!
//! A record carries its expiry and every reader checks it, so an expired record is invisible at
//! once. Beside each collection with such records, a hidden collection holds a hint for each of
//! them: the expiry in big-endian order followed by the key, so that due records are found without
//! a search. Hints are never corrected: if a record was replaced or removed meanwhile, its hint is
//! skipped and dropped when it comes due.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds as _};

use super::{Collection, Collections};
use crate::error::Result;
use crate::range::{Direction, KeyRange};
use crate::tree::Pages;

/// First character of hidden names, which no user can give.
pub(crate) const HIDDEN: char = '\0';

/// Prefix of the names of the hidden collections with hints.
pub(crate) const HINTS: &str = "\0ttl";

/// Name of the hidden collection with the hints for collection `id`.
pub(crate) fn hints_of(id: u32) -> String {
    [HINTS, &id.to_string()].concat()
}

/// The collections with hints, each with the name of the collection that they are for.
pub(crate) fn all_hints(collections: &Collections) -> Vec<(String, String)> {
    let hints = collections
        .iter_from(HINTS)
        .map_while(|(name, _)| Some((name, name.strip_prefix(HINTS)?)));
    let owned = hints.filter_map(|(name, id)| Some((name.clone(), collections.by_id(id.parse().ok()?)?.0.clone())));
    owned.collect()
}

/// Length of the expiry that precedes the key.
pub(crate) const HINT_BYTES: usize = 8;

pub(crate) fn hint(expires: u64, key: &[u8]) -> Vec<u8> {
    let mut hint = expires.to_be_bytes().to_vec();
    hint.extend_from_slice(key);
    hint
}

/// Returns the first `limit` due hints.
pub(crate) fn due_hints(pages: &impl Pages, hints: &Collection, now: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
    let end = now.saturating_add(1).to_be_bytes();
    let range = KeyRange {
        lower: Bound::Unbounded,
        upper: Bound::Excluded(&end),
    };
    let mut cursor = hints.cursor(&range, Direction::Forward);
    let mut list = Vec::new();
    while list.len() < limit && cursor.advance(&hints.records(pages))? {
        list.push(cursor.key().to_vec());
    }
    Ok(list)
}

/// [`next_expiry`] looks at no more hints.
const MAX_HINTS: usize = 1000;

/// Returns when the next record of a range expires; `None`: none does. If many other records expire
/// before it, a time before which none of the range does.
pub(crate) fn next_expiry(
    pages: &impl Pages,
    records: &Collection,
    hints: &Collection,
    range: &KeyRange<'_>,
    now: u64,
) -> Result<Option<u64>> {
    let after = now.saturating_add(1).to_be_bytes();
    let from = KeyRange {
        lower: Bound::Included(&after),
        upper: Bound::Unbounded,
    };
    let mut cursor = hints.cursor(&from, Direction::Forward);
    let mut last = None;
    for _ in 0..MAX_HINTS {
        if !cursor.advance(&hints.records(pages))? {
            return Ok(None);
        }
        let Some((time, key)) = cursor.key().split_first_chunk() else {
            continue;
        };
        let time = u64::from_be_bytes(*time);
        last = Some(time);
        let is_in_range = (range.lower, range.upper).contains(key);
        if is_in_range
            && let Some(found) = records.records(pages).find(key)?
            && found.record().expires == time
        {
            break;
        }
    }
    Ok(last)
}

/// Returns the positions, in key order, of all expired records not removed yet.
pub(crate) fn expired_positions(
    pages: &impl Pages,
    records: &Collection,
    hints: &Collection,
    now: u64,
) -> Result<Vec<u64>> {
    // A map sorts them: a general sort would be a fiftieth of the WebAssembly module.
    let mut positions: BTreeMap<u64, u64> = BTreeMap::new();
    for hint in due_hints(pages, hints, now, usize::MAX)? {
        let records = records.records(pages);
        let key = &hint[HINT_BYTES..];
        if let Some(found) = records.find(key)?
            && found.record().is_expired(now)
        {
            positions.insert(records.rank(key)?, 0);
        }
    }
    Ok(positions.into_keys().collect())
}

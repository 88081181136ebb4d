//! Arithmetic of key ranges.

use std::ops::Bound;

use mangrove_engine::{KeyRange, Result, Tree};

/// Whether no key can be in the range, whatever the tree holds.
pub(crate) fn is_empty(range: &KeyRange<'_>) -> bool {
    match (range.lower, range.upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
    }
}

/// Number of keys in the range.
pub(crate) fn count(tree: &Tree, range: KeyRange<'_>) -> Result<u64> {
    if is_empty(&range) {
        return Ok(0);
    }
    tree.count(range)
}

/// Position in the tree of the range's item `index`, counted from its first key or from its last.
pub(crate) fn position(tree: &Tree, range: &KeyRange<'_>, from_end: bool, index: u64) -> Result<Option<u64>> {
    if is_empty(range) {
        return Ok(None);
    }
    let (start, end) = tree.positions(range)?;
    if index >= end - start {
        return Ok(None);
    }
    Ok(Some(if from_end { end - 1 - index } else { start + index }))
}

/// The part of the range before `key`.
pub(crate) fn before<'a>(range: KeyRange<'a>, key: &'a [u8]) -> KeyRange<'a> {
    let ends_before = match range.upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => upper < key,
        Bound::Excluded(upper) => upper <= key,
    };
    if ends_before {
        range
    } else {
        KeyRange {
            upper: Bound::Excluded(key),
            ..range
        }
    }
}

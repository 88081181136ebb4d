//! Arithmetic of key ranges.

use std::ops::{Bound, RangeBounds as _};

use mangrove_engine::{KeyRange, Result, SnapshotCollection};

/// Whether the bounds alone rule out every key.
pub(crate) fn is_empty(range: &KeyRange<'_>) -> bool {
    match (range.lower, range.upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
    }
}

/// Counts the keys in the range.
pub(crate) fn count(tree: &SnapshotCollection, range: KeyRange<'_>) -> Result<u64> {
    if is_empty(&range) {
        return Ok(0);
    }
    tree.count(range)
}

/// Returns the position in the tree of the range's item `index`, counted from its first or last
/// key.
pub(crate) fn position(
    tree: &SnapshotCollection,
    range: &KeyRange<'_>,
    from_end: bool,
    index: u64,
) -> Result<Option<u64>> {
    if is_empty(range) {
        return Ok(None);
    }
    let (start, end) = tree.positions(range)?;
    if index >= end - start {
        return Ok(None);
    }
    Ok(Some(if from_end { end - 1 - index } else { start + index }))
}

/// Returns the part of the range before `key`.
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

pub(crate) fn contains(range: &KeyRange<'_>, key: &[u8]) -> bool {
    (range.lower, range.upper).contains(key)
}

/// Whether some key may be in both ranges.
pub(crate) fn overlap(range: &KeyRange<'_>, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let other = KeyRange {
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
    };
    let crossed = [
        KeyRange {
            lower: range.lower,
            upper: other.upper,
        },
        KeyRange {
            lower: other.lower,
            upper: range.upper,
        },
    ];
    ![range, &other].into_iter().chain(&crossed).any(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_range(range: (Bound<u8>, Bound<u8>), keys: &[[u8; 1]]) -> KeyRange<'_> {
        let key = |bound: Bound<u8>| bound.map(|byte| &keys[usize::from(byte)][..]);
        KeyRange {
            lower: key(range.0),
            upper: key(range.1),
        }
    }

    #[test]
    fn ranges_overlap_where_a_key_can_be_in_both() {
        let keys: Vec<[u8; 1]> = (0..4).map(|byte| [byte]).collect();
        let mut bounds = vec![Bound::Unbounded];
        bounds.extend((0..4).flat_map(|byte| [Bound::Included(byte), Bound::Excluded(byte)]));
        let ranges: Vec<_> = bounds
            .iter()
            .flat_map(|&a| bounds.iter().map(move |&b| (a, b)))
            .collect();
        // Probes include keys between the bounds.
        let mut probes: Vec<Vec<u8>> = vec![Vec::new()];
        probes.extend((0..4).flat_map(|byte| [vec![byte], vec![byte, 7]]));
        for &a in &ranges {
            for &b in &ranges {
                let (a, b) = (key_range(a, &keys), key_range(b, &keys));
                let expected = probes.iter().any(|key| contains(&a, key) && contains(&b, key));
                let (lower, upper) = (b.lower.map(<[u8]>::to_vec), b.upper.map(<[u8]>::to_vec));
                let found = overlap(&a, &lower, &upper);
                // A false positive, where no key lies between two bounds, does no harm.
                assert!(found || !expected, "{a:?} {b:?}");
                assert!(!is_empty(&a) || !found, "{a:?} {b:?}");
            }
        }
    }
}

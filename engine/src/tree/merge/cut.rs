//! Removing a range of records, as a merge without changes.

use std::ops::{Bound, RangeBounds};

use super::{Change, Changes, Merge};
use crate::error::Result;
use crate::range::KeyRange;
use crate::tree::Editor;

/// A range of keys.
pub(super) struct Cut {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Cut {
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let lower = self.lower.as_ref().map(Vec::as_slice);
        (lower, self.upper.as_ref().map(Vec::as_slice)).contains(key)
    }

    /// Whether the range contains all keys with `lower <= key < upper`.
    pub(super) fn covers(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let begins_before = match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(key) => lower >= key.as_slice(),
            Bound::Excluded(key) => lower > key.as_slice(),
        };
        let ends_behind = match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => upper.is_some_and(|upper| upper <= key.as_slice()),
        };
        begins_before && ends_behind
    }

    /// Whether the range may contain a key with `lower <= key < upper`.
    pub(super) fn touches(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let ends_before = match (&self.lower, upper) {
            (Bound::Included(key) | Bound::Excluded(key), Some(upper)) => upper <= key.as_slice(),
            _ => false,
        };
        let begins_behind = match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(key) => lower > key.as_slice(),
            Bound::Excluded(key) => lower >= key.as_slice(),
        };
        !(ends_before || begins_behind)
    }
}

/// An empty sequence of changes.
struct NoChanges;

impl Changes for NoChanges {
    fn peek(&self) -> Option<Change<'_>> {
        None
    }

    fn step(&mut self) {}
}

impl Editor<'_> {
    /// Removes the records in a range. Subtrees inside it are retired whole; the nodes at its two
    /// ends are joined.
    pub(crate) fn cut(&mut self, range: &KeyRange<'_>) -> Result<()> {
        let mut merge = Merge::new(*self.root, 0);
        merge.cut = Some(Cut {
            lower: range.lower.map(<[u8]>::to_vec),
            upper: range.upper.map(<[u8]>::to_vec),
        });
        merge.run(self, &mut NoChanges)
    }
}

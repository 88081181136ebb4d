//! The writes of an optimistic transaction to one collection, over what its snapshot holds.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use crate::index::{BTree, OrderedIndex};
use crate::range::{Direction, KeyRange};
use crate::snapshot::Tree;

/// What a transaction will do with a key.
#[derive(Clone, Debug)]
pub struct Write(pub(super) Option<NewRecord>);

/// A record that is to be stored.
#[derive(Clone, Debug)]
pub(super) struct NewRecord {
    pub value: Arc<[u8]>,
    pub expires: Option<u64>,
}

/// Keys between two bounds, owned.
#[derive(Clone, Debug)]
pub(super) struct OwnedRange {
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

    pub(super) fn borrow(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let range = self.borrow();
        is_above(key, range.lower) && is_below(key, range.upper)
    }

    /// Whether the two ranges share a key, as far as their bounds tell.
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

/// One collection as the transaction sees it. A clone costs the same whatever was written.
#[derive(Clone)]
pub(super) struct Overlay {
    /// The collection in the snapshot; `None` if it was not there, or was dropped or emptied since.
    pub base: Option<Tree>,
    /// Ranges of the base that were emptied.
    pub cleared: Vec<OwnedRange>,
    pub writes: BTree<Write>,
    /// It exists at the end.
    pub exists: bool,
    /// All that was in it before is gone.
    pub emptied: bool,
    pub codecs: Option<(String, String)>,
}

impl Overlay {
    pub(super) fn new(base: Option<Tree>) -> Self {
        Self {
            exists: base.is_some(),
            base,
            cleared: Vec::new(),
            writes: BTree::default(),
            emptied: false,
            codecs: None,
        }
    }

    /// Whether the base's record of this key is hidden by an emptied range.
    pub(super) fn is_cleared(&self, key: &[u8]) -> bool {
        self.cleared.iter().any(|range| range.contains(key))
    }

    pub(super) fn clear(&mut self, range: &KeyRange<'_>) {
        if range.is_all() {
            self.base = None;
            self.cleared.clear();
            self.writes = BTree::default();
            self.emptied = true;
            return;
        }
        let hidden: Vec<Vec<u8>> = self
            .writes
            .range(range.lower, range.upper, Direction::Forward)
            .map(|(key, _)| key.to_vec())
            .collect();
        for key in hidden {
            self.writes.remove(&key);
        }
        self.cleared.push(OwnedRange::new(range));
    }
}

//! Ordered in-memory maps from byte strings to any type: a write set, or a whole database without a
//! file.
//!
//! [`BTree`] provides what a database requires of an [`OrderedIndex`]:
//!
//! - a [`Clone`] of constant cost, as a snapshot or a savepoint: the copies share all nodes, and a
//!   change copies the shared nodes on its path,
//! - the neighbours of any key,
//! - positions.
//!
//! ```
//! use std::ops::Bound;
//! use mangrove_engine::Direction;
//! use mangrove_memory::index::{BTree, OrderedIndex};
//!
//! let mut rivers = BTree::default();
//! rivers.insert(b"Niger", 4_180);
//! rivers.insert(b"Amazon", 6_400);
//! let snapshot = rivers.clone();
//! assert_eq!(rivers.insert(b"Niger", 4_184), Some(4_180));
//!
//! assert_eq!(snapshot.get(b"Niger"), Some(&4_180));
//! assert_eq!(rivers.seek(Bound::Excluded(b"B"), Direction::Forward), Some((&b"Niger"[..], &4_184)));
//! assert_eq!(rivers.rank(b"Niger"), 1);
//! ```

use std::ops::Bound;

use mangrove_engine::Direction;

mod btree;
mod key;

pub use btree::{BTree, BTreeRange};
pub use key::{Key, common_prefix};

/// An ordered map from byte strings to `T`. Keys are ordered like slices: `"a"` before `"a\0"`
/// before `"b"`.
///
/// A clone costs the same for any number of entries. Dropping the last owner of a node frees it.
pub trait OrderedIndex<T: Clone>: Default + Clone {
    /// Iterator over the entries between two bounds.
    type Range<'a>: ExactSizeIterator<Item = (&'a [u8], &'a T)>
    where
        Self: 'a,
        T: 'a;

    /// Number of entries.
    fn len(&self) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value at `key`.
    fn get(&self, key: &[u8]) -> Option<&T>;

    /// Sets the value at `key` and returns the former one.
    fn insert(&mut self, key: &[u8], value: T) -> Option<T>;

    /// Removes the entry at `key` and returns its value. Copies nothing if there is none.
    fn remove(&mut self, key: &[u8]) -> Option<T>;

    /// Removes all entries.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the entry nearest to `bound` within it.
    ///
    /// - Forward: the first entry at or after an included key, after an excluded one, or of all.
    /// - Reverse: the last entry at or before an included key, before an excluded one, or of all.
    fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<(&[u8], &T)>;

    /// Iterates over the entries between two bounds; over none if the bounds exclude each other.
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Self::Range<'_>;

    /// Iterates over all entries.
    fn iter(&self, direction: Direction) -> Self::Range<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded, direction)
    }

    /// Number of entries with keys smaller than `key`.
    fn rank(&self, key: &[u8]) -> usize;

    /// Returns the entry with `position` smaller ones.
    fn at(&self, position: usize) -> Option<(&[u8], &T)>;
}

/// A place between two neighbouring keys: right before or after `key`, whether or not it exists.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'k> {
    /// The key.
    pub key: &'k [u8],
    /// Whether the cut is after the key rather than before it.
    pub after: bool,
}

impl<'k> Cut<'k> {
    /// Returns where a range with this bound begins in `direction`; `None` if it is unbounded
    /// there.
    #[must_use]
    pub fn new(bound: Bound<&'k [u8]>, direction: Direction) -> Option<Self> {
        let reverse = direction == Direction::Reverse;
        match bound {
            Bound::Included(key) => Some(Self { key, after: reverse }),
            Bound::Excluded(key) => Some(Self { key, after: !reverse }),
            Bound::Unbounded => None,
        }
    }
}

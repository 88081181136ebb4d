//! Ordered maps in memory, from byte strings to anything: a write set, or a whole database without a file.
//!
//! [`BTree`] has what a database asks of an [`OrderedIndex`]: a [`Clone`] of constant cost (a snapshot or a savepoint; the copies share all nodes,
//! and a change copies those on its path that are shared), neighbours of any key, and positions.
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

/// An ordered map from byte strings to `T`. Keys are ordered as slices are: `"a"` before `"a\0"` before `"b"`.
///
/// A clone costs the same whatever the number of entries. Dropping the last owner of a node frees it.
pub trait OrderedIndex<T: Clone>: Default + Clone {
    /// Iterator over the entries between two bounds.
    type Range<'a>: ExactSizeIterator<Item = (&'a [u8], &'a T)>
    where
        Self: 'a,
        T: 'a;

    /// How many entries there are.
    fn len(&self) -> usize;

    /// Whether there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Option<&T>;

    /// Sets the value at `key` and returns the former one.
    fn insert(&mut self, key: &[u8], value: T) -> Option<T>;

    /// Removes the entry at `key` and returns its value. Copies nothing if there is none.
    fn remove(&mut self, key: &[u8]) -> Option<T>;

    /// Removes all entries.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// The entry nearest to `bound` within it: forwards the first at or after an included key, after an excluded one, or of all;
    /// in reverse the last at or before an included key, before an excluded one, or of all.
    fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<(&[u8], &T)>;

    /// The entries between two bounds, none if these exclude each other.
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Self::Range<'_>;

    /// All entries.
    fn iter(&self, direction: Direction) -> Self::Range<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded, direction)
    }

    /// How many entries have smaller keys than `key`.
    fn rank(&self, key: &[u8]) -> usize;

    /// The entry that has `position` smaller ones.
    fn at(&self, position: usize) -> Option<(&[u8], &T)>;
}

/// A place between two neighbouring keys: right before or right after `key`, whether there is such an entry or not.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'k> {
    /// The key.
    pub key: &'k [u8],
    /// Whether it is after the key rather than before it.
    pub after: bool,
}

impl<'k> Cut<'k> {
    /// Where a range with this bound begins, seen in `direction`; `None` if it has no bound there.
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

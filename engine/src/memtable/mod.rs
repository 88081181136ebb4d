//! Memtables: commits that are not merged into the trees yet, in memory, in the order of their keys.
//!
//! A collection of a version has two layers above its tree: the *active* memtable, which commits change, and the *frozen* one, which is being merged. Both
//! are persistent maps, so a version, a draft or a savepoint holds them for the price of a pointer. An entry is what the leaf's cell will be, or says that
//! the record is gone. (A memtable in front of sorted data on the disk: O'Neil et al., "The Log-Structured Merge-Tree", 1996; here there is one such
//! level, and below it a B+tree that is changed in place of being rewritten.)
//!
//! Counts and positions are exact. An entry adds as many records to what lies below it as it says: 1, 0 or -1. Whoever writes without looking leaves open
//! which, and whoever asks for a count looks the open ones up, each once; the nodes of the map remember their sums.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};
use crate::range::{Direction, KeyRange};

mod cells;
mod cursor;
mod layered_cursor;
mod layers;
mod node;

pub(crate) use cursor::MemtableCursor;
pub(crate) use layered_cursor::LayeredCursor;
pub(crate) use layers::{Found, Layers, Records};

use node::Node;

/// Whether the layers below an entry have a record of its key. That does not change while the entry is there, as only what lies above is written.
#[derive(Debug)]
pub(crate) struct Below(AtomicU8);

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

impl Below {
    /// Nobody has looked.
    pub(crate) fn unknown() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    pub(crate) fn known(is_present: bool) -> Self {
        Self(AtomicU8::new(if is_present { PRESENT } else { ABSENT }))
    }

    fn set(&self, is_present: bool) {
        self.0
            .store(if is_present { PRESENT } else { ABSENT }, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            known => Some(known == PRESENT),
        }
    }

    /// What is known, or what `look` says.
    pub(crate) fn resolve(&self, look: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if let Some(known) = self.get() {
            return Ok(known);
        }
        let found = look()?;
        self.set(found);
        Ok(found)
    }
}

impl Clone for Below {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A place between two neighbouring keys: right before or right after `key`, whether there is such an entry or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'k> {
    pub key: &'k [u8],
    pub after: bool,
}

impl<'k> Cut<'k> {
    /// Where a range with this bound begins, seen in `direction`; `None` if it has no bound there.
    fn new(bound: Bound<&'k [u8]>, direction: Direction) -> Option<Self> {
        let reverse = direction == Direction::Reverse;
        match bound {
            Bound::Included(key) => Some(Self { key, after: reverse }),
            Bound::Excluded(key) => Some(Self { key, after: !reverse }),
            Bound::Unbounded => None,
        }
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'m> {
    pub key: &'m [u8],
    /// Payload of the leaf's cell; `None`: the record was removed.
    pub payload: Option<&'m [u8]>,
    pub below: &'m Below,
}

impl<'m> Entry<'m> {
    /// The payload, if the record's value is out of line.
    pub(crate) fn reference(&self) -> Option<&'m [u8]> {
        self.payload.filter(|payload| is_out_of_line(payload))
    }
}

fn is_out_of_line(payload: &[u8]) -> bool {
    matches!(LeafCell::decode(payload).place, ValuePlace::OutOfLine(_))
}

/// An entry that was replaced.
#[derive(Debug)]
pub(crate) struct Former {
    /// Its payload, if the record's value was out of line.
    pub reference: Option<Vec<u8>>,
}

impl Former {
    fn of(entry: Entry<'_>) -> Self {
        Self {
            reference: entry.reference().map(<[u8]>::to_vec),
        }
    }
}

/// Entries in the order of their keys. A clone takes constant time; a change copies the nodes on its way that are shared with a clone.
#[derive(Clone, Default)]
pub(crate) struct Memtable {
    root: Option<Arc<Node>>,
    len: usize,
    bytes: usize,
    /// Some entry refers, or referred, to a value out of line.
    has_references: bool,
}

impl Memtable {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.root.as_ref()?.get(key)
    }

    /// As [`Entry::reference`] of a key's entry. No search where no entry refers to anything.
    pub(crate) fn reference(&self, key: &[u8]) -> Option<&[u8]> {
        if !self.has_references {
            return None;
        }
        self.get(key)?.reference()
    }

    /// The entries in the order of their keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut passed = 0;
        let mut place: Option<(&Node, usize)> = None;
        std::iter::from_fn(move || {
            let (leaf, index) = match place {
                Some((leaf, index)) if index < leaf.len() => (leaf, index),
                _ if passed == self.len => return None,
                _ => {
                    let (leaf, index) = Node::leaf_at(self.root.as_ref()?, passed);
                    (&**leaf, index)
                }
            };
            place = Some((leaf, index + 1));
            passed += 1;
            leaf.entry(index)
        })
    }

    /// Stands on one entry after the other, beside the memtable.
    pub(crate) fn cursor(&self) -> MemtableCursor {
        MemtableCursor::new(self, &KeyRange::all(), Direction::Forward)
    }

    /// How many entries are before the cut.
    fn position(&self, cut: Cut<'_>) -> usize {
        self.root.as_ref().map_or(0, |root| Node::locate(root, cut).0)
    }

    /// The entry that has `position` smaller ones.
    pub(crate) fn at(&self, position: usize) -> Option<Entry<'_>> {
        let root = self.root.as_ref().filter(|_| position < self.len)?;
        let (leaf, index) = Node::leaf_at(root, position);
        leaf.entry(index)
    }

    /// The entry nearest to `bound` within it: forwards the first at or after an included key, after an excluded one, or of all;
    /// in reverse the last at or before an included key, before an excluded one, or of all.
    pub(crate) fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<Entry<'_>> {
        let cut = Cut::new(bound, direction);
        match direction {
            Direction::Forward => self.at(cut.map_or(0, |cut| self.position(cut))),
            Direction::Reverse => self.at(cut.map_or(self.len, |cut| self.position(cut)).checked_sub(1)?),
        }
    }

    /// Stores a record, or, without a payload, removes it; gives the entry that was there. `below` is what the caller knows of the layers below; where there
    /// was an entry, its own word stands.
    pub(crate) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Option<Former> {
        self.has_references |= payload.is_some_and(is_out_of_line);
        let root = self.root.get_or_insert_with(|| {
            let leaf = Node::default();
            self.bytes = leaf.memory_bytes();
            Arc::new(leaf)
        });
        let changed = Arc::make_mut(root).put(key, payload, below);
        if let Some((separator, right)) = changed.split {
            *root = Arc::new(Node::root(Arc::clone(root), &separator, right));
        }
        self.len += usize::from(changed.former.is_none());
        self.bytes = self.bytes.saturating_add_signed(changed.grown);
        changed.former
    }

    /// Removes the first `count` entries.
    pub(crate) fn drop_first(&mut self, count: usize) {
        match &mut self.root {
            Some(root) if count < self.len => {
                self.bytes = self.bytes.saturating_sub(Arc::make_mut(root).drop_first(count));
                self.len -= count;
                self.shorten();
            }
            _ => *self = Self::default(),
        }
    }

    /// Removes what is known of a key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.get(key).is_none() {
            return;
        }
        if let Some(shrunk) = self.root.as_mut().and_then(|root| Arc::make_mut(root).remove(key)) {
            self.bytes = self.bytes.saturating_sub(shrunk);
            self.len -= 1;
            self.shorten();
        }
    }

    /// Takes away roots with one child.
    fn shorten(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        }
        while let Some(only) = self.root.as_ref().and_then(|root| root.only_child()) {
            self.root = Some(Arc::clone(only));
        }
    }

    /// How many records the entries before `cut`, or all, add to those below them. `look` tells whether the layers below have a key.
    pub(crate) fn delta(&self, cut: Option<Cut<'_>>, mut look: impl FnMut(&[u8]) -> Result<bool>) -> Result<i64> {
        let mut weigh = |entry: Entry<'_>| {
            let is_below = entry.below.resolve(|| look(entry.key))?;
            Ok(i64::from(entry.payload.is_some()) - i64::from(is_below))
        };
        let Some(root) = &self.root else { return Ok(0) };
        match cut {
            None => root.delta(&mut weigh),
            Some(cut) => root.delta_before(cut, &mut weigh),
        }
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.len)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! A collection in one version: up to three memtables above a tree, read as one.

use std::ops::Bound;

use super::{Cut, Entry, Gaps, Memtable};
use crate::error::{Error, Result};
use crate::node::{Child, LeafCell};
use crate::range::KeyRange;
use crate::tree::{Pages, read};

/// The memtables of a collection, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    /// Changes of one commit. The active memtable absorbs them once the commit is visible; until
    /// then, readers that see only the commit before share that memtable.
    pub fresh: Memtable,
    pub active: Memtable,
    /// Being merged into the tree; immutable.
    pub frozen: Memtable,
}

/// Merges the newer entries of `above` into `below`.
fn combine(below: &mut Memtable, above: Memtable) {
    if below.is_empty() {
        *below = above;
    } else {
        below.merge(&above);
    }
}

impl Layers {
    pub(crate) fn is_empty(&self) -> bool {
        self.all().iter().all(|memtable| memtable.is_empty())
    }

    pub(crate) fn all(&self) -> [&Memtable; 3] {
        [&self.fresh, &self.active, &self.frozen]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all().iter().map(|memtable| memtable.bytes()).sum()
    }

    /// The newest entry of a key in the memtables.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.all().into_iter().find_map(|memtable| memtable.get(key))
    }

    /// References to out-of-line values in frozen entries that the active memtable replaces.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = &[u8]> {
        let active = self.active.entries();
        active.filter_map(|entry| self.frozen.reference(entry.key))
    }

    /// Merges the fresh memtable into the active one.
    pub(crate) fn absorb(&mut self) {
        if !self.fresh.is_empty() {
            combine(&mut self.active, std::mem::take(&mut self.fresh));
        }
    }

    /// Merges the frozen memtable back into the active one.
    pub(crate) fn thaw(&mut self) {
        if !self.frozen.is_empty() {
            let active = std::mem::replace(&mut self.active, std::mem::take(&mut self.frozen));
            combine(&mut self.active, active);
        }
    }
}

/// A record and where it was found.
pub(crate) enum Found<'l> {
    Leaf(read::Found),
    Memory(&'l [u8]),
}

impl Found<'_> {
    pub(crate) fn record(&self) -> LeafCell<'_> {
        match self {
            Self::Leaf(found) => found.leaf.record(found.index),
            Self::Memory(payload) => LeafCell::decode(payload),
        }
    }
}

/// The data to read: the memtables of one collection and its tree.
pub(crate) struct Records<'a, P> {
    pub pages: &'a P,
    pub root: Option<&'a Child>,
    pub owner: u32,
    pub layers: &'a Layers,
    /// The gaps that cursors found in these layers; `None` for those that have to visit everything.
    pub gaps: Option<&'a Gaps>,
    /// Cursors pass the records that had expired by this time; 0 if none has.
    pub now: u64,
}

/// A layer and all layers below it: 0 is the tree, 3 the fresh memtable above all others.
type Level = u8;

const TREE: Level = 0;
const ALL: Level = 3;

impl<'a, P: Pages> Records<'a, P> {
    fn memtable(&self, level: Level) -> &'a Memtable {
        self.layers.all()[usize::from(ALL - level)]
    }

    /// The record with exactly this key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Found<'a>>> {
        self.find_in(ALL, key)
    }

    fn find_in(&self, level: Level, key: &[u8]) -> Result<Option<Found<'a>>> {
        for level in (TREE + 1..=level).rev() {
            if let Some(entry) = self.memtable(level).get(key) {
                return Ok(entry.payload.map(Found::Memory));
            }
        }
        Ok(read::find(self.pages, self.root, self.owner, key)?.map(Found::Leaf))
    }

    /// Number of records that a memtable adds to the layers below it, before `cut` or in total.
    fn delta(&self, level: Level, cut: Option<Cut<'_>>) -> Result<i64> {
        let look = |key: &[u8]| Ok(self.find_in(level - 1, key)?.is_some());
        self.memtable(level).delta(cut, look)
    }

    /// Number of records before a cut, in the layers up to `level`.
    fn before(&self, level: Level, cut: Cut<'_>) -> Result<u64> {
        let (below, found) = read::rank(self.pages, self.root, self.owner, cut.key)?;
        let mut count = below + u64::from(cut.after && found);
        for level in TREE + 1..=level {
            count = plus(count, self.delta(level, Some(cut))?)?;
        }
        Ok(count)
    }

    /// Number of records.
    pub(crate) fn len(&self) -> Result<u64> {
        let mut count = self.root.map_or(0, |root| root.count);
        for level in TREE + 1..=ALL {
            count = plus(count, self.delta(level, None)?)?;
        }
        Ok(count)
    }

    /// Fails if an entry is wrong about whether the layers below it have a record with its key.
    /// O(m log n) for m entries that were looked up.
    pub(crate) fn check_deltas(&self) -> Result<()> {
        for level in TREE + 1..=ALL {
            for entry in self.memtable(level).entries() {
                if let Some(known) = entry.below.get()
                    && known != self.find_in(level - 1, entry.key)?.is_some()
                {
                    return Err(Error::corrupt("a memtable and its tree disagree about a record"));
                }
            }
        }
        Ok(())
    }

    /// Number of records with keys below `key`.
    pub(crate) fn rank(&self, key: &[u8]) -> Result<u64> {
        self.before(ALL, Cut { key, after: false })
    }

    /// Positions of the first record in the range and of the first one after it.
    pub(crate) fn positions(&self, range: &KeyRange<'_>) -> Result<(u64, u64)> {
        let from = match range.lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.rank(key)?,
            Bound::Excluded(key) => self.before(ALL, Cut { key, after: true })?,
        };
        let to = match range.upper {
            Bound::Unbounded => self.len()?,
            Bound::Included(key) => self.before(ALL, Cut { key, after: true })?,
            Bound::Excluded(key) => self.rank(key)?,
        };
        Ok((from, to.max(from)))
    }

    /// The record at position `index` in key order, and its key. Compares `index` with O(log m)
    /// memtable entries, in O(log n) each.
    pub(crate) fn at(&self, index: u64) -> Result<Option<(Vec<u8>, Found<'a>)>> {
        self.at_in(ALL, index)
    }

    fn at_in(&self, level: Level, index: u64) -> Result<Option<(Vec<u8>, Found<'a>)>> {
        if level == TREE {
            let found = read::at(self.pages, self.root, self.owner, index)?;
            return Ok(found.map(|found| (found.leaf.key(found.index), Found::Leaf(found))));
        }
        let entries = self.memtable(level);
        // The wanted record is the last entry with at most `index` records before it, or lies in a
        // lower layer between that entry and the next.
        let (mut low, mut high) = (0, entries.len());
        while low < high {
            let middle = low.midpoint(high);
            let Some(entry) = entries.at(middle) else { break };
            let key = entry.key;
            if self.before(level, Cut { key, after: false })? <= index {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(entry) = low.checked_sub(1).and_then(|last| entries.at(last)) else {
            return self.at_in(level - 1, index);
        };
        let key = entry.key;
        if let Some(payload) = entry.payload
            && self.before(level, Cut { key, after: false })? == index
        {
            return Ok(Some((key.to_vec(), Found::Memory(payload))));
        }
        let behind = Cut { key, after: true };
        let skipped = index.checked_sub(self.before(level, behind)?);
        let skipped = skipped.ok_or_else(|| Error::corrupt("a memtable and its tree disagree about a position"))?;
        self.at_in(level - 1, self.before(level - 1, behind)? + skipped)
    }
}

fn plus(records: u64, delta: i64) -> Result<u64> {
    let sum = records.checked_add_signed(delta);
    sum.ok_or_else(|| Error::corrupt("a memtable and its tree disagree about a count"))
}

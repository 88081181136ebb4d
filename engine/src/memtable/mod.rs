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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::range::{Direction, KeyRange};

mod build;
mod cells;
mod changes;
mod cursor;
mod entry;
mod layered_cursor;
mod layers;
mod node;
mod nodes;
mod run;

pub(crate) use changes::MergedChanges;
pub(crate) use cursor::MemtableCursor;
pub(crate) use entry::{Below, Entry};
pub(crate) use layered_cursor::LayeredCursor;
pub(crate) use layers::{Found, Layers, Records};

use entry::{Cut, Former, is_out_of_line};
use node::Node;
use nodes::Nodes;
use run::{Run, Runs};

/// In WebAssembly memtables are small enough for the processor's caches, and the module has to be small.
const IS_SORTING: bool = !cfg!(target_family = "wasm");
/// So many changes without a look in between go straight into the nodes; those that follow wait to be sorted.
const MIN_STREAK: u8 = 64;

/// Entries in the order of their keys. A clone takes constant time; a change copies the nodes on its way that are shared with a clone.
#[derive(Default)]
pub(crate) struct Memtable {
    nodes: Nodes,
    /// Some entry refers, or referred, to a value out of line.
    has_references: bool,
    /// How many changes were made without a look in between, as far as that counts.
    streak: u8,
    unsorted: Option<Box<Unsorted>>,
}

/// Changes behind those that the nodes have.
#[derive(Default)]
struct Unsorted {
    /// Until somebody reads.
    runs: Mutex<Runs>,
    /// Number of the changes, and their memory.
    changes: usize,
    bytes: usize,
    /// The nodes with these changes, once somebody has read.
    merged: OnceLock<Nodes>,
}

impl Clone for Memtable {
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes().clone(),
            has_references: self.has_references,
            streak: 0,
            unsorted: None,
        }
    }
}

impl Memtable {
    fn unsorted(&self) -> Option<&Unsorted> {
        self.unsorted.as_deref().filter(|_| IS_SORTING)
    }

    fn take_unsorted(&mut self) -> Option<Box<Unsorted>> {
        if IS_SORTING { self.unsorted.take() } else { None }
    }

    /// The nodes with all changes.
    fn nodes(&self) -> &Nodes {
        let Some(unsorted) = self.unsorted() else {
            return &self.nodes;
        };
        unsorted.merged.get_or_init(|| {
            let mut runs = unsorted.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let mut nodes = self.nodes.clone();
            nodes.merge_runs(runs.take());
            nodes
        })
    }

    /// Brings all changes into the nodes.
    pub(crate) fn sort(&mut self) {
        let Some(unsorted) = self.take_unsorted() else {
            return;
        };
        self.streak = 0;
        let Unsorted { runs, merged, .. } = *unsorted;
        match merged.into_inner() {
            Some(nodes) => self.nodes = nodes,
            None => self
                .nodes
                .merge_runs(runs.into_inner().unwrap_or_else(PoisonError::into_inner).take()),
        }
    }

    /// Takes the nodes with all changes, if somebody had them made.
    fn adopt_merged(&mut self) {
        if self.unsorted().is_some_and(|unsorted| unsorted.merged.get().is_some()) {
            self.sort();
        }
    }

    /// The changes that the nodes do not have, the oldest run first. The nodes are left alone.
    fn into_runs(mut self) -> Vec<Run> {
        let Some(unsorted) = self.take_unsorted() else {
            return Vec::new();
        };
        unsorted
            .runs
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len == 0 && self.unsorted().is_none()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.nodes().len
    }

    /// Number of entries, or a few more where changes were not sorted yet.
    pub(crate) fn most_entries(&self) -> usize {
        self.nodes.len + self.unsorted().map_or(0, |unsorted| unsorted.changes)
    }

    /// Memory that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.bytes + self.unsorted().map_or(0, |unsorted| unsorted.bytes)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.nodes().root.as_ref()?.get(key)
    }

    /// Whether some entry may refer to a value out of line.
    pub(crate) fn has_references(&self) -> bool {
        self.has_references
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
        self.nodes().entries()
    }

    /// Stands on one entry after the other, beside the memtable.
    pub(crate) fn cursor(&self) -> MemtableCursor {
        MemtableCursor::new(self, &KeyRange::all(), Direction::Forward)
    }

    /// How many entries are before the cut.
    fn position(&self, cut: Cut<'_>) -> usize {
        let root = self.nodes().root.as_ref();
        root.map_or(0, |root| Node::locate(root, cut).0)
    }

    /// The entry that has `position` smaller ones.
    pub(crate) fn at(&self, position: usize) -> Option<Entry<'_>> {
        let nodes = self.nodes();
        let root = nodes.root.as_ref().filter(|_| position < nodes.len)?;
        let (leaf, index) = Node::leaf_at(root, position);
        leaf.entry(index)
    }

    /// The entry nearest to `bound` within it: forwards the first at or after an included key, after an excluded one, or of all;
    /// in reverse the last at or before an included key, before an excluded one, or of all.
    pub(crate) fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<Entry<'_>> {
        let cut = Cut::new(bound, direction);
        match direction {
            Direction::Forward => self.at(cut.map_or(0, |cut| self.position(cut))),
            Direction::Reverse => self.at(cut.map_or(self.len(), |cut| self.position(cut)).checked_sub(1)?),
        }
    }

    /// Stores a record, or, without a payload, removes it; gives the entry that was there. `below` is what the caller knows of the layers below; where there
    /// was an entry, its own word stands.
    pub(crate) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Option<Former> {
        self.sort();
        if below.is_some() {
            self.streak = 0;
        }
        self.has_references |= payload.is_some_and(is_out_of_line);
        self.nodes.put(key, payload, below)
    }

    /// As [`put`](Self::put), without looking whether there is an entry, where no entry refers to a value out of line. `false`: nothing was done, because one
    /// might, or because so few changes were made without a look in between that sorting them would not pay.
    pub(crate) fn append(&mut self, key: &[u8], payload: Option<&[u8]>) -> bool {
        if !IS_SORTING || self.has_references || payload.is_some_and(is_out_of_line) {
            return false;
        }
        if self.streak < MIN_STREAK {
            self.streak += 1;
            return false;
        }
        self.adopt_merged();
        if self.streak < MIN_STREAK {
            return false;
        }
        let unsorted = self.unsorted.get_or_insert_default();
        let runs = unsorted.runs.get_mut().unwrap_or_else(PoisonError::into_inner);
        unsorted.bytes += runs.push(key, payload);
        unsorted.changes += 1;
        true
    }

    /// Stores what a newer memtable has. What an entry knows is about the layer below it, which the other one's entry of its key stood on as well.
    pub(crate) fn merge(&mut self, above: &Self) {
        self.sort();
        self.has_references |= above.has_references;
        let entries = above.entries();
        self.nodes.merge(
            above.len(),
            entries.map(|entry| (entry.key, entry.payload, entry.below.get())),
        );
    }

    /// Removes the first `count` entries.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.sort();
        let nodes = &mut self.nodes;
        match &mut nodes.root {
            Some(root) if count < nodes.len => {
                nodes.bytes = nodes.bytes.saturating_sub(Arc::make_mut(root).drop_first(count));
                nodes.len -= count;
                nodes.shorten();
            }
            _ => *self = Self::default(),
        }
    }

    /// Removes what is known of a key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.get(key).is_none() {
            return;
        }
        self.sort();
        let nodes = &mut self.nodes;
        if let Some(shrunk) = nodes.root.as_mut().and_then(|root| Arc::make_mut(root).remove(key)) {
            nodes.bytes = nodes.bytes.saturating_sub(shrunk);
            nodes.len -= 1;
            nodes.shorten();
        }
    }

    /// How many records the entries before `cut`, or all, add to those below them. `look` tells whether the layers below have a key.
    pub(crate) fn delta(&self, cut: Option<Cut<'_>>, mut look: impl FnMut(&[u8]) -> Result<bool>) -> Result<i64> {
        let mut weigh = |entry: Entry<'_>| {
            let is_below = entry.below.resolve(|| look(entry.key))?;
            Ok(i64::from(entry.payload.is_some()) - i64::from(is_below))
        };
        let Some(root) = &self.nodes().root else { return Ok(0) };
        match cut {
            None => root.delta(&mut weigh),
            Some(cut) => root.delta_before(cut, &mut weigh),
        }
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.nodes.len)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Memtables: commits in memory that are not merged into the trees yet, in key order.
//!
//! In a version, a collection has two lasting layers above its tree: the *active* memtable, which
//! commits change, and the *frozen* one, which is being merged. A third one, *fresh*, holds the
//! changes of a commit until the active memtable absorbs them. All are persistent maps, so a
//! version, a draft or a savepoint holds them at the cost of a pointer. An entry is the future cell
//! of the leaf, or states that the record is gone.
//!
//! For a memtable in front of sorted data on disk see O'Neil et al., "The Log-Structured
//! Merge-Tree", 1996. Here there is one such level, above a B+tree that is changed rather than
//! rewritten.
//!
//! Counts and positions are exact. Each entry adds 1, 0 or -1 records to the layers below it. A
//! blind write leaves open which. A count looks up the open entries, each once, and the nodes of
//! the map remember their sums.

use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::range::{Direction, KeyRange};

mod cells;
mod changes;
mod cursor;
mod entry;
mod gaps;
mod layered_cursor;
mod layers;
mod node;
mod run;

pub(crate) use changes::MergedChanges;
pub(crate) use cursor::MemtableCursor;
pub(crate) use entry::{Below, Cut, Entry};
pub(crate) use gaps::Gaps;
pub(crate) use layered_cursor::{LayeredCursor, MAX_PASSED};
pub(crate) use layers::{Found, Layers, Records};

use entry::{Former, is_out_of_line};
use node::{Node, Nodes};
use run::{Run, Runs};

/// Whether changes without reads in between are sorted in bulk. Not in WebAssembly: there memtables
/// are small enough for the processor's caches, and the module has to be small.
const IS_SORTING: bool = !cfg!(target_family = "wasm");
/// Number of changes without a read in between that go straight into the nodes. Later changes wait
/// to be sorted.
const MIN_STREAK: u8 = 64;

/// Entries in key order. A clone takes constant time; a change copies the nodes on its path that
/// are shared with a clone.
#[derive(Default)]
pub(crate) struct Memtable {
    nodes: Nodes,
    /// Whether some entry refers, or referred, to an out-of-line value.
    has_references: bool,
    /// Number of changes without a read in between, counted up to `MIN_STREAK`.
    streak: u8,
    unsorted: Option<Box<Unsorted>>,
}

/// Changes that are newer than those in the nodes.
#[derive(Default)]
struct Unsorted {
    /// The changes, until the first read.
    runs: Mutex<Runs>,
    /// Number of the changes, and the memory that they take.
    changes: usize,
    bytes: usize,
    /// The nodes with these changes, after the first read.
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

    /// The nodes with all changes, which the first read merges.
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

    /// Merges all changes into the nodes.
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

    /// Installs the nodes with all changes, if a read has made them.
    fn adopt_merged(&mut self) {
        if self.unsorted().is_some_and(|unsorted| unsorted.merged.get().is_some()) {
            self.sort();
        }
    }

    /// Takes the changes missing from the nodes as runs, oldest first, without merging them into
    /// the nodes.
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

    /// Number of entries, or a few more while some changes are not sorted yet.
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

    /// Whether some entry may refer to an out-of-line value.
    pub(crate) fn has_references(&self) -> bool {
        self.has_references
    }

    /// [`Entry::reference`] of a key's entry. Skips the search if no entry refers to a value.
    pub(crate) fn reference(&self, key: &[u8]) -> Option<&[u8]> {
        if !self.has_references {
            return None;
        }
        self.get(key)?.reference()
    }

    /// The entries in key order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.nodes().entries()
    }

    /// A cursor over all current entries, which does not borrow the memtable.
    pub(crate) fn cursor(&self) -> MemtableCursor {
        MemtableCursor::new(self, &KeyRange::all(), Direction::Forward)
    }

    /// Number of entries before the cut.
    pub(crate) fn position(&self, cut: Cut<'_>) -> usize {
        let root = self.nodes().root.as_ref();
        root.map_or(0, |root| Node::locate(root, cut).0)
    }

    /// The entry with `position` entries before it.
    pub(crate) fn at(&self, position: usize) -> Option<Entry<'_>> {
        let nodes = self.nodes();
        let root = nodes.root.as_ref().filter(|_| position < nodes.len)?;
        let (leaf, index) = Node::leaf_at(root, position);
        leaf.entry(index)
    }

    /// The entry nearest to `bound` within it. Forward, this is the first entry at or after an
    /// included key, after an excluded key, or of all. In reverse, it is the last entry at or
    /// before an included key, before an excluded key, or of all.
    pub(crate) fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<Entry<'_>> {
        let cut = Cut::new(bound, direction);
        match direction {
            Direction::Forward => self.at(cut.map_or(0, |cut| self.position(cut))),
            Direction::Reverse => self.at(cut.map_or(self.len(), |cut| self.position(cut)).checked_sub(1)?),
        }
    }

    /// Stores a record or, without a payload, removes it; returns the replaced entry. `below` is
    /// what the caller knows about the layers below; a replaced entry's own knowledge takes
    /// precedence.
    pub(crate) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Option<Former> {
        self.sort();
        if below.is_some() {
            self.streak = 0;
        }
        self.has_references |= payload.is_some_and(is_out_of_line);
        self.nodes.put(key, payload, below)
    }

    /// As [`put`](Self::put), but without looking for a former entry. Returns `false`, with nothing
    /// stored, if some entry may refer to an out-of-line value, or if there were too few
    /// changes without a read in between for sorting to pay.
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

    /// Stores the entries of a newer memtable. A replaced entry's knowledge of the layers below
    /// stays valid. Where there is none, the newer entry's does, since it is about the same layers.
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

    /// Removes the entry of a key.
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

    /// Number of records that the entries before `cut`, or all entries, add to the layers below.
    /// `look` returns whether those layers have a key.
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

    /// Sum of the weights of the entries at some positions; each is weighed once. A memtable is
    /// used with one meaning of the weights only, that of [`delta`](Self::delta) or another.
    pub(crate) fn weight(
        &self,
        positions: Range<usize>,
        mut weigh: impl FnMut(Entry<'_>) -> Result<i64>,
    ) -> Result<i64> {
        match &self.nodes().root {
            Some(root) => root.delta_of(positions, &mut weigh),
            None => Ok(0),
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

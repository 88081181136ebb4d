//! Nodes of a memtable and their changes: a counted B-tree that copies a shared node before a
//! change.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::cells::{Cells, SLOTS};
use super::{Below, Cut, Entry, Former};
use crate::error::Result;
use crate::node::common_prefix;

/// A leaf with more bytes is split if it has at least two entries.
pub(super) const LEAF_BYTES: usize = 8 << 10;

const UNKNOWN: i64 = i64::MIN;

/// Number of records that the entries below a node add to the layers below the memtable, cached by
/// the first count. A node does not change while it is shared, so what one owner has learned holds
/// for all.
struct Delta(AtomicI64);

impl Default for Delta {
    fn default() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }
}

impl Clone for Delta {
    fn clone(&self) -> Self {
        Self(AtomicI64::new(self.0.load(Ordering::Relaxed)))
    }
}

#[derive(Clone, Default)]
pub(super) struct Node {
    /// The entries of a leaf, or the separators of an inner node: child `i` has the keys from
    /// separator `i - 1`, included, to separator `i`, excluded.
    cells: Cells,
    /// Empty in a leaf; otherwise one more than there are separators.
    children: Vec<Arc<Node>>,
    /// Number of entries below each child.
    counts: Vec<usize>,
    delta: Delta,
}

/// Returns the weight of an entry. Not generic, as counting is rare and the code is repeated.
pub(super) type Weigh<'w> = dyn FnMut(Entry<'_>) -> Result<i64> + 'w;

/// Outcome of a change.
pub(super) struct Changed {
    pub former: Option<Former>,
    /// Growth of the leaves' memory.
    pub grown: isize,
    /// If the node was split, the key that separates it from its new right neighbour, and that
    /// neighbour.
    pub split: Option<(Vec<u8>, Node)>,
}

impl Node {
    pub(super) fn leaf(cells: Cells) -> Self {
        Self {
            cells,
            ..Self::default()
        }
    }

    pub(super) fn inner(cells: Cells, children: Vec<Self>) -> Self {
        Self {
            cells,
            counts: children.iter().map(Self::count).collect(),
            children: children.into_iter().map(Arc::new).collect(),
            delta: Delta::default(),
        }
    }

    /// Creates a root above the two halves of the former one.
    pub(super) fn root(left: Arc<Self>, separator: &[u8], right: Self) -> Self {
        let mut cells = Cells::default();
        cells.insert(0, separator, None, Below::unknown());
        Self {
            cells,
            counts: vec![left.count(), right.count()],
            children: vec![left, Arc::new(right)],
            delta: Delta::default(),
        }
    }

    /// Number of entries below the node.
    pub(super) fn count(&self) -> usize {
        match self.children[..] {
            [] => self.cells.len(),
            _ => self.counts.iter().sum(),
        }
    }

    /// Number of entries of a leaf.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// An entry of a leaf.
    pub(super) fn entry(&self, index: usize) -> Option<Entry<'_>> {
        self.cells.get(index)
    }

    /// The child, if there is exactly one.
    pub(super) fn only_child(&self) -> Option<&Arc<Self>> {
        match &self.children[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Memory of a leaf.
    fn leaf_bytes(&self) -> usize {
        size_of::<Self>() + self.cells.memory_bytes()
    }

    /// Memory of the leaves below the node.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.children[..] {
            [] => self.leaf_bytes(),
            children => children.iter().map(|child| child.memory_bytes()).sum(),
        }
    }

    /// Index of the child that covers this key.
    fn child_of(&self, key: &[u8]) -> usize {
        self.cells.search(key).map_or_else(|index| index, |index| index + 1)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        let mut node = self;
        while !node.children.is_empty() {
            node = &node.children[node.child_of(key)];
        }
        node.entry(node.cells.search(key).ok()?)
    }

    /// The leaf with the entry at `position`, which must exist, and the entry's index in the leaf.
    pub(super) fn leaf_at(mut node: &Arc<Self>, mut position: usize) -> (&Arc<Self>, usize) {
        while !node.children.is_empty() {
            let mut index = 0;
            while position >= node.counts[index] {
                position -= node.counts[index];
                index += 1;
            }
            node = &node.children[index];
        }
        (node, position)
    }

    /// Number of entries before the cut, the leaf that contains the cut, and the number of that
    /// leaf's entries before it.
    pub(super) fn locate<'n>(mut node: &'n Arc<Self>, cut: Cut<'_>) -> (usize, &'n Arc<Self>, usize) {
        let mut position = 0;
        while !node.children.is_empty() {
            let index = node.child_of(cut.key);
            position += node.counts[..index].iter().sum::<usize>();
            node = &node.children[index];
        }
        let before = node.before(cut);
        (position + before, node, before)
    }

    /// Number of a leaf's entries before the cut.
    fn before(&self, cut: Cut<'_>) -> usize {
        let found = self.cells.search(cut.key);
        found.map_or_else(|index| index, |index| index + usize::from(cut.after))
    }

    pub(super) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Changed {
        self.delta = Delta::default();
        if self.children.is_empty() {
            return self.put_entry(key, payload, below);
        }
        let index = self.child_of(key);
        let child = Arc::make_mut(&mut self.children[index]);
        let mut changed = child.put(key, payload, below);
        self.counts[index] += usize::from(changed.former.is_none());
        if let Some((separator, right)) = changed.split.take() {
            self.counts[index] = child.count();
            self.counts.insert(index + 1, right.count());
            self.children.insert(index + 1, Arc::new(right));
            self.cells.insert(index, &separator, None, Below::unknown());
            if self.cells.len() == SLOTS {
                changed.split = Some(self.split(index));
            }
        }
        changed
    }

    fn put_entry(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Changed {
        let before = self.leaf_bytes();
        let mut changed = Changed {
            former: None,
            grown: 0,
            split: None,
        };
        match self.cells.search(key) {
            Ok(index) => {
                changed.former = self.entry(index).map(Former::of);
                self.cells.replace(index, payload);
            }
            Err(index) => {
                let below = below.map_or_else(Below::unknown, Below::known);
                self.cells.insert(index, key, payload, below);
                let len = self.cells.len();
                if len == SLOTS || (len > 1 && self.cells.cell_bytes() > LEAF_BYTES) {
                    let (separator, right) = self.split(index);
                    changed.grown = right.leaf_bytes().cast_signed();
                    changed.split = Some((separator, right));
                }
            }
        }
        changed.grown += self.leaf_bytes().cast_signed() - before.cast_signed();
        changed
    }

    /// Splits off the right part. A run of ascending or descending keys leaves a mostly full node
    /// behind; the rest stays free in case it was no run.
    fn split(&mut self, inserted: usize) -> (Vec<u8>, Self) {
        let len = self.cells.len();
        let at = match inserted {
            0 => len / 8,
            last if last == len - 1 => len - len / 8,
            _ => len / 2,
        };
        let at = at.clamp(1, len - 1);
        let mut right = Self {
            cells: self.cells.copy(at, len),
            ..Self::default()
        };
        let separator;
        if self.children.is_empty() {
            let (left, first) = (self.cells.key(at - 1), self.cells.key(at));
            separator = first[..(common_prefix(left, first) + 1).min(first.len())].to_vec();
        } else {
            // The first separator moves up to the parent.
            separator = right.cells.key(0).to_vec();
            right.cells.remove(0);
            right.children = self.children.split_off(at + 1);
            right.counts = self.counts.split_off(at + 1);
        }
        self.cells = self.cells.copy(0, at);
        (separator, right)
    }

    /// Removes an entry; returns by how much the memory of the leaves shrank, `None` if there is no
    /// such entry. Nodes may be left with few entries.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        self.delta = Delta::default();
        if self.children.is_empty() {
            let before = self.leaf_bytes();
            self.cells.remove(self.cells.search(key).ok()?);
            return Some(before - if self.cells.len() == 0 { 0 } else { self.leaf_bytes() });
        }
        let index = self.child_of(key);
        let shrunk = Arc::make_mut(&mut self.children[index]).remove(key)?;
        self.counts[index] -= 1;
        if self.counts[index] == 0 {
            self.remove_child(index);
        }
        Some(shrunk)
    }

    fn remove_child(&mut self, index: usize) {
        self.children.remove(index);
        self.counts.remove(index);
        if self.cells.len() > 0 {
            self.cells.remove(index.saturating_sub(1));
        }
    }

    /// Removes the first `count` entries, fewer than there are; returns by how much the memory of
    /// the leaves shrank.
    pub(super) fn drop_first(&mut self, mut count: usize) -> usize {
        self.delta = Delta::default();
        if self.children.is_empty() {
            let before = self.leaf_bytes();
            self.cells = self.cells.copy(count, self.cells.len());
            return before - self.leaf_bytes().min(before);
        }
        let mut shrunk = 0;
        while self.counts[0] <= count {
            count -= self.counts[0];
            shrunk += self.children[0].memory_bytes();
            self.remove_child(0);
        }
        if count > 0 {
            self.counts[0] -= count;
            shrunk += Arc::make_mut(&mut self.children[0]).drop_first(count);
        }
        shrunk
    }

    /// Sum of the weights of all entries below the node. An entry's weight does not change, so each
    /// is weighed once for all owners of the node.
    pub(super) fn delta(&self, weigh: &mut Weigh<'_>) -> Result<i64> {
        let known = self.delta.0.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(known);
        }
        let mut sum = 0;
        if self.children.is_empty() {
            sum = self.weigh(0..self.cells.len(), weigh)?;
        }
        for child in &self.children {
            sum += child.delta(weigh)?;
        }
        self.delta.0.store(sum, Ordering::Relaxed);
        Ok(sum)
    }

    /// Sum of the weights of some of a leaf's entries.
    fn weigh(&self, entries: Range<usize>, weigh: &mut Weigh<'_>) -> Result<i64> {
        let mut sum = 0;
        for entry in entries.filter_map(|index| self.entry(index)) {
            sum += weigh(entry)?;
        }
        Ok(sum)
    }

    /// As [`delta`](Self::delta), for the entries at some positions, and looks at no others.
    /// O(log n) once they have been weighed.
    pub(super) fn delta_of(&self, positions: Range<usize>, weigh: &mut Weigh<'_>) -> Result<i64> {
        if self.children.is_empty() {
            return self.weigh(positions, weigh);
        }
        let mut sum = 0;
        let mut start = 0;
        for (child, count) in self.children.iter().zip(&self.counts) {
            let inside = positions.start.max(start)..positions.end.min(start + count);
            if inside.len() == *count {
                sum += child.delta(weigh)?;
            } else if !inside.is_empty() {
                sum += child.delta_of(inside.start - start..inside.end - start, weigh)?;
            }
            start += count;
        }
        Ok(sum)
    }

    /// As [`delta`](Self::delta), for the entries before the cut. O(log n) once they have been
    /// weighed.
    pub(super) fn delta_before(&self, cut: Cut<'_>, weigh: &mut Weigh<'_>) -> Result<i64> {
        let mut node = self;
        let mut sum = 0;
        while !node.children.is_empty() {
            let index = node.child_of(cut.key);
            for child in &node.children[..index] {
                sum += child.delta(weigh)?;
            }
            node = &node.children[index];
        }
        Ok(sum + node.weigh(0..node.before(cut), weigh)?)
    }
}

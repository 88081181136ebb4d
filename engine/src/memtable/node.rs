//! The nodes of a memtable: a counted B-tree that copies a shared node before a change, and is rebuilt from sorted
//! entries where these are many.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::cells::{Cells, SLOTS};
use super::run::Run;
use super::{Below, Cut, Entry, Former, IS_SORTING};
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

/// The nodes are rebuilt from the old and new entries if there are at most `REBUILT_RATIO` times as
/// many old as new entries, and at least `MIN_REBUILT` new ones.
const REBUILT_RATIO: usize = 4;
const MIN_REBUILT: usize = 64;

/// The nodes of a memtable. A clone takes constant time.
#[derive(Clone, Default)]
pub(super) struct Nodes {
    pub root: Option<Arc<Node>>,
    /// Number of entries.
    pub len: usize,
    /// Memory of the leaves.
    pub bytes: usize,
}

impl Nodes {
    /// Stores entries, given in key order. What a replaced entry knows about the layers below
    /// stays.
    pub(super) fn merge<'e>(
        &mut self,
        count: usize,
        entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>, Option<bool>)>,
    ) {
        if !IS_SORTING || count.saturating_mul(REBUILT_RATIO) < self.len || count < MIN_REBUILT {
            for (key, payload, below) in entries {
                self.put(key, payload, below);
            }
            return;
        }
        let mut builder = Builder::default();
        let mut old = self.entries().peekable();
        for (key, payload, below) in entries {
            while let Some(entry) = old.next_if(|entry| entry.key < key) {
                builder.push(entry);
            }
            let below = match old.next_if(|entry| entry.key == key) {
                Some(entry) => entry.below.clone(),
                None => below.map_or_else(Below::unknown, Below::known),
            };
            let below = &below;
            builder.push(Entry { key, payload, below });
        }
        old.for_each(|entry| builder.push(entry));
        *self = builder.finish();
    }

    /// Stores the changes of sorted runs, given oldest first.
    pub(super) fn merge_runs(&mut self, runs: Vec<Run>) {
        for run in runs {
            let entries = (0..run.len()).filter_map(|index| run.entry(index));
            self.merge(run.len(), entries.map(|(key, payload)| (key, payload, None)));
        }
    }

    /// The entries in key order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
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

    /// See [`Memtable::put`].
    pub(super) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Option<Former> {
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

    /// Removes roots with a single child.
    pub(super) fn shorten(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        }
        while let Some(only) = self.root.as_ref().and_then(|root| root.only_child()) {
            self.root = Some(Arc::clone(only));
        }
    }
}

/// Maximum number of cells in a built node, and of bytes in a built leaf. Both leave space for the
/// next few changes.
const BUILT_SLOTS: usize = SLOTS - SLOTS / 8;
const BUILT_BYTES: usize = LEAF_BYTES - LEAF_BYTES / 8;

/// The nodes of one level, each with the separator before it. The first separator is unused.
type Row = Vec<(Vec<u8>, Node)>;

/// Builds nodes from entries pushed in key order.
#[derive(Default)]
pub(super) struct Builder {
    leaves: Row,
    cells: Cells,
    lower: Vec<u8>,
    /// Bytes of the last leaf's cells.
    leaf_bytes: usize,
    len: usize,
    bytes: usize,
}

impl Builder {
    pub(super) fn push(&mut self, entry: Entry<'_>) {
        let cells = self.cells.len();
        let added = entry.key.len() + entry.payload.map_or(0, <[u8]>::len);
        if cells > 0 && (cells == BUILT_SLOTS || self.cells.cell_bytes() + added > BUILT_BYTES) {
            let last = self.cells.key(cells - 1);
            let lower = entry.key[..=common_prefix(last, entry.key)].to_vec();
            self.end_leaf(lower);
        }
        if self.cells.len() == 0 {
            self.cells = Cells::with_capacity(BUILT_SLOTS, self.leaf_bytes);
        }
        let end = self.cells.len();
        self.cells.insert(end, entry.key, entry.payload, entry.below.clone());
        self.len += 1;
    }

    fn end_leaf(&mut self, next: Vec<u8>) {
        self.leaf_bytes = self.cells.cell_bytes();
        let leaf = Node::leaf(std::mem::take(&mut self.cells));
        self.bytes += leaf.memory_bytes();
        self.leaves.push((std::mem::replace(&mut self.lower, next), leaf));
    }

    pub(super) fn finish(mut self) -> Nodes {
        if self.cells.len() > 0 {
            self.end_leaf(Vec::new());
        }
        let mut row = self.leaves;
        while row.len() > 1 {
            row = above(row);
        }
        Nodes {
            root: row.pop().map(|(_, root)| Arc::new(root)),
            len: self.len,
            bytes: self.bytes,
        }
    }
}

/// Builds the level above.
fn above(row: Row) -> Row {
    // Spread as evenly as possible, so that no node has a single child.
    let nodes = row.len().div_ceil(BUILT_SLOTS);
    let mut left = row.len();
    let mut row = row.into_iter();
    (0..nodes)
        .map(|node| {
            let count = left.div_ceil(nodes - node);
            left -= count;
            let mut lower = Vec::new();
            let mut cells = Cells::default();
            let mut children = Vec::with_capacity(count);
            for (index, (separator, child)) in row.by_ref().take(count).enumerate() {
                if index == 0 {
                    lower = separator;
                } else {
                    cells.insert(index - 1, &separator, None, Below::unknown());
                }
                children.push(child);
            }
            (lower, Node::inner(cells, children))
        })
        .collect()
}

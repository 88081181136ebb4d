//! Merges sorted changes into a tree, in one pass and in slices.
//!
//! A leaf with changes is read once, merged with all of them, and written once, packed. Subtrees
//! without changes are reused as they are.
//!
//! Each level holds back the cells of the last few nodes. Where a run of rewritten nodes ends and
//! its last node would be left nearly empty, the cells are spread evenly over the run. A run too
//! short for that takes in the neighbours that follow. This is after the B*-tree of Knuth, "Sorting
//! and Searching", 1973, which keeps nodes two thirds full by the same means; with nine neighbours
//! it is nine tenths.

use std::sync::Arc;

use cut::Cut;
use level::{Level, RUN_NODES};
pub(crate) use packing::Packing;

use super::{Editor, Pages};
use crate::block::{BlockInfo, BlockRef, Compression, Kind};
use crate::error::{Error, Result};
use crate::node::{Child, Node, SLOT_BYTES};
use crate::pages::{Access, BlockBuffer, Extent, WRITE_BYTES};

mod cut;
mod level;
mod packing;

/// A merge with fewer than one change in this many records is sparse: many leaves have neighbors
/// without changes, and packing a leaf with its neighbors rewrites those as well.
const SPARSE: u64 = 50;

/// A change to one record.
pub(crate) struct Change<'c> {
    pub key: &'c [u8],
    /// The new payload of the leaf's cell; `None` removes the record.
    pub payload: Option<&'c [u8]>,
    /// Whether the tree has the key; `None` if unknown.
    pub is_known: Option<bool>,
}

/// A sequence of changes in ascending key order, at most one per key.
pub(crate) trait Changes {
    fn peek(&self) -> Option<Change<'_>>;
    /// Moves past the change that `peek` returns.
    fn step(&mut self);
}

/// An inner node of the old tree and its next child.
struct Frame {
    node: Arc<Node>,
    next: usize,
}

/// A merge in progress. The old tree does not change meanwhile. Its nodes are retired in the
/// editor's draft; the new nodes are spilled blocks of the draft.
pub(crate) struct Merge {
    levels: Vec<Level>,
    /// Path to the next part of the old tree.
    path: Vec<Frame>,
    /// The old root, until it is visited.
    root: Option<Child>,
    /// A leaf merged only in part, and its next record.
    leaf: Option<(Arc<Node>, usize)>,
    /// Whether the last part visited extends to the end of the key space.
    is_at_end: bool,
    buffer: BlockBuffer,
    /// Whether most leaves have changes, so that packing runs costs little.
    is_dense: bool,
    written: usize,
    packing: Option<Packing>,
    /// The records in this range are removed.
    cut: Option<Cut>,
}

impl Merge {
    /// Merges everything in one pass.
    pub(crate) fn run(mut self, editor: &mut Editor<'_>, changes: &mut dyn Changes) -> Result<()> {
        while self.advance(editor, changes, usize::MAX)? {}
        self.finish(editor, changes)
    }

    /// Starts a merge of about `changes` changes into the tree at `root`.
    pub(crate) fn new(root: Option<Child>, changes: usize) -> Self {
        let records = root.map_or(0, |root| root.count);
        Self {
            is_dense: changes as u64 >= records / SPARSE,
            written: 0,
            packing: None,
            cut: None,
            levels: vec![Level::default()],
            path: Vec::new(),
            root,
            leaf: None,
            is_at_end: false,
            buffer: BlockBuffer::new(WRITE_BYTES),
        }
    }

    /// Continues from how the leaves of an earlier merge compressed. Otherwise the first leaves of
    /// each merge would be of a wrong length.
    pub(crate) fn with_packing(mut self, packing: Option<Packing>) -> Self {
        self.packing = packing;
        self
    }

    /// How the leaves have compressed so far; `None` if none was read or written.
    pub(crate) fn packed(&self) -> Option<Packing> {
        self.packing
    }

    /// Bytes of the nodes written and of the cells held back.
    pub(crate) fn written_bytes(&self) -> usize {
        let held = self.levels.iter().map(|level| level.cells.bytes(0, level.cells.len()));
        self.written + held.sum::<usize>()
    }

    /// Number of bytes to which the nodes of a level are filled.
    fn capacity(&mut self, editor: &Editor<'_>, level: usize) -> usize {
        match level {
            0 => {
                let cells = &self.levels[0].cells;
                let cell_bytes = cells.bytes(0, cells.len()) / cells.len().max(1);
                self.packing(editor).capacity(editor.limits, cell_bytes)
            }
            _ => editor.limits.node_capacity,
        }
    }

    fn packing(&mut self, editor: &Editor<'_>) -> &mut Packing {
        let blocks = &editor.pager.blocks;
        self.packing
            .get_or_insert_with(|| Packing::new(blocks.unit_bytes(), blocks.overhead()))
    }

    /// Merges until the nodes read and the changes taken add up to about `budget` bytes. Returns
    /// `false` once everything is merged, which leaves only [`finish`](Self::finish) to call.
    pub(crate) fn advance(
        &mut self,
        editor: &mut Editor<'_>,
        changes: &mut dyn Changes,
        budget: usize,
    ) -> Result<bool> {
        let mut left = budget;
        while left > 0 {
            let Some(bytes) = self.visit_next(editor, changes, left)? else {
                return Ok(false);
            };
            left = left.saturating_sub(bytes);
        }
        Ok(true)
    }

    /// Merges the next part of the old tree, or of the changes behind it. Returns the bytes read
    /// and taken; `None` if nothing is left.
    fn visit_next(
        &mut self,
        editor: &mut Editor<'_>,
        changes: &mut dyn Changes,
        budget: usize,
    ) -> Result<Option<usize>> {
        if let Some((leaf, next)) = self.leaf.take() {
            return self.take_leaf(editor, changes, leaf, next, budget).map(Some);
        }
        if let Some(root) = self.root.take() {
            let node = editor.pager.root(&root, editor.owner)?;
            return self.enter(editor, changes, &root.pointer, node, budget).map(Some);
        }
        let Some(frame) = self.path.last_mut() else {
            let taken = self.take_changes(editor, changes, None, budget)?;
            return Ok((taken > 0).then_some(taken));
        };
        if frame.next == frame.node.len() {
            self.path.pop();
            return Ok(Some(0));
        }
        let node = Arc::clone(&frame.node);
        let index = frame.next;
        frame.next += 1;
        let (lower, upper) = node.child_fences(index);
        let is_cut = self
            .cut
            .as_ref()
            .is_some_and(|cut| cut.covers(&lower, upper.as_deref()));
        if is_cut {
            // The next node covers the subtree's keys.
            editor.retire_child(&node, index)?;
            self.is_at_end = false;
            return Ok(Some(0));
        }
        let is_changed = changes
            .peek()
            .is_some_and(|change| upper.as_deref().is_none_or(|upper| change.key < upper))
            || self
                .cut
                .as_ref()
                .is_some_and(|cut| cut.touches(&lower, upper.as_deref()));
        let level = usize::from(node.level()) - 1;
        if !is_changed && self.end_levels(editor, level, &lower)? {
            self.push(editor, level + 1, &lower, node.payload(index))?;
            for below in &mut self.levels[..=level] {
                below.lower = upper.clone().unwrap_or_default();
            }
            self.is_at_end = upper.is_none();
            return Ok(Some(0));
        }
        let child = editor.pager.child(&node, index, editor.owner, Access::Scan)?;
        let pointer = node.child(index).pointer;
        self.enter(editor, changes, &pointer, child, budget).map(Some)
    }

    /// Retires a node of the old tree and takes its content.
    fn enter(
        &mut self,
        editor: &mut Editor<'_>,
        changes: &mut dyn Changes,
        pointer: &BlockRef,
        node: Arc<Node>,
        budget: usize,
    ) -> Result<usize> {
        editor.draft.retire_block(pointer);
        self.level(usize::from(node.level())).taken += 1;
        let mut bytes = node.used_bytes();
        if node.is_leaf() {
            self.packing(editor).read(*pointer);
            bytes += self.take_leaf(editor, changes, node, 0, budget)?;
        } else {
            self.path.push(Frame { node, next: 0 });
        }
        Ok(bytes)
    }

    /// Takes the records of a leaf from `first` on, and the changes among them; returns the bytes
    /// of the changes. If they reach the budget before the leaf's end, the leaf is kept for the
    /// next call.
    fn take_leaf(
        &mut self,
        editor: &mut Editor<'_>,
        changes: &mut dyn Changes,
        leaf: Arc<Node>,
        first: usize,
        budget: usize,
    ) -> Result<usize> {
        let mut key = Vec::new();
        let mut taken = 0;
        for index in first..leaf.len() {
            leaf.key_into(index, &mut key);
            taken += self.take_changes(editor, changes, Some(&key), budget.saturating_sub(taken))?;
            if taken >= budget && has_before(changes, Some(&key)) {
                self.leaf = Some((leaf, index));
                return Ok(taken);
            }
            if self.cut.as_ref().is_some_and(|cut| cut.has(&key)) {
                editor.retire_value(&leaf.record(index))?;
                continue;
            }
            let change = changes.peek().filter(|change| change.key == key);
            let Some(change) = change else {
                self.levels[0].cells.push(&key, leaf.payload(index));
                continue;
            };
            check_known(&change, true)?;
            editor.retire_value(&leaf.record(index))?;
            if let Some(payload) = change.payload {
                self.levels[0].cells.push(&key, payload);
            }
            changes.step();
        }
        taken += self.take_changes(editor, changes, leaf.upper_fence(), budget.saturating_sub(taken))?;
        if taken >= budget && has_before(changes, leaf.upper_fence()) {
            let end = leaf.len();
            self.leaf = Some((leaf, end));
            return Ok(taken);
        }
        self.is_at_end = leaf.upper_fence().is_none();
        self.write_full(editor, 0)?;
        Ok(taken)
    }

    /// Takes changes before `end` to records that the tree lacks, up to about `budget` bytes;
    /// returns the bytes taken.
    fn take_changes(
        &mut self,
        editor: &mut Editor<'_>,
        changes: &mut dyn Changes,
        end: Option<&[u8]>,
        budget: usize,
    ) -> Result<usize> {
        let capacity = self.capacity(editor, 0);
        let mut taken = 0;
        while taken < budget
            && let Some(change) = changes.peek().filter(|change| end.is_none_or(|end| change.key < end))
        {
            check_known(&change, false)?;
            taken += change.key.len() + SLOT_BYTES;
            if let Some(payload) = change.payload {
                taken += payload.len();
                self.levels[0].cells.push(change.key, payload);
            }
            changes.step();
            if self.levels[0].cells.bytes.len() > 2 * RUN_NODES * capacity {
                self.write_full(editor, 0)?;
            }
        }
        Ok(taken)
    }

    /// Ends the levels up to `level` at `boundary`; `false` if this would leave one of them with
    /// nodes far from full.
    fn end_levels(&mut self, editor: &mut Editor<'_>, level: usize, boundary: &[u8]) -> Result<bool> {
        for level in 0..=level {
            let is_dense = self.is_dense;
            let capacity = self.capacity(editor, level);
            if !self.level(level).may_end(boundary, capacity, is_dense) {
                return Ok(false);
            }
            self.end_level(editor, level, Some(boundary))?;
        }
        Ok(true)
    }

    fn level(&mut self, level: usize) -> &mut Level {
        while self.levels.len() <= level {
            let number = self.levels.len() as u8;
            self.levels.push(Level {
                number,
                ..Level::default()
            });
        }
        &mut self.levels[level]
    }

    /// Writes all cells of a level; its last node ends at `end`.
    fn end_level(&mut self, editor: &mut Editor<'_>, level: usize, end: Option<&[u8]>) -> Result<()> {
        let capacity = self.capacity(editor, level);
        let ends = {
            let level = self.level(level);
            let packed = level.packed(end, capacity);
            // At the right edge, later inserts may follow: full nodes stay full.
            let spread = end.and_then(|_| level.spread(packed.len(), end, capacity));
            spread.unwrap_or(packed)
        };
        self.write(editor, level, &ends, end)?;
        self.levels[level].taken = 0;
        if let Some(end) = end {
            end.clone_into(&mut self.levels[level].lower);
        }
        Ok(())
    }

    /// Writes full nodes until the level holds back no more than a run needs.
    fn write_full(&mut self, editor: &mut Editor<'_>, level: usize) -> Result<()> {
        let capacity = self.capacity(editor, level);
        let held = self.level(level);
        let len = held.cells.len();
        // Several nodes at once: each write moves the cells that are held back.
        if held.cells.bytes(0, len) <= 2 * RUN_NODES * capacity {
            return Ok(());
        }
        let mut ends = Vec::new();
        let mut from = 0;
        while held.cells.bytes(from, len) > (RUN_NODES + 1) * capacity {
            from = held.full_end(from, None, capacity);
            ends.push(from);
        }
        self.write(editor, level, &ends, None)
    }

    /// Writes the nodes that end at `ends` and adds references to them to the level above.
    fn write(&mut self, editor: &mut Editor<'_>, level: usize, ends: &[usize], end: Option<&[u8]>) -> Result<()> {
        let Some(last) = ends.last().copied() else {
            return Ok(());
        };
        let capacity = self.capacity(editor, level);
        let mut from = 0;
        for to in ends {
            let node = self.levels[level].build(from, *to, end, capacity);
            let lower = node.lower_fence().to_vec();
            let child = self.write_node(editor, node)?;
            self.level(level + 1).cells.push(&lower, &child.encode());
            from = *to;
        }
        let written = &mut self.levels[level];
        if last < written.cells.len() {
            written.lower = written.fence(last).to_vec();
        }
        written.cells.drop_front(last);
        written.taken = written.taken.saturating_sub(ends.len());
        self.write_full(editor, level + 1)
    }

    fn push(&mut self, editor: &mut Editor<'_>, level: usize, key: &[u8], payload: &[u8]) -> Result<()> {
        self.level(level).cells.push(key, payload);
        self.write_full(editor, level)
    }

    fn write_node(&mut self, editor: &mut Editor<'_>, node: Node) -> Result<Child> {
        let info = BlockInfo {
            kind: if node.is_leaf() { Kind::Leaf } else { Kind::Inner },
            level: node.level(),
            owner: editor.owner,
            generation: editor.generation,
        };
        self.written += node.used_bytes();
        let number = editor.pager.next_block_number();
        let is_tried = !node.is_leaf() || self.packing(editor).should_try();
        let compression = if is_tried {
            editor.compression
        } else {
            Compression::None
        };
        let reference = editor.put_spilled(&mut self.buffer, info, compression, &node.numbered_image(&number))?;
        if node.is_leaf() && is_tried {
            let packed_len = self.buffer.packed_len;
            self.packing(editor).wrote(reference.raw_len as usize, packed_len);
        }
        let child = node.as_child(reference);
        editor.pager.insert_if_space(reference.unit, node);
        Ok(child)
    }

    /// Merges the remaining changes, writes the cells held back, and hands the new root to the editor.
    pub(crate) fn finish(mut self, editor: &mut Editor<'_>, changes: &mut dyn Changes) -> Result<()> {
        while self.advance(editor, changes, usize::MAX)? {}
        let is_open = |level: &Level| level.cells.len() > 0;
        if !is_open(&self.levels[0]) && self.levels.iter().any(is_open) && !self.is_closed_at_end() {
            // All records behind the last reused subtree are gone: an empty leaf covers their keys
            // until the next merge.
            let node = Node::new(editor.limits.node_capacity, 0, &self.levels[0].lower, None);
            let child = self.write_node(editor, node)?;
            let lower = self.levels[0].lower.clone();
            self.push(editor, 1, &lower, &child.encode())?;
        }
        let mut level = 0;
        let root = loop {
            let is_top = !self.levels[level + 1..].iter().any(is_open);
            let cells = &self.levels[level].cells;
            if is_top && level > 0 && cells.len() == 1 {
                break Child::decode(cells.payload(0));
            }
            if is_top && cells.len() == 0 {
                break None;
            }
            self.end_level(editor, level, None)?;
            level += 1;
        };
        self.buffer.flush(&editor.pager.blocks)?;
        *editor.root = root;
        Ok(())
    }

    /// Whether the last part was a reused subtree that extends to the end of the key space.
    fn is_closed_at_end(&self) -> bool {
        self.is_at_end && self.levels[0].lower.is_empty()
    }
}

impl Editor<'_> {
    /// Encodes a block and gives it an extent that only the draft knows.
    fn put_spilled(
        &mut self,
        buffer: &mut BlockBuffer,
        info: BlockInfo,
        compression: Compression,
        payload: &[&[u8]],
    ) -> Result<BlockRef> {
        let spilled = &mut self.draft.spilled;
        let note = |extent: Extent| {
            spilled.insert(extent.start, extent.units);
        };
        let blocks = &self.pager.blocks;
        buffer.put(blocks, self.free, note, compression, info, payload)
    }
}

/// Whether there is a change before `end`.
fn has_before(changes: &dyn Changes, end: Option<&[u8]>) -> bool {
    let next = changes.peek();
    next.is_some_and(|change| end.is_none_or(|end| change.key < end))
}

fn check_known(change: &Change<'_>, is_there: bool) -> Result<()> {
    if change.is_known.is_some_and(|known| known != is_there) {
        return Err(Error::corrupt("a memtable and its tree disagree about a record"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

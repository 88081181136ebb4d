//! Moving blocks of one tree to lower addresses, a bounded part at a time. Nothing that a reader can see changes: keys, counts and the shape of
//! the tree stay, only references differ.
//!
//! The walk reads the tree as it was before the changes, which go to the draft. A node is moved by adopting it, so that the checkpoint writes
//! it again; what the checkpoint will need is reserved below the bound beforehand. Blocks of values are copied as they are.

use std::sync::Arc;

use super::value::{self, CHUNK_BYTES};
use super::{Editor, Pages};
use crate::block::{BlockRef, HEADER_BYTES, Kind, Pointer};
use crate::error::Result;
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::{Access, Extent, FreeExtents, Pager};

/// Pages that one part reads at most, not counting the last path.
const MAX_READS: u64 = 1024;

/// What to move and where.
#[derive(Clone, Copy)]
pub(crate) struct Aim {
    /// Blocks that reach beyond this unit are moved below it.
    pub bound: u64,
    /// They may also stay above it, as long as they get lower.
    pub is_dense: bool,
}

impl Aim {
    /// Unit below which a block that lies too high may go.
    fn ceiling(&self, reference: &BlockRef) -> u64 {
        if self.is_dense {
            self.bound.max(reference.unit)
        } else {
            self.bound
        }
    }
}

/// What is moved, and what came of it.
pub(crate) struct Relocation {
    aim: Aim,
    /// Units that may still be moved.
    left: u64,
    reads: u64,
    /// Units of the blocks that were moved.
    pub moved: u64,
    /// Where the nodes of the draft are expected to go. To be freed before the checkpoint.
    pub reserved: Vec<Extent>,
    /// Key at which the next part begins; `None`: the tree is done.
    pub next: Option<Vec<u8>>,
}

/// A node on the way down.
struct Step {
    units: u64,
    is_moved: bool,
}

impl Relocation {
    pub(crate) fn new(aim: Aim, units: u64) -> Self {
        Self {
            aim,
            left: units,
            reads: MAX_READS,
            moved: 0,
            reserved: Vec::new(),
            next: None,
        }
    }

    fn is_above(&self, reference: &BlockRef) -> bool {
        is_above(reference, self.aim.bound)
    }

    /// Whether this part is over; `at` is where the next one begins then.
    pub(crate) fn is_spent(&mut self, at: impl FnOnce() -> Vec<u8>) -> bool {
        let spent = self.left == 0 || self.reads == 0;
        if spent {
            self.next = Some(at());
        }
        spent
    }

    fn count(&mut self, units: u64) {
        self.moved += units;
        self.left = self.left.saturating_sub(units);
    }

    /// Reserves room for the nodes of a path; `false`, with nothing reserved, if there is not enough below `ceiling`.
    fn claim(&mut self, free: &mut FreeExtents, path: &mut [Step], ceiling: u64) -> Result<bool> {
        let before = self.reserved.len();
        for step in path.iter().filter(|step| !step.is_moved) {
            let Some(extent) = free.allocate_below(step.units, ceiling) else {
                for extent in self.reserved.drain(before..) {
                    free.free(extent)?;
                }
                return Ok(false);
            };
            self.reserved.push(extent);
        }
        for step in path.iter_mut().filter(|step| !step.is_moved) {
            step.is_moved = true;
            self.moved += step.units;
            self.left = self.left.saturating_sub(step.units);
        }
        Ok(true)
    }
}

/// Whether a block reaches beyond a unit.
fn is_above(reference: &BlockRef, bound: u64) -> bool {
    reference.unit + u64::from(reference.units) > bound
}

fn units_of(pointer: &Pointer) -> u64 {
    match pointer {
        Pointer::Disk(reference) => u64::from(reference.units),
        Pointer::Memory(_) => 0,
    }
}

fn reference_of(pointer: &Pointer) -> Option<&BlockRef> {
    match pointer {
        Pointer::Disk(reference) => Some(reference),
        Pointer::Memory(_) => None,
    }
}

impl Editor<'_> {
    /// Moves blocks from the one that covers key `from` on. The tree must have no page that only memory has.
    pub(crate) fn relocate(&mut self, from: &[u8], relocation: &mut Relocation) -> Result<()> {
        let Some(root) = *self.root else { return Ok(()) };
        relocation.reads = relocation.reads.saturating_sub(1);
        let node = self.pager.root(&root, self.owner)?;
        self.relocate_node(&root.pointer, &node, from, &mut Vec::new(), relocation)?;
        Ok(())
    }

    /// Returns whether to go on behind this node.
    fn relocate_node(
        &mut self,
        pointer: &Pointer,
        node: &Node,
        from: &[u8],
        path: &mut Vec<Step>,
        relocation: &mut Relocation,
    ) -> Result<bool> {
        path.push(Step {
            units: units_of(pointer),
            is_moved: false,
        });
        let go_on = self.relocate_here(pointer, node.lower_fence(), node.level(), path, relocation)?
            && if node.is_leaf() {
                self.relocate_values(node, from, path, relocation)?
            } else {
                self.relocate_children(node, from, path, relocation)?
            };
        path.pop();
        Ok(go_on)
    }

    fn relocate_children(
        &mut self,
        node: &Node,
        from: &[u8],
        path: &mut Vec<Step>,
        relocation: &mut Relocation,
    ) -> Result<bool> {
        let first = if node.lower_fence() < from {
            node.child_index(from)
        } else {
            0
        };
        for index in first..node.len() {
            let child = node.child(index);
            let go_on = if node.level() == 1 && !child.has_overflow {
                self.relocate_plain_leaf(node, index, &child, path, relocation)?
            } else {
                // The path itself is read in any case, so that each part gets further than the one before.
                if index > first && relocation.is_spent(|| node.key(index)) {
                    return Ok(false);
                }
                let below = self.pager.child(node, index, self.owner, Access::Scan)?;
                relocation.reads = relocation.reads.saturating_sub(1);
                self.relocate_node(&child.pointer, &below, from, path, relocation)?
            };
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A leaf whose reference says enough.
    fn relocate_plain_leaf(
        &mut self,
        parent: &Node,
        index: usize,
        child: &Child,
        path: &mut Vec<Step>,
        relocation: &mut Relocation,
    ) -> Result<bool> {
        if !reference_of(&child.pointer).is_some_and(|reference| relocation.is_above(reference)) {
            return Ok(true);
        }
        path.push(Step {
            units: units_of(&child.pointer),
            is_moved: false,
        });
        let go_on = self.relocate_here(&child.pointer, &parent.key(index), 0, path, relocation)?;
        path.pop();
        Ok(go_on)
    }

    /// Moves the node at the end of the path if it lies too high; returns whether to go on.
    fn relocate_here(
        &mut self,
        pointer: &Pointer,
        key: &[u8],
        level: u8,
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<bool> {
        let Some(reference) = reference_of(pointer).filter(|reference| relocation.is_above(reference)) else {
            return Ok(true);
        };
        if relocation.is_spent(|| key.to_vec()) {
            return Ok(false);
        }
        let ceiling = relocation.aim.ceiling(reference);
        if relocation.claim(self.free, path, ceiling)? {
            self.own_node(key, level)?;
        }
        Ok(true)
    }

    /// The node on `level` that covers `key`, as a page of the draft.
    fn own_node(&mut self, key: &[u8], level: u8) -> Result<u64> {
        let root = self.root.expect("a tree with nodes has a root");
        let mut number = self.own_root(root)?;
        while self.node(number).level() > level {
            let index = self.node(number).child_index(key);
            number = self.own_child(number, index)?;
        }
        Ok(number)
    }

    fn relocate_values(
        &mut self,
        leaf: &Node,
        from: &[u8],
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<bool> {
        if !leaf.has_overflow() {
            return Ok(true);
        }
        let (first, _) = leaf.lower_bound(from);
        for index in first..leaf.len() {
            let record = leaf.record(index);
            let ValuePlace::OutOfLine(reference) = record.place else {
                continue;
            };
            let is_long = record.value_len > CHUNK_BYTES;
            if !is_long && !relocation.is_above(&reference) {
                continue;
            }
            let key = leaf.key(index);
            if relocation.is_spent(|| key.clone()) {
                return Ok(false);
            }
            let moved = if is_long {
                self.move_long_value(record.value_len, &reference, path, relocation)?
            } else {
                self.move_block(&reference, path, relocation)?
            };
            if let Some(moved) = moved {
                let leaf = self.own_node(&key, 0)?;
                let mut payload = Vec::new();
                let cell = LeafCell {
                    place: ValuePlace::OutOfLine(moved),
                    ..record
                };
                cell.encode_into(&mut payload);
                let fits = self.draft.node_mut(leaf).replace_payload(index, &payload);
                debug_assert!(fits, "the references are equally long");
            }
            // Chunks of the value may be left.
            if is_long && relocation.is_spent(|| key) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies a chunk as it is to the lowest place below the bound; `None` if there is no room for it or for the path to it.
    fn move_block(
        &mut self,
        reference: &BlockRef,
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<Option<BlockRef>> {
        let units = u64::from(reference.units);
        let ceiling = relocation.aim.ceiling(reference);
        let Some(extent) = self.free.allocate_below(units, ceiling) else {
            return Ok(None);
        };
        if !relocation.claim(self.free, path, ceiling)? {
            self.free.free(extent)?;
            return Ok(None);
        }
        self.draft.allocated.push(extent);
        let blocks = &self.pager.blocks;
        let block = blocks.read_stored(reference, Kind::ValueChunk, self.owner)?;
        blocks.write_units(extent.start, &block)?;
        self.draft.retire_block(reference);
        relocation.count(units);
        Ok(Some(BlockRef {
            unit: extent.start,
            ..*reference
        }))
    }

    /// Moves chunks of a long value, one at least if there is room, and writes its index again.
    fn move_long_value(
        &mut self,
        value_len: usize,
        reference: &BlockRef,
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<Option<BlockRef>> {
        relocation.reads = relocation.reads.saturating_sub(1);
        let blocks = &self.pager.blocks;
        let mut chunks = value::chunks(blocks, self.owner, value_len, reference)?;
        // The index may compress less well than before.
        let most = blocks.units_for(HEADER_BYTES + reference.raw_len as usize);
        let highest = chunks.iter().chain([reference]).max_by_key(|block| block.unit);
        let ceiling = relocation.aim.ceiling(highest.unwrap_or(reference));
        let Some(extent) = self.free.allocate_below(most, ceiling) else {
            return Ok(None);
        };
        let mut any = false;
        for chunk in &mut chunks {
            if relocation.is_above(chunk)
                && (relocation.left > 0 || !any)
                && let Some(moved) = self.move_block(chunk, path, relocation)?
            {
                *chunk = moved;
                any = true;
            }
        }
        self.free.free(extent)?;
        if !any {
            any = relocation.is_above(reference) && relocation.claim(self.free, path, ceiling)?;
        }
        if !any {
            return Ok(None);
        }
        let index: Vec<u8> = chunks.iter().flat_map(BlockRef::encode).collect();
        self.draft.retire_block(reference);
        relocation.count(u64::from(reference.units));
        self.write_value_block(Kind::ValueIndex, &index).map(Some)
    }
}

/// Whether a block on the way to a record, or one of its value, reaches beyond a unit.
pub(crate) fn reaches_above(pager: &Pager, root: Option<&Child>, owner: u32, key: &[u8], bound: u64) -> Result<bool> {
    let Some(root) = root else { return Ok(false) };
    let mut pointer = root.pointer;
    let mut node: Arc<Node> = pager.root(root, owner)?;
    loop {
        if reference_of(&pointer).is_some_and(|reference| is_above(reference, bound)) {
            return Ok(true);
        }
        if node.is_leaf() {
            break;
        }
        let index = node.child_index(key);
        pointer = node.child(index).pointer;
        node = pager.child(&node, index, owner, Access::Point)?;
    }
    let (index, found) = node.lower_bound(key);
    if !found {
        return Ok(false);
    }
    let references = value::references(&pager.blocks, owner, &node.record(index))?;
    Ok(references.iter().any(|reference| is_above(reference, bound)))
}

//! Moves blocks of one tree to lower addresses, a bounded part at a time. Readers see no change:
//! keys, counts and the shape of the tree stay the same; only references differ.
//!
//! The walk reads the old tree. A node that lies too high, or has a child or value that was moved,
//! is rewritten once the subtree below it is done. Space for the nodes on the path to a block is
//! reserved before the block is moved. Value blocks are copied unchanged.

use std::sync::Arc;

use super::value::{self, CHUNK_BYTES};
use super::{Editor, Pages};
use crate::block::{BlockInfo, BlockRef, Kind};
use crate::error::Result;
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::{Access, Extent, FreeSpace, Pager};

/// Maximum number of pages that one part reads, not counting the last path.
const MAX_READS: u64 = 1024;

/// Which blocks to move, and where to.
#[derive(Clone, Copy)]
pub(crate) struct Aim {
    /// Blocks that extend beyond this unit are moved below it.
    pub bound: u64,
    /// Whether these blocks may also stay above the bound, as long as they move lower.
    pub is_dense: bool,
}

impl Aim {
    /// Unit below which a block that lies too high may be placed.
    fn ceiling(&self, reference: &BlockRef) -> u64 {
        if self.is_dense {
            self.bound.max(reference.unit)
        } else {
            self.bound
        }
    }
}

/// One part of a relocation: its aim, its remaining budget and its results.
pub(crate) struct Relocation {
    aim: Aim,
    /// Units that may still be moved.
    left: u64,
    reads: u64,
    /// Units of the blocks moved so far.
    pub moved: u64,
    /// Extents reserved for the nodes of the path that have to be rewritten, from the root on.
    pub reserved: Vec<Extent>,
    /// Key at which the next part starts; `None` once the tree is done.
    pub next: Option<Vec<u8>>,
}

/// A node on the path from the root.
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

    /// Whether this part is over. If so, the next one starts at the key that `at` returns.
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

    /// Reserves space for the nodes of a path; `false`, with nothing reserved, if there is not
    /// enough below `ceiling`.
    fn claim(&mut self, free: &FreeSpace, path: &mut [Step], ceiling: u64) -> Result<bool> {
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

/// Whether a block extends beyond unit `bound`.
fn is_above(reference: &BlockRef, bound: u64) -> bool {
    reference.unit + u64::from(reference.units) > bound
}

impl Editor<'_> {
    /// Moves blocks, starting with the one that covers key `from`.
    pub(crate) fn relocate(&mut self, from: &[u8], relocation: &mut Relocation) -> Result<()> {
        let Some(root) = *self.root else { return Ok(()) };
        relocation.reads = relocation.reads.saturating_sub(1);
        let node = self.pager.root(&root, self.owner)?;
        let (moved, _) = self.relocate_node(&root, &node, from, &mut Vec::new(), relocation)?;
        if moved.is_some() {
            *self.root = moved;
        }
        Ok(())
    }

    /// Returns the new reference to a node if it was rewritten, and whether to continue behind it.
    fn relocate_node(
        &mut self,
        child: &Child,
        node: &Node,
        from: &[u8],
        path: &mut Vec<Step>,
        relocation: &mut Relocation,
    ) -> Result<(Option<Child>, bool)> {
        path.push(Step {
            units: u64::from(child.pointer.units),
            is_moved: false,
        });
        let mut copy = None;
        let mut go_on = true;
        if relocation.is_above(&child.pointer) {
            go_on = !relocation.is_spent(|| node.lower_fence().to_vec());
            if go_on {
                relocation.claim(self.free, path, relocation.aim.ceiling(&child.pointer))?;
            }
        }
        if go_on {
            go_on = if node.is_leaf() {
                self.relocate_values(node, &mut copy, from, path, relocation)?
            } else {
                self.relocate_children(node, &mut copy, from, path, relocation)?
            };
        }
        let mut moved = None;
        if path.pop().is_some_and(|step| step.is_moved) {
            if let Some(reserved) = relocation.reserved.pop() {
                self.free.free(reserved)?;
            }
            let node = copy.unwrap_or_else(|| node.writable_copy(0));
            let (block, reference) = self.encode_node(&node);
            let extent = self.free.allocate(u64::from(reference.units))?;
            moved = Some(self.place(child, node, block, reference, extent)?);
        }
        Ok((moved, go_on))
    }

    fn relocate_children(
        &mut self,
        node: &Node,
        copy: &mut Option<Node>,
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
            let is_plain = node.level() == 1 && !child.has_overflow;
            if is_plain && !relocation.is_above(&child.pointer) {
                continue;
            }
            // The path itself is always read, so that each part gets further than the one before.
            if (is_plain || index > first) && relocation.is_spent(|| node.key(index)) {
                return Ok(false);
            }
            let below = self.pager.child(node, index, self.owner, Access::Scan)?;
            relocation.reads = relocation.reads.saturating_sub(1);
            let (moved, go_on) = if is_plain {
                (self.relocate_leaf(&child, &below, path, relocation)?, true)
            } else {
                self.relocate_node(&child, &below, from, path, relocation)?
            };
            if let Some(moved) = moved {
                copy.get_or_insert_with(|| node.writable_copy(0))
                    .set_child(index, moved);
            }
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves a leaf without out-of-line values, if there is space for it and for the path to it.
    fn relocate_leaf(
        &mut self,
        child: &Child,
        leaf: &Node,
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<Option<Child>> {
        let leaf = leaf.writable_copy(0);
        let (block, reference) = self.encode_node(&leaf);
        let ceiling = relocation.aim.ceiling(&child.pointer);
        let units = u64::from(reference.units);
        let Some(extent) = self.free.allocate_below(units, ceiling) else {
            return Ok(None);
        };
        if !relocation.claim(self.free, path, ceiling)? {
            self.free.free(extent)?;
            return Ok(None);
        }
        relocation.count(units);
        self.place(child, leaf, block, reference, extent).map(Some)
    }

    /// Encodes the block of a node; the reference lacks its address.
    fn encode_node(&self, node: &Node) -> (Vec<u8>, BlockRef) {
        let info = BlockInfo {
            kind: if node.is_leaf() { Kind::Leaf } else { Kind::Inner },
            level: node.level(),
            owner: self.owner,
            generation: self.generation,
        };
        let number = self.pager.next_block_number();
        let blocks = &self.pager.blocks;
        let mut block = Vec::new();
        let reference = blocks.encode(info, &node.numbered_image(&number), self.compression, &mut block);
        (block, reference)
    }

    /// Writes a node's block to its new extent, replacing `child`.
    fn place(
        &mut self,
        child: &Child,
        node: Node,
        mut block: Vec<u8>,
        mut reference: BlockRef,
        extent: Extent,
    ) -> Result<Child> {
        self.draft.spilled.insert(extent.start, extent.units);
        let blocks = &self.pager.blocks;
        blocks.place(&mut block, &mut reference, extent.start);
        blocks.write_units(extent.start, &block)?;
        self.draft.retire_block(&child.pointer);
        self.pager.insert_if_room(extent.start, node);
        Ok(Child {
            pointer: reference,
            ..*child
        })
    }

    fn relocate_values(
        &mut self,
        leaf: &Node,
        copy: &mut Option<Node>,
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
                let mut payload = Vec::new();
                let cell = LeafCell {
                    place: ValuePlace::OutOfLine(moved),
                    ..record
                };
                cell.encode_into(&mut payload);
                let copy = copy.get_or_insert_with(|| leaf.writable_copy(0));
                let fits = copy.replace_payload(index, &payload);
                debug_assert!(fits, "the references are equally long");
            }
            // Some chunks of the value may still have to be moved.
            if is_long && relocation.is_spent(|| key) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies a chunk unchanged to the lowest free extent below its ceiling; `None` if there is no
    /// space for it or for the path to it.
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
        let mut block = blocks.read_stored(reference, Kind::ValueChunk, self.owner)?;
        let mut moved = *reference;
        blocks.place(&mut block, &mut moved, extent.start);
        blocks.write_units(extent.start, &block)?;
        self.draft.retire_block(reference);
        relocation.count(units);
        Ok(Some(moved))
    }

    /// Moves chunks of a long value, at least one if there is space, and rewrites its index.
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
        // The new index may compress less well than the old one.
        let most = blocks.units_for(blocks.overhead() + reference.raw_len as usize);
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

/// Whether a block on the path to a record, or a block of its value, extends beyond unit `bound`.
pub(crate) fn reaches_above(pager: &Pager, root: Option<&Child>, owner: u32, key: &[u8], bound: u64) -> Result<bool> {
    let Some(root) = root else { return Ok(false) };
    let mut reference = root.pointer;
    let mut node: Arc<Node> = pager.root(root, owner)?;
    loop {
        if is_above(&reference, bound) {
            return Ok(true);
        }
        if node.is_leaf() {
            break;
        }
        let index = node.child_index(key);
        reference = node.child(index).pointer;
        node = pager.child(&node, index, owner, Access::Point)?;
    }
    let (index, found) = node.lower_bound(key);
    if !found {
        return Ok(false);
    }
    let references = value::references(&pager.blocks, owner, &node.record(index))?;
    Ok(references.iter().any(|reference| is_above(reference, bound)))
}

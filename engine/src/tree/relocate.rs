//! Moves blocks of one tree to other addresses, a bounded part at a time. Readers see no change:
//! keys, counts and the shape of the tree stay the same; only references differ.
//!
//! The walk reads the old tree. A node that has to move, or has a child or value that was moved, is
//! rewritten once the subtree below it is done. Space for the nodes on the path to a block is
//! reserved before the block is moved. The payloads of value blocks are copied unchanged.

use std::sync::Arc;

use super::value::{self, CHUNK_BYTES};
use super::{Editor, Pages, read};
use crate::block::{BlockFile, BlockInfo, BlockRef, Kind};
use crate::error::{Error, Result};
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::{Access, Extent, FreeSpace, Pager};

/// Maximum number of pages that one part reads, not counting the last path.
const MAX_READS: u64 = 1024;

/// Which blocks to move, and where to.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// Those that extend beyond the unit `bound`, below it. If `is_dense`, they may also stay above
    /// it, as long as they move lower.
    Below { bound: u64, is_dense: bool },
    /// Those written before a checkpoint, anywhere.
    #[cfg(feature = "encryption")]
    Renew { generation: u64 },
}

impl Aim {
    #[cfg_attr(
        not(feature = "encryption"),
        allow(unused_variables, clippy::unnecessary_wraps, reason = "only `Renew` reads headers")
    )]
    fn applies_to(&self, blocks: &BlockFile, reference: &BlockRef) -> Result<bool> {
        match *self {
            Self::Below { bound, .. } => Ok(reference.unit + u64::from(reference.units) > bound),
            #[cfg(feature = "encryption")]
            Self::Renew { generation } => blocks.is_older(reference, generation),
        }
    }

    /// Whether [`applies_to`](Self::applies_to) reads the block's header.
    fn reads_headers(&self) -> bool {
        !matches!(self, Self::Below { .. })
    }

    /// Unit below which a block that has to move may be placed; `None` if it may be anywhere.
    #[cfg_attr(
        not(feature = "encryption"),
        allow(clippy::unnecessary_wraps, reason = "only blocks under `Renew` may be anywhere")
    )]
    fn ceiling(&self, reference: &BlockRef) -> Option<u64> {
        match *self {
            Self::Below { bound, is_dense: false } => Some(bound),
            Self::Below { bound, is_dense: true } => Some(bound.max(reference.unit)),
            #[cfg(feature = "encryption")]
            Self::Renew { .. } => None,
        }
    }
}

/// Allocates an extent below `ceiling`, if one is free there. Without a ceiling the file may grow.
fn allocate(free: &FreeSpace, units: u64, ceiling: Option<u64>) -> Result<Option<Extent>> {
    match ceiling {
        Some(ceiling) => Ok(free.allocate_below(units, ceiling)),
        None => free.allocate(units).map(Some),
    }
}

/// One part of a relocation: its aim, its remaining budget and its results.
pub(crate) struct Relocation {
    aim: Aim,
    /// Units that may still be moved.
    left: u64,
    reads: u64,
    /// Records whose blocks were looked at, in this part, from the key on at which it started.
    passed: u64,
    /// Units of the blocks moved so far.
    pub moved: u64,
    /// A block has to move, or had to.
    pub has_found: bool,
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
            passed: 0,
            moved: 0,
            has_found: false,
            reserved: Vec::new(),
            next: None,
        }
    }

    /// Whether this part is over. If so, the next one starts at the key that `at` returns.
    pub(crate) fn is_spent(&mut self, at: impl FnOnce() -> Vec<u8>) -> bool {
        let spent = self.left == 0 || self.reads == 0;
        if spent {
            self.next = Some(at());
        }
        spent
    }

    fn applies_to(&mut self, blocks: &BlockFile, reference: &BlockRef) -> Result<bool> {
        if self.aim.reads_headers() {
            self.reads = self.reads.saturating_sub(1);
        }
        let applies = self.aim.applies_to(blocks, reference)?;
        self.has_found |= applies;
        Ok(applies)
    }

    fn count(&mut self, units: u64) {
        self.moved += units;
        self.left = self.left.saturating_sub(units);
    }

    /// As [`claim`](Self::claim), for a block that got `extent`, which is freed unless all succeeds.
    fn claim_for(&mut self, free: &FreeSpace, path: &mut [Step], ceiling: Option<u64>, extent: Extent) -> Result<bool> {
        let claimed = self.claim(free, path, ceiling);
        if claimed != Ok(true) {
            free.free(extent)?;
        }
        claimed
    }

    /// Reserves space for the nodes of a path; `false`, with nothing reserved, if there is not
    /// enough below `ceiling`.
    fn claim(&mut self, free: &FreeSpace, path: &mut [Step], ceiling: Option<u64>) -> Result<bool> {
        let before = self.reserved.len();
        for step in path.iter().filter(|step| !step.is_moved) {
            match allocate(free, step.units, ceiling) {
                Ok(Some(extent)) => self.reserved.push(extent),
                refused => {
                    for extent in self.reserved.drain(before..) {
                        free.free(extent)?;
                    }
                    return refused.map(|_| false);
                }
            }
        }
        for step in path.iter_mut().filter(|step| !step.is_moved) {
            step.is_moved = true;
            self.moved += step.units;
            self.left = self.left.saturating_sub(step.units);
        }
        Ok(true)
    }
}

impl Editor<'_> {
    /// Moves blocks, starting with the one that covers key `from`.
    pub(crate) fn relocate(&mut self, from: &[u8], relocation: &mut Relocation) -> Result<()> {
        let Some(root) = *self.root else { return Ok(()) };
        relocation.reads = relocation.reads.saturating_sub(1);
        let node = self.pager.root(&root, self.owner)?;
        relocation.passed = 0;
        let (moved, _) = self.relocate_node(&root, &node, from, &mut Vec::new(), relocation)?;
        if relocation.passed < self.records_between(&root, from, relocation.next.as_deref())? {
            return Err(Error::corrupt("a tree states more records than there are"));
        }
        if moved.is_some() {
            *self.root = moved;
        }
        Ok(())
    }

    /// Number of records from one key on and up to another, by the counts in inner nodes. A part that
    /// passed over some of them would discard a data key that they need.
    fn records_between(&self, root: &Child, from: &[u8], to: Option<&[u8]>) -> Result<u64> {
        let below = |key| read::rank(self.pager, Some(root), self.owner, key).map(|(below, _)| below);
        let end = to.map_or(Ok(root.count), below)?;
        Ok(end.saturating_sub(below(from)?))
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
        if relocation.applies_to(&self.pager.blocks, &child.pointer)? {
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
            if is_plain && relocation.aim.reads_headers() && relocation.is_spent(|| node.key(index)) {
                return Ok(false);
            }
            if is_plain && !relocation.applies_to(&self.pager.blocks, &child.pointer)? {
                relocation.passed += child.count;
                continue;
            }
            // The path itself is always read, so that each part gets further than the one before.
            if (is_plain || index > first) && relocation.is_spent(|| node.key(index)) {
                return Ok(false);
            }
            let below = self.pager.child(node, index, self.owner, Access::Scan)?;
            relocation.reads = relocation.reads.saturating_sub(1);
            let (moved, go_on) = if is_plain {
                relocation.passed += child.count;
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
        let Some(extent) = allocate(self.free, units, ceiling)? else {
            return Ok(None);
        };
        if !relocation.claim_for(self.free, path, ceiling, extent)? {
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
        self.pager.insert_if_space(extent.start, node);
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
        let (first, _) = leaf.lower_bound_outside(from);
        let end = if leaf.has_overflow() { leaf.len() } else { first };
        for index in first..end {
            let record = leaf.record(index);
            let ValuePlace::OutOfLine(reference) = record.place else {
                continue;
            };
            let is_long = record.value_len > CHUNK_BYTES;
            if !is_long && !relocation.applies_to(&self.pager.blocks, &reference)? {
                continue;
            }
            let key = leaf.key(index);
            if relocation.is_spent(|| key.clone()) {
                relocation.passed += (index - first) as u64;
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
                relocation.passed += (index - first) as u64;
                return Ok(false);
            }
        }
        relocation.passed += (leaf.len() - first) as u64;
        Ok(true)
    }

    /// Copies a chunk to the lowest free extent below its ceiling; `None` if there is no space for it
    /// or for the path to it.
    fn move_block(
        &mut self,
        reference: &BlockRef,
        path: &mut [Step],
        relocation: &mut Relocation,
    ) -> Result<Option<BlockRef>> {
        let units = u64::from(reference.units);
        let ceiling = relocation.aim.ceiling(reference);
        let Some(extent) = allocate(self.free, units, ceiling)? else {
            return Ok(None);
        };
        if !relocation.claim_for(self.free, path, ceiling, extent)? {
            return Ok(None);
        }
        self.draft.allocated.push(extent);
        let blocks = &self.pager.blocks;
        let mut block = blocks.read_stored(reference, Kind::ValueChunk, self.owner)?;
        let mut moved = *reference;
        blocks.set_generation(&mut block, self.generation);
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
        let Some(extent) = allocate(self.free, most, ceiling)? else {
            return Ok(None);
        };
        let any = self.move_chunks(&mut chunks, reference, path, relocation, ceiling);
        self.free.free(extent)?;
        if !any? {
            return Ok(None);
        }
        let index: Vec<u8> = chunks.iter().flat_map(BlockRef::encode).collect();
        self.draft.retire_block(reference);
        relocation.count(u64::from(reference.units));
        self.write_value_block(Kind::ValueIndex, &index).map(Some)
    }

    /// Moves chunks of a long value as the budget allows; returns whether its index has to be rewritten.
    fn move_chunks(
        &mut self,
        chunks: &mut [BlockRef],
        index: &BlockRef,
        path: &mut [Step],
        relocation: &mut Relocation,
        ceiling: Option<u64>,
    ) -> Result<bool> {
        let blocks = &self.pager.blocks;
        let mut any = false;
        for chunk in chunks {
            if (relocation.left > 0 || !any)
                && relocation.applies_to(blocks, chunk)?
                && let Some(moved) = self.move_block(chunk, path, relocation)?
            {
                *chunk = moved;
                any = true;
            }
        }
        Ok(any || relocation.applies_to(blocks, index)? && relocation.claim(self.free, path, ceiling)?)
    }
}

/// Whether a block on the path to a record, or a block of its value, has to move.
pub(crate) fn applies_to_record(
    pager: &Pager,
    root: Option<&Child>,
    owner: u32,
    key: &[u8],
    aim: &Aim,
) -> Result<bool> {
    let Some(root) = root else { return Ok(false) };
    let mut reference = root.pointer;
    let mut node: Arc<Node> = pager.root(root, owner)?;
    loop {
        if aim.applies_to(&pager.blocks, &reference)? {
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
    for reference in value::references(&pager.blocks, owner, &node.record(index))? {
        if aim.applies_to(&pager.blocks, &reference)? {
            return Ok(true);
        }
    }
    Ok(false)
}

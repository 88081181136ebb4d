//! Building a tree from sorted records: packed nodes, bottom-up, written as soon as they are full.
//!
//! Each level keeps the node it is filling and the full one before it. So the last two can share their cells at the end, and no more than
//! two nodes of each level are in memory.

use super::{Editor, Pages, read};
use crate::block::{BlockInfo, Kind, Pointer};
use crate::error::Result;
use crate::node::split::{Cell, Pattern, cells_of, distribute, separator};
use crate::node::{Child, HEADER_BYTES, Node, SLOT_BYTES, common_prefix};
use crate::pages::{Access, BlockBuffer, WRITE_BYTES};

/// The cells of a level that are not written yet.
#[derive(Default)]
struct Level {
    /// Lower fence of the first node.
    lower: Vec<u8>,
    cells: Vec<Cell>,
    /// The first so many cells make a full node.
    closed: usize,
    /// Bytes of the cells of the other one without prefix compression, slots included.
    open_bytes: usize,
}

fn cell_bytes(cell: &Cell) -> usize {
    SLOT_BYTES + cell.key.len() + cell.payload.len()
}

impl Level {
    fn new(level: u8, node: &Node, cells: usize) -> Self {
        let mut copy = cells_of(node);
        copy.truncate(cells);
        debug_assert_eq!(level, node.level());
        Self {
            lower: node.lower_fence().to_vec(),
            open_bytes: copy.iter().map(cell_bytes).sum(),
            cells: copy,
            closed: 0,
        }
    }

    fn fence(&self, level: u8, at: usize) -> &[u8] {
        if at == 0 {
            &self.lower
        } else {
            separator(level, &self.cells[at - 1].key, &self.cells[at].key)
        }
    }

    /// Bytes of the open node if it ends before `upper`.
    fn open_node_bytes(&self, level: u8, upper: Option<&[u8]>) -> usize {
        let lower = self.fence(level, self.closed);
        let prefix = upper.map_or(0, |upper| common_prefix(lower, upper));
        let cells = &self.cells[self.closed..];
        let mut bytes = HEADER_BYTES + lower.len() + upper.map_or(0, <[u8]>::len) + self.open_bytes;
        bytes -= cells.len() * prefix;
        if level > 0
            && let Some(first) = cells.first()
        {
            bytes -= first.key.len() - prefix;
        }
        bytes
    }

    /// Adds a cell; returns the node that this makes ready to be written.
    fn push(&mut self, level: u8, cell: Cell, capacity: usize, stamp: u64) -> Option<Node> {
        let mut ready = None;
        if let Some(last) = self.cells.last() {
            let upper = separator(level, &last.key, &cell.key);
            // The open node without its last cell fitted when that cell came, and by I7 one cell always does.
            if self.open_node_bytes(level, Some(upper)) > capacity && self.cells.len() - self.closed > 1 {
                self.open_bytes = cell_bytes(last);
                ready = self.take_closed(level, capacity, stamp);
                self.closed = self.cells.len() - 1;
            }
        }
        self.open_bytes += cell_bytes(&cell);
        self.cells.push(cell);
        ready
    }

    /// Takes out the closed node.
    fn take_closed(&mut self, level: u8, capacity: usize, stamp: u64) -> Option<Node> {
        if self.closed == 0 {
            return None;
        }
        let upper = self.fence(level, self.closed).to_vec();
        let lower = std::mem::replace(&mut self.lower, upper);
        let node = build(
            level,
            self.cells.drain(..self.closed),
            &lower,
            &self.lower,
            capacity,
            stamp,
        );
        self.closed = 0;
        Some(node)
    }

    /// All that is left, in nodes of which the last has no upper fence.
    fn finish(&mut self, level: u8, capacity: usize, stamp: u64) -> Vec<Node> {
        let mut nodes = Vec::new();
        let last_bytes = self.open_node_bytes(level, None);
        if (capacity / 2..=capacity).contains(&last_bytes) {
            nodes.extend(self.take_closed(level, capacity, stamp));
        }
        let mut template = Node::new(capacity, level, &self.lower, None, stamp);
        if self.cells.iter().any(|cell| cell.has_overflow(level)) {
            template.mark_overflow();
        }
        nodes.extend(distribute(&self.cells, &template, Pattern::Middle, capacity, stamp));
        nodes
    }
}

fn build(
    level: u8,
    cells: impl Iterator<Item = Cell>,
    lower: &[u8],
    upper: &[u8],
    capacity: usize,
    stamp: u64,
) -> Node {
    let mut node = Node::new(capacity, level, lower, Some(upper), stamp);
    for (index, cell) in cells.enumerate() {
        if cell.has_overflow(level) {
            node.mark_overflow();
        }
        let inserted = node.insert(index, &cell.key, &cell.payload);
        assert!(inserted, "cells that fit by their sums fit in a node");
    }
    node
}

/// A tree in the making. Its blocks are the draft's spilled ones.
pub(crate) struct Builder {
    levels: Vec<Level>,
    buffer: BlockBuffer,
}

impl Builder {
    /// Begins a tree; with `append` it has the records that the editor's tree has, whose right edge is given up. That tree must be on
    /// disk. The editor's root does not change until the end.
    pub(crate) fn new(editor: &mut Editor<'_>, append: bool, write_bytes: usize) -> Result<Self> {
        let mut builder = Self {
            levels: Vec::new(),
            buffer: BlockBuffer::new(write_bytes.min(WRITE_BYTES)),
        };
        let Some(root) = editor.root.filter(|_| append) else {
            return Ok(builder);
        };
        let mut node = editor.pages().root(&root, editor.owner)?;
        let mut pointer = root.pointer;
        loop {
            let last = node.len() - usize::from(!node.is_leaf());
            builder.levels.insert(0, Level::new(node.level(), &node, last));
            let below = if node.is_leaf() {
                None
            } else {
                let child = editor.pages().child(&node, last, editor.owner, Access::Scan)?;
                Some((child, node.child(last).pointer))
            };
            editor.draft.retire(&pointer, &node);
            match below {
                Some(below) => (node, pointer) = below,
                None => return Ok(builder),
            }
        }
    }

    /// Adds a record. Its key is greater than all before it.
    pub(crate) fn push(&mut self, editor: &mut Editor<'_>, key: Vec<u8>, payload: Vec<u8>) -> Result<()> {
        self.push_cell(editor, 0, Cell { key, payload })
    }

    fn push_cell(&mut self, editor: &mut Editor<'_>, level: usize, cell: Cell) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let (capacity, stamp) = (editor.limits.node_capacity, editor.draft.stamp);
        match self.levels[level].push(level as u8, cell, capacity, stamp) {
            Some(node) => self.push_node(editor, level, &node),
            None => Ok(()),
        }
    }

    fn push_node(&mut self, editor: &mut Editor<'_>, level: usize, node: &Node) -> Result<()> {
        let child = self.write(editor, node)?;
        let cell = Cell {
            key: node.lower_fence().to_vec(),
            payload: child.encode().to_vec(),
        };
        self.push_cell(editor, level + 1, cell)
    }

    fn write(&mut self, editor: &mut Editor<'_>, node: &Node) -> Result<Child> {
        let info = BlockInfo {
            kind: if node.is_leaf() { Kind::Leaf } else { Kind::Inner },
            level: node.level(),
            owner: editor.owner,
            generation: editor.generation,
        };
        let number = editor.pager.next_block_number();
        let reference = editor.put_spilled(&mut self.buffer, info, &node.numbered_image(&number))?;
        Ok(node.as_child(Pointer::Disk(reference)))
    }

    /// Writes the rest and makes the tree the editor's.
    pub(crate) fn finish(mut self, editor: &mut Editor<'_>) -> Result<()> {
        let (capacity, stamp) = (editor.limits.node_capacity, editor.draft.stamp);
        let mut root = None;
        let mut level = 0;
        while level < self.levels.len() && root.is_none() {
            let nodes = self.levels[level].finish(level as u8, capacity, stamp);
            match &nodes[..] {
                [node] if self.levels[level + 1..].iter().all(|above| above.cells.is_empty()) => {
                    root = Some(self.write(editor, node)?);
                }
                nodes => {
                    for node in nodes {
                        self.push_node(editor, level, node)?;
                    }
                }
            }
            level += 1;
        }
        self.buffer.flush(&editor.pager.blocks)?;
        *editor.root = root;
        Ok(())
    }
}

impl Editor<'_> {
    /// Gives a block an extent that is known only to the draft.
    pub(super) fn put_spilled(
        &mut self,
        buffer: &mut BlockBuffer,
        info: BlockInfo,
        payload: &[&[u8]],
    ) -> Result<crate::block::BlockRef> {
        let spilled = &mut self.draft.spilled;
        let note = |extent: crate::pages::Extent| {
            spilled.insert(extent.start, extent.units);
        };
        let blocks = &self.pager.blocks;
        buffer.put(blocks, self.free, note, self.compression, info, payload)
    }

    /// Gives up the nodes of a tree whose values are still needed.
    pub(crate) fn retire_nodes(&mut self, root: &Child) -> Result<()> {
        let node = self.pages().root(root, self.owner)?;
        self.retire_nodes_below(root, &node)
    }

    fn retire_nodes_below(&mut self, child: &Child, node: &Node) -> Result<()> {
        for index in 0..if node.is_leaf() { 0 } else { node.len() } {
            let below = node.child(index);
            match below.pointer {
                Pointer::Disk(reference) if node.level() == 1 => self.draft.retire_block(&reference),
                _ => {
                    let page = self.pages().child(node, index, self.owner, Access::Scan)?;
                    self.retire_nodes_below(&below, &page)?;
                }
            }
        }
        self.draft.retire(&child.pointer, node);
        Ok(())
    }

    /// The greatest key.
    pub(crate) fn last_key(&self) -> Result<Option<Vec<u8>>> {
        let Some(last) = self.root.and_then(|root| root.count.checked_sub(1)) else {
            return Ok(None);
        };
        let found = read::at(&self.pages(), self.root.as_ref(), self.owner, last)?;
        Ok(found.map(|found| found.leaf.key(found.index)))
    }
}

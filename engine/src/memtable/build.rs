//! Builds the nodes of a memtable from sorted entries.

use std::sync::Arc;

use super::cells::{Cells, SLOTS};
use super::node::{LEAF_BYTES, Node};
use super::nodes::Nodes;
use super::{Below, Entry};
use crate::node::common_prefix;

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

//! Removal of a run of records: whole subtrees inside it are given up, the nodes along its two edges are joined.
//!
//! The left edge is the path to the last record before the run, the right edge the path to the first one behind it. So each leaf at the seam
//! keeps a record, and no node becomes empty. Where one edge is missing, the other takes over the limit of the tree.

use std::sync::Arc;

use super::{Editor, Pages, read};
use crate::error::{Error, Result};
use crate::node::split::{Cell, Pattern, cells_of, distribute};
use crate::node::{Child, Node};
use crate::pages::{Access, Step};

/// A node of an edge, and the child or record through which the edge goes.
type Stop = (Arc<Node>, usize);

/// The edges of a run. At least one of them is there.
struct Edges {
    left: Option<Vec<Stop>>,
    right: Option<Vec<Stop>>,
}

impl Edges {
    fn stops(&self, depth: usize) -> [Option<&Stop>; 2] {
        [&self.left, &self.right].map(|edge| edge.as_ref().map(|stops| &stops[depth]))
    }

    /// Depth of the leaves.
    fn height(&self) -> usize {
        let edge = self.left.as_ref().or(self.right.as_ref());
        edge.map_or(0, |stops| stops.len() - 1)
    }

    /// Depth of the lowest node that covers the whole run.
    fn fork(&self) -> usize {
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return 0;
        };
        left.iter().zip(right).take_while(|(a, b)| a.1 == b.1).count()
    }

    /// The keys of the records at the edges.
    fn keys(&self) -> Vec<Vec<u8>> {
        let leaves = self.stops(self.height());
        leaves
            .into_iter()
            .flatten()
            .map(|(leaf, index)| leaf.key(*index))
            .collect()
    }
}

impl Editor<'_> {
    /// Removes the records at positions `from..to`.
    pub(super) fn cut(&mut self, from: u64, to: u64) -> Result<()> {
        let Some(root) = self.root.filter(|_| from < to) else {
            return Ok(());
        };
        if to - from == root.count {
            return self.clear_all().map(drop);
        }
        let edges = Edges {
            left: from.checked_sub(1).map(|last| self.edge(&root, last)).transpose()?,
            right: (to < root.count).then(|| self.edge(&root, to)).transpose()?,
        };
        let fork = edges.fork();
        self.retire_between(edges.stops(fork))?;
        for depth in fork + 1..=edges.height() {
            let [left, right] = edges.stops(depth);
            self.retire_between([left, None])?;
            self.retire_between([None, right])?;
        }
        let mut path = Vec::with_capacity(8);
        let mut number = self.own_root(root)?;
        for depth in 0..fork {
            let [Some((_, index)), _] = edges.stops(depth) else {
                break;
            };
            let step = Step { number, index: *index };
            number = self.own_child(number, step.index)?;
            path.push(step);
        }
        let cells = self.join(&edges, fork);
        self.update_counts(&path, -((to - from) as i64), false);
        self.rebuild(&path, number, &cells, Pattern::Middle);
        for key in edges.keys() {
            self.mend(&key)?;
        }
        Ok(())
    }

    /// The path to a record.
    fn edge(&self, root: &Child, mut position: u64) -> Result<Vec<Stop>> {
        let pages = self.pages();
        let mut stops = Vec::with_capacity(8);
        let mut node = pages.root(root, self.owner)?;
        while !node.is_leaf() {
            let (index, rest) = read::child_at(&node, position);
            position = rest;
            let child = pages.child(&node, index, self.owner, Access::Point)?;
            stops.push((node, index));
            node = child;
        }
        if position >= node.len() as u64 {
            return Err(Error::corrupt("a leaf holds fewer records than its parents say"));
        }
        stops.push((node, position as usize));
        Ok(stops)
    }

    /// Gives up what lies between the edges in one node, or between its edge and its end. The nodes on the edges go too, except
    /// those above the fork: their cells are copied to new ones.
    fn retire_between(&mut self, [left, right]: [Option<&Stop>; 2]) -> Result<()> {
        let Some((node, _)) = left.or(right) else {
            return Ok(());
        };
        let from = left.map_or(0, |(_, index)| index + 1);
        let to = right.map_or(node.len(), |(_, index)| *index);
        if node.is_leaf() {
            if node.has_overflow() {
                for index in from..to {
                    self.retire_value(&node.record(index))?;
                }
            }
            return Ok(());
        }
        self.retire_children(node, from, to)?;
        for (node, index) in [left, right].into_iter().flatten() {
            let pointer = node.child(*index).pointer;
            let child = self.pages().child(node, *index, self.owner, Access::Point)?;
            self.draft.retire(&pointer, &child);
        }
        Ok(())
    }

    /// Cells of the node at the fork after everything below it was joined.
    fn join(&mut self, edges: &Edges, fork: usize) -> Vec<Cell> {
        let (capacity, stamp) = (self.limits.node_capacity, self.draft.stamp);
        let mut fresh = Vec::new();
        for depth in (fork + 1..=edges.height()).rev() {
            let [left, right] = edges.stops(depth);
            let cells = seam(left, right, fresh);
            let lower = left.map_or(&[][..], |(node, _)| node.lower_fence());
            let upper = right.and_then(|(node, _)| node.upper_fence());
            let level = (edges.height() - depth) as u8;
            let mut template = Node::new(capacity, level, lower, upper, stamp);
            if cells.iter().any(|cell| cell.has_overflow(level)) {
                template.mark_overflow();
            }
            let nodes = distribute(&cells, &template, Pattern::Middle, capacity, stamp);
            fresh = nodes.into_iter().map(|node| self.add_child(node)).collect();
        }
        let [left, right] = edges.stops(fork);
        seam(left, right, fresh)
    }

    /// Merges underfull nodes on the path to `key`. A merge gives the node below it new neighbours, so the path is gone through
    /// until nothing can be merged.
    fn mend(&mut self, key: &[u8]) -> Result<()> {
        let enough = self.limits.node_capacity / 4;
        loop {
            let Some(root) = *self.root else { return Ok(()) };
            let (path, leaf) = self.own_path(root, key)?;
            let mut number = leaf;
            let mut merged = false;
            for step in path.iter().rev() {
                if self.node(number).used_bytes() < enough {
                    merged |= self.merge_with_neighbour(*step, number)?;
                }
                number = step.number;
            }
            self.shrink(number)?;
            if !merged {
                return Ok(());
            }
        }
    }
}

/// Cells up to the left edge, `fresh` ones in place of the children on the edges, and the cells from the right edge on.
fn seam(left: Option<&Stop>, right: Option<&Stop>, fresh: Vec<Cell>) -> Vec<Cell> {
    let mut cells = Vec::new();
    if let Some((node, index)) = left {
        cells = cells_of(node);
        cells.truncate(index + usize::from(node.is_leaf()));
    }
    cells.extend(fresh);
    if let Some((node, index)) = right {
        cells.extend(cells_of(node).drain(index + usize::from(!node.is_leaf())..));
    }
    cells
}

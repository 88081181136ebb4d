//! A cursor over the entries of a memtable, which it keeps alive.

use std::sync::Arc;

use super::node::Node;
use super::{Cut, Entry, Memtable, Nodes};
use crate::range::{Direction, KeyRange};

/// Moves over the entries of a range as they were when the cursor was created. A step takes
/// constant time on average.
pub(crate) struct MemtableCursor {
    nodes: Nodes,
    direction: Direction,
    /// Positions that the range covers.
    first: usize,
    end: usize,
    /// Positions of the current entry and those still to come.
    from: usize,
    to: usize,
    /// The leaf of the current entry, and the entry's index in it.
    leaf: Option<(Arc<Node>, usize)>,
}

impl MemtableCursor {
    /// Creates a cursor over all entries of these nodes.
    pub(super) fn over(nodes: Nodes) -> Self {
        let mut cursor = Self {
            direction: Direction::Forward,
            first: 0,
            end: nodes.len,
            from: 0,
            to: nodes.len,
            leaf: None,
            nodes,
        };
        cursor.enter();
        cursor
    }

    pub(crate) fn new(memtable: &Memtable, range: &KeyRange<'_>, direction: Direction) -> Self {
        let lower = Cut::new(range.lower, Direction::Forward);
        let upper = Cut::new(range.upper, Direction::Reverse);
        let mut cursor = Self {
            nodes: memtable.nodes().clone(),
            direction,
            first: 0,
            end: memtable.len(),
            from: 0,
            to: memtable.len(),
            leaf: None,
        };
        let (start, end) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Reverse => (upper, lower),
        };
        if let Some(cut) = end {
            let end = memtable.position(cut);
            match direction {
                Direction::Forward => cursor.end = end,
                Direction::Reverse => cursor.first = end,
            }
        }
        cursor.go_to(start);
        (cursor.first, cursor.end) = (cursor.from.min(cursor.to), cursor.to);
        cursor
    }

    /// Moves to the first entry of the range behind a cut, in the cursor's direction.
    fn go_to(&mut self, cut: Option<Cut<'_>>) {
        (self.from, self.to) = (self.first, self.end);
        self.leaf = None;
        let (Some(root), Some(cut)) = (&self.nodes.root, cut) else {
            return self.enter();
        };
        let (position, leaf, index) = Node::locate(root, cut);
        let inside = position.clamp(self.first, self.end.max(self.first));
        let index = match self.direction {
            Direction::Forward => {
                self.from = inside;
                Some(index).filter(|index| *index < leaf.len())
            }
            Direction::Reverse => {
                self.to = inside;
                index.checked_sub(1)
            }
        };
        match index {
            Some(index) if inside == position && self.from < self.to => self.leaf = Some((Arc::clone(leaf), index)),
            _ => self.enter(),
        }
    }

    fn enter(&mut self) {
        let next = match self.direction {
            Direction::Forward => self.from,
            Direction::Reverse => self.to.wrapping_sub(1),
        };
        let root = self.nodes.root.as_ref().filter(|_| self.from < self.to);
        self.leaf = root.map(|root| {
            let (leaf, index) = Node::leaf_at(root, next);
            (Arc::clone(leaf), index)
        });
    }

    /// The current entry; `None` at the end.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let (leaf, index) = self.leaf.as_ref()?;
        leaf.entry(*index)
    }

    /// Moves to the next entry.
    pub(crate) fn step(&mut self) {
        let Some((leaf, index)) = &mut self.leaf else { return };
        let next = match self.direction {
            Direction::Forward => {
                self.from += 1;
                Some(*index + 1).filter(|next| *next < leaf.len())
            }
            Direction::Reverse => {
                self.to -= 1;
                index.checked_sub(1)
            }
        };
        match next {
            Some(next) if self.from < self.to => *index = next,
            _ => self.enter(),
        }
    }

    /// Moves to the end.
    pub(crate) fn finish(&mut self) {
        self.from = self.to;
        self.leaf = None;
    }

    /// Moves to the first entry at or past `key` in the cursor's direction, inside its range.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        let after = self.direction == Direction::Reverse;
        self.go_to(Some(Cut { key, after }));
    }
}

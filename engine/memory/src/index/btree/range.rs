//! Iteration over the entries of a B-tree.

use super::BTree;
use crate::index::key::Key;
use mangrove_engine::Direction;

/// The entries of a [`BTree`] between two bounds. A step takes constant time on average.
pub struct BTreeRange<'a, T> {
    tree: &'a BTree<T>,
    direction: Direction,
    /// Positions of the entries to come.
    start: usize,
    end: usize,
    /// Entries of the current leaf from `start` on, or up to `end` in reverse.
    keys: &'a [Key],
    values: &'a [T],
}

impl<'a, T> BTreeRange<'a, T> {
    pub(super) fn new(tree: &'a BTree<T>, start: usize, end: usize, direction: Direction) -> Self {
        Self {
            tree,
            direction,
            start,
            end: end.max(start),
            keys: &[],
            values: &[],
        }
    }

    /// Enters the leaf of the next entry.
    fn refill(&mut self) -> Option<()> {
        let forward = self.direction == Direction::Forward;
        let (node, index) = self.tree.leaf_at(if forward { self.start } else { self.end - 1 })?;
        let (keys, values) = node.entries();
        (self.keys, self.values) = if forward {
            (&keys[index..], &values[index..])
        } else {
            (&keys[..=index], &values[..=index])
        };
        Some(())
    }
}

impl<'a, T> Iterator for BTreeRange<'a, T> {
    type Item = (&'a [u8], &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        if self.start == self.end {
            return None;
        }
        if self.keys.is_empty() {
            self.refill()?;
        }
        let (key, value);
        match self.direction {
            Direction::Forward => {
                (key, self.keys) = self.keys.split_first()?;
                (value, self.values) = self.values.split_first()?;
                self.start += 1;
            }
            Direction::Reverse => {
                (key, self.keys) = self.keys.split_last()?;
                (value, self.values) = self.values.split_last()?;
                self.end -= 1;
            }
        }
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.start, Some(self.end - self.start))
    }
}

impl<T> ExactSizeIterator for BTreeRange<'_, T> {}

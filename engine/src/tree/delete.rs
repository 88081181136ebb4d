//! Deletion of one record or a range, with merges.

use std::sync::Arc;

use super::{Editor, Pages, read};
use crate::block::Pointer;
use crate::error::Result;
use crate::node::split::{merge, merged_bytes};
use crate::node::{Child, Node};
use crate::pages::{Access, Step};
use crate::range::KeyRange;

impl Editor<'_> {
    /// Removes a record; returns whether it was there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        // Looking first keeps the deletion of an absent key free of copies.
        let Some(found) = read::find(&self.pages(), self.root.as_ref(), self.owner, key)? else {
            return Ok(false);
        };
        if found.leaf.len() == 1 {
            // A leaf that becomes empty goes away, whether or not a neighbour has room for the keys it covers.
            let (position, _) = read::rank(&self.pages(), self.root.as_ref(), self.owner, key)?;
            self.cut(position, position + 1)?;
            return Ok(true);
        }
        self.retire_value(&found.leaf.record(found.index))?;
        let root = self.root.expect("a tree that contains a key has a root");
        let (path, leaf) = self.own_path(root, key)?;
        self.draft.node_mut(leaf).remove(found.index);
        self.update_counts(&path, -1, false);
        self.rebalance(&path, leaf)?;
        Ok(true)
    }

    /// Removes all records of a range; returns how many there were. Copies O(log n) pages.
    pub(crate) fn clear(&mut self, range: &KeyRange<'_>) -> Result<u64> {
        if range.is_all() {
            return self.clear_all();
        }
        let (from, to) = read::positions(&self.pages(), self.root.as_ref(), self.owner, range)?;
        self.cut(from, to)?;
        Ok(to - from)
    }

    /// Gives up the whole tree. Leaves are read only where they may hold out-of-line values.
    pub(crate) fn clear_all(&mut self) -> Result<u64> {
        let Some(root) = self.root.take() else { return Ok(0) };
        let node = self.pages().root(&root, self.owner)?;
        self.retire_subtree(&root, &node)?;
        Ok(root.count)
    }

    fn retire_subtree(&mut self, child: &Child, node: &Node) -> Result<()> {
        if node.is_leaf() {
            for index in 0..node.len() {
                self.retire_value(&node.record(index))?;
            }
        } else {
            self.retire_children(node, 0, node.len())?;
        }
        self.draft.retire(&child.pointer, node);
        Ok(())
    }

    /// Gives up the subtrees `from..to` of an inner node.
    pub(super) fn retire_children(&mut self, node: &Node, from: usize, to: usize) -> Result<()> {
        for index in from..to {
            let below = node.child(index);
            match below.pointer {
                Pointer::Disk(reference) if node.level() == 1 && !below.has_overflow => {
                    self.draft.retire_block(&reference);
                }
                _ => {
                    let page = self.pages().child(node, index, self.owner, Access::Scan)?;
                    self.retire_subtree(&below, &page)?;
                }
            }
        }
        Ok(())
    }

    /// Merges an underfull node with a neighbour where both fit, upwards along the path.
    fn rebalance(&mut self, path: &[Step], number: u64) -> Result<()> {
        let capacity = self.limits.node_capacity;
        let mut number = number;
        for step in path.iter().rev() {
            if self.node(number).used_bytes() >= capacity / 4 || !self.merge_with_neighbour(*step, number)? {
                return Ok(());
            }
            number = step.number;
        }
        self.shrink(number)
    }

    pub(super) fn merge_with_neighbour(&mut self, step: Step, number: u64) -> Result<bool> {
        let capacity = self.limits.node_capacity;
        let parent = self.node(step.number);
        let candidates = [step.index.checked_sub(1), Some(step.index + 1)];
        for neighbour in candidates.into_iter().flatten().filter(|index| *index < parent.len()) {
            let parent = self.node(step.number);
            let other = self.pages().child(parent, neighbour, self.owner, Access::Point)?;
            let own = self.node(number);
            let (left, right, left_index) = if neighbour < step.index {
                (&*other, own, neighbour)
            } else {
                (own, &*other, step.index)
            };
            let bytes = merged_bytes(left, right);
            let is_bare = own.len() <= usize::from(!own.is_leaf());
            let limit = if is_bare { capacity } else { capacity / 4 * 3 };
            if bytes > limit {
                continue;
            }
            let merged = merge(left, right, capacity, self.draft.stamp);
            let pointer = parent.child(neighbour).pointer;
            self.draft.retire(&pointer, &other);
            let merged_child = merged.as_child(Pointer::Memory(number));
            *self.draft.node_mut(number) = merged;
            let parent = self.draft.node_mut(step.number);
            parent.set_child(left_index, merged_child);
            parent.remove(left_index + 1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives up roots that have a single child, and an empty last leaf.
    pub(super) fn shrink(&mut self, mut number: u64) -> Result<()> {
        loop {
            let node = Arc::clone(self.draft.get(number).expect("the root was adopted"));
            let pointer = Pointer::Memory(number);
            if node.is_leaf() {
                if node.len() == 0 {
                    self.draft.retire(&pointer, &node);
                    *self.root = None;
                }
                return Ok(());
            }
            if node.len() > 1 {
                return Ok(());
            }
            let child = node.child(0);
            self.draft.retire(&pointer, &node);
            *self.root = Some(child);
            match child.pointer {
                Pointer::Memory(below) if self.draft.get(below).is_some() => number = below,
                _ => return Ok(()),
            }
        }
    }
}

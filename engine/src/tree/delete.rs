//! Deletion of one record or a range, with merges.

use std::sync::Arc;

use super::editor::Step;
use super::{Editor, KeyRange, Pages, read};
use crate::block::Pointer;
use crate::cache::Access;
use crate::error::Result;
use crate::node::split::{merge, merged_bytes};
use crate::node::{Child, Node};

impl Editor<'_> {
    /// Removes a record; returns whether it was there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        // Looking first keeps the deletion of an absent key free of copies.
        if !self.contains(key)? {
            return Ok(false);
        }
        let root = self.root.expect("a tree that contains a key has a root");
        let (path, leaf) = self.own_path(root, key)?;
        let (index, _) = self.node(leaf).lower_bound(key);
        self.remove_records(&path, leaf, index, index + 1)?;
        Ok(true)
    }

    /// Removes all records of a range, a leaf at a time; returns how many there were.
    pub(crate) fn clear(&mut self, range: &KeyRange<'_>) -> Result<u64> {
        if range.is_all() {
            return self.clear_all();
        }
        let (from, to) = read::positions(&self.pages(), self.root.as_ref(), self.owner, range)?;
        let mut left = to - from;
        while left > 0 {
            let Some(found) = read::at(&self.pages(), self.root.as_ref(), self.owner, from)? else {
                break;
            };
            let key = found.leaf.key(found.index);
            drop(found);
            let root = self.root.expect("a tree that contains a key has a root");
            let (path, leaf) = self.own_path(root, &key)?;
            let node = self.node(leaf);
            let (index, _) = node.lower_bound(&key);
            let end = node.len().min(index + usize::try_from(left).unwrap_or(usize::MAX));
            self.remove_records(&path, leaf, index, end)?;
            left -= (end - index) as u64;
        }
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
            for index in 0..node.len() {
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
        }
        self.draft.retire(&child.pointer, node);
        Ok(())
    }

    fn remove_records(&mut self, path: &[Step], leaf: u64, from: usize, to: usize) -> Result<()> {
        let old = Arc::clone(self.draft.get(leaf).expect("own_path adopted the leaf"));
        if old.has_overflow() {
            for index in from..to {
                self.retire_value(&old.record(index))?;
            }
        }
        drop(old);
        let node = self.draft.node_mut(leaf);
        for index in (from..to).rev() {
            node.remove(index);
        }
        self.update_counts(path, -((to - from) as i64), false);
        self.rebalance(path, leaf)
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

    fn merge_with_neighbour(&mut self, step: Step, number: u64) -> Result<bool> {
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
            let limit = if own.len() == 0 { capacity } else { capacity / 4 * 3 };
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
    fn shrink(&mut self, mut number: u64) -> Result<()> {
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

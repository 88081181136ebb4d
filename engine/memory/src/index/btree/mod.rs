//! A persistent, counted B-tree.

use std::ops::Bound;
use std::sync::Arc;

use super::key::Key;
use super::{Cut, OrderedIndex};
use mangrove_engine::Direction;

mod keys;
mod node;
mod range;
#[cfg(test)]
mod tests;

use node::{Content, Node};
pub use range::BTreeRange;

/// More levels than possible: inner nodes have at least eight children, except the root.
const MAX_LEVELS: usize = 24;

/// A persistent, counted B-tree: up to 63 entries in each leaf, and shortest separators above.
///
/// The structure is the B⁺-tree of D. Comer's [survey](https://doi.org/10.1145/356770.356776), with
/// separators as in R. Bayer and K. Unterauer's [prefix
/// B-trees](https://doi.org/10.1145/320521.320530). Besides its keys, each node stores their
/// *heads*, the eight bytes that follow a prefix common to all: a search compares these and then
/// usually one whole key.
///
/// With *n* entries an operation visits O(log *n*) nodes, four for a million. `clone` takes
/// constant time; a change copies the nodes on its path that are shared with a clone, two to three
/// KiB each.
#[derive(Clone)]
pub struct BTree<T> {
    root: Option<Arc<Node<T>>>,
    len: usize,
}

impl<T> Default for BTree<T> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<T> Node<T> {
    /// Keys and values of a leaf; none of an inner node.
    fn entries(&self) -> (&[Key], &[T]) {
        match &self.content {
            Content::Values(values) => (self.keys.as_slice(), values),
            Content::Children(_) => (&[], &[]),
        }
    }

    fn entry(&self, index: usize) -> Option<(&[u8], &T)> {
        let (keys, values) = self.entries();
        Some((keys.get(index)?, values.get(index)?))
    }

    /// Number of keys of a leaf before the cut.
    fn before(&self, cut: Cut<'_>) -> usize {
        let found = self.keys.search(cut.key);
        found.map_or_else(|index| index, |index| index + usize::from(cut.after))
    }
}

impl<T> BTree<T> {
    /// Returns the leaf with the entry at `position`, and the entry's index in the leaf.
    fn leaf_at(&self, position: usize) -> Option<(&Node<T>, usize)> {
        let mut node = self.root.as_ref().filter(|_| position < self.len)?;
        let mut position = position;
        while let Content::Children(children) = &node.content {
            let mut index = 0;
            while position >= children.counts[index] {
                position -= children.counts[index];
                index += 1;
            }
            node = &children.nodes[index];
        }
        Some((node, position))
    }

    /// Number of entries before the cut.
    fn position(&self, cut: Cut<'_>) -> usize {
        let Some(mut node) = self.root.as_ref() else {
            return 0;
        };
        let mut position = 0;
        while let Content::Children(children) = &node.content {
            let index = node.child_of(cut.key);
            position += children.counts[..index].iter().sum::<usize>();
            node = &children.nodes[index];
        }
        position + node.before(cut)
    }

    /// Returns the first entry below `node` in `direction`.
    fn outermost(mut node: &Node<T>, direction: Direction) -> Option<(&[u8], &T)> {
        let end = |len: usize| if direction == Direction::Forward { 0 } else { len - 1 };
        while let Content::Children(children) = &node.content {
            node = &children.nodes[end(children.nodes.len())];
        }
        node.entry(end(node.keys.len().max(1)))
    }
}

impl<T: Clone> OrderedIndex<T> for BTree<T> {
    type Range<'a>
        = BTreeRange<'a, T>
    where
        T: 'a;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = self.root.as_ref()?;
        while let Content::Children(children) = &node.content {
            node = &children.nodes[node.child_of(key)];
        }
        let index = node.keys.search(key).ok()?;
        node.entries().1.get(index)
    }

    fn insert(&mut self, key: &[u8], value: T) -> Option<T> {
        let root = self.root.get_or_insert_with(|| Arc::new(Node::leaf()));
        let inserted = Arc::make_mut(root).insert(key, value);
        if let Some(split) = inserted.split {
            *root = Arc::new(Node::root(Arc::clone(root), split));
        }
        self.len += usize::from(inserted.former.is_none());
        inserted.former
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        let root = self.root.as_mut()?;
        let mut path = [0; MAX_LEVELS];
        let mut level = 0;
        let mut node = &*root;
        while let Content::Children(children) = &node.content {
            let index = node.child_of(key);
            path[level] = index as u8;
            level += 1;
            node = &children.nodes[index];
        }
        path[level] = node.keys.search(key).ok()? as u8;
        let value = Arc::make_mut(root).remove(&path[..=level])?;
        self.len -= 1;
        if let Content::Children(children) = &root.content
            && let [only] = &children.nodes[..]
        {
            *root = Arc::clone(only);
        }
        if self.len == 0 {
            self.root = None;
        }
        Some(value)
    }

    fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<(&[u8], &T)> {
        let mut node = self.root.as_deref()?;
        let Some(cut) = Cut::new(bound, direction) else {
            return Self::outermost(node, direction);
        };
        let forward = direction == Direction::Forward;
        let mut beyond = None;
        while let Content::Children(children) = &node.content {
            let index = node.child_of(cut.key);
            let neighbour = if forward { Some(index + 1) } else { index.checked_sub(1) };
            beyond = neighbour.and_then(|index| children.nodes.get(index)).or(beyond);
            node = &children.nodes[index];
        }
        let before = node.before(cut);
        let index = if forward { Some(before) } else { before.checked_sub(1) };
        let entry = index.and_then(|index| node.entry(index));
        entry.or_else(|| Self::outermost(beyond?, direction))
    }

    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Self::Range<'_> {
        let start = Cut::new(lower, Direction::Forward).map_or(0, |cut| self.position(cut));
        let end = Cut::new(upper, Direction::Reverse).map_or(self.len, |cut| self.position(cut));
        BTreeRange::new(self, start, end, direction)
    }

    fn rank(&self, key: &[u8]) -> usize {
        self.position(Cut { key, after: false })
    }

    fn at(&self, position: usize) -> Option<(&[u8], &T)> {
        let (node, index) = self.leaf_at(position)?;
        node.entry(index)
    }
}

//! Nodes of a B-tree, and how they change.

use std::sync::Arc;

use super::keys::{Keys, SLOTS};
use crate::index::key::{Key, common_prefix};

/// A node left with fewer keys by a removal is merged with a neighbour, or shares its entries.
const MIN_KEYS: usize = SLOTS / 4;

#[derive(Clone)]
pub(super) struct Node<T> {
    /// In a leaf, the keys of its entries; in an inner node, the separators: child `i` has the keys
    /// from separator `i - 1`, included, to separator `i`, excluded.
    pub(super) keys: Keys,
    pub(super) content: Content<T>,
}

#[derive(Clone)]
pub(super) enum Content<T> {
    Values(Vec<T>),
    Children(Children<T>),
}

/// Children of an inner node, one more than its separators.
#[derive(Clone)]
pub(super) struct Children<T> {
    pub(super) nodes: Vec<Arc<Node<T>>>,
    /// Number of entries below each child.
    pub(super) counts: Vec<usize>,
}

/// Result of an insertion: the value it replaced, and the new right neighbour if the node was
/// split.
pub(super) struct Inserted<T> {
    pub(super) former: Option<T>,
    pub(super) split: Option<Split<T>>,
}

pub(super) struct Split<T> {
    pub(super) separator: Key,
    pub(super) right: Node<T>,
}

impl<T> Node<T> {
    pub(super) fn leaf() -> Self {
        Self {
            keys: Keys::from(Vec::new()),
            content: Content::Values(Vec::new()),
        }
    }

    /// Creates a root above the two halves of the former one.
    pub(super) fn root(left: Arc<Self>, split: Split<T>) -> Self {
        let counts = vec![left.count(), split.right.count()];
        Self {
            keys: Keys::from(vec![split.separator]),
            content: Content::Children(Children {
                nodes: vec![left, Arc::new(split.right)],
                counts,
            }),
        }
    }

    /// Number of entries in or below the node.
    fn count(&self) -> usize {
        match &self.content {
            Content::Values(values) => values.len(),
            Content::Children(children) => children.counts.iter().sum(),
        }
    }

    /// Index of the child that covers this key.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.keys.search(key).map_or_else(|index| index, |index| index + 1)
    }

    /// Splits off the right part. Runs of ascending or descending keys leave a mostly full node
    /// behind; the remaining room is in case they were not runs.
    fn split(&mut self, inserted: usize) -> Split<T> {
        let at = match inserted {
            0 => SLOTS / 8,
            last if last == SLOTS - 1 => SLOTS - SLOTS / 8,
            _ => SLOTS / 2,
        };
        self.split_at(at)
    }

    fn split_at(&mut self, at: usize) -> Split<T> {
        let (separator, keys, content) = match &mut self.content {
            Content::Values(values) => {
                let keys = self.keys.split_off(at);
                let separator = separator(&self.keys.as_slice()[at - 1], &keys.as_slice()[0]);
                (separator, keys, Content::Values(values.split_off(at)))
            }
            Content::Children(children) => {
                let keys = self.keys.split_off(at + 1);
                let right = Children {
                    nodes: children.nodes.split_off(at + 1),
                    counts: children.counts.split_off(at + 1),
                };
                (self.keys.remove(at), keys, Content::Children(right))
            }
        };
        let right = Self { keys, content };
        Split { separator, right }
    }
}

impl<T> Node<T> {
    /// Adds the entries of the right neighbour, which `separator` separates from those here.
    fn append(&mut self, separator: Key, right: Self) {
        match (&mut self.content, right.content) {
            (Content::Values(values), Content::Values(right)) => values.extend(right),
            (Content::Children(children), Content::Children(right)) => {
                self.keys.insert(self.keys.len(), separator);
                children.nodes.extend(right.nodes);
                children.counts.extend(right.counts);
            }
            _ => unreachable!("neighbours are on the same level"),
        }
        self.keys.append(right.keys);
    }
}

/// Returns the shortest key that separates its neighbours.
fn separator(left: &[u8], right: &[u8]) -> Key {
    Key::new(&right[..=common_prefix(left, right)])
}

impl<T: Clone> Node<T> {
    /// Recurses once per level; even 2⁶⁴ entries need fewer than 20 levels.
    pub(super) fn insert(&mut self, key: &[u8], value: T) -> Inserted<T> {
        let (index, former) = match &mut self.content {
            Content::Values(values) => match self.keys.search(key) {
                Ok(index) => (index, Some(std::mem::replace(&mut values[index], value))),
                Err(index) => {
                    self.keys.insert(index, Key::new(key));
                    values.insert(index, value);
                    (index, None)
                }
            },
            Content::Children(_) => {
                let index = self.child_of(key);
                (index, self.insert_below(index, key, value))
            }
        };
        let full = self.keys.len() == SLOTS;
        let split = full.then(|| self.split(index));
        Inserted { former, split }
    }

    fn insert_below(&mut self, index: usize, key: &[u8], value: T) -> Option<T> {
        let Content::Children(children) = &mut self.content else {
            return None;
        };
        let Inserted { former, split } = Arc::make_mut(&mut children.nodes[index]).insert(key, value);
        children.counts[index] += usize::from(former.is_none());
        if let Some(Split { separator, right }) = split {
            let count = right.count();
            children.counts[index] -= count;
            children.counts.insert(index + 1, count);
            children.nodes.insert(index + 1, Arc::new(right));
            self.keys.insert(index, separator);
        }
        former
    }

    /// Removes the entry at the end of a path: an index for each level.
    pub(super) fn remove(&mut self, path: &[u8]) -> Option<T> {
        let (index, rest) = path.split_first()?;
        let index = usize::from(*index);
        match &mut self.content {
            Content::Values(values) => {
                self.keys.remove(index);
                Some(values.remove(index))
            }
            Content::Children(children) => {
                let child = Arc::make_mut(&mut children.nodes[index]);
                let value = child.remove(rest)?;
                children.counts[index] -= 1;
                if child.keys.len() < MIN_KEYS {
                    self.join(index.saturating_sub(1));
                }
                Some(value)
            }
        }
    }

    /// Merges two neighbouring children, or shares their entries evenly if one node cannot take
    /// them.
    fn join(&mut self, left: usize) {
        let Content::Children(children) = &mut self.content else {
            return;
        };
        if left + 1 >= children.nodes.len() {
            return;
        }
        let mut separator = self.keys.remove(left);
        children.counts[left] += children.counts.remove(left + 1);
        let mut right = Arc::unwrap_or_clone(children.nodes.remove(left + 1));
        let node = Arc::make_mut(&mut children.nodes[left]);
        let (len, right_len) = (node.keys.len(), right.keys.len());
        // A merged inner node also gets the separator.
        if len + right_len + 1 < SLOTS {
            node.append(separator, right);
            return;
        }
        let half = usize::midpoint(len, right_len);
        if len > right_len {
            let mut split = node.split_at(half);
            split.right.append(separator, right);
            (separator, right) = (split.separator, split.right);
        } else {
            let split = right.split_at(half - len);
            node.append(separator, right);
            (separator, right) = (split.separator, split.right);
        }
        let count = right.count();
        children.counts[left] -= count;
        children.counts.insert(left + 1, count);
        children.nodes.insert(left + 1, Arc::new(right));
        self.keys.insert(left, separator);
    }
}

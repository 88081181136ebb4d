//! The nodes of a memtable as a whole.

use std::sync::Arc;

use super::IS_SORTING;
use super::build::Builder;
use super::entry::{Below, Entry, Former};
use super::node::Node;
use super::run::Run;

/// The nodes are rebuilt from the old and new entries if there are at most `REBUILT_RATIO` times as
/// many old as new entries, and at least `MIN_REBUILT` new ones.
const REBUILT_RATIO: usize = 4;
const MIN_REBUILT: usize = 64;

/// The nodes of a memtable. A clone takes constant time.
#[derive(Clone, Default)]
pub(super) struct Nodes {
    pub root: Option<Arc<Node>>,
    /// Number of entries.
    pub len: usize,
    /// Memory of the leaves.
    pub bytes: usize,
}

impl Nodes {
    /// Stores entries, given in key order. What a replaced entry knows about the layers below
    /// stays.
    pub(super) fn merge<'e>(
        &mut self,
        count: usize,
        entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>, Option<bool>)>,
    ) {
        if !IS_SORTING || count.saturating_mul(REBUILT_RATIO) < self.len || count < MIN_REBUILT {
            for (key, payload, below) in entries {
                self.put(key, payload, below);
            }
            return;
        }
        let mut builder = Builder::default();
        let mut old = self.entries().peekable();
        for (key, payload, below) in entries {
            while let Some(entry) = old.next_if(|entry| entry.key < key) {
                builder.push(entry);
            }
            let below = match old.next_if(|entry| entry.key == key) {
                Some(entry) => entry.below.clone(),
                None => below.map_or_else(Below::unknown, Below::known),
            };
            let below = &below;
            builder.push(Entry { key, payload, below });
        }
        old.for_each(|entry| builder.push(entry));
        *self = builder.finish();
    }

    /// Stores the changes of sorted runs, given oldest first.
    pub(super) fn merge_runs(&mut self, runs: Vec<Run>) {
        for run in runs {
            let entries = (0..run.len()).filter_map(|index| run.entry(index));
            self.merge(run.len(), entries.map(|(key, payload)| (key, payload, None)));
        }
    }

    /// The entries in key order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut passed = 0;
        let mut place: Option<(&Node, usize)> = None;
        std::iter::from_fn(move || {
            let (leaf, index) = match place {
                Some((leaf, index)) if index < leaf.len() => (leaf, index),
                _ if passed == self.len => return None,
                _ => {
                    let (leaf, index) = Node::leaf_at(self.root.as_ref()?, passed);
                    (&**leaf, index)
                }
            };
            place = Some((leaf, index + 1));
            passed += 1;
            leaf.entry(index)
        })
    }

    /// See [`Memtable::put`].
    pub(super) fn put(&mut self, key: &[u8], payload: Option<&[u8]>, below: Option<bool>) -> Option<Former> {
        let root = self.root.get_or_insert_with(|| {
            let leaf = Node::default();
            self.bytes = leaf.memory_bytes();
            Arc::new(leaf)
        });
        let changed = Arc::make_mut(root).put(key, payload, below);
        if let Some((separator, right)) = changed.split {
            *root = Arc::new(Node::root(Arc::clone(root), &separator, right));
        }
        self.len += usize::from(changed.former.is_none());
        self.bytes = self.bytes.saturating_add_signed(changed.grown);
        changed.former
    }

    /// Removes roots with a single child.
    pub(super) fn shorten(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        }
        while let Some(only) = self.root.as_ref().and_then(|root| root.only_child()) {
            self.root = Some(Arc::clone(only));
        }
    }
}

//! Visits every block of a tree, node by node, for verification.

use std::sync::Arc;

use super::{Pages, value};
use crate::block::BlockRef;
use crate::error::{Error, Result};
use crate::node::{Child, Node, ValuePlace};
use crate::pages::{Access, Expected};

/// Whether a hint exists for the record with this expiry and key.
pub(crate) type HasHint<'a> = &'a dyn Fn(u64, &[u8]) -> Result<bool>;

/// Blocks that a walk reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Every block is read from storage, even if it is cached, and checked.
    All,
    /// Only those that refer to other blocks. Leaves and values that lead to no other blocks are not
    /// read.
    Extents,
}

/// Content of a block that the walk reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A node of this level.
    Node(u8),
    /// A value, a chunk of a value, or the index of its chunks.
    Value,
}

/// A node, and the index of the child or record that comes next.
struct Frame {
    node: Arc<Node>,
    next: usize,
}

/// A walk through one tree, with counts and findings.
pub(crate) struct Walk {
    visit: Visit,
    owner: u32,
    root: Child,
    has_begun: bool,
    /// The path from the root. Every node in it has something left to visit.
    path: Vec<Frame>,
    /// Blocks reached, in no particular order.
    pub blocks: Vec<(BlockRef, Part)>,
    pub nodes: u64,
    /// Records of the leaves reached, whether read or not.
    pub records: u64,
    /// Damage found; the walk continues past it.
    pub problems: Vec<Error>,
}

impl Walk {
    pub(crate) fn new(visit: Visit, root: &Child, owner: u32) -> Self {
        Self {
            visit,
            owner,
            root: *root,
            has_begun: false,
            path: Vec::new(),
            blocks: Vec::new(),
            nodes: 0,
            records: 0,
            problems: Vec::new(),
        }
    }

    /// Visits the whole tree.
    pub(crate) fn run(mut self, pages: &impl Pages, has_hint: Option<HasHint<'_>>) -> Self {
        while !self.is_at_end() {
            self.step(pages, has_hint);
        }
        self
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.has_begun && self.path.is_empty()
    }

    /// Visits one more node or value. `has_hint` is set if the tree may hold records that expire.
    pub(crate) fn step(&mut self, pages: &impl Pages, has_hint: Option<HasHint<'_>>) {
        if let Some(Frame { node, next }) = self.path.last_mut() {
            let (node, index) = (Arc::clone(node), *next);
            *next += 1;
            if *next == node.len() {
                self.path.pop();
            }
            if node.is_leaf() {
                self.value(pages, &node, index);
            } else {
                self.child(pages, &node, index, has_hint);
            }
        } else if !self.has_begun {
            self.has_begun = true;
            let root = self.root;
            let expected = Expected::root(self.owner, root.count);
            self.node(pages, &root, &expected, has_hint);
        }
    }

    fn child(&mut self, pages: &impl Pages, node: &Node, index: usize, has_hint: Option<HasHint<'_>>) {
        let child = node.child(index);
        let (lower, upper) = node.child_fences(index);
        let expected = Expected {
            owner: self.owner,
            level: Some(node.level() - 1),
            count: child.count,
            lower: &lower,
            upper: upper.as_deref(),
        };
        self.node(pages, &child, &expected, has_hint);
    }

    fn node(&mut self, pages: &impl Pages, child: &Child, expected: &Expected<'_>, has_hint: Option<HasHint<'_>>) {
        if let (Visit::Extents, Some(0), false) = (self.visit, expected.level, child.has_overflow) {
            self.blocks.push((child.pointer, Part::Node(0)));
            self.records += child.count;
            return;
        }
        let reached = self.blocks.len();
        let node = match self.fresh(pages, child, expected) {
            Ok(node) => node,
            Err(error) => {
                self.problems.push(error);
                return;
            }
        };
        self.nodes += 1;
        if let Some((_, part)) = self.blocks.get_mut(reached) {
            *part = Part::Node(node.level());
        }
        if node.is_leaf() {
            self.records += node.len() as u64;
            if let Some(has_hint) = has_hint {
                self.check_hints(&node, has_hint);
            }
        }
        if node.len() > 0 && (!node.is_leaf() || node.has_overflow()) {
            self.path.push(Frame { node, next: 0 });
        }
    }

    /// Reads the node from storage.
    fn fresh(&mut self, pages: &impl Pages, child: &Child, expected: &Expected<'_>) -> Result<Arc<Node>> {
        self.blocks.push((child.pointer, Part::Node(0)));
        pages.pager().load(&child.pointer, expected, Access::Scan)
    }

    /// Checks that every record that expires has a hint; without one it would never be purged.
    fn check_hints(&mut self, node: &Node, has_hint: HasHint<'_>) {
        for index in 0..node.len() {
            let expires = node.record(index).expires;
            let key = node.key(index);
            if expires == 0 {
                continue;
            }
            match has_hint(expires, &key) {
                Ok(true) => {}
                Ok(false) => self
                    .problems
                    .push(Error::corrupt("a record that expires has no hint").covering(&key, Some(&key))),
                Err(error) => self.problems.push(error),
            }
        }
    }

    /// Visits the value of a record, if it is out of line.
    fn value(&mut self, pages: &impl Pages, leaf: &Node, index: usize) {
        let record = leaf.record(index);
        let ValuePlace::OutOfLine(reference) = record.place else {
            return;
        };
        let blocks = &pages.pager().blocks;
        let chunks = value::chunks(blocks, self.owner, record.value_len, &reference);
        let read = match self.visit {
            Visit::All => value::read_parts(blocks, self.owner, &record, |_| Ok::<_, Error>(())),
            Visit::Extents => Ok(()),
        };
        match chunks.and_then(|chunks| read.map(|()| chunks)) {
            Ok(chunks) => {
                if record.value_len > value::CHUNK_BYTES {
                    self.blocks.push((reference, Part::Value));
                }
                self.blocks.extend(chunks.into_iter().map(|chunk| (chunk, Part::Value)));
            }
            Err(error) => {
                let key = leaf.key(index);
                self.problems.push(error.covering(&key, Some(&key)));
            }
        }
    }
}

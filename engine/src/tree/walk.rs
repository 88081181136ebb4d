//! A visit to every block of a tree, for verification.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Pages, value};
use crate::block::{BlockRef, Pointer};
use crate::cache::{Access, Expected};
use crate::error::{Error, Result};
use crate::node::{Child, Node, ValuePlace};

/// Called before each node with the number of nodes and records so far; breaks to end the walk.
pub(crate) type Tick<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Tells whether there is a hint about the record of a key with an expiry.
pub(crate) type HasHint<'a> = &'a dyn Fn(u64, &[u8]) -> Result<bool>;

/// Counts and findings of a walk.
#[derive(Default)]
pub(crate) struct Walk<'a> {
    pub tick: Option<Tick<'a>>,
    /// Set where the tree can have records that expire.
    pub has_hint: Option<HasHint<'a>>,
    /// The walk was ended early.
    pub is_cancelled: bool,
    /// Blocks reached, in no particular order.
    pub blocks: Vec<BlockRef>,
    pub nodes: u64,
    pub records: u64,
    pub depth: u8,
    /// Damage found; the walk goes on beside it.
    pub problems: Vec<Error>,
}

impl Walk<'_> {
    /// Visits a tree. Every block is read from storage again, whether it is cached or not.
    pub(crate) fn tree(&mut self, pages: &impl Pages, root: &Child, owner: u32) {
        let expected = Expected {
            owner,
            level: None,
            count: root.count,
            lower: &[],
            upper: None,
        };
        let before = self.records;
        self.subtree(pages, root, &expected);
        if self.problems.is_empty() && !self.is_cancelled && self.records - before != root.count {
            self.problems.push(Error::corrupt(format!(
                "the catalog counts {} records, the tree holds {}",
                root.count,
                self.records - before
            )));
        }
    }

    fn subtree(&mut self, pages: &impl Pages, child: &Child, expected: &Expected<'_>) {
        let (nodes, records) = (self.nodes, self.records);
        if let Some(tick) = &mut self.tick {
            self.is_cancelled |= tick(nodes, records).is_break();
        }
        if self.is_cancelled {
            return;
        }
        let node = match self.fresh(pages, child, expected) {
            Ok(node) => node,
            Err(error) => {
                self.problems.push(error);
                return;
            }
        };
        self.nodes += 1;
        self.depth = self.depth.max(node.level() + 1);
        if node.total() != child.count {
            self.problems.push(
                Error::corrupt("a node holds another number of records than its parent says")
                    .covering(expected.lower, expected.upper),
            );
        }
        if node.is_leaf() {
            self.leaf(pages, &node, expected);
            return;
        }
        for index in 0..node.len() {
            let child = node.child(index);
            let (lower, upper) = node.child_fences(index);
            let below = Expected {
                owner: expected.owner,
                level: Some(node.level() - 1),
                count: child.count,
                lower: &lower,
                upper: upper.as_deref(),
            };
            self.subtree(pages, &child, &below);
        }
    }

    /// The node as storage has it; a dirty page as memory has it.
    fn fresh(&mut self, pages: &impl Pages, child: &Child, expected: &Expected<'_>) -> Result<Arc<Node>> {
        match child.pointer {
            Pointer::Disk(reference) => {
                self.blocks.push(reference);
                pages.pager().load(&reference, expected, Access::Scan)
            }
            Pointer::Memory(_) => pages.lookup(&child.pointer).or_else(|reference| {
                self.blocks.push(reference);
                pages.pager().load(&reference, expected, Access::Scan)
            }),
        }
    }

    /// Every record that expires has a hint, or it would never be purged.
    fn check_hints(&mut self, node: &Node) {
        let Some(has_hint) = self.has_hint else { return };
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

    fn leaf(&mut self, pages: &impl Pages, node: &Node, expected: &Expected<'_>) {
        self.records += node.len() as u64;
        self.check_hints(node);
        if !node.has_overflow() {
            return;
        }
        let blocks = &pages.pager().blocks;
        for index in 0..node.len() {
            let record = node.record(index);
            let ValuePlace::OutOfLine(reference) = record.place else {
                continue;
            };
            let chunks = value::chunks(blocks, expected.owner, record.value_len, &reference);
            let read = value::read_parts(blocks, expected.owner, &record, |_| Ok::<_, Error>(()));
            match chunks.and_then(|chunks| read.map(|()| chunks)) {
                Ok(chunks) => {
                    if record.value_len > value::CHUNK_BYTES {
                        self.blocks.push(reference);
                    }
                    self.blocks.extend(chunks);
                }
                Err(error) => {
                    let key = node.key(index);
                    self.problems.push(error.covering(&key, Some(&key)));
                }
            }
        }
    }
}

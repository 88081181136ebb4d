//! The counted, copy-on-write B+tree: nodes by pointer, records by key, position and range.
//!
//! The functions here know nothing about collections or versions. They read through [`Pages`] and
//! write through [`Editor`], which copies a page before its first change.

use std::sync::Arc;

use crate::block::BlockRef;
use crate::error::{Error, Result};
use crate::node::{Child, Node};
use crate::pages::{Access, Expected, Pager};

pub(crate) mod cursor;
pub(crate) mod editor;
pub(crate) mod merge;
pub(crate) mod read;
pub(crate) mod relocate;
pub(crate) mod value;
pub(crate) mod walk;

pub(crate) use editor::Editor;

/// Source of a tree's pages.
pub(crate) trait Pages {
    /// The page if it is in memory, otherwise the reference to its block.
    fn lookup(&self, reference: &BlockRef) -> std::result::Result<Arc<Node>, BlockRef>;

    fn pager(&self) -> &Pager;

    fn root(&self, root: &Child, owner: u32) -> Result<Arc<Node>> {
        self.lookup(&root.pointer).or_else(|reference| {
            let expected = Expected::root(owner, root.count);
            self.pager().load(&reference, &expected, Access::Point)
        })
    }

    fn child(&self, parent: &Node, index: usize, owner: u32, access: Access) -> Result<Arc<Node>> {
        seek_child(self, parent, index, owner, access)
    }
}

/// Gets a child from the page table, otherwise from its block.
fn seek_child<P: Pages + ?Sized>(
    pages: &P,
    parent: &Node,
    index: usize,
    owner: u32,
    access: Access,
) -> Result<Arc<Node>> {
    let child = parent.child(index);
    let node = pages.lookup(&child.pointer).or_else(|reference| {
        let (lower, upper) = parent.child_fences(index);
        let expected = Expected {
            owner,
            level: Some(parent.level() - 1),
            count: child.count,
            lower: &lower,
            upper: upper.as_deref(),
        };
        pages.pager().load(&reference, &expected, access)
    })?;
    // A page in memory was checked for the parent through which it was loaded. In a hostile file
    // another parent, or the page itself, may refer to it too. If the level drops with every step,
    // every descent ends.
    if node.level() + 1 != parent.level() {
        return Err(Error::corrupt("a node is not on the level below its parent"));
    }
    Ok(node)
}

impl Pages for Pager {
    fn lookup(&self, reference: &BlockRef) -> std::result::Result<Arc<Node>, BlockRef> {
        Pager::lookup(self, reference)
    }

    fn pager(&self) -> &Pager {
        self
    }

    #[cfg(not(target_family = "wasm"))]
    #[inline]
    fn child(&self, parent: &Node, index: usize, owner: u32, access: Access) -> Result<Arc<Node>> {
        if let Some(node) = self.linked(parent, index) {
            return Ok(node);
        }
        let node = seek_child(self, parent, index, owner, access)?;
        // A page that the table did not keep is gone before its next use.
        if Arc::strong_count(&node) > 1 {
            parent.link(index, &node);
        }
        Ok(node)
    }
}

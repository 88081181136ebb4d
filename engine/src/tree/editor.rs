//! Copy-on-write: an [`Editor`] changes one tree inside a draft, or retires parts of it.

use super::Pages;
use crate::block::Compression;
use crate::error::Result;
use crate::node::{Child, Limits, Node};
use crate::pages::{Access, Draft, FreeSpace, Pager};

/// Changes one tree. After an error the draft is half-changed and must be dropped.
pub(crate) struct Editor<'a> {
    pub pager: &'a Pager,
    pub draft: &'a mut Draft,
    pub free: &'a FreeSpace,
    pub root: &'a mut Option<Child>,
    pub owner: u32,
    pub generation: u64,
    pub compression: Compression,
    pub limits: Limits,
}

impl Editor<'_> {
    /// Retires the whole tree; returns the number of its records. Leaves are read only if they may
    /// hold out-of-line values.
    pub(crate) fn clear_all(&mut self) -> Result<u64> {
        let Some(root) = self.root.take() else { return Ok(0) };
        let node = self.pager.root(&root, self.owner)?;
        self.retire_subtree(&root, &node)?;
        Ok(root.count)
    }

    /// Retires a subtree.
    fn retire_subtree(&mut self, child: &Child, node: &Node) -> Result<()> {
        if node.is_leaf() {
            for index in 0..node.len() {
                self.retire_value(&node.record(index))?;
            }
        } else {
            for index in 0..node.len() {
                self.retire_child(node, index)?;
            }
        }
        self.draft.retire_block(&child.pointer);
        Ok(())
    }

    /// Retires the subtree of one child of an inner node.
    pub(super) fn retire_child(&mut self, node: &Node, index: usize) -> Result<()> {
        let child = node.child(index);
        if node.level() == 1 && !child.has_overflow {
            self.draft.retire_block(&child.pointer);
            return Ok(());
        }
        let page = self.pager.child(node, index, self.owner, Access::Scan)?;
        self.retire_subtree(&child, &page)
    }
}

//! Copy on write: an [`Editor`] changes one tree inside a draft.

use std::sync::Arc;

use super::{DraftPages, Pages};
use crate::block::{Compression, Pointer};
use crate::error::Result;
use crate::node::{Child, Limits, Node};
use crate::pages::{Access, Draft, FreeExtents, Pager};

/// Changes one tree. After an error the draft is half-changed and must be dropped.
pub(crate) struct Editor<'a> {
    pub pager: &'a Pager,
    pub draft: &'a mut Draft,
    pub free: &'a mut FreeExtents,
    pub root: &'a mut Option<Child>,
    pub owner: u32,
    pub generation: u64,
    pub compression: Compression,
    pub limits: Limits,
}

impl Editor<'_> {
    pub(super) fn pages(&self) -> DraftPages<'_> {
        DraftPages {
            draft: self.draft,
            pager: self.pager,
        }
    }

    pub(super) fn node(&self, number: u64) -> &Node {
        self.draft.get(number).expect("the page was adopted by this draft")
    }

    /// Adds a page to the draft.
    pub(super) fn add(&mut self, node: Node) -> u64 {
        let number = self.pager.new_number();
        self.draft.insert(number, node);
        number
    }

    /// Number of the draft's own copy of a page.
    fn adopt(&mut self, pointer: &Pointer, node: &Arc<Node>) -> u64 {
        if let Pointer::Memory(number) = pointer
            && self.draft.get(*number).is_some()
        {
            return *number;
        }
        let copy = node.writable_copy(self.limits.node_capacity);
        self.draft.retire(pointer);
        self.add(copy)
    }

    /// The root as a page of the draft.
    pub(super) fn own_root(&mut self, root: Child) -> Result<u64> {
        if let Pointer::Memory(number) = root.pointer
            && self.draft.get(number).is_some()
        {
            return Ok(number);
        }
        let node = self.pages().root(&root, self.owner)?;
        let number = self.adopt(&root.pointer, &node);
        *self.root = Some(Child {
            pointer: Pointer::Memory(number),
            ..root
        });
        Ok(number)
    }

    /// Child `index` of a page of the draft, as a page of the draft.
    pub(super) fn own_child(&mut self, parent: u64, index: usize) -> Result<u64> {
        let pointer = self.node(parent).child(index).pointer;
        if let Pointer::Memory(number) = pointer
            && self.draft.get(number).is_some()
        {
            return Ok(number);
        }
        let node = self
            .pages()
            .child(self.node(parent), index, self.owner, Access::Point)?;
        let number = self.adopt(&pointer, &node);
        self.draft.node_mut(parent).set_pointer(index, Pointer::Memory(number));
        Ok(number)
    }
}

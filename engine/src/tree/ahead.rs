//! Writing dirty leaves before the checkpoint that needs them, some at a time.

use std::sync::Arc;

use super::Editor;
use crate::block::Pointer;
use crate::error::Result;
use crate::node::{Child, Node};
use crate::pages::{BlockWriter, Draft, Written};

/// Place from which writing ahead goes on: owner of a tree and a key in it.
pub(crate) type Position = Option<(u32, Vec<u8>)>;

/// One pass over a part of a tree.
struct Pass<'a> {
    from: Vec<u8>,
    /// Bytes that may still be written.
    left: usize,
    /// Key of the first leaf that was left out.
    next: Option<Vec<u8>>,
    writer: BlockWriter<'a>,
}

impl Editor<'_> {
    /// Writes dirty leaves of about `budget` bytes, from `position` on in the order of owners and keys, and puts references to their blocks in
    /// copies of the inner nodes above them, which are all dirty too. Returns what is left of the budget. The draft must be empty of
    /// pages of this tree.
    pub(crate) fn write_ahead(
        &mut self,
        budget: usize,
        position: &mut Position,
        written: &mut Vec<Written>,
    ) -> Result<usize> {
        let from = match position.as_ref() {
            Some((owner, _)) if *owner > self.owner => return Ok(budget),
            Some((owner, key)) if *owner == self.owner => key.clone(),
            _ => Vec::new(),
        };
        let Some(root) = *self.root else { return Ok(budget) };
        let no_draft = Draft::default();
        let mut pass = Pass {
            from,
            left: budget,
            next: None,
            writer: BlockWriter::new(self.pager, &no_draft, self.free, self.generation, self.compression),
        };
        let result = ahead(&mut pass, root, self.owner);
        let finished = pass.writer.finish();
        let (left, next) = (pass.left, pass.next.take());
        self.draft.allocated.append(&mut pass.writer.allocated);
        written.append(&mut pass.writer.written);
        finished?;
        let change = result?;
        *position = next.map(|key| (self.owner, key));
        if let Some(change) = change {
            *self.root = Some(self.copy_changed(root, change));
        }
        Ok(left)
    }

    /// Copies the inner nodes of a change; returns the reference to the topmost.
    fn copy_changed(&mut self, child: Child, change: Change) -> Child {
        let Change::Inner(node, below) = change else {
            return child;
        };
        let mut copy = node.writable_copy(self.limits.node_capacity, self.draft.stamp);
        for (index, change) in below {
            let old = copy.child(index);
            let new = match change {
                Change::Leaf(new) => new,
                inner @ Change::Inner(..) => self.copy_changed(old, inner),
            };
            copy.set_child(index, new);
        }
        self.draft.retire(&child.pointer, &node);
        let pointer = Pointer::Memory(self.add(copy));
        Child { pointer, ..child }
    }
}

/// What became of a subtree.
enum Change {
    /// A leaf has a block.
    Leaf(Child),
    /// Some children of an inner node changed.
    Inner(Arc<Node>, Vec<(usize, Change)>),
}

fn ahead(pass: &mut Pass<'_>, child: Child, owner: u32) -> Result<Option<Change>> {
    let Pointer::Memory(number) = child.pointer else {
        return Ok(None);
    };
    let Some(node) = pass.writer.dirty(number).filter(|node| !node.is_leaf()) else {
        return Ok(None);
    };
    let mut changes = Vec::new();
    for index in node.child_index(&pass.from)..node.len() {
        let below = node.child(index);
        if !matches!(below.pointer, Pointer::Memory(_)) {
            continue;
        }
        if pass.left == 0 {
            pass.next.get_or_insert_with(|| node.child_fences(index).0);
            break;
        }
        if node.level() > 1 {
            if let Some(change) = ahead(pass, below, owner)? {
                changes.push((index, change));
            }
        } else {
            let on_disk = pass.writer.write_tree(below, owner)?;
            let bytes = pass.writer.written.last().map_or(0, |page| page.node.memory_bytes());
            pass.left = pass.left.saturating_sub(bytes);
            changes.push((index, Change::Leaf(on_disk)));
        }
        if pass.next.is_some() {
            break;
        }
    }
    Ok((!changes.is_empty()).then_some(Change::Inner(node, changes)))
}

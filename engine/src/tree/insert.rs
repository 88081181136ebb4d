//! Insertion and replacement, with splits.

use std::sync::Arc;

use super::Editor;
use crate::block::Pointer;
use crate::error::Result;
use crate::node::split::{Cell, CellList, Pattern, distribute};
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::Step;

impl Editor<'_> {
    /// Stores a record; returns whether the key was there before. Key and value lengths were checked by the caller.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let place = if self.limits.is_inline(key.len(), value.len()) {
            ValuePlace::Inline(value)
        } else {
            ValuePlace::OutOfLine(self.write_value(value)?)
        };
        self.put(key, &LeafCell::new(value.len(), place))
    }

    /// Stores a record whose value, if it is out of line, was written already.
    pub(crate) fn put(&mut self, key: &[u8], cell: &LeafCell<'_>) -> Result<bool> {
        let inline = matches!(cell.place, ValuePlace::Inline(_));
        let mut payload = std::mem::take(&mut self.draft.payload);
        cell.encode_into(&mut payload);
        let Some(root) = *self.root else {
            self.plant(key, &payload, !inline);
            return Ok(false);
        };
        let (path, leaf) = self.own_path(root, key)?;
        let (index, found) = self.node(leaf).lower_bound(key);
        if found {
            let old = self.draft.get(leaf).expect("own_path adopted the leaf").clone();
            self.retire_value(&old.record(index))?;
        }
        let node = self.draft.node_mut(leaf);
        if !inline {
            node.mark_overflow();
        }
        let fits = if found {
            node.replace_payload(index, &payload)
        } else {
            node.insert(index, key, &payload)
        };
        self.update_counts(&path, i64::from(!found), !inline);
        if !fits {
            let new = Cell {
                key: key.to_vec(),
                payload: payload.clone(),
            };
            self.split(&path, leaf, index, found, vec![new]);
        }
        self.draft.path = path;
        self.draft.payload = payload;
        Ok(found)
    }

    /// The first record of an empty tree.
    pub(super) fn plant(&mut self, key: &[u8], payload: &[u8], has_overflow: bool) {
        let mut node = Node::new(self.limits.node_capacity, 0, &[], None, self.draft.stamp);
        let inserted = node.insert(0, key, payload);
        assert!(inserted, "I7: one record fits an empty leaf");
        if has_overflow {
            node.mark_overflow();
        }
        let number = self.add(node);
        *self.root = Some(Child {
            pointer: Pointer::Memory(number),
            count: 1,
            has_overflow,
        });
    }

    /// Redistributes a node that has no room for `new` at `index` (in place of the old cell if `replace`), and tells the parents.
    pub(super) fn split(&mut self, path: &[Step], number: u64, index: usize, replace: bool, new: Vec<Cell>) {
        let mut cells = std::mem::take(&mut self.draft.cells);
        cells.copy_from(self.node(number));
        let pattern = match index {
            _ if replace => Pattern::Middle,
            _ if index == cells.len() => Pattern::Append,
            0 => Pattern::Prepend,
            _ => Pattern::Middle,
        };
        if replace {
            cells.remove(index);
        }
        for (at, cell) in (index..).zip(new) {
            cells.insert(at, &cell.key, &cell.payload);
        }
        self.rebuild(path, number, &cells, pattern);
        self.draft.cells = cells;
    }

    /// Gives a node other cells, in as many nodes as they need, and tells the parents.
    pub(super) fn rebuild(&mut self, path: &[Step], number: u64, cells: &dyn CellList, pattern: Pattern) {
        let old = Arc::clone(self.draft.get(number).expect("it is a page of this draft"));
        let nodes = distribute(cells, &old, pattern, self.limits.node_capacity, self.draft.stamp);
        let mut nodes = nodes.into_iter();
        let first = nodes.next().expect("distribution makes at least one node");
        let first_child = first.as_child(Pointer::Memory(number));
        self.draft.replace(number, first);
        let siblings: Vec<Cell> = nodes.map(|node| self.add_child(node)).collect();
        let Some((parent, above)) = path.split_last() else {
            self.grow(&old, first_child, &siblings);
            return;
        };
        self.draft.node_mut(parent.number).set_child(parent.index, first_child);
        self.insert_siblings(above, *parent, siblings);
    }

    /// Inserts the new right siblings of child `step.index` into its parent.
    fn insert_siblings(&mut self, above: &[Step], step: Step, siblings: Vec<Cell>) {
        let mut siblings = siblings.into_iter();
        let mut index = step.index + 1;
        while let Some(cell) = siblings.next() {
            if !self.draft.node_mut(step.number).insert(index, &cell.key, &cell.payload) {
                let rest = std::iter::once(cell).chain(siblings).collect();
                self.split(above, step.number, index, false, rest);
                return;
            }
            index += 1;
        }
    }

    /// Puts a new root above a root that was split, and another above that one if need be.
    fn grow(&mut self, old: &Node, first: Child, siblings: &[Cell]) {
        if siblings.is_empty() {
            return;
        }
        let capacity = self.limits.node_capacity;
        let mut template = Node::new(capacity, old.level() + 1, &[], None, self.draft.stamp);
        if old.has_overflow() {
            template.mark_overflow();
        }
        let mut cells = vec![Cell {
            key: Vec::new(),
            payload: first.encode().to_vec(),
        }];
        cells.extend(siblings.iter().map(|cell| Cell {
            key: cell.key.clone(),
            payload: cell.payload.clone(),
        }));
        let nodes = distribute(&cells, &template, Pattern::Middle, capacity, self.draft.stamp);
        let mut parts: Vec<Cell> = nodes.into_iter().map(|node| self.add_child(node)).collect();
        let siblings = parts.split_off(1);
        let first = Child::decode(&parts[0].payload).expect("it was encoded just now");
        *self.root = Some(first);
        self.grow(&template, first, &siblings);
    }

    /// Adds a page to the draft; returns the cell by which a parent refers to it.
    pub(super) fn add_child(&mut self, node: Node) -> Cell {
        let key = node.lower_fence().to_vec();
        let child = node.as_child(Pointer::Memory(self.pager.new_number()));
        if let Pointer::Memory(number) = child.pointer {
            self.draft.insert(number, node);
        }
        Cell {
            key,
            payload: child.encode().to_vec(),
        }
    }
}

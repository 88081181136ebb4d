//! Pages that one transaction made and nobody else can see yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Extent;
use crate::block::{BlockRef, Pointer};
use crate::node::Node;
use crate::node::split::PackedCells;

/// One step of a descent: a page of the draft and the child that was taken.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub number: u64,
    pub index: usize,
}

/// A page that a commit replaced: snapshots with versions `stamp..=last` may still need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetiredPage {
    pub number: u64,
    pub stamp: u64,
}

/// The private changes of a transaction. Dropping it forgets them; only `allocated` has to be given back.
#[derive(Default)]
pub(crate) struct Draft {
    pub pages: FxHashMap<u64, Arc<Node>>,
    /// Version that the pages belong to.
    pub stamp: u64,
    /// Buffers that are kept from change to change.
    pub path: Vec<Step>,
    pub payload: Vec<u8>,
    pub cells: PackedCells,
    /// Version of the commit that its new records belong to.
    pub version: u64,
    /// Published dirty pages that this transaction replaced.
    pub retired_pages: Vec<RetiredPage>,
    /// Blocks that this transaction made unreachable.
    pub retired_extents: Vec<Extent>,
    /// Extents written for out-of-line values.
    pub allocated: Vec<Extent>,
    /// Bytes of the pages.
    pub bytes: usize,
    /// Start and units of extents of pages that this transaction wrote because it is larger than memory. Nobody else can refer to them.
    pub spilled: BTreeMap<u64, u64>,
    /// Those of them that it gave up again.
    pub released: Vec<Extent>,
}

impl Draft {
    pub(crate) fn new(stamp: u64) -> Self {
        Self {
            stamp,
            version: stamp,
            ..Self::default()
        }
    }

    pub(crate) fn insert(&mut self, number: u64, node: Node) {
        self.bytes += node.memory_bytes();
        self.pages.insert(number, Arc::new(node));
    }

    /// Puts another node in place of a page of this draft.
    pub(crate) fn replace(&mut self, number: u64, node: Node) {
        self.bytes += node.memory_bytes();
        if let Some(old) = self.pages.insert(number, Arc::new(node)) {
            self.bytes -= old.memory_bytes();
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Node>> {
        self.pages.get(&number)
    }

    /// A page of this draft, to be changed.
    pub(crate) fn node_mut(&mut self, number: u64) -> &mut Node {
        let node = self.pages.get_mut(&number).expect("the page was adopted by this draft");
        Arc::make_mut(node)
    }

    pub(crate) fn retire_block(&mut self, reference: &BlockRef) {
        let extent = Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        };
        if !self.spilled.is_empty() && self.spilled.remove(&extent.start).is_some() {
            self.released.push(extent);
        } else {
            self.retired_extents.push(extent);
        }
    }

    /// Extents that nothing refers to if this draft is dropped.
    pub(crate) fn take_unpublished(&mut self) -> Vec<Extent> {
        let mut extents = std::mem::take(&mut self.allocated);
        extents.append(&mut self.released);
        let spilled = std::mem::take(&mut self.spilled);
        extents.extend(spilled.into_iter().map(|(start, units)| Extent { start, units }));
        extents
    }

    /// Takes note that the tree no longer uses the page at `pointer`, whose content is `node`.
    pub(crate) fn retire(&mut self, pointer: &Pointer, node: &Node) {
        match pointer {
            Pointer::Disk(reference) => self.retire_block(reference),
            Pointer::Memory(number) => {
                if let Some(own) = self.pages.remove(number) {
                    self.bytes -= own.memory_bytes();
                } else {
                    self.retired_pages.push(RetiredPage {
                        number: *number,
                        stamp: node.stamp,
                    });
                }
            }
        }
    }
}

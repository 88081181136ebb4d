//! Pages that one transaction made and nobody else can see yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Extent;
use crate::block::{BlockRef, Pointer};
use crate::node::Node;

/// The private changes of a transaction. Dropping it forgets them; only `allocated` has to be given back.
#[derive(Default)]
pub(crate) struct Draft {
    pub pages: FxHashMap<u64, Arc<Node>>,
    /// A buffer that is kept from change to change.
    pub payload: Vec<u8>,
    /// Version of the commit that its new records belong to.
    pub version: u64,
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
    pub(crate) fn new(version: u64) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    pub(crate) fn insert(&mut self, number: u64, node: Node) {
        self.bytes += node.memory_bytes();
        self.pages.insert(number, Arc::new(node));
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

    /// Extents that were taken for this draft.
    pub(crate) fn unpublished(&self) -> impl Iterator<Item = Extent> + '_ {
        let spilled = self.spilled.iter().map(|(&start, &units)| Extent { start, units });
        self.allocated.iter().chain(&self.released).copied().chain(spilled)
    }

    /// Extents that nothing refers to if this draft is dropped.
    pub(crate) fn take_unpublished(&mut self) -> Vec<Extent> {
        let mut extents = std::mem::take(&mut self.allocated);
        extents.append(&mut self.released);
        let spilled = std::mem::take(&mut self.spilled);
        extents.extend(spilled.into_iter().map(|(start, units)| Extent { start, units }));
        extents
    }

    /// Takes note that the tree no longer uses the page at `pointer`.
    pub(crate) fn retire(&mut self, pointer: &Pointer) {
        match pointer {
            Pointer::Disk(reference) => self.retire_block(reference),
            Pointer::Memory(number) => {
                if let Some(own) = self.pages.remove(number) {
                    self.bytes -= own.memory_bytes();
                }
            }
        }
    }
}

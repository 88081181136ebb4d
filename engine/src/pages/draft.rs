//! Extents that one transaction took or gave up, as nobody else can see yet.

use std::collections::BTreeMap;

use super::Extent;
use crate::block::BlockRef;

/// The private changes of a transaction. Dropping it forgets them; only `allocated` has to be given back.
#[derive(Default)]
pub(crate) struct Draft {
    /// A buffer that is kept from change to change.
    pub payload: Vec<u8>,
    /// Version of the commit that its new records belong to.
    pub version: u64,
    /// Blocks that this transaction made unreachable.
    pub retired_extents: Vec<Extent>,
    /// Extents written for out-of-line values.
    pub allocated: Vec<Extent>,
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
}

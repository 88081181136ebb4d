//! Extents that a transaction has allocated or retired, invisible to others until it commits.

use std::collections::BTreeMap;

use super::Extent;
use crate::block::BlockRef;

/// A block that a transaction or a merge made unreachable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    pub extent: Extent,
    /// Version of the commit that wrote the value it belongs to; 0 for other blocks. The log of
    /// any checkpoint before that commit names the block.
    pub written_by: u64,
}

/// The private changes of a transaction. Before it is dropped, its unpublished extents must be
/// freed.
#[derive(Default)]
pub(crate) struct Draft {
    /// Scratch buffer, reused from change to change.
    pub payload: Vec<u8>,
    /// Version of the commit that the new records belong to.
    pub version: u64,
    /// Blocks that this transaction made unreachable.
    pub retired: Vec<Retired>,
    /// Extents written for out-of-line values.
    pub allocated: Vec<Extent>,
    /// Start and length, in units, of extents for spilled pages. The transaction wrote these
    /// because it is larger than memory; nobody else can refer to them.
    pub spilled: BTreeMap<u64, u64>,
    /// Units of the values that this transaction removed, as far as it looked.
    pub removed_units: u64,
    /// Spilled extents that the transaction has given up again.
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
        let extent = Extent::of(reference);
        if !self.spilled.is_empty() && self.spilled.remove(&extent.start).is_some() {
            self.released.push(extent);
        } else {
            self.retired.push(Retired { extent, written_by: 0 });
        }
    }

    /// Retires a block of a value that the commit with version `written_by` wrote.
    pub(crate) fn retire_value_block(&mut self, reference: &BlockRef, written_by: u64) {
        self.retired.push(Retired {
            extent: Extent::of(reference),
            written_by,
        });
    }

    /// Takes back the retirement of an extent; `false` if it was not retired.
    pub(crate) fn reuse(&mut self, extent: Extent) -> bool {
        let found = self.retired.iter().position(|retired| retired.extent == extent);
        found.map(|index| self.retired.swap_remove(index)).is_some()
    }

    /// Takes the extents that were retired.
    pub(crate) fn take_retired(&mut self) -> impl Iterator<Item = Extent> + use<> {
        let retired = std::mem::take(&mut self.retired);
        retired.into_iter().map(|retired| retired.extent)
    }

    /// Extents allocated for this draft.
    pub(crate) fn unpublished(&self) -> impl Iterator<Item = Extent> + '_ {
        let spilled = self.spilled.iter().map(|(&start, &units)| Extent { start, units });
        self.allocated.iter().chain(&self.released).copied().chain(spilled)
    }

    /// Takes the extents that nothing refers to once this draft is dropped.
    pub(crate) fn take_unpublished(&mut self) -> Vec<Extent> {
        let mut extents = std::mem::take(&mut self.allocated);
        extents.append(&mut self.released);
        let spilled = std::mem::take(&mut self.spilled);
        extents.extend(spilled.into_iter().map(|(start, units)| Extent { start, units }));
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_that_is_used_again_is_not_retired() {
        let mut draft = Draft::new(1);
        let references = [5, 9].map(|unit| BlockRef {
            unit,
            units: 2,
            checksum: 0,
            raw_len: 600,
        });
        for reference in &references {
            draft.retire_value_block(reference, 1);
        }
        let [first, second] = references.map(|reference| Extent::of(&reference));
        assert!(draft.reuse(first));
        assert!(!draft.reuse(first), "it is in use");
        assert_eq!(draft.take_retired().collect::<Vec<_>>(), [second]);
    }
}

//! Chooses the checkpoint to start from, and the blocks that are not part of it.

use super::catalog::Entries;
use super::control::Flow;
use super::holes::{Holes, Range};
use super::scan::{Found, newest_root};
use super::tree::{Salvage, Sink};
use crate::error::Result;
use crate::node::Child;
use crate::pages::{Expected, Extent, Space, Superblock};

impl Salvage<'_> {
    /// Chooses between the checkpoint of the only readable slot and newer blocks found by the scan.
    ///
    /// Those belong either to the checkpoint whose slot is lost, or to one that a crash
    /// interrupted. The newest complete checkpoint is best; if none is complete, everything found
    /// is used.
    ///
    /// Returns the root of the catalog and its generation.
    pub(super) fn choose(&mut self, superblock: &Superblock) -> Flow<(Option<Child>, u64)> {
        let own = (superblock.catalog, superblock.generation);
        let is_newest = self.scanned()?.newest_of_all() <= superblock.generation;
        if is_newest {
            return Ok(own);
        }
        let newer = newest_root(self.used_nodes(0)).filter(|found| found.generation > superblock.generation);
        if let Some(found) = newer
            && let Some(child) = self.found_root(found)
            && self.is_whole(Some(child), found.generation)?
        {
            self.exclude_later(found.generation);
            return Ok((Some(child), found.generation));
        }
        if self.is_whole(own.0, own.1)? {
            self.exclude_later(own.1);
        }
        Ok(own)
    }

    /// Excludes blocks of later checkpoints, which were never finished.
    fn exclude_later(&mut self, generation: u64) {
        self.last_generation = generation;
        if self
            .index
            .as_ref()
            .is_some_and(|index| index.newest_of_all() > generation)
        {
            self.index = None;
        }
    }

    /// Whether everything reachable from a catalog can be read.
    fn is_whole(&mut self, catalog: Option<Child>, generation: u64) -> Flow<bool> {
        let report = self.report.clone();
        let result = self.reads_whole(catalog, generation);
        self.report = report;
        self.control.forget_records();
        result
    }

    fn reads_whole(&mut self, catalog: Option<Child>, generation: u64) -> Flow<bool> {
        let mut entries = Entries::default();
        if !self.probe(0, catalog, generation, &mut entries)? || !entries.lost.is_empty() {
            return Ok(false);
        }
        for entry in entries.list.into_values().filter(|entry| !entry.is_hidden()) {
            let mut nothing = Nothing { is_lost: false };
            let collection = entry.collection;
            if !self.probe(collection.id, collection.root, generation, &mut nothing)? || nothing.is_lost {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether references lead to all nodes of a tree.
    fn probe(&mut self, owner: u32, root: Option<Child>, as_of: u64, sink: &mut dyn Sink) -> Flow<bool> {
        let mut holes = Holes::default();
        let whole = Expected::root(owner, root.map_or(0, |root| root.count));
        if let Some(root) = &root {
            self.subtree(root, &whole, None, as_of, sink, &mut holes)?;
        }
        Ok(holes.is_empty())
    }

    /// Records the space that is free in a checkpoint. Blocks there are outdated, or were never
    /// part of the database. Without a readable free map, only the generation and the checkpoint's
    /// end can tell.
    pub(super) fn learn_free_space(&mut self, superblock: &Superblock) {
        if let Ok(space) = Space::load(&self.pager, superblock) {
            self.free = space.free.extents().into_iter().chain(space.unreleased()).collect();
            self.free.sort_unstable();
        }
        // A crash leaves blocks there with the generation of the next checkpoint, the same
        // generation that the blocks of the finished checkpoint have.
        self.free.push(Extent {
            start: superblock.file_units,
            units: u64::MAX - superblock.file_units,
        });
    }

    /// Whether a node lies in known free space.
    pub(super) fn is_free(&self, found: &Found) -> bool {
        let unit = found.offset() >> self.unit_shift;
        let next = self.free.partition_point(|extent| extent.start <= unit);
        let extent = next.checked_sub(1).and_then(|index| self.free.get(index));
        extent.is_some_and(|extent| unit - extent.start < extent.units)
    }
}

/// A sink that notes only whether all records can be read.
struct Nothing {
    is_lost: bool,
}

impl Sink for Nothing {
    fn clear(&mut self, _range: &Range) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, _key: &[u8], _value: &[u8], _expires: u64, _generation: u64) -> Result<()> {
        Ok(())
    }

    fn lose(&mut self, _key: &[u8]) {
        self.is_lost = true;
    }

    fn end_leaf(&mut self) -> Result<()> {
        Ok(())
    }
}

//! Room for removals where the storage is full.
//!
//! Removing a record takes room before it gives any: pages are copied, and what they replace is free after the second checkpoint. So the data file
//! is kept longer than its content, by [`Options::reserve_bytes`](crate::Options::reserve_bytes). A commit that stores something is admitted only while a
//! merge of all memtables finds room in the file as it is, and the reserve is left; else the file is made longer, and if the
//! storage refuses that, the commit fails before anything of it is in the log. A commit that only removes may use the reserve, and goes past the
//! log where that has no room.

use super::{Collection, Shared, Version, Writer};
use crate::error::{Error, Result};
use crate::memtable::Memtable;

/// Beyond what is needed the file is made longer by an eighth of it, between these.
const MIN_STEP_BYTES: u64 = 64 << 10;
const MAX_STEP_BYTES: u64 = 1 << 20;
/// Blocks that every checkpoint writes beside merged nodes: the catalog's and the free map, each of a node's size at most.
const CHECKPOINT_BLOCKS: u64 = 4;
/// Nodes that a merge writes for one entry at most, about: its leaf, the neighbours that are packed with it, and those above.
const ENTRY_NODES: u64 = 6;
/// Nodes that a round of a merge writes at most where there is little room.
const ROUND_NODES: u64 = 40;

impl Writer {
    /// Makes the file long enough to merge the memtables of a version, with the reserve left.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`] of the storage.
    #[inline(never)]
    pub(crate) fn admit(&mut self, shared: &Shared, state: &Version) -> Result<()> {
        let reserve_bytes = u64::from(shared.config.reserve_bytes);
        if reserve_bytes == 0 {
            return Ok(());
        }
        let lacking = self.lacking_bytes(shared, state, reserve_bytes);
        if lacking == 0 {
            self.is_full = false;
            return Ok(());
        }
        let file = shared.pager.blocks.file();
        let len = file.len()?;
        let step = (len / 8).clamp(MIN_STEP_BYTES, MAX_STEP_BYTES);
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let grow = |by: u64| file.set_len((len + by).next_multiple_of(unit_bytes));
        let mut grown = grow(lacking + step);
        if matches!(grown, Err(Error::StorageFull { .. })) {
            grown = grow(lacking);
        }
        self.is_full = grown.is_err();
        grown
    }

    /// Whether the memtables of a version can be merged in the file as it is, with enough left for the checkpoint after the next: before that
    /// nothing is given up.
    pub(crate) fn has_room(&self, shared: &Shared, state: &Version) -> bool {
        let left = u64::from(shared.config.reserve_bytes / 2);
        left == 0 || self.lacking_bytes(shared, state, left) == 0
    }

    #[inline(never)]
    fn lacking_bytes(&self, shared: &Shared, state: &Version, reserve_bytes: u64) -> u64 {
        let needed = self.merge_bytes(shared, state) + CHECKPOINT_BLOCKS * u64::from(self.superblock.node_bytes);
        (needed + reserve_bytes).saturating_sub(self.room_bytes(shared))
    }

    /// What the memtables of a version need to be merged: two rounds where that goes in parts, all that they hold where the tree is new, else up to a tree
    /// that is written anew.
    fn merge_bytes(&self, shared: &Shared, state: &Version) -> u64 {
        let node_bytes = u64::from(self.superblock.node_bytes);
        let has_log = self.log.is_some() && !self.is_unlogged();
        let used_bytes = self.space.used_units() * shared.pager.blocks.unit_bytes() as u64;
        let merged = |collection: &Collection, memtable: &Memtable| {
            let entries = memtable.len() as u64;
            let most = if memtable.is_empty() {
                0
            } else if !has_log {
                (entries * ENTRY_NODES * node_bytes).min(used_bytes) + memtable.bytes() as u64
            } else if self.has_durable_tree(collection) {
                entries.min(ROUND_NODES) * node_bytes
            } else {
                node_bytes + memtable.bytes() as u64
            };
            // Blocks have whole units, and few of them fill theirs exactly.
            most + most / 8
        };
        let collections = state.collections.values();
        collections
            .flat_map(|collection| collection.layers.all().map(|memtable| merged(collection, memtable)))
            .sum()
    }

    /// Whether the last checkpoint has this collection, and it was not emptied since: then a partial checkpoint may have a part of what follows.
    pub(super) fn has_durable_tree(&self, collection: &Collection) -> bool {
        let mut durable = self.durable.collections.values();
        collection.emptied_at <= self.durable.version && durable.any(|durable| durable.id == collection.id)
    }

    /// Room in the file as it is.
    pub(super) fn room_bytes(&self, shared: &Shared) -> u64 {
        let blocks = &shared.pager.blocks;
        let unit_bytes = blocks.unit_bytes() as u64;
        let free = &self.space.free;
        let len = blocks.file().len().unwrap_or(0);
        len.saturating_sub(free.end() * unit_bytes) + free.roomy_units() * unit_bytes
    }

    /// Whether what the older superblock keeps is needed.
    pub(super) fn is_tight(&self, shared: &Shared) -> bool {
        let kept: u64 = self.space.kept().map(|extent| extent.units).sum();
        shared.config.reserve_bytes > 0 && self.room_bytes(shared) < 2 * kept * shared.pager.blocks.unit_bytes() as u64
    }

    /// Makes usable what removals gave up, once the storage has refused room: it takes two checkpoints. Failure is harmless.
    #[cold]
    #[inline(never)]
    pub(crate) fn reclaim(&mut self, shared: &Shared) {
        if !(self.is_full && self.has_removed) {
            return;
        }
        self.has_removed = false;
        for _ in 0..2 {
            if shared.flush.failure().is_some() || self.checkpoint_newest(shared, false).is_err() {
                return;
            }
        }
    }

    /// As [`reclaim`](Self::reclaim), if it is worth the checkpoints.
    #[inline(never)]
    pub(crate) fn reclaim_much(&mut self, shared: &Shared) {
        if self.is_full && self.has_removed {
            let kept: u64 = self.space.kept().map(|extent| extent.units).sum();
            if kept << self.superblock.unit_shift >= u64::from(shared.config.reserve_bytes) / 4 {
                self.reclaim(shared);
            }
        }
    }
}

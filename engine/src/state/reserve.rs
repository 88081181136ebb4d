//! The reserve: space for checkpoints and removals when the storage is full.
//!
//! Removing a record needs space before it frees any: pages are copied, and the replaced ones are
//! free only after the second checkpoint. So a commit that stores something is admitted only if a
//! merge of all memtables has the space that it needs. If the storage refuses that, everything that no version needs
//! any more is freed, by a checkpoint in that space. If that is not enough, the commit fails before
//! any of it is in the log.
//!
//! The reserve is zeros at the end of the log, of which the file system has allocated blocks; they are
//! cut off when the storage has refused anything. With
//! [`AdvancedOptions::reserve_bytes`](crate::AdvancedOptions::reserve_bytes) it is in the data file, which is longer
//! than its content by those bytes and the space of a merge. A commit that only removes may use the
//! reserve, and bypasses the log if its half is full.

use super::{Collection, Shared, Version, Writer};
use crate::error::{Error, Result};
use crate::pages::{Space, Superblock, cut_whole_tail};

/// The file is extended by an eighth of its length more than needed, within these limits.
const MIN_STEP_BYTES: u64 = 64 << 10;
const MAX_STEP_BYTES: u64 = 1 << 20;
/// Blocks that every checkpoint writes besides merged nodes: those of the catalog and the free map,
/// each at most as large as a node.
const CHECKPOINT_BLOCKS: u64 = 4;
/// Approximate maximum number of nodes that a merge writes for one entry: its leaf, the neighbours
/// packed with it, and the nodes above.
const ENTRY_NODES: u64 = 6;
/// Values that wait to become free take at least this many bytes before they cause a checkpoint.
const MIN_WAITING_BYTES: u64 = 8 << 20;
/// Extents that a checkpoint retired are freed at once if they are at least this part of those that may wait.
const RECLAIMED_WAITING: u64 = 4;
/// A log as long as so many nodes is worth emptying once the storage has refused any.
const LONG_LOG_NODES: u64 = 4;
/// Maximum number of nodes that a round of a merge writes when space is scarce.
pub(super) const ROUND_NODES: u64 = 40;

/// Most units that may wait for a checkpoint: half of the data, but not less than 8 MiB.
pub(super) fn max_waiting(superblock: &Superblock, space: &Space) -> u64 {
    (space.used_units() / 2).max(MIN_WAITING_BYTES >> superblock.unit_shift)
}

impl Writer {
    /// Extends a file if the memtables of a version cannot be merged with the reserve left.
    /// `record_bytes` is the length of the record that is about to be logged; without one, the version
    /// is about to be checkpointed.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`] from the storage.
    pub(crate) fn admit(&mut self, shared: &Shared, state: &Version, record_bytes: Option<usize>) -> Result<()> {
        let reserve_bytes = u64::from(shared.config.reserve_bytes);
        let admitted = match record_bytes {
            _ if reserve_bytes > 0 => self.extend_data(shared, state, reserve_bytes),
            Some(record_bytes) => self.extend_log(shared, state, record_bytes),
            None => Ok(()),
        };
        self.is_full = matches!(admitted, Err(Error::StorageFull { .. }));
        admitted
    }

    fn extend_log(&mut self, shared: &Shared, state: &Version, record_bytes: usize) -> Result<()> {
        let newest = self.superblock.log;
        let Some(spare) = self.log.as_ref().and_then(|log| log.spare_bytes(&newest)) else {
            return Ok(());
        };
        let usable = self.space.free.usable_units() << self.superblock.unit_shift;
        let needed = self.needed_bytes(shared, state).saturating_sub(usable);
        let needed = needed.min(u64::from(self.superblock.log_half_bytes) / 2);
        let lacking = (needed + record_bytes as u64).saturating_sub(spare);
        match &mut self.log {
            Some(log) if lacking > 0 => log
                .extend(lacking)
                .inspect_err(|error| shared.flush.fail_unless_full(error)),
            _ => Ok(()),
        }
    }

    fn extend_data(&self, shared: &Shared, state: &Version, reserve_bytes: u64) -> Result<()> {
        let lacking = self.lacking_bytes(shared, state, reserve_bytes);
        if lacking == 0 {
            return Ok(());
        }
        let file = shared.pager.blocks.file();
        let len = file.len()?;
        let step = (len / 8).clamp(MIN_STEP_BYTES, MAX_STEP_BYTES);
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let grow = |by: u64| file.set_len((len + by).next_multiple_of(unit_bytes));
        match grow(lacking + step) {
            Err(Error::StorageFull { .. }) => grow(lacking),
            grown => grown,
        }
    }

    /// Whether the memtables of a version can be merged in the file as it is, with enough left for
    /// the checkpoint after the next: nothing is freed before that one.
    pub(crate) fn has_space(&self, shared: &Shared, state: &Version) -> bool {
        let left = u64::from(shared.config.reserve_bytes / 2);
        left == 0 || self.lacking_bytes(shared, state, left) == 0
    }

    fn lacking_bytes(&self, shared: &Shared, state: &Version, reserve_bytes: u64) -> u64 {
        (self.needed_bytes(shared, state) + reserve_bytes).saturating_sub(self.available_bytes(shared))
    }

    /// Bytes needed for a checkpoint of a version.
    fn needed_bytes(&self, shared: &Shared, state: &Version) -> u64 {
        self.merge_bytes(shared, state) + CHECKPOINT_BLOCKS * u64::from(self.superblock.node_bytes)
    }

    /// Bytes needed to merge the memtables of a version: their content, which is added to the trees, beside
    /// two rounds where the merge can go in parts, and without a log at most the rewritten trees.
    fn merge_bytes(&self, shared: &Shared, state: &Version) -> u64 {
        let node_bytes = u64::from(self.superblock.node_bytes);
        let most = if self.log.is_some() && !self.is_unlogged() && !self.trees_are_ahead {
            let durable = self.durable.version;
            state.collections.weigh(|summary| match summary.emptied_at {
                Some((_, last)) if last <= durable => Some(summary.round_nodes * node_bytes + summary.bytes() as u64),
                Some((first, _)) if first <= durable => None,
                _ => Some(summary.memtables * node_bytes + summary.bytes() as u64),
            })
        } else {
            let used_bytes = self.space.used_units() * shared.pager.blocks.unit_bytes() as u64;
            let layers = state.collections.summary().layers.into_iter();
            layers
                .map(|content| {
                    (content.entries as u64 * ENTRY_NODES * node_bytes).min(used_bytes) + content.bytes as u64
                })
                .sum()
        };
        // Blocks take whole units, and few fill theirs exactly.
        most + most / 8
    }

    /// Whether the last checkpoint has this collection and it has not been emptied since: if so, a
    /// partial checkpoint may hold part of the later changes.
    pub(super) fn has_durable_tree(&self, collection: &Collection) -> bool {
        collection.emptied_at <= self.durable.version
    }

    /// Bytes available in the file as it is.
    pub(super) fn available_bytes(&self, shared: &Shared) -> u64 {
        let blocks = &shared.pager.blocks;
        let unit_bytes = blocks.unit_bytes() as u64;
        let free = &self.space.free;
        let len = blocks.file().len().unwrap_or(0);
        len.saturating_sub(free.end() * unit_bytes) + free.usable_units() * unit_bytes
    }

    /// Whether merges have to get by with the space that the file has.
    pub(super) fn has_limits(&self, shared: &Shared) -> bool {
        self.is_full || shared.config.reserve_bytes > 0
    }

    /// Whether the space that the older superblock keeps is needed.
    pub(super) fn is_tight(&self, shared: &Shared) -> bool {
        let unreleased: u64 = self.space.unreleased().map(|extent| extent.units).sum();
        self.has_limits(shared)
            && self.available_bytes(shared) < 2 * unreleased * shared.pager.blocks.unit_bytes() as u64
    }

    /// Units that only the older superblock reaches.
    pub(super) fn reclaimable_units(&self, shared: &Shared) -> u64 {
        let oldest = shared.published().oldest();
        self.space.reclaimable_units(self.superblock.generation, oldest)
    }

    /// Frees the extents that only the older superblock reaches, by overwriting it with the newest.
    pub(super) fn reclaim_older(&mut self, shared: &Shared) -> Result<()> {
        match self.overwrite_older(shared) {
            // Either the older superblock stays, or only the newest is left; nothing was freed.
            Err(Error::StorageFull { .. }) => Ok(()),
            written => written,
        }
    }

    /// Frees the extents that the last checkpoint retired, where they are many of those that may wait.
    pub(super) fn reclaim_waiting(&mut self, shared: &Shared) -> Result<()> {
        if self.superblock.closed || self.reclaimable_units(shared) * RECLAIMED_WAITING < self.max_waiting {
            return Ok(());
        }
        self.reclaim_older(shared)
    }

    /// Once the storage is full, frees everything that no version needs any more, and the log.
    /// Returns whether there was anything to free.
    #[cold]
    pub(crate) fn reclaim_space(&mut self, shared: &Shared) -> Result<bool> {
        if shared.flush.failure().is_some() {
            return Ok(false);
        }
        let is_cut = self.cut_log(shared)?;
        let is_behind = self.durable.version != shared.newest().version;
        let long = LONG_LOG_NODES * u64::from(self.superblock.node_bytes);
        let has_long_log = self.log.as_ref().is_some_and(|log| log.file_bytes() >= long);
        if has_long_log {
            self.empty_log(shared)?;
        } else if is_behind {
            self.checkpoint_newest(shared, false)?;
        }
        let has_more = self.reclaimable_units(shared) > 0;
        if has_more {
            self.reclaim_older(shared)?;
        }
        self.cut_free_tail(shared);
        Ok(is_cut || is_behind || has_long_log || has_more)
    }

    /// Cuts the data file behind its content, but for the reserve and the space of a merge: on a
    /// full storage the log needs it.
    pub(crate) fn cut_free_tail(&self, shared: &Shared) {
        let file = shared.pager.blocks.file();
        let end = self.space.free.end() * shared.pager.blocks.unit_bytes() as u64;
        let reserved = match shared.config.reserve_bytes {
            0 => 0,
            _ => self.needed_bytes(shared, &shared.newest()),
        };
        cut_whole_tail(file, end + reserved, shared.config.reserve_bytes);
    }

    /// Frees the reserve at the end of the log, and the extents that only the older superblock reaches. Merges then
    /// get by with the space that the file has. Returns whether there was anything to free.
    pub(crate) fn cut_log(&mut self, shared: &Shared) -> Result<bool> {
        self.recall(shared)?;
        self.is_full = true;
        let round_bytes = self.round_bytes(shared);
        if let Some(merging) = &mut self.merging {
            merging.round_bytes = round_bytes;
        }
        let newest = self.superblock.log;
        let is_worth = self.log.as_ref().is_some_and(|log| log.can_cut(&newest));
        if is_worth && self.older_log != Some(newest) {
            self.reclaim_older(shared)?;
        }
        if let Some(log) = self.log.as_mut().filter(|_| is_worth && self.older_log == Some(newest)) {
            log.cut();
        }
        Ok(is_worth)
    }
}

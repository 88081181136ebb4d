//! Room for removals where the storage is full.
//!
//! Removing a record takes room before it gives any: pages are copied, and what they replace is free after the second checkpoint. So the data file
//! is kept longer than its content, by [`Options::reserve_bytes`](super::Options::reserve_bytes). A commit that stores something is admitted only while a
//! checkpoint of everything that is dirty finds room in the file as it is, and the reserve is left; else the file is made longer, and if the
//! storage refuses that, the commit fails before anything of it is in the log. A commit that only removes may use the reserve, and goes past the
//! log where that has no room.

use super::{Shared, Writer};
use crate::error::{Error, Result};
use crate::pages::Draft;

/// Beyond what is needed the file is made longer by an eighth of it, between these.
const MIN_STEP_BYTES: u64 = 64 << 10;
const MAX_STEP_BYTES: u64 = 1 << 20;
/// Blocks that every checkpoint writes beside the dirty pages: the catalog's and the free map, each of a node's size at most.
const CHECKPOINT_BLOCKS: u64 = 4;

impl Writer {
    /// Makes the file long enough for a checkpoint of what is dirty and `bytes` more, with the reserve left.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`] of the storage.
    #[inline(never)]
    pub(crate) fn admit(&mut self, shared: &Shared, bytes: usize) -> Result<()> {
        let reserve_bytes = u64::from(shared.config.reserve_bytes);
        if reserve_bytes == 0 {
            return Ok(());
        }
        let lacking = self.lacking_bytes(shared, bytes, reserve_bytes)?;
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

    /// Whether what is dirty, and `bytes` more, finds room in the file as it is, with enough left for the checkpoint after the next: before that
    /// nothing is given up.
    pub(crate) fn has_room(&self, shared: &Shared, bytes: usize) -> bool {
        let left = u64::from(shared.config.reserve_bytes / 2);
        left == 0
            || self
                .lacking_bytes(shared, bytes, left)
                .is_ok_and(|lacking| lacking == 0)
    }

    #[inline(never)]
    fn lacking_bytes(&self, shared: &Shared, bytes: usize, reserve_bytes: u64) -> Result<u64> {
        let blocks = &shared.pager.blocks;
        let unit_bytes = blocks.unit_bytes() as u64;
        let dirty = (shared.pager.dirty_bytes() + bytes) as u64;
        // Blocks have whole units, and few of them fill theirs exactly.
        let needed = dirty + dirty / 8 + CHECKPOINT_BLOCKS * u64::from(self.superblock.node_bytes);
        let free = &self.space.free;
        let behind = blocks.file().len()?.saturating_sub(free.end() * unit_bytes);
        Ok((needed + reserve_bytes).saturating_sub(behind + free.roomy_units() * unit_bytes))
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
            let mut state = (*shared.newest()).clone();
            let mut draft = Draft::new(state.version);
            if shared.flush.failure().is_some() || self.checkpoint(shared, &mut state, &mut draft).is_err() {
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

//! Merges the content of memtables into the trees.

use super::{Shared, Summary, Version, Writer};
use crate::block::PageId;
use crate::error::Result;
use crate::memtable::{Layers, Memtable, MergedChanges};
use crate::pages::Draft;
use crate::tree::Editor;
use crate::tree::merge::Merge;

/// Space given up by the last checkpoint is reclaimed if it is at least this part of the used
/// space.
const RECLAIMED_PART: u64 = 16;

impl Writer {
    /// Merges the memtables of all collections of `state` into their trees. The new nodes are the
    /// draft's spilled blocks: only a checkpoint makes them part of the database, and without one,
    /// freeing them undoes everything. After an error the state is unusable.
    #[inline(never)]
    pub(crate) fn merge_into_draft(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        if !state.collections.summary().has_changes() {
            return Ok(());
        }
        // The nodes written here belong to the next checkpoint, so none may be under way.
        self.recall(shared)?;
        #[cfg(feature = "testing")]
        {
            self.merges.in_draft += 1;
        }
        // Only once: nodes already written belong to the checkpoint that follows the newest
        // superblock.
        if draft.spilled.is_empty() {
            self.reclaim_quarantine(shared)?;
        }
        self.merge_all(shared, state, draft)
    }

    /// As [`merge_into_draft`](Self::merge_into_draft), where no checkpoint is under way. Writes nothing but blocks.
    pub(crate) fn merge_all(&self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        // A snapshot of this version may still read the old blocks.
        state.moves += 1;
        let generation = self.superblock.generation + 1;
        let version = state.version;
        for id in state.collections.select(Summary::has_changes) {
            let Some((name, collection)) = state.collections.by_id_mut(id) else {
                continue;
            };
            let Layers { fresh, active, frozen } = std::mem::take(&mut collection.layers);
            for layers in [vec![frozen], vec![active, fresh]] {
                let entries: usize = layers.iter().map(Memtable::most_entries).sum();
                if entries == 0 {
                    continue;
                }
                let mut root = collection.root;
                let mut editor = Editor {
                    pager: &shared.pager,
                    draft: &mut *draft,
                    free: &self.space.free,
                    root: &mut root,
                    owner: collection.id,
                    generation,
                    compression: shared.config.compression,
                    limits: shared.config.limits,
                };
                let mut changes = MergedChanges::new(layers);
                let merge = Merge::new(collection.root, entries).with_packing(collection.packing);
                let merged = merge.run(&mut editor, &mut changes);
                merged.map_err(|error| error.in_collection(name))?;
                collection.root = root;
                collection.changed_at = version;
            }
        }
        // Nodes that one merge wrote and the next one replaced.
        for extent in draft.released.drain(..) {
            shared.pager.remove(PageId::disk(extent.start));
            self.space.free.free(extent)?;
        }
        Ok(())
    }

    /// Frees the extents that only the older superblock reaches, by overwriting it with the newest. The file
    /// then needs space for two copies of its trees rather than three: that of the last checkpoint
    /// and the one about to be written.
    fn reclaim_quarantine(&mut self, shared: &Shared) -> Result<()> {
        let units = self.reclaimable_units(shared);
        if units * RECLAIMED_PART < self.space.used_units() {
            return Ok(());
        }
        self.reclaim_older(shared)
    }
}

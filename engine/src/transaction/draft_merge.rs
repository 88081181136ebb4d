//! Merging the memtables into the trees within a transaction, and merges in progress beside it.

use super::WriteTransaction;
use crate::error::{Error, Result};
use crate::memtable::Layers;
use crate::node::LeafCell;
use crate::state::{Shared, Summary, Writer};
use crate::tree::value;

impl WriteTransaction<'_> {
    /// Merges the memtables into the trees once they take most of the cache. Only the draft refers
    /// to the blocks written here, so dropping it still undoes everything. The log cannot describe
    /// them, so the commit will be a checkpoint.
    pub(super) fn merge_if_large(&mut self) -> Result<()> {
        self.write_chunks()?;
        let bytes = self.memory_bytes;
        self.shared.pager.reserve(bytes);
        if bytes <= self.shared.config.max_memtable_bytes() {
            return Ok(());
        }
        self.record = None;
        self.merge_into_draft()
    }

    #[inline(never)]
    pub(super) fn merge_into_draft(&mut self) -> Result<()> {
        self.record = None;
        let result = self
            .finish_merging()
            .and_then(|()| self.release_spilled())
            .and_then(|()| {
                self.writer
                    .merge_into_draft(self.shared, &mut self.state, &mut self.draft)
            });
        self.memory_bytes = 0;
        self.shared.pager.reserve(0);
        result.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Makes a checkpoint of earlier commits, in which the extents that this transaction has
    /// allocated are free.
    pub(super) fn before_checkpoint(
        &mut self,
        checkpoint: impl FnOnce(&mut Writer, &Shared) -> Result<()>,
    ) -> Result<()> {
        self.writer.space.in_flight = self.draft.unpublished().collect();
        let result = checkpoint(&mut self.writer, self.shared);
        self.writer.space.in_flight.clear();
        result
    }

    /// Abandons the merge in progress.
    #[inline(never)]
    pub(super) fn thaw(&mut self) -> Result<()> {
        // The merging thread may have made a checkpoint meanwhile, or ended the merge. Then the
        // trees are no longer those of this transaction, and their replaced nodes are retired
        // already.
        self.writer.recall(self.shared)?;
        Writer::catch_up(self.shared, &mut self.state);
        for (name, collection) in self.state.collections.selected(Summary::has_frozen) {
            let layers = &collection.layers;
            for entry in layers.fresh.entries() {
                let frozen = layers.frozen.reference(entry.key);
                // A value that an earlier commit replaced was retired by that commit.
                let is_replaced = layers.active.get(entry.key).is_some();
                if let Some(reference) = frozen.filter(|_| !is_replaced) {
                    let cell = LeafCell::decode(reference);
                    let references = value::references(&self.shared.pager.blocks, collection.id, &cell);
                    for reference in references.map_err(|error| error.in_collection(name))? {
                        self.draft.retire_value_block(&reference, cell.version);
                    }
                }
            }
        }
        self.writer.thaw(self.shared)?;
        self.state.change(Summary::has_frozen, Layers::thaw);
        self.memory_bytes = self.state.memory_bytes();
        Ok(())
    }

    /// Frees the reserve at the end of the log; returns whether there was any.
    pub(super) fn cut_log(&mut self) -> Result<bool> {
        let cut = self.writer.cut_log(self.shared);
        // The recall may have ended a checkpoint of the merging thread.
        Writer::catch_up(self.shared, &mut self.state);
        cut
    }

    /// Finishes the merge in progress.
    #[inline(never)]
    pub(super) fn finish_merging(&mut self) -> Result<()> {
        let mut finished = self.before_checkpoint(Writer::finish_merging);
        if matches!(finished, Err(Error::StorageFull { .. })) && self.cut_log()? {
            finished = self.before_checkpoint(Writer::finish_merging);
        }
        finished?;
        Writer::catch_up(self.shared, &mut self.state);
        self.memory_bytes = self.state.memory_bytes();
        Ok(())
    }
}

//! Commit: how a transaction's changes become durable, and the merges that this takes.

use super::capture::Capture;
use super::{CommitInfo, Durability, ExclusiveTransaction, Submission};
use crate::error::{Error, Result};
use crate::log::{Log, refusal};
use crate::memtable::Layers;
use crate::node::LeafCell;
use crate::state::{Shared, Summary, Writer};
use crate::storage::NAME_AGE_MS;
use crate::tree::value;

/// How a commit takes effect.
enum Route {
    /// As one record in the log.
    Log,
    /// As a checkpoint: everything goes to the data file.
    Checkpoint,
    /// In memory only.
    Memory,
}

impl ExclusiveTransaction<'_> {
    /// Makes the changes visible and, unless `durability` is [`Durability::None`], durable together
    /// with all earlier commits. Threads whose strict commits wait at the same time share one
    /// flush.
    ///
    /// # Errors
    /// Any error undoes the transaction. [`Error::StorageFull`]: retry when there is space.
    /// [`Error::Poisoned`] and [`Error::Io`]: see there.
    pub fn commit(self, durability: Durability) -> Result<CommitInfo> {
        let shared = self.shared;
        let Submission { info, awaits_flush } = self.submit(durability)?;
        if awaits_flush {
            let version = match durability {
                Durability::Strict => info.version,
                // It only has to become visible.
                _ => shared.published().awaited().unwrap_or(0).min(info.version),
            };
            shared.make_durable(version)?;
        }
        Ok(info)
    }

    /// As [`commit`](Self::commit), but returns where that would wait for a flush of the log. The
    /// next flush makes the commit visible and durable:
    /// [`Database::flush`](crate::Database::flush), another commit's, or, without a thread that
    /// waits for it, [`Database::begin_flush`](crate::Database::begin_flush). Until then the next
    /// transaction builds on the commit, but it is invisible, and a crash may lose it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), except for errors of the flush.
    pub fn submit(mut self, durability: Durability) -> Result<Submission> {
        self.check_usable()?;
        let info = self.seal();
        let shared = self.shared;
        if self.state.version == self.base {
            let awaits_flush = self.commit_nothing(durability)?;
            return Ok(Submission { info, awaits_flush });
        }
        self.write_chunks()?;
        let oldest_in_feed = self.trim_feed()?;
        if durability == Durability::Strict {
            shared.pager.blocks.file().check_owner()?;
        } else {
            shared.check_names(NAME_AGE_MS)?;
        }
        // Repeated changes count once.
        self.state.sort();
        let mut admitted = self.admit();
        if matches!(admitted, Err(Error::StorageFull { .. })) && self.reclaim_space()? {
            admitted = self.admit();
        }
        if self.stores {
            admitted?;
        }
        let chunks = self
            .capture
            .as_mut()
            .filter(|capture| capture.is_volatile)
            .map(Capture::take);
        if self.writer.must_merge(shared) {
            self.finish_merging()?;
        }
        if self.is_short() || (durability != Durability::None && !self.can_log()) {
            self.rebase()?;
        }
        let mut route = self.route(durability);
        if matches!(route, Route::Log)
            && let Err(error) = self.append_or_reclaim()
        {
            if !self.can_pass_log(&error) {
                return Err(error);
            }
            self.rebase()?;
            route = Route::Checkpoint;
        }
        let visible = match route {
            Route::Checkpoint => {
                self.merge_into_draft()?;
                self.release_spilled()?;
                let mut state = std::mem::take(&mut self.state);
                // This commit will be missing from the log.
                let unlogged = std::mem::replace(&mut self.writer.unlogged, true);
                if let Err(error) = self.writer.checkpoint(shared, &mut state, &mut self.draft) {
                    self.writer.unlogged = unlogged;
                    return Err(error);
                }
                true
            }
            Route::Log => {
                let visible = self.stage(durability == Durability::Strict);
                self.pace(visible, info.version)?
            }
            Route::Memory => {
                self.writer.unlogged = true;
                let visible = self.stage(false);
                self.pace(visible, info.version)?
            }
        };
        self.finished = true;
        self.writer.oldest_in_feed = oldest_in_feed;
        shared.feed().push(info.version, chunks);
        let record = if self.is_purge {
            Some(Vec::new())
        } else {
            self.record.take()
        };
        let current = shared.current().version;
        shared.history().push(info.version, record, current);
        Ok(Submission {
            info,
            awaits_flush: !visible,
        })
    }

    /// The prefix rule: a durable commit, even an empty one, makes all commits before it durable.
    /// Returns whether that takes a flush.
    fn commit_nothing(&mut self, durability: Durability) -> Result<bool> {
        let shared = self.shared;
        if durability == Durability::None || shared.flush.durable_version() >= self.base {
            return Ok(false);
        }
        if self.writer.is_unlogged() || self.writer.log.is_none() {
            return self.writer.checkpoint_if_behind(shared).map(|()| false);
        }
        Ok(durability == Durability::Strict)
    }

    fn route(&self, durability: Durability) -> Route {
        // Released extents must be freed, which only a checkpoint does.
        let spilled = !(self.draft.spilled.is_empty() && self.draft.released.is_empty());
        if spilled || self.is_short() {
            return Route::Checkpoint;
        }
        if durability == Durability::None {
            return Route::Memory;
        }
        if self.record.is_some() && self.can_log() {
            Route::Log
        } else {
            Route::Checkpoint
        }
    }

    /// Whether a removal has to free space immediately.
    fn is_short(&self) -> bool {
        !self.stores && !self.writer.has_space(self.shared, &self.state)
    }

    /// Whether the log can take the record, provided that it is not too long.
    fn can_log(&self) -> bool {
        let len = self.record.as_ref().map_or(0, Vec::len);
        let can_append = |log: &Log| !log.checkpoint_first && log.has_space(len);
        !self.writer.is_unlogged() && self.writer.log.as_ref().is_some_and(can_append)
    }

    /// Makes a checkpoint of all earlier commits and repeats the changes on top of it, so that the
    /// log can take them.
    fn rebase(&mut self) -> Result<()> {
        let has_checkpoint = self.writer.durable.version == self.base;
        if has_checkpoint || self.writer.log.is_none() || !self.draft.spilled.is_empty() {
            return Ok(());
        }
        let Some(record) = self.record.take() else {
            return Ok(());
        };
        // Even if it fails, it may have frozen or merged memtables that this state still has as active.
        self.before_checkpoint(|writer, shared| writer.checkpoint_newest(shared, false))
            .inspect_err(|error| self.failed = Some(error.clone()))?;
        self.state = (*self.shared.newest()).clone();
        self.state.absorb();
        self.draft.retired.clear();
        let repeated = self.repeat_record(&record);
        self.record = Some(record);
        self.memory_bytes = self.state.memory_bytes();
        repeated.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Takes space for a merge of the memtables that this transaction leaves.
    fn admit(&mut self) -> Result<()> {
        let record_bytes = self.record.as_ref().map(Vec::len);
        if record_bytes.is_some() {
            // Zeros may stand only behind a header: a power cut could leave anything in their place.
            self.begin_log()?;
        }
        self.writer.admit(self.shared, &self.state, record_bytes)
    }

    fn begin_log(&mut self) -> Result<()> {
        if self.writer.begin_log(self.shared)? {
            // The recall may have ended a checkpoint of the merging thread.
            Writer::catch_up(self.shared, &mut self.state);
        }
        Ok(())
    }

    /// Frees everything that no version before this transaction needs any more, once the storage has
    /// refused space; returns whether there was anything to free.
    pub(super) fn reclaim_space(&mut self) -> Result<bool> {
        let is_cut = self.cut_log()?;
        let is_behind = self.writer.durable.version != self.base;
        if is_behind {
            self.rebase()?;
            if self.writer.durable.version != self.base {
                return Ok(is_cut);
            }
        }
        let mut is_freed = false;
        self.before_checkpoint(|writer, shared| {
            is_freed = writer.reclaim_space(shared)?;
            Ok(())
        })?;
        Ok(is_cut || is_behind || is_freed)
    }

    /// Appends the record; where neither log nor data file has space left, once more after reclaiming some.
    fn append_or_reclaim(&mut self) -> Result<()> {
        let appended = self.append();
        if self.shared.flush.failure().is_none()
            && matches!(appended, Err(Error::StorageFull { .. }))
            && self.reclaim_space()?
        {
            return self.append();
        }
        appended
    }

    /// Whether a commit that the log refused can be a checkpoint instead: only the log is out of
    /// space, and then nothing of the commit is in it.
    fn can_pass_log(&mut self, error: &Error) -> bool {
        let shared = self.shared;
        let is_full = matches!(error, Error::StorageFull { .. }) && shared.flush.failure().is_none();
        self.writer.is_full |= is_full;
        is_full && self.failed.is_none() && (!self.stores || shared.config.reserve_bytes > 0)
    }

    fn append(&mut self) -> Result<()> {
        // The marker behind a checkpoint may have been refused, and stand where this record would.
        if let Some(cause) = self.shared.flush.failure() {
            return Err(refusal(&cause, self.shared.pager.blocks.file()));
        }
        self.begin_log()?;
        let (Some(record), Some(log)) = (&self.record, &mut self.writer.log) else {
            return Ok(());
        };
        // It names blocks that were written but not flushed.
        let refers_to_data = !self.draft.allocated.is_empty();
        let flush = &self.shared.flush;
        let flushed_to = flush.flushed_to(log.salt());
        if let Err(error) = log.append(record, self.base, self.state.version, flushed_to) {
            // Otherwise a crash could bring back a commit that was reported as failed.
            flush.fail_unless_full(&error);
            return Err(error);
        }
        let position = log.position();
        flush.appended(self.state.version, position.salt, position.offset, refers_to_data);
        Ok(())
    }

    /// Advances the merge in step with this commit; returns whether the commit is visible. A failed
    /// merge fails the commit only if that is not visible and nothing can become durable any more.
    /// Otherwise the next commit or checkpoint that must finish the merge reports the error.
    fn pace(&mut self, is_visible: bool, version: u64) -> Result<bool> {
        let shared = self.shared;
        let paced = self.writer.pace(shared);
        // A checkpoint before the failure may have flushed and published it.
        let is_visible = is_visible || shared.current().version >= version;
        match paced {
            Err(error) if !is_visible && shared.flush.failure().is_some() => return Err(error),
            Err(Error::StorageFull { .. }) => self.writer.is_full = true,
            _ => {}
        }
        if !is_visible {
            // Where the merge switched or flushed the log, nothing is left for a flush to publish.
            shared.publish_durable();
        }
        Ok(is_visible || shared.current().version >= version)
    }

    fn stage(&mut self, needs_flush: bool) -> bool {
        let state = std::mem::take(&mut self.state);
        self.writer.stage(self.shared, state, &mut self.draft, needs_flush)
    }

    /// Frees the extents of spilled pages that this transaction no longer needs.
    pub(super) fn release_spilled(&mut self) -> Result<()> {
        let Writer { space, .. } = &mut *self.writer;
        for extent in self.draft.released.drain(..) {
            self.shared.pager.remove(crate::block::PageId::disk(extent.start));
            space.free.free(extent)?;
        }
        Ok(())
    }
}

// Merges within the transaction, and merges in progress that it waits for.
impl ExclusiveTransaction<'_> {
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
    // Rare: in its callers it would make the compressed WebAssembly module longer.
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

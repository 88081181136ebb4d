//! Commit: which way a transaction's changes become durable.

use super::capture::Capture;
use super::{CommitInfo, Durability, Submission, WriteTransaction};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::pages::Draft;
use crate::state::{Shared, Writer};

/// How a commit becomes what it should be.
enum Route {
    /// One record in the log.
    Log,
    /// Everything dirty goes to the data file.
    Checkpoint,
    /// It stays in memory.
    Memory,
}

impl WriteTransaction<'_> {
    /// Makes the changes visible and, unless `durability` is [`Durability::None`], durable together with all commits before them. Threads
    /// whose strict commits wait at the same time share one flush.
    ///
    /// # Errors
    /// On any error the transaction is undone. [`Error::StorageFull`]: try again when there is space. [`Error::Poisoned`] and
    /// [`Error::Io`]: see there.
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

    /// As [`commit`](Self::commit), but where that would wait for a flush of the log, this returns before it. The commit is visible and
    /// durable after the next flush: [`Database::flush`](crate::Database::flush), another commit's, or, without a thread that waits for
    /// it, [`Database::begin_flush`](crate::Database::begin_flush). Until then the next transaction builds on it, but nobody sees it, and a
    /// crash may lose it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), but those of the flush.
    pub fn submit(mut self, durability: Durability) -> Result<Submission> {
        self.check_usable()?;
        let info = self.seal();
        let shared = self.shared;
        if self.state.version == self.base {
            let awaits_flush = self.commit_nothing(durability)?;
            return Ok(Submission { info, awaits_flush });
        }
        self.write_chunks()?;
        self.trim_feed()?;
        let admitted = self.writer.admit(shared, self.draft.bytes);
        if self.stores {
            admitted?;
        }
        self.writer.has_removed |= !self.stores;
        let dirty_before = shared.pager.dirty_bytes();
        let record_bytes = self.record.as_ref().map_or(0, Vec::len);
        let chunks = self
            .capture
            .as_mut()
            .filter(|capture| capture.is_volatile)
            .map(Capture::take);
        if durability == Durability::Strict {
            shared.pager.blocks.file().check_owner()?;
        }
        let mut route = self.route(durability);
        if matches!(route, Route::Log)
            && let Err(error) = self.append()
        {
            if !self.can_pass_log(&error) {
                return Err(error);
            }
            route = Route::Checkpoint;
        }
        let visible = match route {
            Route::Checkpoint => {
                let mut state = std::mem::take(&mut self.state);
                self.release_spilled()?;
                // The log will lack this commit.
                let unlogged = std::mem::replace(&mut self.writer.unlogged, true);
                if let Err(error) = self.writer.checkpoint(shared, &mut state, &mut self.draft) {
                    self.writer.unlogged = unlogged;
                    return Err(error);
                }
                true
            }
            Route::Log => {
                let visible = self.stage(durability == Durability::Strict);
                visible | self.checkpoint_if_log_is_full(visible)?
            }
            Route::Memory => {
                self.writer.unlogged = true;
                self.stage(false)
            }
        };
        self.finished = true;
        self.writer.write_ahead_if_due(shared, dirty_before, record_bytes);
        shared.feed().push(info.version, chunks);
        let record = if self.is_purge {
            Some(Vec::new())
        } else {
            self.record.take()
        };
        shared.history().push(info.version, record, visible);
        Ok(Submission {
            info,
            awaits_flush: !visible,
        })
    }

    /// The prefix rule: a durable commit, even an empty one, makes all commits before it durable. Returns whether that takes a flush.
    fn commit_nothing(&mut self, durability: Durability) -> Result<bool> {
        let shared = self.shared;
        if durability == Durability::None || shared.flush.durable_version() >= self.base {
            return Ok(false);
        }
        if self.writer.unlogged || self.writer.log.is_none() {
            let mut state = std::mem::take(&mut self.state);
            return self
                .writer
                .checkpoint(shared, &mut state, &mut self.draft)
                .map(|()| false);
        }
        Ok(durability == Durability::Strict)
    }

    fn route(&self, durability: Durability) -> Route {
        let dirty = self.draft.bytes + self.shared.pager.dirty_bytes();
        // Released extents have to be given back, which only a checkpoint does.
        let spilled = !(self.draft.spilled.is_empty() && self.draft.released.is_empty());
        let is_short = !self.stores && !self.writer.has_room(self.shared, self.draft.bytes);
        if spilled || is_short || dirty > self.shared.config.max_dirty_bytes() {
            return Route::Checkpoint;
        }
        if durability == Durability::None {
            return Route::Memory;
        }
        match (&self.record, &self.writer.log) {
            (Some(record), Some(log))
                if !self.writer.unlogged && !log.checkpoint_first && log.has_room(record.len()) =>
            {
                Route::Log
            }
            _ => Route::Checkpoint,
        }
    }

    /// Whether a commit that the log refused can be a checkpoint, because only the log has no room: then nothing of it is there.
    fn can_pass_log(&mut self, error: &Error) -> bool {
        let shared = self.shared;
        let is_full = matches!(error, Error::StorageFull { .. }) && shared.flush.failure().is_none();
        self.writer.is_full |= is_full;
        is_full && (!self.stores || shared.config.reserve_bytes > 0)
    }

    fn append(&mut self) -> Result<()> {
        self.writer.begin_log(self.shared)?;
        let (Some(record), Some(log)) = (&self.record, &mut self.writer.log) else {
            return Ok(());
        };
        let refers_to_data = !self.draft.allocated.is_empty();
        append(self.shared, log, record, self.base, self.state.version, refers_to_data)
    }

    /// Makes a checkpoint while the next record, however long, still fits: then every commit is in the log, and the older superblock leads to
    /// the newest state. Returns whether it did. A commit that is visible already is not refused for it: the next one reports the failure.
    fn checkpoint_if_log_is_full(&mut self, is_visible: bool) -> Result<bool> {
        let full = |log: &Log| !log.has_room(log.max_payload());
        if !self.writer.log.as_ref().is_some_and(full) {
            return Ok(false);
        }
        let mut state = (*self.shared.newest()).clone();
        let mut draft = Draft::new(state.version);
        // The commit is in the log already. A full disk only keeps the log from being shortened; the next commit tries again.
        match self.writer.checkpoint(self.shared, &mut state, &mut draft) {
            Err(error) if !is_visible && self.shared.flush.failure().is_some() => Err(error),
            result => Ok(result.is_ok()),
        }
    }

    fn stage(&mut self, needs_flush: bool) -> bool {
        let state = std::mem::take(&mut self.state);
        self.writer.stage(self.shared, state, &mut self.draft, needs_flush)
    }

    /// Gives up the extents that this transaction spilled pages to and no longer needs.
    pub(super) fn release_spilled(&mut self) -> Result<()> {
        let Writer { space, .. } = &mut *self.writer;
        for extent in self.draft.released.drain(..) {
            self.shared.pager.remove(crate::block::PageId::disk(extent.start));
            space.free.free(extent)?;
        }
        Ok(())
    }
}

/// Hands a record to the log. `refers_to_data` if it names blocks that were written but not flushed.
pub(super) fn append(
    shared: &Shared,
    log: &mut Log,
    record: &[u8],
    base: u64,
    version: u64,
    refers_to_data: bool,
) -> Result<()> {
    let flush = &shared.flush;
    let flushed_to = flush.flushed_to(log.salt());
    if let Err(error) = log.append(record, base, version, flushed_to) {
        // A crash could bring back a commit that was reported as failed.
        if !matches!(error, Error::StorageFull { .. }) {
            flush.fail(&error.to_string());
        }
        return Err(error);
    }
    let position = log.position();
    flush.appended(version, position.salt, position.offset, refers_to_data);
    Ok(())
}

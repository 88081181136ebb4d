//! The two superblocks and the two halves of the log: writes of them that are no checkpoint.

#[cfg(feature = "encryption")]
use super::Credentials;
use super::{Shared, Writer};
use crate::error::{Error, Result};
use crate::log::{Log, refusal};
use crate::pages::{Superblock, cut_whole_tail};
use crate::trace;

impl Writer {
    /// Marks the database as open before its log gets a record: the log of a closed database may be
    /// missing, but not once it has a record. The superblock reaches the disk with that record,
    /// before the commit is acknowledged. Returns whether it had to, and so recalled the merge.
    pub(crate) fn begin_log(&mut self, shared: &Shared) -> Result<bool> {
        if !self.superblock.closed || self.log.is_none() {
            return Ok(false);
        }
        self.recall(shared)?;
        self.begin_half(shared)?;
        let begun = Superblock {
            generation: self.superblock.generation + 1,
            closed: false,
            log_is_flushed: true,
            ..self.superblock.clone()
        };
        if let Err(error) = begun.write(shared.pager.blocks.file()) {
            // A partially written slot is invalid, and the other slot has the same state.
            shared.flush.fail_unless_full(&error);
            return Err(error);
        }
        shared.flush.data_written();
        self.older_log = Some(self.superblock.log);
        self.superblock = begun;
        Ok(true)
    }

    /// Gives the log of a closed database its header, and flushes it: a superblock without the flag
    /// "closed" that finds none then shows that the log was lost.
    pub(super) fn begin_half(&mut self, shared: &Shared) -> Result<()> {
        if self.log.as_ref().is_some_and(Log::has_remains) {
            // Its process died while it was being closed. The older superblock may need what the file
            // has (I16), and what a power cut leaves of a header must not be taken for a log.
            self.overwrite_older(shared)?;
            if let Some(log) = &mut self.log {
                log.drop_remains()
                    .inspect_err(|error| shared.flush.fail_unless_full(error))?;
                shared.flush.flush_log_alone(0)?;
            }
        }
        let Some(log) = self.log.as_mut().filter(|log| log.is_unbegun()) else {
            return Ok(());
        };
        log.begin(self.superblock.version)
            .inspect_err(|error| shared.flush.fail_unless_full(error))?;
        shared.flush.flush_log_alone(log.salt())
    }

    /// Switches to the log's other half, if much of this one is used and the other is not needed.
    pub(super) fn switch_log(&mut self, shared: &Shared) -> Result<()> {
        let newest = &self.superblock.log;
        let Some(log) = self
            .log
            .as_ref()
            .filter(|log| log.should_switch() && log.needs_only_this_half(newest))
        else {
            return Ok(());
        };
        if !self.older_log.is_some_and(|older| log.needs_only_this_half(&older)) {
            match self.overwrite_older(shared) {
                // The log stays in this half for now.
                Err(Error::StorageFull { .. }) => return Ok(()),
                written => written?,
            }
        }
        // A power cut that lost the end of this half but left the start of the other would look
        // like damage.
        shared.flush.flush_appended(shared.pager.blocks.file())?;
        let generation = self.superblock.generation;
        if let Some(log) = &mut self.log {
            log.switch(generation);
        }
        trace::event!(DEBUG, "log switched halves", generation = generation);
        Ok(())
    }

    /// States another encryption in both superblocks, one after the other, so that one is intact at all
    /// times. `adopt` runs once the first is durable; before that, a failure changes nothing.
    #[cfg(feature = "encryption")]
    pub(crate) fn replace_encryption(
        &mut self,
        shared: &Shared,
        credentials: Credentials,
        adopt: impl FnOnce(&mut Self),
    ) -> Result<()> {
        self.recall(shared)?;
        let old = self.superblock.encryption.replace(credentials.encryption.clone());
        if let Err(error) = self.overwrite_older(shared) {
            self.superblock.encryption = old;
            return Err(error);
        }
        shared.set_credentials(Some(credentials));
        adopt(self);
        self.overwrite_older(shared)
    }

    /// Writes the newest superblock once more, over the older one. Extents that only the older one
    /// reached are then free. After [`Error::StorageFull`] the newest superblock is intact.
    pub(super) fn overwrite_older(&mut self, shared: &Shared) -> Result<()> {
        let copy = Superblock {
            generation: self.superblock.generation + 1,
            ..self.superblock.clone()
        };
        let file = shared.pager.blocks.file();
        if let Err(error) = copy.write(file) {
            shared.flush.fail_unless_full(&error);
            return Err(error);
        }
        shared.flush.flush_alone(file)?;
        self.older_log = Some(self.superblock.log);
        self.superblock = copy;
        let oldest = shared.published().oldest();
        let released = self.space.release(&shared.pager, self.superblock.generation, oldest);
        released.inspect_err(|error| shared.flush.fail(&error.to_string()))
    }

    /// Leaves a database whose log is empty and may be missing, and whose two superblocks state the
    /// same.
    pub(crate) fn close(&mut self, shared: &Shared) -> Result<()> {
        self.space.free.end_staging();
        if self.superblock.closed && self.superblock.version == shared.newest().version {
            // Values that were staged or rolled back may have made the file longer.
            self.cut_whole_tail(shared);
            return shared.check_names(0);
        }
        let mut emptied = self.empty_log(shared);
        if matches!(emptied, Err(Error::StorageFull { .. })) && self.reclaim_space(shared)? {
            emptied = self.empty_log(shared);
        }
        emptied?;
        self.cut_whole_tail(shared);
        Ok(())
    }

    /// Makes a checkpoint that needs no log, states it in both superblocks, and empties the log. On
    /// failure the writer may be poisoned.
    pub(crate) fn empty_log(&mut self, shared: &Shared) -> Result<()> {
        self.checkpoint_newest(shared, true)?;
        if let Some(cause) = shared.flush.failure() {
            return Err(refusal(&cause, shared.pager.blocks.file()));
        }
        let position = self.superblock.log;
        if let Some(log) = &mut self.log {
            log.move_to(position);
        }
        // Once the log is empty, the older superblock would be an older state.
        self.overwrite_older(shared)?;
        if let Some(log) = &mut self.log {
            log.empty();
        }
        Ok(())
    }

    /// Returns the file's free tail: nobody will write into it soon, and a browser's quota counts it.
    fn cut_whole_tail(&self, shared: &Shared) {
        let file = shared.pager.blocks.file();
        let end = self.superblock.file_units << self.superblock.unit_shift;
        cut_whole_tail(file, end, shared.config.reserve_bytes);
    }
}

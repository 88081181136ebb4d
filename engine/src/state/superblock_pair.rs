//! The two superblocks and the two halves of the log: writes of them that are no checkpoint.

#[cfg(feature = "encryption")]
use super::Credentials;
use super::{Shared, Writer};
use crate::error::{Error, Result};
use crate::pages::Superblock;

impl Writer {
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
        released.inspect_err(|error| shared.flush.fail(&error.message()))
    }
}

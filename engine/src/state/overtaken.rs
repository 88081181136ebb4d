//! Detects whether a writer in another process overwrote a block that could not be read.

use super::Shared;
use crate::error::{Error, Result};
use crate::pages::{DATA_FILE, Found, read_all};
use crate::storage::StorageFile;

pub(crate) fn newest_generation(file: &dyn StorageFile) -> Result<u64> {
    match read_all(file, DATA_FILE)? {
        Found::Superblocks(list) => Ok(list.first().map_or(0, |newest| newest.generation)),
        Found::NotCreated => Ok(0),
    }
}

pub(crate) fn may_be_overtaken(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_) | Error::NotADatabase { .. })
}

impl Shared {
    /// [`Error::Stale`] if the writer may have overwritten the blocks in question, otherwise `error`.
    pub(crate) fn or_stale(&self, error: Error) -> Error {
        if !self.config.beside_writer || !may_be_overtaken(&error) {
            return error;
        }
        let opened = self.lock_writer().superblock.generation;
        match newest_generation(self.pager.blocks.file()) {
            // A writer that opened the older checkpoint continues above the damaged one's
            // generation.
            Ok(newest) if newest <= opened => error,
            _ => Error::Stale,
        }
    }
}

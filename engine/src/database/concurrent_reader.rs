//! Reading beside a writer in another process, which does not know of the reader and reuses blocks
//! the reader needs.
//!
//! The blocks of the last two checkpoints, and the log since the older one, stay intact until a
//! third checkpoint is on disk. An attempt to open that overlaps at most one checkpoint therefore
//! sees everything committed when it began; any other attempt is repeated. Once the database is
//! open, every block is checked against the reference that led to it. If one does not match and
//! there is a newer checkpoint, the writer has overwritten the block.

use std::sync::Arc;

use super::open::open;
use super::{Database, Options};
use crate::error::{Error, Result};
use crate::pages::DATA_FILE;
use crate::state::{Shared, may_be_overtaken, newest_generation};
use crate::storage::Storage;

/// Attempts to open while the writer makes checkpoints.
const ATTEMPTS: usize = 50;

/// Opens the database, and again for each refresh.
pub(super) struct ConcurrentReader {
    storage: Arc<dyn Storage>,
    options: Options,
}

impl ConcurrentReader {
    pub(super) fn new(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        if !options.read_only {
            return Err(Error::InvalidArgument {
                what: "beside a writer a database can only be opened with read_only".into(),
            });
        }
        Ok(Self { storage, options })
    }

    pub(super) fn open(&self) -> Result<Shared> {
        let file = self.storage.open(DATA_FILE, false)?;
        for _ in 0..ATTEMPTS {
            let before = newest_generation(&*file)?;
            let result = open(&*self.storage, &self.options);
            let after = newest_generation(&*file)?;
            match result {
                Ok(shared) if after <= before + 1 => return Ok(shared),
                Err(error) if after == before || !may_be_overtaken(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Err(Error::Stale)
    }
}

impl Database {
    /// Moves to the newest state of a database [read beside a
    /// writer](crate::storage::FsStorage::read_only_beside_writer).
    ///
    /// Returns whether the version changed. Existing snapshots are unaffected. Has no effect on any
    /// other database, which is always up to date.
    ///
    /// Costs as much as opening: reading the catalog and the log.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Stale`] if the writer makes checkpoints faster than
    /// the database can be opened; the handle then keeps its state.
    pub fn refresh(&mut self) -> Result<bool> {
        let Some(concurrent_reader) = &self.concurrent_reader else {
            return Ok(false);
        };
        let shared = concurrent_reader.open()?;
        let before = self.version();
        self.shared = Arc::new(shared);
        Ok(self.version() != before)
    }
}

//! Reading beside a writer in another process, which knows nothing of the reader and reuses blocks that it reads.
//!
//! Two checkpoints keep their blocks, and the log since the older one, until a third is on the disk. So an opening that saw at most one
//! checkpoint go by has everything that was committed when it began; another is repeated. Afterwards every block is checked against the reference that
//! led to it, and one that does not match has been overwritten if there is a newer checkpoint.

use std::sync::Arc;

use super::open::open;
use super::{Database, Options};
use crate::error::{Error, Result};
use crate::pages::DATA_FILE;
use crate::state::{Shared, may_be_overtaken, newest_generation};
use crate::storage::Storage;

/// How often an opening is tried while checkpoints go by.
const ATTEMPTS: usize = 50;

/// What it takes to open the database again.
pub(super) struct Reopen {
    storage: Arc<dyn Storage>,
    options: Options,
}

impl Reopen {
    pub(super) fn new(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        if !options.read_only {
            return Err(Error::InvalidArgument {
                what: "beside a writer a database can only be opened with read_only".to_owned(),
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
    /// Goes over to the newest state of a database that is [read beside a writer](crate::storage::FsStorage::read_only_beside_writer); returns whether
    /// the version is another one. Snapshots stay what they were. Does nothing to any other database, which is always up to date.
    ///
    /// It costs what opening costs: reading the catalog and the log.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Stale`] if the writer makes checkpoints faster than the database can be opened; this one then stays
    /// as it was.
    pub fn refresh(&mut self) -> Result<bool> {
        let Some(reopen) = &self.reopen else { return Ok(false) };
        let shared = reopen.open()?;
        let before = self.version();
        self.shared = Arc::new(shared);
        Ok(self.version() != before)
    }
}

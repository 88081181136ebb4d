//! Reading the files of a database beside its writer.

use std::path::Path;
use std::sync::Arc;

use mangrove_engine::storage::{FsStorage, Storage, StorageFile};
use mangrove_engine::{Error, Result};

/// Files for reading, which lock writers out unless one is already there. A writer without an
/// operating-system lock sees no such lock, so there may always be one.
pub(super) struct BesideWriters {
    locked: FsStorage,
    unlocked: FsStorage,
}

impl BesideWriters {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            locked: FsStorage::read_only(directory),
            unlocked: FsStorage::read_only_beside_writer(directory),
        }
    }
}

impl Storage for BesideWriters {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        match self.locked.open(name, create) {
            // On Windows no process can read what another has locked.
            Err(Error::Locked { .. }) if cfg!(unix) => self.unlocked.open(name, create),
            opened => opened,
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.locked.exists(name)
    }

    fn is_beside_writer(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.locked.remove(name)
    }
}

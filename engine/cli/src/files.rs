//! How the tool finds and opens the engine's files.

use std::path::Path;
use std::sync::Arc;

use mangrove_engine::storage::{FsStorage, Storage, StorageFile, Watch};
use mangrove_engine::{Error, Result};

use crate::store::DATA_FILE;

/// A data file of any name. The engine's other files lie beside it, with names that begin with its
/// own.
pub(crate) struct SingleFile<S> {
    directory: S,
    name: String,
}

impl<S> SingleFile<S> {
    pub(crate) fn new(directory: S, name: &str) -> Self {
        let name = name.to_owned();
        Self { directory, name }
    }

    fn name_of(&self, name: &str) -> String {
        match name {
            DATA_FILE => self.name.clone(),
            _ => format!("{}.{name}", self.name),
        }
    }
}

impl<S: Storage> Storage for SingleFile<S> {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        self.directory.open(&self.name_of(name), create)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.directory.exists(&self.name_of(name))
    }

    fn is_beside_writer(&self) -> bool {
        self.directory.is_beside_writer()
    }

    fn watch(&self) -> Watch {
        self.directory.watch()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.directory.remove(&self.name_of(name))
    }
}

/// Files under other names, beside those of a database.
pub(crate) struct Aside(pub(crate) FsStorage);

impl Aside {
    /// Suffix of files that are not yet, or no longer, in use. Opening a database ignores them.
    pub(crate) const SUFFIX: &str = ".restoring";

    fn name_of(name: &str) -> String {
        format!("{name}{}", Self::SUFFIX)
    }
}

impl Storage for Aside {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        self.0.open(&Self::name_of(name), create)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(&Self::name_of(name))
    }

    fn is_beside_writer(&self) -> bool {
        false
    }

    fn watch(&self) -> Watch {
        self.0.watch()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(&Self::name_of(name))
    }
}

/// Files for reading, which lock writers out unless one is already there. A writer without an
/// operating-system lock sees no such lock, so there may always be one.
pub(crate) struct BesideWriters {
    locked: FsStorage,
    unlocked: FsStorage,
}

impl BesideWriters {
    pub(crate) fn new(directory: &Path) -> Self {
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

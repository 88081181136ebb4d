//! How the tool finds and opens the engine's files.

use std::sync::Arc;

use mangrove_engine::Result;
use mangrove_engine::storage::{Storage, StorageFile, Watch};

use crate::store::DATA_FILE;

/// A data file of any name. The engine's other files lie beside it, with names that begin with its
/// own.
pub(crate) struct SingleFile {
    directory: Arc<dyn Storage>,
    name: String,
}

impl SingleFile {
    pub(crate) fn new(directory: Arc<dyn Storage>, name: &str) -> Self {
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

impl Storage for SingleFile {
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
pub(crate) struct RestoringFiles(pub(crate) Arc<dyn Storage>);

impl RestoringFiles {
    /// Suffix of files that are not yet, or no longer, in use. Opening a database ignores them.
    pub(crate) const SUFFIX: &str = ".restoring";

    fn name_of(name: &str) -> String {
        format!("{name}{}", Self::SUFFIX)
    }
}

impl Storage for RestoringFiles {
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

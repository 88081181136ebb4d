//! A database on disk: the directory that Node and native programs use, or the single file that a browser exports.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mangrove_engine::storage::{FsStorage, Storage, StorageFile};
use mangrove_engine::{Database, Error, Options};

use crate::failure::{Failure, Result};
use crate::lock::{self, DirectoryLock};

/// Name of the data file in a directory, which the engine asks for.
const DATA_FILE: &str = "data";
const LOG_FILE: &str = "log";

/// A data file of any name. What else the engine keeps lies beside it, with names that begin with its own.
struct FileStorage {
    directory: FsStorage,
    name: String,
}

impl FileStorage {
    fn name_of(&self, name: &str) -> String {
        match name {
            DATA_FILE => self.name.clone(),
            _ => format!("{}.{name}", self.name),
        }
    }
}

impl Storage for FileStorage {
    fn open(&self, name: &str, create: bool) -> mangrove_engine::Result<Arc<dyn StorageFile>> {
        self.directory.open(&self.name_of(name), create)
    }

    fn exists(&self, name: &str) -> mangrove_engine::Result<bool> {
        self.directory.exists(&self.name_of(name))
    }

    fn remove(&self, name: &str) -> mangrove_engine::Result<()> {
        self.directory.remove(&self.name_of(name))
    }
}

/// What a verb does with a database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read one that is there.
    Read,
    /// Write one that is there.
    Write,
    /// Write one, creating it if need be.
    Create,
    /// Write one that must not be there.
    CreateNew,
}

/// An open database with the locks on it.
pub(crate) struct Store {
    pub(crate) database: Database,
    /// The files of a database that is a single file.
    single: Option<Arc<dyn Storage>>,
    /// Given back after the database, so it comes after it.
    _lock: Option<DirectoryLock>,
}

fn storage_of(path: &Path) -> (Arc<dyn Storage>, Option<PathBuf>) {
    if let (true, Some(name)) = (path.is_file(), path.file_name().and_then(|name| name.to_str())) {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = FsStorage::new(parent);
        if name != DATA_FILE {
            let name = name.to_owned();
            return (Arc::new(FileStorage { directory, name }), None);
        }
        return (Arc::new(directory), Some(parent.to_owned()));
    }
    (Arc::new(FsStorage::new(path)), Some(path.to_owned()))
}

/// The files of a database that may be too damaged to be opened, locked.
pub(crate) fn locked(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    let (storage, directory) = storage_of(path);
    if !storage.exists(DATA_FILE)? {
        let what = format!("a database at {}", path.display());
        return Err(Error::NotFound { what }.into());
    }
    let lock = directory.map_or(Ok(None), |directory| lock::lock(&directory))?;
    Ok((storage, lock))
}

/// A directory for a new database. It is locked if it is there; otherwise the engine makes it.
pub(crate) fn locked_target(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    let lock = if path.is_dir() { lock::lock(path)? } else { None };
    Ok((Arc::new(FsStorage::new(path)), lock))
}

/// A single file stays a single file: once it is closed its log is empty and may be missing.
fn remove_empty_log(storage: &dyn Storage) -> Result<()> {
    if storage.exists(LOG_FILE)? && storage.open(LOG_FILE, false)?.is_empty()? {
        storage.remove(LOG_FILE)?;
    }
    Ok(())
}

impl Store {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self> {
        let (storage, directory) = storage_of(path);
        let create = matches!(access, Access::Create | Access::CreateNew);
        let options = Options {
            create,
            exclusive: access == Access::CreateNew,
            read_only: access == Access::Read,
            ..Options::default()
        };
        if !create && !storage.exists(DATA_FILE)? {
            let what = format!("a database at {}", path.display());
            return Err(Error::NotFound { what }.into());
        }
        let lock = |directory: Option<&PathBuf>| directory.map_or(Ok(None), |directory| lock::lock(directory));
        // A new directory is made by the engine, which makes its name durable, and can only be locked then.
        let existing = directory.as_ref().filter(|directory| directory.is_dir());
        let before = lock(existing)?;
        let single = directory.is_none().then(|| Arc::clone(&storage));
        let database = Database::open(storage, options).map_err(|error| match error {
            Error::Corrupt(_) => Failure::unreadable(&error),
            error => error.into(),
        })?;
        let lock = match existing {
            Some(_) => before,
            None => lock(directory.as_ref())?,
        };
        Ok(Self {
            database,
            single,
            _lock: lock,
        })
    }

    /// Runs what writes, and makes durable what was committed whether it fails or not.
    pub(crate) fn write<T>(self, change: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let result = change(&self.database);
        let closed = self.database.close();
        let value = result?;
        closed?;
        if let Some(storage) = &self.single {
            remove_empty_log(&**storage)?;
        }
        Ok(value)
    }
}

/// A place without a database, with the lock on it.
pub(crate) struct Vacancy {
    storage: Arc<dyn Storage>,
    /// The directory, if it was made for this.
    new_directory: Option<PathBuf>,
    lock: Option<DirectoryLock>,
}

impl Vacancy {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let (storage, directory) = storage_of(path);
        let new_directory = directory.clone().filter(|directory| !directory.is_dir());
        if new_directory.is_some() {
            // Makes the directory and its name durable.
            storage.open(DATA_FILE, true)?;
        }
        let lock = directory.map_or(Ok(None), |directory| lock::lock(&directory))?;
        Ok(Self {
            storage,
            new_directory,
            lock,
        })
    }

    /// Runs what makes the database. If it fails, a directory that was made for it is removed.
    pub(crate) fn fill<T>(self, make: impl FnOnce(Arc<dyn Storage>) -> Result<T>) -> Result<T> {
        let made = make(Arc::clone(&self.storage));
        if let (Err(_), Some(directory)) = (&made, &self.new_directory) {
            // The file is empty, or gone already; what counts is why the work failed.
            let _ = self.storage.remove(DATA_FILE);
            drop(self.lock);
            let _ = std::fs::remove_dir(directory);
        }
        made
    }
}

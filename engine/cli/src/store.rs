//! A database on disk: the directory that Node and native programs use, or the single file that a browser exports.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mangrove_engine::storage::{FsStorage, Storage};
use mangrove_engine::{Database, Error, Options};

use crate::failure::{Failure, Result};
use crate::files::{BesideWriters, SingleFile};
use crate::lock::{self, DirectoryLock};

/// Name of the data file in a directory, which the engine asks for.
pub(crate) const DATA_FILE: &str = "data";
const LOG_FILE: &str = "log";
/// How often something is read while a writer overwrites it.
const READ_ATTEMPTS: u32 = 10;

/// What a verb that writes does with a database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Write one that is there.
    Write,
    /// Write one, creating it if need be.
    Create,
    /// Write one that must not be there.
    CreateNew,
}

/// Where a database lies.
struct Place {
    directory: PathBuf,
    /// Name of the data file if that is not the directory's.
    single: Option<String>,
}

impl Place {
    fn of(path: &Path) -> Result<Self> {
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            let name = name.to_str().ok_or_else(|| {
                let what = "the name of a data file has to be UTF-8; rename it, or open a directory in which it is named \"data\"";
                Failure::argument(format!("{}: {what}", path.display()))
            })?;
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            return Ok(Self {
                directory: parent.to_owned(),
                single: (name != DATA_FILE).then(|| name.to_owned()),
            });
        }
        Ok(Self {
            directory: path.to_owned(),
            single: None,
        })
    }

    /// The directory, if it belongs to the database.
    fn own_directory(&self) -> Option<&Path> {
        self.single.is_none().then_some(&*self.directory)
    }

    fn lock(&self) -> Result<Option<DirectoryLock>> {
        self.own_directory().map_or(Ok(None), lock::lock)
    }

    fn files(&self, files: impl Storage + 'static) -> Arc<dyn Storage> {
        match &self.single {
            Some(name) => Arc::new(SingleFile::new(files, name)),
            None => Arc::new(files),
        }
    }

    fn writable(&self) -> Arc<dyn Storage> {
        self.files(FsStorage::new(&self.directory))
    }
}

fn check_exists(storage: &dyn Storage, path: &Path) -> Result<()> {
    if storage.exists(DATA_FILE)? {
        return Ok(());
    }
    let what = format!("a database at {}", path.display());
    Err(Error::NotFound { what }.into())
}

fn open(path: &Path, storage: Arc<dyn Storage>, options: Options) -> Result<Database> {
    Database::open(storage, options).map_err(|error| match error {
        Error::Corrupt(_) => Failure::unreadable(&error),
        // The file is there, but empty.
        Error::NotFound { .. } => Failure::not_found(format!(
            "there is no database at {}: its creation never ended",
            path.display()
        )),
        error => error.into(),
    })
}

/// The files of a database that may be too damaged to be opened, for reading, locked against writers.
pub(crate) fn locked(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    let place = Place::of(path)?;
    let storage = place.files(FsStorage::read_only(&place.directory));
    check_exists(&*storage, path)?;
    Ok((storage, place.lock()?))
}

/// A directory for a new database. It is locked if it is there; otherwise the engine makes it.
pub(crate) fn locked_target(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    let lock = if path.is_dir() { lock::lock(path)? } else { None };
    Ok((Arc::new(FsStorage::new(path)), lock))
}

/// Runs what reads, and changes nothing. Others may read and write meanwhile; if a writer overwrites what is being read, it
/// begins again with the newest state.
pub(crate) fn read<T>(path: &Path, mut work: impl FnMut(&Database) -> Result<T>) -> Result<T> {
    let place = Place::of(path)?;
    let storage = place.files(BesideWriters::new(&place.directory));
    check_exists(&*storage, path)?;
    let mut attempt = || {
        let options = Options {
            create: false,
            read_only: true,
            ..Options::default()
        };
        work(&open(path, Arc::clone(&storage), options)?)
    };
    for _ in 1..READ_ATTEMPTS {
        match attempt() {
            Err(Failure::Stale) => {}
            done => return done,
        }
    }
    attempt()
}

/// A single file stays a single file: once it is closed its log is empty and may be missing.
fn remove_empty_log(storage: &dyn Storage) -> Result<()> {
    if storage.exists(LOG_FILE)? && storage.open(LOG_FILE, false)?.is_empty()? {
        storage.remove(LOG_FILE)?;
    }
    Ok(())
}

/// A database that is open for writing, with the locks on it.
pub(crate) struct Store {
    database: Database,
    /// The files of a database that is a single file.
    single: Option<Arc<dyn Storage>>,
    /// Given back after the database, so it comes after it.
    _lock: Option<DirectoryLock>,
}

impl Store {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self> {
        let place = Place::of(path)?;
        let storage = place.writable();
        let create = matches!(access, Access::Create | Access::CreateNew);
        let options = Options {
            create,
            exclusive: access == Access::CreateNew,
            ..Options::default()
        };
        if !create {
            check_exists(&*storage, path)?;
        }
        // A new directory is made by the engine, which makes its name durable, and can only be locked then.
        let is_there = place.directory.is_dir();
        let before = if is_there { place.lock()? } else { None };
        let single = place.single.is_some().then(|| Arc::clone(&storage));
        let database = open(path, storage, options)?;
        let lock = if is_there { before } else { place.lock()? };
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
        let place = Place::of(path)?;
        let storage = place.writable();
        let new_directory = (!place.directory.is_dir()).then(|| place.directory.clone());
        if new_directory.is_some() {
            // Makes the directory and its name durable.
            storage.open(DATA_FILE, true)?;
        }
        let lock = place.lock()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read, with a writer that overwrites it the first few times.
    fn read_after(stale: u32) -> (u32, Result<u64>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Access::Create).unwrap();
        store.write(|_| Ok(())).unwrap();
        let mut attempts = 0;
        let result = read(directory.path(), |database| {
            attempts += 1;
            if attempts <= stale {
                return Err(Error::Stale.into());
            }
            Ok(database.version())
        });
        (attempts, result)
    }

    #[test]
    fn what_a_writer_overtook_is_read_again() {
        assert!(matches!(read_after(0), (1, Ok(0))));
        assert!(matches!(read_after(3), (4, Ok(0))));
        let (attempts, result) = read_after(u32::MAX);
        assert_eq!(attempts, READ_ATTEMPTS);
        assert!(matches!(result, Err(Failure::Stale)));
    }
}

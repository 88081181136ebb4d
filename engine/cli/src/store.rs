//! A database on disk: the directory that Node and native programs use, or the single file that a
//! browser exports.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mangrove_engine::storage::{FsStorage, Storage, StorageFile};
use mangrove_engine::{Database, Error, Options};

use crate::failure::{Failure, Result};
use crate::files::{Aside, BesideWriters, SingleFile};
use crate::lock::{self, DirectoryLock};

/// Name of the data file in a directory, as the engine asks for it.
pub(crate) const DATA_FILE: &str = "data";
const LOG_FILE: &str = "log";
/// First bytes of a backup.
const BACKUP_MAGIC: [u8; 8] = *b"MANGRBAK";
/// How often a read is attempted while a writer overwrites the data.
const READ_ATTEMPTS: u32 = 10;

/// How a verb that writes opens a database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Writes an existing database.
    Write,
    /// Writes a database, creating it if necessary.
    Create,
    /// Creates a database, which must not exist.
    CreateNew,
}

/// Location of a database.
struct Place {
    directory: PathBuf,
    /// Name of the data file, unless it is the one of a directory.
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

    /// Returns the directory, if it belongs to the database.
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

/// Refuses a backup, which its owner may take for a database.
fn check_no_backup(path: &Path) -> Result<()> {
    let mut front = [0; BACKUP_MAGIC.len()];
    // Opening the file reports that it cannot be read.
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut front));
    if path.is_file() && read.is_ok() && front == BACKUP_MAGIC {
        let file = path.display();
        let what = format!("{file} is a backup; \"mangrove restore {file} DIRECTORY\" makes a database of it");
        return Err(Failure::argument(what));
    }
    Ok(())
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
        // The file exists, but is empty.
        Error::NotFound { .. } => Failure::not_found(format!(
            "there is no database at {}: its creation never ended",
            path.display()
        )),
        error => error.into(),
    })
}

/// Opens the files of a database for reading, locked against writers. The database may be too
/// damaged to open.
pub(crate) fn locked(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    check_no_backup(path)?;
    let place = Place::of(path)?;
    let storage = place.files(FsStorage::read_only(&place.directory));
    check_exists(&*storage, path)?;
    Ok((storage, place.lock()?))
}

/// Returns a directory for a new database. The directory is locked if it exists; otherwise the
/// engine creates it.
pub(crate) fn locked_target(path: &Path) -> Result<(Arc<dyn Storage>, Option<DirectoryLock>)> {
    let lock = if path.is_dir() { lock::lock(path)? } else { None };
    Ok((Arc::new(FsStorage::new(path)), lock))
}

/// Runs work that only reads, beside other readers and writers. If a writer overwrites what is
/// being read, the work begins again with the newest state.
pub(crate) fn read<T>(path: &Path, mut work: impl FnMut(&Database) -> Result<T>) -> Result<T> {
    check_no_backup(path)?;
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

/// Removes an empty log, so that a single file stays one. After a close the log is empty and may be
/// missing.
fn remove_empty_log(storage: &dyn Storage) -> Result<()> {
    if storage.exists(LOG_FILE)? && storage.open(LOG_FILE, false)?.is_empty()? {
        storage.remove(LOG_FILE)?;
    }
    Ok(())
}

/// A database open for writing, with the locks on it.
pub(crate) struct Store {
    database: Database,
    /// The files of a single-file database.
    single: Option<Arc<dyn Storage>>,
    /// The directory, if this opening created its database, and whether it also created the
    /// directory.
    created: Option<(PathBuf, bool)>,
    /// Declared after the database, so that it is released after it.
    lock: Option<DirectoryLock>,
}

impl Store {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self> {
        check_no_backup(path)?;
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
        // The engine creates a new directory, which makes its name durable. It can only be locked
        // afterwards.
        let is_there = place.directory.is_dir();
        let before = if is_there { place.lock()? } else { None };
        let single = place.single.is_some().then(|| Arc::clone(&storage));
        let created = (!storage.exists(DATA_FILE)?).then(|| (place.directory.clone(), !is_there));
        let database = open(path, storage, options)?;
        let lock = if is_there { before } else { place.lock()? };
        Ok(Self {
            database,
            single,
            created,
            lock,
        })
    }

    /// Runs a change and makes durable what it committed, whether or not it fails.
    pub(crate) fn write<T>(mut self, change: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        self.created = None;
        self.fill(change)
    }

    /// As [`write`](Self::write), but removes a new database if the change fails before any commit.
    pub(crate) fn fill<T>(self, change: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let result = change(&self.database);
        let is_empty = self.database.version() == 0;
        let closed = self.database.close();
        if let (Err(_), true, Some((directory, is_new))) = (&result, is_empty, self.created) {
            let files = FsStorage::new(&directory);
            for name in [DATA_FILE, LOG_FILE] {
                // The reason why the work failed is what counts.
                let _ = files.remove(name);
            }
            drop(self.lock);
            if is_new {
                let _ = std::fs::remove_dir(directory);
            }
        }
        let value = result?;
        closed?;
        if let Some(storage) = &self.single {
            remove_empty_log(&**storage)?;
        }
        Ok(value)
    }
}

/// A directory whose database, if any, a new one replaces, with the locks on it.
pub(crate) struct Replacement {
    directory: PathBuf,
    is_new: bool,
    /// The old data file, held so that no native program opens it meanwhile.
    old: Option<Arc<dyn StorageFile>>,
    _lock: Option<DirectoryLock>,
}

impl Replacement {
    /// Refuses to replace files that do not begin like a database's, unless `force` is set.
    pub(crate) fn new(path: &Path, force: bool) -> Result<Self> {
        if path.is_file() {
            let what = format!("{}, a file", path.display());
            return Err(Error::AlreadyExists { what }.into());
        }
        let directory = path.to_owned();
        let files = FsStorage::new(path);
        let check = |name: &str| -> Result<Option<Arc<dyn StorageFile>>> {
            if !files.exists(name)? {
                return Ok(None);
            }
            let file = files.open(name, false)?;
            if !force && !mangrove_engine::is_database_file(name, &*file)? {
                let what = "is no database's, or its beginning is damaged, so nothing was removed; --force removes it";
                return Err(Failure::corrupt(format!(
                    "the file {name} of {} {what}",
                    path.display()
                )));
            }
            Ok(Some(file))
        };
        // Checks before creating anything there.
        let old = check(DATA_FILE)?;
        check(LOG_FILE)?;
        let is_new = !path.is_dir();
        if is_new {
            // Creates the directory and makes its name durable.
            Aside(files.clone()).open(DATA_FILE, true)?;
        }
        let lock = lock::lock(path)?;
        let replacement = Self {
            directory,
            is_new,
            old,
            _lock: lock,
        };
        replacement.remove_made()?;
        Ok(replacement)
    }

    /// Runs what makes the new database, and replaces the old one with it in one step. If that
    /// fails, the old one is unchanged.
    pub(crate) fn fill<T>(mut self, make: impl FnOnce(Arc<dyn Storage>) -> Result<T>) -> Result<T> {
        let files = FsStorage::new(&self.directory);
        let made = make(Arc::new(Aside(files.clone()))).and_then(|made| self.install().map(|()| made));
        if made.is_ok() {
            // The new database was closed, so it needs no log. The old log's records mean nothing
            // to it and are only in the way.
            let _ = files.remove(LOG_FILE);
        }
        let _ = self.remove_made();
        let (directory, is_new) = (self.directory.clone(), self.is_new);
        drop(self);
        if made.is_err() && is_new {
            // It stays if someone else has put something there.
            let _ = std::fs::remove_dir(directory);
        }
        made
    }

    fn install(&mut self) -> Result<()> {
        let data = self.directory.join(DATA_FILE);
        let failed = |error| {
            Failure::io(
                &format!("putting the new database in the place of {}", data.display()),
                &error,
            )
        };
        if cfg!(windows) {
            // Windows cannot replace an open file.
            self.old = None;
        }
        std::fs::rename(self.directory.join(format!("{DATA_FILE}{}", Aside::SUFFIX)), &data).map_err(failed)?;
        if cfg!(unix) {
            let directory = std::fs::File::open(&self.directory).map_err(failed)?;
            directory.sync_all().map_err(failed)?;
        }
        Ok(())
    }

    /// Removes what this replacement, or an interrupted earlier one, has made.
    fn remove_made(&self) -> Result<()> {
        for name in [DATA_FILE, LOG_FILE, "backup"] {
            match std::fs::remove_file(self.directory.join(format!("{name}{}", Aside::SUFFIX))) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Failure::io("removing what an interrupted restoration has left", &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A place without a database, with the lock on it.
pub(crate) struct Vacancy {
    storage: Arc<dyn Storage>,
    /// The directory, if it was created for this.
    new_directory: Option<PathBuf>,
    lock: Option<DirectoryLock>,
}

impl Vacancy {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let place = Place::of(path)?;
        let storage = place.writable();
        let new_directory = (!place.directory.is_dir()).then(|| place.directory.clone());
        if new_directory.is_some() {
            // Creates the directory and makes its name durable.
            storage.open(DATA_FILE, true)?;
        }
        let lock = place.lock()?;
        Ok(Self {
            storage,
            new_directory,
            lock,
        })
    }

    /// Runs what makes the database. If that fails, removes a directory created for it.
    pub(crate) fn fill<T>(self, make: impl FnOnce(Arc<dyn Storage>) -> Result<T>) -> Result<T> {
        let made = make(Arc::clone(&self.storage));
        if let (Err(_), Some(directory)) = (&made, &self.new_directory) {
            // The file is empty or already gone; the reason why the work failed is what counts.
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

    /// Reads while a writer overwrites the first `stale` attempts. Returns the number of attempts
    /// and the result.
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

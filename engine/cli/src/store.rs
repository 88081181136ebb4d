//! A database on disk: the directory that Node and native programs use, or the single file that a
//! browser exports.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mangrove_engine::storage::{Storage, StorageFile};
use mangrove_engine::{Database, Error, Options};

use crate::failure::{Failure, Result};
use crate::files::{RestoringFiles, SingleFile};
use crate::key;
use crate::system::{self, DirectoryLock, Sharing, program};

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
        self.own_directory().map_or(Ok(None), lock)
    }

    fn files(&self, sharing: Sharing) -> Arc<dyn Storage> {
        let files = system::storage(&self.directory, sharing);
        match &self.single {
            Some(name) => Arc::new(SingleFile::new(files, name)),
            None => files,
        }
    }

    /// Creates the directory if it is missing, and locks it. Returns whether it was missing.
    fn claim(&self) -> Result<(bool, Option<DirectoryLock>)> {
        claim(&self.directory, self.own_directory().is_some())
    }
}

fn lock(directory: &Path) -> Result<Option<DirectoryLock>> {
    Ok(system::lock(directory)?)
}

/// Creates a directory if it is missing, and locks it if it belongs to the database. Returns
/// whether it was missing.
fn claim(directory: &Path, is_own: bool) -> Result<(bool, Option<DirectoryLock>)> {
    let is_new = !directory.is_dir();
    if is_new {
        system::create_directory(directory)?;
    }
    let lock = if is_own { lock(directory) } else { Ok(None) };
    if lock.is_err() && is_new {
        // It stays if someone else has put something there.
        let _ = fs::remove_dir(directory);
    }
    Ok((is_new, lock?))
}

/// Refuses a backup, which its owner may take for a database.
fn check_no_backup(path: &Path) -> Result<()> {
    let mut front = [0; BACKUP_MAGIC.len()];
    // Opening the file reports that it cannot be read.
    let is_backup = path.is_file()
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut front))
            .is_ok()
        && front == BACKUP_MAGIC;
    if is_backup {
        let file = path.display();
        let program = program();
        let what = format!("{file} is a backup; \"{program} restore {file} DIRECTORY\" makes a database of it");
        return Err(Failure::argument(what));
    }
    Ok(())
}

fn check_exists(storage: &dyn Storage, path: &Path) -> Result<()> {
    if storage.exists(DATA_FILE)? {
        return Ok(());
    }
    let what = format!("a database at {}", path.display());
    Err(Error::NotFound { what: what.into() }.into())
}

fn open(path: &Path, storage: Arc<dyn Storage>, options: Options) -> Result<Database> {
    Database::open(storage, options).map_err(|error| match error {
        Error::Corrupt(_) => Failure::unreadable(&error),
        // The file exists, but is empty.
        Error::NotFound { .. } => Failure::not_found(format!(
            "there is no database at {}: its creation was interrupted",
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
    let storage = place.files(Sharing::Readers);
    check_exists(&*storage, path)?;
    Ok((storage, place.lock()?))
}

/// Runs work that only reads, beside other readers and writers. If a writer overwrites what is
/// being read, the work begins again with the newest state.
pub(crate) fn read<T>(path: &Path, mut work: impl FnMut(&Database) -> Result<T>) -> Result<T> {
    check_no_backup(path)?;
    let place = Place::of(path)?;
    let storage = place.files(Sharing::BesideWriter);
    check_exists(&*storage, path)?;
    let mut attempt = || {
        let options = Options {
            create: false,
            read_only: true,
            ..key::options()?
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
        let storage = place.files(Sharing::Alone);
        let create = matches!(access, Access::Create | Access::CreateNew);
        let options = Options {
            create,
            exclusive: access == Access::CreateNew,
            ..key::options()?
        };
        if !create {
            check_exists(&*storage, path)?;
        }
        let is_missing = !storage.exists(DATA_FILE)?;
        let (is_new, lock) = place.claim()?;
        let single = place.single.is_some().then(|| Arc::clone(&storage));
        let created = is_missing.then(|| (place.directory.clone(), is_new));
        let database = match open(path, storage, options) {
            Ok(database) => database,
            Err(failure) => {
                drop(lock);
                if is_new {
                    // It stays if a file was created in it.
                    let _ = fs::remove_dir(&place.directory);
                }
                return Err(failure);
            }
        };
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
            let files = system::storage(&directory, Sharing::Alone);
            for name in [DATA_FILE, LOG_FILE] {
                // The reason why the work failed is what counts.
                let _ = files.remove(name);
            }
            drop(self.lock);
            if is_new {
                let _ = fs::remove_dir(&directory);
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
            return Err(Error::AlreadyExists { what: what.into() }.into());
        }
        let directory = path.to_owned();
        let files = system::storage(path, Sharing::Alone);
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
        let (is_new, lock) = claim(path, true)?;
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
        let files = system::storage(&self.directory, Sharing::Alone);
        let made = make(Arc::new(RestoringFiles(Arc::clone(&files)))).and_then(|made| self.install().map(|()| made));
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
            let _ = fs::remove_dir(&directory);
        }
        made
    }

    fn install(&mut self) -> Result<()> {
        let data = self.directory.join(DATA_FILE);
        let failed = |error| Failure::io(&format!("replacing {} by the new database", data.display()), &error);
        if cfg!(windows) {
            self.old = None;
        }
        let made = self.directory.join(format!("{DATA_FILE}{}", RestoringFiles::SUFFIX));
        system::replace(&made, &data).map_err(failed)
    }

    /// Removes what this replacement, or an interrupted earlier one, has made.
    fn remove_made(&self) -> Result<()> {
        for name in [DATA_FILE, LOG_FILE, "backup"] {
            match fs::remove_file(self.directory.join(format!("{name}{}", RestoringFiles::SUFFIX))) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Failure::io("removing the remains of an interrupted restore", &error));
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
        let storage = place.files(Sharing::Alone);
        let (is_new, lock) = place.claim()?;
        Ok(Self {
            storage,
            new_directory: is_new.then_some(place.directory),
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
            let _ = fs::remove_dir(directory);
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
    fn reads_overtaken_by_a_writer_are_repeated() {
        assert!(matches!(read_after(0), (1, Ok(0))));
        assert!(matches!(read_after(3), (4, Ok(0))));
        let (attempts, result) = read_after(u32::MAX);
        assert_eq!(attempts, READ_ATTEMPTS);
        assert!(matches!(result, Err(Failure::Stale)));
    }
}

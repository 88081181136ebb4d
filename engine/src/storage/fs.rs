//! Operating system files, one directory per database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Storage, StorageFile, Watch};
use crate::error::{Error, Result};

/// How the files are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// Reading and writing, under an exclusive lock.
    Exclusive,
    /// Reading, under a lock that excludes writers.
    Shared,
    /// Reading without a lock, possibly beside a writer.
    BesideWriter,
}

/// A directory of the operating system.
///
/// Open files are locked for this process alone, unless the storage is read-only.
#[derive(Clone, Debug)]
pub struct FsStorage {
    directory: PathBuf,
    access: Access,
}

impl FsStorage {
    /// Creates a storage in `directory`, which is created together with its first file.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            access: Access::Exclusive,
        }
    }

    /// Creates a storage for reading. Requires [`Options::read_only`](crate::Options::read_only).
    ///
    /// Any number of readers share the files. Readers and a writer exclude each other. Nothing is
    /// created, and neither the directory nor the files need to be writable. If the system cannot
    /// lock them, as on some read-only media, they are not locked.
    #[must_use]
    pub fn read_only(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            access: Access::Shared,
        }
    }

    /// As [`read_only`](Self::read_only), without a lock: a writer may be active in another
    /// process.
    ///
    /// The reader sees the database as of when it was opened. That state stays intact until the
    /// writer's second checkpoint after that. From then on reads may fail with [`Error::Stale`],
    /// and [`Database::refresh`](crate::Database::refresh) switches to the newest state.
    ///
    /// Reads may include commits that the writer has not flushed yet. An overwritten block is
    /// recognized by the 32-bit checksum in the reference to it and by its header. The files must
    /// be on a file system of this machine. On Windows the writer's lock prevents others from
    /// reading at all.
    #[must_use]
    pub fn read_only_beside_writer(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            access: Access::BesideWriter,
        }
    }

    /// Creates the directory, and those above it, and makes their names durable. Opening a file in
    /// order to create it does so too.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::StorageFull`].
    pub fn create_directory(&self) -> Result<()> {
        create_directory(&self.directory)
    }

    fn open_for_reading(&self, name: &str) -> Result<Arc<dyn StorageFile>> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::NotFound {
                what: path.display().to_string().into(),
            },
            _ => failed("opening", &path, &error),
        })?;
        if self.access == Access::Shared {
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Locked {
                        file: path.display().to_string().into(),
                    });
                }
                // A file system without locks cannot have a writer that holds one.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
        }
        let is_read_only = true;
        Ok(Arc::new(FsFile::new(file, path, is_read_only)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The directory that holds the name of `path`.
fn parent_of(path: &Path) -> Option<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        parent => parent,
    }
}

/// Creates a directory and its ancestors. Each name is flushed in its parent before the next level
/// is created. So is the name of the lowest existing directory: an earlier attempt may have been
/// killed between creating and flushing it.
fn create_directory(path: &Path) -> Result<()> {
    if !path.is_dir() {
        if let Some(parent) = parent_of(path) {
            create_directory(parent)?;
        }
        match fs::create_dir(path) {
            Err(error) if !path.is_dir() => return Err(failed("creating", path, &error)),
            _ => {}
        }
    }
    parent_of(path).map_or(Ok(()), flush_directory)
}

/// Converts an error of the operating system into ours.
fn failed(action: &str, path: &Path, error: &io::Error) -> Error {
    let context = format!("{action} {}", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Error::StorageFull {
            context: context.into(),
        },
        _ => Error::io(context, error.to_string()),
    }
}

/// Makes new names in a directory durable, where possible. Only Unix flushes directories, and only
/// readable ones.
fn flush_directory(directory: &Path) -> Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(directory) {
        Ok(handle) => handle.sync_all().map_err(|error| failed("flushing", directory, &error)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(failed("opening", directory, &error)),
    }
}

/// Opens a file under an exclusive lock.
fn open_locked(path: &Path, create: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    let file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if !create => Error::NotFound {
            what: path.display().to_string().into(),
        },
        _ => failed("opening", path, &error),
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            file: path.display().to_string().into(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("locking", path, &error)),
    }
}

/// Whether `path` still names this file: it may have been removed or replaced, or a directory above
/// it renamed. Failures other than a missing name prove nothing.
#[cfg(unix)]
fn has_name(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        (_, Err(error)) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        (Err(_), _) => true,
    }
}

/// An open file keeps its name.
#[cfg(not(unix))]
fn has_name(_file: &File, _path: &Path) -> bool {
    true
}

impl Storage for FsStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        if self.access != Access::Exclusive {
            return if create {
                Err(Error::ReadOnly)
            } else {
                self.open_for_reading(name)
            };
        }
        let path = self.path(name);
        if create && !path.exists() {
            create_directory(&self.directory)?;
        }
        let file = loop {
            let file = open_locked(&path, create)?;
            if has_name(&file, &path) {
                break file;
            }
        };
        let is_read_only = false;
        let file = FsFile::new(file, path, is_read_only);
        // An empty file is new, or its creator was killed before flushing its name.
        if create && file.is_empty()? {
            flush_directory(&self.directory)?;
        }
        Ok(Arc::new(file))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        path.try_exists().map_err(|error| failed("looking for", &path, &error))
    }

    fn is_beside_writer(&self) -> bool {
        self.access == Access::BesideWriter
    }

    fn watch(&self) -> Watch {
        Watch::Flushes
    }

    fn remove(&self, name: &str) -> Result<()> {
        if self.access != Access::Exclusive {
            return Err(Error::ReadOnly);
        }
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removing", &path, &error)),
            _ => Ok(()),
        }
    }
}

/// For so long an unchanged directory proves that a name in it leads where it did: older systems
/// count time in ticks, and a link may lead to another directory.
const DIRECTORY_PROVES: Duration = Duration::from_secs(1);

/// Systems count the time of changes in ticks no longer than this.
#[cfg(unix)]
const TICK: Duration = Duration::from_millis(50);

/// The last check of a file's name.
struct Checked {
    at: Instant,
    /// The state of the directory before it; `None` if unknown.
    directory: Option<[i64; 4]>,
}

/// Which directory a path leads to, and when a name in it last changed. Asking for a file's own times
/// would make the next write to it several times slower on file systems that then count its time in
/// nanoseconds (Linux 6.13).
#[cfg(unix)]
fn directory_of(path: &Path) -> Option<[i64; 4]> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path.parent()?).ok()?;
    // Another change in the same tick would not show.
    found.modified().ok()?.elapsed().ok().filter(|age| *age >= TICK)?;
    Some([
        found.dev().cast_signed(),
        found.ino().cast_signed(),
        found.mtime(),
        found.mtime_nsec(),
    ])
}

#[cfg(not(unix))]
fn directory_of(_path: &Path) -> Option<[i64; 4]> {
    None
}

/// An open file. Its lock, if any, ends with the handle.
struct FsFile {
    file: File,
    path: PathBuf,
    /// The path, whatever the working directory becomes.
    name: PathBuf,
    checked: Mutex<Checked>,
    is_read_only: bool,
}

impl FsFile {
    fn new(file: File, path: PathBuf, is_read_only: bool) -> Self {
        Self {
            name: absolute(&path).unwrap_or_else(|_| path.clone()),
            file,
            path,
            checked: Mutex::new(Checked {
                at: Instant::now(),
                directory: None,
            }),
            is_read_only,
        }
    }

    fn failed(&self, action: &str, error: &io::Error) -> Error {
        failed(action, &self.path, error)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(unix)]
fn write_all_at(file: &File, offset: u64, from: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, from, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, into, offset)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[count..];
        offset += count as u64;
    }
    Ok(())
}

#[cfg(windows)]
fn write_all_at(file: &File, mut offset: u64, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_write(file, from, offset)?;
        if count == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        from = &from[count..];
        offset += count as u64;
    }
    Ok(())
}

impl StorageFile for FsFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, offset, into).map_err(|error| self.failed("reading", &error))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.check_writable()?;
        write_all_at(&self.file, offset, from).map_err(|error| self.failed("writing", &error))
    }

    fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.file.sync_data().map_err(|error| self.failed("flushing", &error))
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|error| self.failed("measuring", &error))?;
        Ok(metadata.len())
    }

    fn check_name(&self, max_age_ms: u32) -> Result<()> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let age = now.duration_since(checked.at);
        if age < Duration::from_millis(max_age_ms.into()) {
            return Ok(());
        }
        let directory = directory_of(&self.name);
        if age < DIRECTORY_PROVES && directory.is_some() && directory == checked.directory {
            return Ok(());
        }
        if !has_name(&self.file, &self.name) {
            return Err(Error::Evicted {
                file: self.path.display().to_string().into(),
            });
        }
        *checked = Checked { at: now, directory };
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        self.file.set_len(len).map_err(|error| self.failed("resizing", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_in_new_directories_and_keep_their_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let storage = FsStorage::new(directory.path().join("a/b/c"));
        assert!(!storage.exists("data").unwrap());
        assert!(matches!(storage.open("data", false), Err(Error::NotFound { .. })));
        assert!(!directory.path().join("a").exists(), "a failed open makes nothing");
        let file = storage.open("data", true).unwrap();
        file.write_at(3, b"abc").unwrap();
        file.flush().unwrap();
        assert!(matches!(storage.open("data", true), Err(Error::Locked { .. })));
        drop(file);
        let file = storage.open("data", true).unwrap();
        assert_eq!(file.len().unwrap(), 6);
        let mut bytes = [9; 6];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0abc");
        assert!(matches!(file.read_at(1, &mut bytes), Err(Error::Io(_))));
        file.set_len(2).unwrap();
        file.set_len(4).unwrap();
        file.read_at(0, &mut bytes[..4]).unwrap();
        assert_eq!(&bytes[..4], [0; 4]);
        drop(file);
        storage.remove("data").unwrap();
        storage.remove("data").unwrap();
        assert!(!storage.exists("data").unwrap());
    }

    #[test]
    fn directories_of_relative_paths_are_found() {
        assert_eq!(parent_of(Path::new("name")), Some(Path::new(".")));
        assert_eq!(parent_of(Path::new("a/b")), Some(Path::new("a")));
        assert_eq!(parent_of(Path::new("/")), None);
        create_directory(Path::new(".")).unwrap();
        create_directory(Path::new("/")).unwrap();
    }

    #[test]
    fn a_file_in_the_way_of_a_directory_is_reported_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "kept").unwrap();
        for below in [path.clone(), path.join("deeper")] {
            let result = FsStorage::new(below).open("data", true);
            assert!(matches!(result, Err(Error::Io(_))));
        }
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }

    /// `/dev/full` fails every write as a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("data")).unwrap();
        let file = FsStorage::new(directory.path()).open("data", true).unwrap();
        assert!(matches!(file.write_at(0, b"x"), Err(Error::StorageFull { .. })));
        assert!(matches!(file.set_len(1), Err(Error::Io(_))));
    }

    #[test]
    fn errors_keep_their_class() {
        let class = |kind: ErrorKind| failed("writing", Path::new("data"), &kind.into());
        for kind in [
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
        ] {
            assert!(matches!(class(kind), Error::StorageFull { .. }));
        }
        for kind in [ErrorKind::PermissionDenied, ErrorKind::UnexpectedEof] {
            assert!(matches!(class(kind), Error::Io(_)));
        }
    }
}

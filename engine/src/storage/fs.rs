//! Files of the operating system, one directory per database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Storage, StorageFile};
use crate::error::{Error, Result};

/// A directory of the operating system. Open files are locked for this process alone.
#[derive(Clone, Debug)]
pub struct FsStorage {
    directory: PathBuf,
}

impl FsStorage {
    /// Files of a database live in `directory`, which is made when the first of them is created.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes the directory; a new file's name in it is durable only after the directory was flushed, and so upwards.
    fn create_directory(&self) -> Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.directory).map_err(|error| failed("creating", &self.directory, &error))?;
        self.directory.parent().map_or(Ok(()), flush_directory)
    }
}

/// Turns an error of the operating system into ours.
fn failed(action: &str, path: &Path, error: &io::Error) -> Error {
    let context = format!("{action} {}", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Error::StorageFull { context },
        _ => Error::Io {
            context,
            source: error.to_string(),
        },
    }
}

/// Makes new names in a directory durable, where the system allows it.
fn flush_directory(directory: &Path) -> Result<()> {
    if cfg!(unix) && !directory.as_os_str().is_empty() {
        let flushed = File::open(directory).and_then(|handle| handle.sync_all());
        flushed.map_err(|error| failed("flushing", directory, &error))?;
    }
    Ok(())
}

impl Storage for FsStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let path = self.path(name);
        if create {
            self.create_directory()?;
        }
        let is_new = create && !path.exists();
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .clone();
        let file = options.open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound if !create => Error::NotFound {
                what: path.display().to_string(),
            },
            _ => failed("opening", &path, &error),
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked {
                    file: path.display().to_string(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed("locking", &path, &error)),
        }
        if is_new {
            flush_directory(&self.directory)?;
        }
        Ok(Arc::new(FsFile { file, path }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        path.try_exists().map_err(|error| failed("looking for", &path, &error))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removing", &path, &error)),
            _ => Ok(()),
        }
    }
}

/// An open, locked file. The lock goes with the handle.
struct FsFile {
    file: File,
    path: PathBuf,
}

impl FsFile {
    fn failed(&self, action: &str, error: &io::Error) -> Error {
        failed(action, &self.path, error)
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
        write_all_at(&self.file, offset, from).map_err(|error| self.failed("writing", &error))
    }

    fn flush(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed("flushing", &error))
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|error| self.failed("measuring", &error))?;
        Ok(metadata.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.failed("resizing", &error))
    }
}

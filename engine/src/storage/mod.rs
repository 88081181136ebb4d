//! Storage: named files behind two small traits.
//!
//! A [`Storage`] is the directory of one database. The engine is synchronous; a host with an
//! asynchronous interface opens its files beforehand. Every implementation must keep this contract:
//!
//! - `read_at` and `write_at` transfer everything or fail: a short count is an error here.
//! - Data survives a power cut once `flush` has returned. Unflushed writes may be lost, torn at
//!   512-byte sectors, and reach the disk in any order. Process death alone loses nothing after
//!   `write_at` has returned.
//! - Nothing is removed or truncated except by `set_len` and `remove`.

use std::sync::Arc;

use crate::error::Result;

#[cfg(any(unix, windows))]
mod fs;
mod memory;

#[cfg(any(unix, windows))]
pub use fs::FsStorage;
pub use memory::MemoryStorage;

/// How a database watches for other writers of the same files, and for files that are removed,
/// renamed or replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// Not at all: the storage reliably excludes them.
    #[default]
    Nothing,
    /// On the first write, before strict commits and writes to the data file, and after each flush:
    /// the storage has a lock.
    Flushes,
    /// Also before the log records of all commits: the storage may have no reliable lock.
    Writes,
}

/// Age up to which a check of the files' names counts for a write that is not acknowledged as
/// durable.
pub(crate) const NAME_AGE_MS: u32 = 1000;

/// The named files of one database.
pub trait Storage: Send + Sync {
    /// Opens `name` exclusively, for reading and writing.
    ///
    /// Creates a missing file, empty, if `create` is set.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) without `create`,
    /// [`Error::Locked`](crate::Error::Locked) if the file is open elsewhere,
    /// [`Error::Io`](crate::Error::Io) otherwise.
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>>;

    /// Whether a file of that name exists.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the storage cannot tell.
    fn exists(&self, name: &str) -> Result<bool>;

    /// Whether others may write to the files while they are open here. Such a storage is read-only.
    fn is_beside_writer(&self) -> bool {
        false
    }

    /// How to watch for other writers, in case the storage fails to exclude them.
    fn watch(&self) -> Watch {
        Watch::Nothing
    }

    /// Removes a file that is not open; a missing file is no error.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Locked`](crate::Error::Locked).
    fn remove(&self, name: &str) -> Result<()>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait StorageFile: Send + Sync {
    /// Fills `into` from `offset`. Reading past the end is an error.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes all of `from` at `offset`, growing the file as needed.
    ///
    /// # Errors
    /// [`Error::StorageFull`](crate::Error::StorageFull) if the disk or quota is exhausted,
    /// otherwise [`Error::Io`](crate::Error::Io).
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Returns once everything written before survives a power cut.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); the state of earlier unflushed writes is then unknown.
    fn flush(&self) -> Result<()>;

    /// Length of the file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn len(&self) -> Result<u64>;

    /// Length of the file, including changes by others.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    #[doc(hidden)]
    fn current_len(&self) -> Result<u64> {
        self.len()
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Checks that no other opening has written to the files, as far as they are watched, and that
    /// their names were right [not long ago](NAME_AGE_MS).
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if one has;
    /// [`Error::Evicted`](crate::Error::Evicted).
    #[doc(hidden)]
    fn check_owner(&self) -> Result<()> {
        Ok(())
    }

    /// Checks that the name by which the file was opened still leads to it. A check that began less
    /// than `max_age_ms` ago counts.
    ///
    /// # Errors
    /// [`Error::Evicted`](crate::Error::Evicted) if it does not.
    #[doc(hidden)]
    fn check_name(&self, _max_age_ms: u32) -> Result<()> {
        Ok(())
    }

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn set_len(&self, len: u64) -> Result<()>;
}

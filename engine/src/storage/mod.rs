//! Where bytes live: named files behind two small traits.
//!
//! A [`Storage`] is one database's directory. The engine is synchronous; a host whose own interface is asynchronous
//! opens its files beforehand. Contract of every implementation:
//!
//! - `read_at` and `write_at` are whole or fail: a short count of the host is an error here.
//! - What `flush` returned for survives a power cut. Writes that were not flushed may be lost, torn at 512-byte
//!   sectors, and reach the disk in any order. Process death alone loses nothing that `write_at` returned for.
//! - Nothing is ever removed or truncated except by `set_len` and `remove`.

use std::sync::Arc;

use crate::error::Result;

#[cfg(any(unix, windows))]
mod fs;
mod memory;

#[cfg(any(unix, windows))]
pub use fs::FsStorage;
pub use memory::MemoryStorage;

/// What a database does about other openings that write to the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// Nothing: the storage keeps them out for sure.
    #[default]
    Nothing,
    /// It looks for them when it begins to write, before strict commits and writes to the data file, and after each flush: the storage has a lock.
    Flushes,
    /// Before the records of all commits: there may be no lock that holds.
    Writes,
}

/// One database's named files.
pub trait Storage: Send + Sync {
    /// Opens `name` for reading and writing, exclusively, and creates it empty where it is missing and `create` is set.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) without `create`, [`Error::Locked`](crate::Error::Locked) when
    /// somebody else has it open, [`Error::Io`](crate::Error::Io) otherwise.
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>>;

    /// Whether a file of that name exists.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the storage cannot tell.
    fn exists(&self, name: &str) -> Result<bool>;

    /// Whether files that are opened here may be written by somebody else meanwhile. Such a storage is for reading alone.
    fn is_beside_writer(&self) -> bool {
        false
    }

    /// What is to be done in case that the storage fails to keep other writers out.
    fn watch(&self) -> Watch {
        Watch::Nothing
    }

    /// Removes a file that is not open; missing files are no error.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Locked`](crate::Error::Locked).
    fn remove(&self, name: &str) -> Result<()>;
}

/// One open file. Offsets and lengths are bytes.
pub trait StorageFile: Send + Sync {
    /// Fills `into` from `offset`. Reading past the end is an error.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes all of `from` at `offset`, growing the file as needed.
    ///
    /// # Errors
    /// [`Error::StorageFull`](crate::Error::StorageFull) at the disk's or quota's end, else [`Error::Io`](crate::Error::Io).
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Returns when everything written before survives a power cut.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); the state of earlier unflushed writes is then unknown.
    fn flush(&self) -> Result<()>;

    /// Length of the file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn len(&self) -> Result<u64>;

    /// Length of the file as somebody else may have made it.
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

    /// Whether no other opening wrote to the files meanwhile, as far as that is watched.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if one did.
    #[doc(hidden)]
    fn check_owner(&self) -> Result<()> {
        Ok(())
    }

    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn set_len(&self, len: u64) -> Result<()>;
}

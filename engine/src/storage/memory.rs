//! Files in memory, for in-memory databases and tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Storage, StorageFile};
use crate::error::{Error, Result};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// One file: its bytes, and the handle through which it is open.
#[derive(Default)]
struct Entry {
    bytes: Bytes,
    open: Weak<MemoryFile>,
}

/// Named files in memory. Clones share them, so a database can be closed and opened again.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    files: Arc<Mutex<BTreeMap<String, Entry>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStorage {
    /// Creates an empty storage.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a storage that holds the given files.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let entry = |bytes| Entry {
            bytes: Arc::new(Mutex::new(bytes)),
            open: Weak::new(),
        };
        let files = files.into_iter().map(|(name, bytes)| (name, entry(bytes))).collect();
        Self {
            files: Arc::new(Mutex::new(files)),
        }
    }

    /// Returns a copy of all files.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let files = lock(&self.files);
        let copy = |(name, entry): (&String, &Entry)| (name.clone(), lock(&entry.bytes).clone());
        files.iter().map(copy).collect()
    }
}

impl Storage for MemoryStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let mut files = lock(&self.files);
        if !create && !files.contains_key(name) {
            return Err(Error::NotFound { what: name.into() });
        }
        let entry = files.entry(name.to_owned()).or_default();
        if entry.open.strong_count() > 0 {
            return Err(Error::Locked { file: name.into() });
        }
        let file = Arc::new(MemoryFile {
            name: name.to_owned(),
            bytes: Arc::clone(&entry.bytes),
        });
        entry.open = Arc::downgrade(&file);
        Ok(file)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(lock(&self.files).contains_key(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut files = lock(&self.files);
        if files.get(name).is_some_and(|entry| entry.open.strong_count() > 0) {
            return Err(Error::Locked { file: name.into() });
        }
        files.remove(name);
        Ok(())
    }
}

struct MemoryFile {
    name: String,
    bytes: Bytes,
}

impl StorageFile for MemoryFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let bytes = lock(&self.bytes);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let part = bytes
            .get(start..end)
            .ok_or_else(|| Error::io(format!("reading {} at {offset}", self.name), "end of file"))?;
        into.copy_from_slice(part);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut bytes = lock(&self.bytes);
        let full = || Error::StorageFull {
            context: format!("writing {} at {offset}", self.name).into(),
        };
        let start = usize::try_from(offset).map_err(|_| full())?;
        let end = start.checked_add(from.len()).ok_or_else(full)?;
        if bytes.len() < end {
            let more = end - bytes.len();
            bytes.try_reserve(more).map_err(|_| full())?;
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.bytes).len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let full = || Error::StorageFull {
            context: format!("resizing {} to {len}", self.name).into(),
        };
        let len = usize::try_from(len).map_err(|_| full())?;
        let mut bytes = lock(&self.bytes);
        let more = len.saturating_sub(bytes.len());
        bytes.try_reserve(more).map_err(|_| full())?;
        bytes.resize(len, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_exclusive_and_survive_their_handle() {
        let storage = MemoryStorage::new();
        assert!(matches!(storage.open("data", false), Err(Error::NotFound { .. })));
        let file = storage.open("data", true).unwrap();
        assert!(matches!(storage.open("data", true), Err(Error::Locked { .. })));
        assert!(matches!(storage.remove("data"), Err(Error::Locked { .. })));
        file.write_at(3, b"abc").unwrap();
        drop(file);
        let file = storage.open("data", false).unwrap();
        let mut bytes = [9; 6];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0abc");
        assert!(file.read_at(1, &mut bytes).is_err());
        file.set_len(4).unwrap();
        assert_eq!(storage.files()["data"], b"\0\0\0a");
        let copy = MemoryStorage::from_files(storage.files());
        assert!(copy.exists("data").unwrap());
    }

    #[test]
    fn a_failed_allocation_is_a_full_storage() {
        let storage = MemoryStorage::new();
        let file = storage.open("data", true).unwrap();
        file.write_at(0, b"kept").unwrap();
        for len in [u64::MAX, i64::MAX as u64] {
            assert!(matches!(file.set_len(len), Err(Error::StorageFull { .. })));
            assert!(matches!(file.write_at(len - 1, b"x"), Err(Error::StorageFull { .. })));
        }
        assert_eq!(storage.files()["data"], b"kept");
        drop(file);
        storage.remove("data").unwrap();
        assert!(!storage.exists("data").unwrap());
    }
}

//! The storage that a restore writes to. It holds the superblocks in memory until the database is
//! complete, so that an interrupted restore leaves nothing that opens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::pages::{AREA_BYTES, DATA_FILE};
use crate::storage::{Storage, StorageFile};

/// A storage that holds back the front of the data file.
pub(super) struct HeldStorage {
    target: Arc<dyn Storage>,
    data: Arc<HeldFile>,
}

impl HeldStorage {
    /// Creates the data file, which must be missing or empty.
    pub(super) fn new(target: Arc<dyn Storage>) -> Result<Self> {
        let file = target.open(DATA_FILE, true)?;
        if !file.is_empty()? {
            return Err(Error::AlreadyExists {
                what: format!("the file {DATA_FILE} of the new database").into(),
            });
        }
        let front = Mutex::new(Vec::new());
        let data = Arc::new(HeldFile { file, front });
        Ok(Self { target, data })
    }

    /// Writes the sectors that were held back. Both superblocks agree by now, so any part of them that survives
    /// a power failure suffices.
    pub(super) fn release(&self) -> Result<()> {
        self.data.file.write_at(0, &self.data.front())?;
        self.data.file.flush()
    }
}

impl Storage for HeldStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        if name == DATA_FILE {
            return Ok(Arc::clone(&self.data) as Arc<dyn StorageFile>);
        }
        self.target.open(name, create)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.target.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.target.remove(name)
    }
}

struct HeldFile {
    file: Arc<dyn StorageFile>,
    /// The first bytes of the file, at most the length of the superblocks.
    front: Mutex<Vec<u8>>,
}

/// Length of the part of `len` bytes at `offset` that belongs to the front.
fn front_part(offset: u64, len: usize) -> usize {
    len.min(AREA_BYTES.saturating_sub(offset) as usize)
}

impl HeldFile {
    fn front(&self) -> MutexGuard<'_, Vec<u8>> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageFile for HeldFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let (held, rest) = into.split_at_mut(front_part(offset, into.len()));
        if !held.is_empty() {
            let front = self.front();
            let start = offset as usize;
            let there = front.get(start..).unwrap_or_default();
            let there = &there[..held.len().min(there.len())];
            held[..there.len()].copy_from_slice(there);
            held[there.len()..].fill(0);
            if there.len() < held.len() && self.file.len()? < AREA_BYTES {
                return Err(Error::io(format!("reading {DATA_FILE} at {offset}"), "end of file"));
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.file.read_at(offset + held.len() as u64, rest)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let (held, rest) = from.split_at(front_part(offset, from.len()));
        if !held.is_empty() {
            let mut front = self.front();
            let (start, end) = (offset as usize, offset as usize + held.len());
            if front.len() < end {
                front.resize(end, 0);
            }
            front[start..end].copy_from_slice(held);
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.file.write_at(offset + held.len() as u64, rest)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.len()?.max(self.front().len() as u64))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.front().truncate(usize::try_from(len).unwrap_or(usize::MAX));
        self.file.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    #[test]
    fn the_front_is_held_back_until_it_is_released() {
        let memory = MemoryStorage::new();
        let held = HeldStorage::new(Arc::new(memory.clone())).unwrap();
        let file = held.open(DATA_FILE, false).unwrap();
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| at as u8 | 1).collect();
        let mut read = vec![0; 10_000];
        file.write_at(4096, &bytes[4096..4196]).unwrap();
        assert_eq!(file.len().unwrap(), 4196);
        assert!(file.read_at(4096, &mut read[..101]).is_err());
        file.write_at(0, &bytes).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.read_at(0, &mut read).unwrap();
        assert_eq!(read, bytes);
        file.flush().unwrap();
        assert!(memory.files()[DATA_FILE][..8192].iter().all(|byte| *byte == 0));
        held.release().unwrap();
        assert_eq!(memory.files()[DATA_FILE], bytes);
    }

    #[test]
    fn unwritten_bytes_are_zero() {
        let held = HeldStorage::new(Arc::new(MemoryStorage::new())).unwrap();
        let file = held.open(DATA_FILE, false).unwrap();
        file.write_at(9000, b"far").unwrap();
        let mut read = [1; 9003];
        file.read_at(0, &mut read).unwrap();
        assert!(read[..9000].iter().all(|byte| *byte == 0) && read[9000..] == *b"far");
        file.set_len(100).unwrap();
        assert_eq!(file.len().unwrap(), 100);
    }
}

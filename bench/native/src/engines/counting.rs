//! A storage that counts writes and flushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::Result;
use mangrove_engine::storage::{Storage, StorageFile};

use crate::measure::Written;

#[derive(Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

impl Counters {
    pub(super) fn written(&self) -> Written {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Written {
            bytes: read(&self.bytes),
            writes: read(&self.writes),
            flushes: Some(read(&self.flushes)),
        }
    }
}

pub(super) struct CountingStorage<S> {
    pub inner: S,
    pub counters: Arc<Counters>,
}

impl<S: Storage> Storage for CountingStorage<S> {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(name, create)?;
        let counters = Arc::clone(&self.counters);
        Ok(Arc::new(CountingFile { inner, counters }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
}

struct CountingFile {
    inner: Arc<dyn StorageFile>,
    counters: Arc<Counters>,
}

impl StorageFile for CountingFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.counters.bytes.fetch_add(from.len() as u64, Ordering::Relaxed);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.write_at(offset, from)
    }

    fn flush(&self) -> Result<()> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
}

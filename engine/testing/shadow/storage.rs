//! A storage over any other whose files have a shadow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Files, Shadow, ShadowCounts, report};
use crate::error::Result;
use crate::storage::{Storage, StorageFile, Watch};

#[derive(Default)]
struct OpenFiles(BTreeMap<String, Weak<dyn StorageFile>>);

impl Files for OpenFiles {
    fn read(&self, name: &str, offset: u64, len: usize) -> Vec<u8> {
        let Some(file) = self.0.get(name).and_then(Weak::upgrade) else {
            return Vec::new();
        };
        let there = file.len().unwrap_or(0).saturating_sub(offset);
        let mut bytes = vec![0; usize::try_from(there).unwrap_or(usize::MAX).min(len)];
        match file.read_at(offset, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }
}

struct State {
    files: OpenFiles,
    shadow: Shadow,
}

/// A storage whose writes are checked; see [`shadow`](super). A violation panics. Changes of the
/// files take turns.
#[derive(Clone)]
pub struct ShadowStorage {
    inner: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
}

impl ShadowStorage {
    /// Checks the writes to a storage whose files are not open yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        let state = State {
            files: OpenFiles::default(),
            shadow: Shadow::new(),
        };
        Self {
            inner,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> ShadowCounts {
        lock(&self.state).shadow.counts()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Storage for ShadowStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let file = self.inner.open(name, create)?;
        lock(&self.state).files.0.insert(name.to_owned(), Arc::downgrade(&file));
        Ok(Arc::new(ShadowFile {
            name: name.to_owned(),
            file,
            state: Arc::clone(&self.state),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn is_beside_writer(&self) -> bool {
        self.inner.is_beside_writer()
    }

    fn watch(&self) -> Watch {
        self.inner.watch()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
}

struct ShadowFile {
    name: String,
    file: Arc<dyn StorageFile>,
    state: Arc<Mutex<State>>,
}

impl StorageFile for ShadowFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut state = lock(&self.state);
        let State { files, shadow } = &mut *state;
        report(shadow.before_write(files, &self.name, offset, from));
        let written = self.file.write_at(offset, from);
        report(shadow.after_write(files, &self.name, offset, from.len() as u64));
        written
    }

    fn flush(&self) -> Result<()> {
        let mut state = lock(&self.state);
        self.file.flush()?;
        state.shadow.flushed(&self.name);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn current_len(&self) -> Result<u64> {
        self.file.current_len()
    }

    fn check_owner(&self) -> Result<()> {
        self.file.check_owner()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let State { files, shadow } = &mut *state;
        report(shadow.before_set_len(files, &self.name, len));
        self.file.set_len(len)
    }
}

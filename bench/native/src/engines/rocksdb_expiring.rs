use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use super::rocksdb::{Rocks, open_expiring};
use super::{Engine, Reader, Setup};
use crate::records::Records;

/// RocksDB with `DBWithTTL`: one lifetime for all records, set at opening. Reads still find expired
/// records until a compaction drops them.
pub(crate) struct ExpiringRocks {
    directory: PathBuf,
    setup: Setup,
    /// `None` only while the database is being reopened.
    open: RwLock<Option<Rocks>>,
}

pub(crate) fn open(directory: &Path, setup: Setup) -> ExpiringRocks {
    ExpiringRocks {
        directory: directory.to_owned(),
        setup,
        open: RwLock::new(Some(open_expiring(directory, setup, 1 << 30))),
    }
}

impl ExpiringRocks {
    fn open(&self) -> RwLockReadGuard<'_, Option<Rocks>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, work: impl FnOnce(&Rocks)) {
        work(self.open().as_ref().expect("it is open"));
    }
}

impl Engine for ExpiringRocks {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        self.with(|rocks| rocks.insert(records, durable));
    }

    fn remove(&self, records: &Records<'_>) {
        self.with(|rocks| rocks.remove(records));
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        self.with(|rocks| rocks.read(work));
    }

    fn insert_expiring(&self, records: &Records<'_>, _seconds: u64) -> bool {
        self.insert(records, true);
        true
    }

    /// Reopens with a shorter lifetime instead of letting one pass. The clock is the system's and
    /// counts whole seconds.
    fn pass(&self, _seconds: u64) {
        std::thread::sleep(Duration::from_secs(3));
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        *open = None;
        *open = Some(open_expiring(&self.directory, self.setup, 1));
    }

    fn purge(&self, _limit: usize) -> usize {
        self.with(Rocks::compact);
        0
    }
}

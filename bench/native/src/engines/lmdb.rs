#![allow(
    unsafe_code,
    reason = "heed opens environments and changes their flags by unsafe functions: nobody else may change the mapped file"
)]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn, WithTls};

use super::{Engine, Reader, copy};
use crate::records::Records;

/// Opens a database. LMDB has no cache of its own: it maps its file and takes what memory the
/// system gives it.
pub(crate) fn open(directory: &Path) -> Lmdb {
    let path = directory.join("lmdb");
    std::fs::create_dir_all(&path).expect("a new directory");
    let mut options = EnvOpenOptions::new();
    options.map_size(64 << 30).max_readers(16);
    // SAFETY: the directory is new and only this process uses it.
    let env = unsafe { options.open(&path) }.expect("a new database");
    let mut transaction = env.write_txn().expect("it can be written");
    let database = env.create_database(&mut transaction, None).expect("it can be written");
    transaction.commit().expect("it can be written");
    Lmdb {
        env,
        database,
        synced: Mutex::new(true),
    }
}

pub(crate) struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
    /// Whether commits sync. LMDB sets this for the environment, not for a transaction.
    synced: Mutex<bool>,
}

impl Lmdb {
    /// Sets whether commits sync, and keeps the other writers out meanwhile.
    fn sync(&self, durable: bool) -> MutexGuard<'_, bool> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced != durable {
            let mode = if durable {
                FlagSetMode::Disable
            } else {
                FlagSetMode::Enable
            };
            // SAFETY: one thread at a time holds the lock, and a power cut may cost the database.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }.expect("it may change while open");
            *synced = durable;
        }
        synced
    }
}

impl Engine for Lmdb {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let _synced = self.sync(durable);
        let mut transaction = self.env.write_txn().expect("it can be written");
        records.each(|key, value| {
            let put = self.database.put(&mut transaction, key, value);
            put.expect("it can be written");
        });
        transaction.commit().expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let _synced = self.sync(true);
        let mut transaction = self.env.write_txn().expect("it can be written");
        records.each_key(|key| {
            let delete = self.database.delete(&mut transaction, key);
            delete.expect("it can be written");
        });
        transaction.commit().expect("it can be written");
    }

    fn has_cache(&self) -> bool {
        false
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut LmdbReader {
            database: self.database,
            transaction: self.env.read_txn().expect("it can be read"),
        });
    }
}

struct LmdbReader<'a> {
    database: Database<Bytes, Bytes>,
    transaction: RoTxn<'a, WithTls>,
}

fn count<'a>(entries: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>, into: &mut Vec<u8>) -> usize {
    entries
        .map(|entry| copy(entry.expect("it can be read").1, into))
        .count()
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.database.get(&self.transaction, key).expect("it can be read");
        found.map(|found| copy(found, value)).is_some()
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        let range = (std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
        let range = self.database.range(&self.transaction, &range).expect("it can be read");
        count(range.take(limit), value)
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        if reverse {
            count(
                self.database.rev_iter(&self.transaction).expect("it can be read"),
                value,
            )
        } else {
            count(self.database.iter(&self.transaction).expect("it can be read"), value)
        }
    }
}

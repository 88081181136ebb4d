#![allow(
    unsafe_code,
    reason = "heed opens environments by an unsafe function: nobody else may change the mapped file"
)]

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::{Engine, Reader, Record};

pub(crate) fn open(directory: &Path) -> Lmdb {
    let open = |name: &str, flags: EnvFlags| {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).expect("a new directory");
        let mut options = EnvOpenOptions::new();
        options.map_size(16 << 30).max_readers(16);
        // SAFETY: the directory is new and only this process uses it.
        let env = unsafe { options.flags(flags).open(&path) }.expect("a new database");
        let mut transaction = env.write_txn().expect("it can be written");
        let database = env.create_database(&mut transaction, None).expect("it can be written");
        transaction.commit().expect("it can be written");
        Opened { env, database }
    };
    Lmdb {
        synced: open("lmdb", EnvFlags::empty()),
        unsynced: open("lmdb-unsynced", EnvFlags::NO_SYNC),
    }
}

struct Opened {
    env: Env,
    database: Database<Bytes, Bytes>,
}

/// LMDB syncs by environment, so unsynced commits go to a second one.
pub(crate) struct Lmdb {
    synced: Opened,
    unsynced: Opened,
}

impl Engine for Lmdb {
    fn insert(&self, records: &[Record], durable: bool) {
        let Opened { env, database } = if durable { &self.synced } else { &self.unsynced };
        let mut transaction = env.write_txn().expect("it can be written");
        for (key, value) in records {
            database.put(&mut transaction, key, value).expect("it can be written");
        }
        transaction.commit().expect("it can be written");
    }

    fn remove(&self, keys: &[[u8; 24]]) {
        let Opened { env, database } = &self.synced;
        let mut transaction = env.write_txn().expect("it can be written");
        for key in keys {
            database.delete(&mut transaction, key).expect("it can be written");
        }
        transaction.commit().expect("it can be written");
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(LmdbReader {
            database: self.synced.database,
            transaction: self.synced.env.read_txn().expect("it can be read"),
        })
    }
}

struct LmdbReader<'a> {
    database: Database<Bytes, Bytes>,
    transaction: RoTxn<'a, WithTls>,
}

impl Reader for LmdbReader<'_> {
    fn len(&self) -> u64 {
        self.database.len(&self.transaction).expect("it can be read")
    }

    fn get(&self, key: &[u8; 24]) -> Option<usize> {
        let found = self.database.get(&self.transaction, key).expect("it can be read");
        found.map(|value| value.to_vec().len())
    }

    fn range(&self, key: &[u8; 24], limit: usize) -> usize {
        let range = (std::ops::Bound::Included(key.as_slice()), std::ops::Bound::Unbounded);
        let range = self.database.range(&self.transaction, &range).expect("it can be read");
        range
            .take(limit)
            .filter(|entry| entry.as_ref().is_ok_and(|(_, value)| !value.to_vec().is_empty()))
            .count()
    }

    fn scan(&self, reverse: bool) -> u64 {
        if reverse {
            let all = self.database.rev_iter(&self.transaction).expect("it can be read");
            all.filter(|entry| entry.as_ref().is_ok_and(|(_, value)| !value.to_vec().is_empty()))
                .count() as u64
        } else {
            let all = self.database.iter(&self.transaction).expect("it can be read");
            all.filter(|entry| entry.as_ref().is_ok_and(|(_, value)| !value.to_vec().is_empty()))
                .count() as u64
        }
    }
}

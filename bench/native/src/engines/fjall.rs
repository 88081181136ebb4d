use std::path::Path;

use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

/// Opens a database. Its memory tables (64 MiB by default) come on top of the cache.
pub(crate) fn open(directory: &Path, setup: Setup) -> Fjall {
    let builder = Database::builder(directory.join("fjall")).cache_size(setup.cache_bytes as u64);
    let database = builder.open().expect("a new database");
    let keyspace = database
        .keyspace("records", KeyspaceCreateOptions::default)
        .expect("it can be written");
    Fjall { database, keyspace }
}

/// Uses batches instead of transactions: they are as atomic, but cannot read.
pub(crate) struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Engine for Fjall {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let mode = if durable {
            PersistMode::ReplicationData
        } else {
            PersistMode::Buffer
        };
        let mut batch = self.database.batch().durability(Some(mode));
        records.each(|key, value| batch.insert(&self.keyspace, key, value));
        batch.commit().expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let mut batch = self.database.batch().durability(Some(PersistMode::ReplicationData));
        records.each_key(|key| batch.remove(&self.keyspace, key));
        batch.commit().expect("it can be written");
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut FjallReader {
            snapshot: self.database.snapshot(),
            keyspace: &self.keyspace,
        });
    }
}

struct FjallReader<'a> {
    snapshot: Snapshot,
    keyspace: &'a Keyspace,
}

fn count(entries: impl Iterator<Item = Guard>, into: &mut Vec<u8>) -> usize {
    entries
        .map(|entry| copy(&entry.into_inner().expect("it can be read").1, into))
        .count()
}

impl Reader for FjallReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.snapshot.get(self.keyspace, key).expect("it can be read");
        found.map(|found| copy(&found, value)).is_some()
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        count(self.snapshot.range(self.keyspace, key..).take(limit), value)
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        let all = self.snapshot.iter(self.keyspace);
        if reverse {
            count(all.rev(), value)
        } else {
            count(all, value)
        }
    }
}

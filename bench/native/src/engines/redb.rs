use std::path::Path;

use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageError, TableDefinition,
};

use super::{CACHE_BYTES, Engine, Reader, Record};

type Entry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub(crate) fn open(directory: &Path) -> Redb {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    Redb(builder.create(directory.join("redb")).expect("a new database"))
}

pub(crate) struct Redb(Database);

impl Engine for Redb {
    fn insert(&self, records: &[Record], durable: bool) {
        let mut transaction = self.0.begin_write().expect("it can be written");
        if !durable {
            transaction
                .set_durability(Durability::None)
                .expect("no savepoints are in use");
        }
        {
            let mut table = transaction.open_table(TABLE).expect("it can be written");
            for (key, value) in records {
                table
                    .insert(key.as_slice(), value.as_slice())
                    .expect("it can be written");
            }
        }
        transaction.commit().expect("it can be written");
    }

    fn remove(&self, keys: &[[u8; 24]]) {
        let transaction = self.0.begin_write().expect("it can be written");
        {
            let mut table = transaction.open_table(TABLE).expect("it can be written");
            for key in keys {
                table.remove(key.as_slice()).expect("it can be written");
            }
        }
        transaction.commit().expect("it can be written");
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        let transaction = self.0.begin_read().expect("it can be read");
        Box::new(RedbReader(transaction.open_table(TABLE).expect("it has records")))
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reader for RedbReader {
    fn len(&self) -> u64 {
        self.0.len().expect("it can be read")
    }

    fn get(&self, key: &[u8; 24]) -> Option<usize> {
        let found = self.0.get(key.as_slice()).expect("it can be read");
        found.map(|value| value.value().to_vec().len())
    }

    fn range(&self, key: &[u8; 24], limit: usize) -> usize {
        let range = self.0.range(key.as_slice()..).expect("it can be read");
        range
            .take(limit)
            .filter(|entry| entry.as_ref().is_ok_and(|(_, value)| !value.value().is_empty()))
            .count()
    }

    fn scan(&self, reverse: bool) -> u64 {
        let all = self.0.iter().expect("it can be read");
        let full =
            |entry: &Result<Entry<'_>, StorageError>| entry.as_ref().is_ok_and(|(_, value)| !value.value().is_empty());
        if reverse {
            all.rev().filter(full).count() as u64
        } else {
            all.filter(full).count() as u64
        }
    }
}

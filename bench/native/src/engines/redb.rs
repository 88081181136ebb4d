use std::path::Path;

use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

type Entry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub(crate) fn open(directory: &Path, setup: Setup) -> Redb {
    let mut builder = Database::builder();
    builder.set_cache_size(setup.cache_bytes);
    Redb(builder.create(directory.join("redb")).expect("a new database"))
}

pub(crate) struct Redb(Database);

impl Engine for Redb {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let mut transaction = self.0.begin_write().expect("it can be written");
        if !durable {
            transaction
                .set_durability(Durability::None)
                .expect("no savepoints are in use");
        }
        {
            let mut table = transaction.open_table(TABLE).expect("it can be written");
            records.each(|key, value| {
                table.insert(key, value).expect("it can be written");
            });
        }
        transaction.commit().expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let transaction = self.0.begin_write().expect("it can be written");
        {
            let mut table = transaction.open_table(TABLE).expect("it can be written");
            records.each_key(|key| {
                table.remove(key).expect("it can be written");
            });
        }
        transaction.commit().expect("it can be written");
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        let transaction = self.0.begin_read().expect("it can be read");
        work(&mut RedbReader(transaction.open_table(TABLE).expect("it has records")));
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

fn count<'a>(entries: impl Iterator<Item = Result<Entry<'a>, StorageError>>, into: &mut Vec<u8>) -> usize {
    entries
        .map(|entry| copy(entry.expect("it can be read").1.value(), into))
        .count()
}

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.0.get(key).expect("it can be read");
        found.map(|found| copy(found.value(), value)).is_some()
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        count(self.0.range(key..).expect("it can be read").take(limit), value)
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        let all = self.0.iter().expect("it can be read");
        if reverse {
            count(all.rev(), value)
        } else {
            count(all, value)
        }
    }
}

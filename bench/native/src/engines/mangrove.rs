use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Compression, Cursor, Database, Direction, Durability, KeyRange, Options, Tree};

use super::counting::{Counters, CountingStorage};
use super::{CACHE_BYTES, Engine, Reader};
use crate::measure::Written;
use crate::records::Records;

pub(crate) fn open(directory: &Path, lz4: bool) -> Mangrove {
    let options = Options {
        cache_bytes: CACHE_BYTES,
        compression: if lz4 { Compression::Lz4 } else { Compression::None },
        ..Options::default()
    };
    let counters = Arc::new(Counters::default());
    let storage = CountingStorage {
        inner: FsStorage::new(directory),
        counters: Arc::clone(&counters),
    };
    let database = Database::open(Arc::new(storage), options).expect("a new database");
    Mangrove { database, counters }
}

pub(crate) struct Mangrove {
    database: Database,
    counters: Arc<Counters>,
}

impl Engine for Mangrove {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        if records.len() == 1 {
            let durability = if durable { Durability::Strict } else { Durability::None };
            records.each(|key, value| {
                let stored = self.database.set("", key, value, durability);
                stored.expect("it can be written");
            });
            return;
        }
        let mut transaction = self.database.begin().expect("it can be written");
        records.each(|key, value| {
            transaction.set("", key, value).expect("it can be written");
        });
        let durability = if durable { Durability::Strict } else { Durability::None };
        transaction.commit(durability).expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let mut transaction = self.database.begin().expect("it can be written");
        records.each_key(|key| {
            transaction.delete("", key).expect("it can be written");
        });
        transaction.commit(Durability::Strict).expect("it can be written");
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut self.database.snapshot().collection("").expect("it has records"));
    }

    fn written(&self) -> Option<Written> {
        Some(self.counters.written())
    }
}

fn count(mut cursor: Cursor, limit: usize, value: &mut Vec<u8>) -> usize {
    let mut count = 0;
    while count < limit && cursor.advance().expect("it can be read") {
        value.clear();
        cursor.value_into(value).expect("it can be read");
        count += 1;
    }
    count
}

impl Reader for Tree {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        value.clear();
        self.get_into(key, value).expect("it can be read")
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        let range = KeyRange {
            lower: Bound::Included(key),
            upper: Bound::Unbounded,
        };
        count(self.cursor(range, Direction::Forward), limit, value)
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        let direction = if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        count(self.cursor(KeyRange::all(), direction), usize::MAX, value)
    }
}

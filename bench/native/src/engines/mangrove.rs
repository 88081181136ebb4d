use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Compression, Database, Direction, Durability, KeyRange, Options, Tree};

use super::{CACHE_BYTES, Engine, Reader, Record};

pub(crate) fn open(directory: &Path, lz4: bool) -> Mangrove {
    let options = Options {
        cache_bytes: CACHE_BYTES,
        compression: if lz4 { Compression::Lz4 } else { Compression::None },
        ..Options::default()
    };
    Mangrove(Database::open(Arc::new(FsStorage::new(directory)), options).expect("a new database"))
}

pub(crate) struct Mangrove(Database);

impl Engine for Mangrove {
    fn insert(&self, records: &[Record], durable: bool) {
        let mut transaction = self.0.begin().expect("it can be written");
        for (key, value) in records {
            transaction.set("", key, value).expect("it can be written");
        }
        let durability = if durable { Durability::Strict } else { Durability::None };
        transaction.commit(durability).expect("it can be written");
    }

    fn remove(&self, keys: &[[u8; 24]]) {
        let mut transaction = self.0.begin().expect("it can be written");
        for key in keys {
            transaction.delete("", key).expect("it can be written");
        }
        transaction.commit(Durability::Strict).expect("it can be written");
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self.0.snapshot().collection("").expect("it has records"))
    }

    fn bytes_written(&self) -> Option<u64> {
        Some(self.0.stats().bytes_written)
    }
}

impl Reader for Tree {
    fn len(&self) -> u64 {
        Tree::len(self)
    }

    fn get(&self, key: &[u8; 24]) -> Option<usize> {
        let mut value = Vec::with_capacity(150);
        self.get_into(key, &mut value)
            .expect("it can be read")
            .then_some(value.len())
    }

    fn range(&self, key: &[u8; 24], limit: usize) -> usize {
        let range = KeyRange {
            lower: Bound::Included(key),
            upper: Bound::Unbounded,
        };
        let mut cursor = self.cursor(range, Direction::Forward);
        let mut value = Vec::with_capacity(150);
        let mut count = 0;
        while count < limit && cursor.advance().expect("it can be read") {
            value.clear();
            cursor.value_into(&mut value).expect("it can be read");
            count += 1;
        }
        count
    }

    fn scan(&self, reverse: bool) -> u64 {
        let direction = if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let mut cursor = self.cursor(KeyRange::all(), direction);
        let mut value = Vec::with_capacity(150);
        let mut count = 0;
        while cursor.advance().expect("it can be read") {
            value.clear();
            cursor.value_into(&mut value).expect("it can be read");
            count += u64::from(!value.is_empty());
        }
        count
    }
}

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mangrove_engine::storage::FsStorage;
use mangrove_engine::{
    Background, Compression, Cursor, Database, Direction, Durability, Key, KeyRange, Options, ReadWrite as _,
    SnapshotCollection,
};

use super::counting::{Counters, CountingStorage};
use super::{Engine, Reader, Setup};
use crate::measure::Written;
use crate::records::Records;

/// Interval of the background thread.
const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn open(directory: &Path, setup: Setup, compression: Compression, key: Option<Key>) -> Mangrove {
    let now = Arc::default();
    let options = Options {
        cache_bytes: setup.cache_bytes,
        compression,
        key,
        clock: setup.clock(&now),
        ..Options::default()
    };
    let counters = Arc::new(Counters::default());
    let storage = CountingStorage {
        inner: FsStorage::new(directory),
        counters: Arc::clone(&counters),
    };
    #[cfg(feature = "shadow")]
    let storage = mangrove_engine::testing::shadow::ShadowStorage::new(Arc::new(storage));
    let database = Arc::new(Database::open(Arc::new(storage), options).expect("a new database"));
    // Where records expire, the workload measures their removal.
    let background = (!setup.expiring).then(|| Background::start(Arc::clone(&database), INTERVAL));
    Mangrove {
        _background: background,
        database,
        counters,
        now,
    }
}

pub(crate) struct Mangrove {
    _background: Option<Background>,
    database: Arc<Database>,
    counters: Arc<Counters>,
    now: Arc<AtomicU64>,
}

impl Mangrove {
    fn set(&self, records: &Records<'_>, durability: Durability) {
        records.each(|key, value| {
            let stored = self.database.set("", key, value, durability);
            stored.expect("it can be written");
        });
    }
}

impl Engine for Mangrove {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let durability = if durable { Durability::Strict } else { Durability::None };
        if records.len() == 1 {
            return self.set(records, durability);
        }
        let mut transaction = self.database.begin().expect("it can be written");
        records.each(|key, value| {
            transaction.put("", key, value).expect("it can be written");
        });
        transaction.commit(durability).expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let mut transaction = self.database.begin().expect("it can be written");
        records.each_key(|key| {
            transaction.discard("", key).expect("it can be written");
        });
        transaction.commit(Durability::Strict).expect("it can be written");
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut self.database.snapshot().collection("").expect("it has records"));
    }

    fn written(&self) -> Option<Written> {
        Some(self.counters.written())
    }

    fn set_logged(&self, record: &Records<'_>) {
        self.set(record, Durability::Relaxed);
    }

    fn insert_expiring(&self, records: &Records<'_>, seconds: u64) -> bool {
        let mut transaction = self.database.begin().expect("it can be written");
        let mut expires = self.now.load(Ordering::Relaxed) + seconds * 1000;
        records.each(|key, value| {
            // In the order of the inserts, not of the keys: the purge has to find its records all
            // over the tree.
            expires += 1;
            let stored = transaction.set_until("", key, value, Some(expires));
            stored.expect("it can be written");
        });
        transaction.commit(Durability::Strict).expect("it can be written");
        true
    }

    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    fn purge(&self, limit: usize) -> usize {
        self.database.purge_expired(limit).expect("it can be written")
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

impl Reader for SnapshotCollection {
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

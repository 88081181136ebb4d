use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::{Direction, KeyRange, ReadWrite as _};
use mangrove_memory::index::OrderedIndex;
use mangrove_memory::{MemoryCursor, MemoryDatabase, MemoryTree, Record};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

/// Never stores anything on disk, even if a workload asks for durability.
pub(crate) struct Memory<I: OrderedIndex<Record>> {
    database: MemoryDatabase<I>,
    now: Arc<AtomicU64>,
}

pub(crate) fn open<I: OrderedIndex<Record>>(setup: Setup) -> Memory<I> {
    let now = Arc::default();
    Memory {
        database: MemoryDatabase::with_clock(setup.clock(&now)),
        now,
    }
}

impl<I: OrderedIndex<Record> + Send + Sync> Engine for Memory<I> {
    fn insert(&self, records: &Records<'_>, _durable: bool) {
        let mut transaction = self.database.begin();
        records.each(|key, value| {
            transaction.set("", key, value).expect("it can be written");
        });
        transaction.commit();
    }

    fn remove(&self, records: &Records<'_>) {
        let mut transaction = self.database.begin();
        records.each_key(|key| {
            transaction.delete("", key);
        });
        transaction.commit();
    }

    fn has_cache(&self) -> bool {
        false
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut self.database.snapshot().collection("").expect("it has records"));
    }

    fn insert_expiring(&self, records: &Records<'_>, seconds: u64) -> bool {
        let mut transaction = self.database.begin();
        let mut expires = self.now.load(Ordering::Relaxed) + seconds * 1000;
        records.each(|key, value| {
            expires += 1;
            let stored = transaction.set_until("", key, value, Some(expires));
            stored.expect("it can be written");
        });
        transaction.commit();
        true
    }

    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    fn purge(&self, limit: usize) -> usize {
        self.database.purge_expired(limit)
    }
}

fn count<I: OrderedIndex<Record>>(mut cursor: MemoryCursor<'_, I>, limit: usize, value: &mut Vec<u8>) -> usize {
    let mut count = 0;
    while count < limit && cursor.advance() {
        copy(cursor.value(), value);
        count += 1;
    }
    count
}

impl<I: OrderedIndex<Record>> Reader for MemoryTree<I> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        MemoryTree::get(self, key).map(|found| copy(found, value)).is_some()
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

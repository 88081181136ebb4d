use std::ops::Bound;

use mangrove_engine::index::OrderedIndex;
use mangrove_engine::{Direction, KeyRange, MemoryCursor, MemoryDatabase, MemoryTree, Record};

use super::{Engine, Reader, copy};
use crate::records::Records;

/// Nothing of it is ever on the disk, whatever a workload calls durable.
pub(crate) struct Memory<I: OrderedIndex<Record>>(MemoryDatabase<I>);

pub(crate) fn open<I: OrderedIndex<Record>>() -> Memory<I> {
    Memory(MemoryDatabase::new())
}

impl<I: OrderedIndex<Record> + Send + Sync> Engine for Memory<I> {
    fn insert(&self, records: &Records<'_>, _durable: bool) {
        let mut transaction = self.0.begin();
        records.each(|key, value| {
            transaction.set("", key, value).expect("it can be written");
        });
        transaction.commit();
    }

    fn remove(&self, records: &Records<'_>) {
        let mut transaction = self.0.begin();
        records.each_key(|key| {
            transaction.delete("", key);
        });
        transaction.commit();
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        work(&mut self.0.snapshot().collection("").expect("it has records"));
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

use std::path::{Path, PathBuf};
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, SnapshotWithThreadMode, WriteBatch,
    WriteOptions,
};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

/// Opens a database. Its memory tables (two of 64 MiB by default) come on top of the cache. Bloom
/// filters are off by default, but everybody sets them.
pub(crate) fn open(directory: &Path, setup: Setup) -> Rocks {
    Rocks(DB::open(&options(setup), path(directory)).expect("a new database"))
}

/// Opens a database whose records all expire `seconds` after they were inserted.
pub(super) fn open_expiring(directory: &Path, setup: Setup, seconds: u64) -> Rocks {
    let lifetime = Duration::from_secs(seconds);
    let opened = DB::open_with_ttl(&options(setup), path(directory), lifetime);
    Rocks(opened.expect("it is there or can be created"))
}

fn path(directory: &Path) -> PathBuf {
    directory.join("rocksdb")
}

fn options(setup: Setup) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(setup.cache_bytes));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks);
    options
}

/// Uses batches instead of transactions: they are as atomic, but cannot read.
pub(crate) struct Rocks(DB);

impl Rocks {
    fn write(&self, batch: WriteBatch, durable: bool) {
        let mut options = WriteOptions::default();
        options.set_sync(durable);
        self.0.write_opt(batch, &options).expect("it can be written");
    }

    /// Rewrites everything, which drops expired records.
    pub(super) fn compact(&self) {
        self.0.compact_range(None::<&[u8]>, None::<&[u8]>);
    }
}

impl Engine for Rocks {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let mut batch = WriteBatch::default();
        records.each(|key, value| batch.put(key, value));
        self.write(batch, durable);
    }

    fn remove(&self, records: &Records<'_>) {
        let mut batch = WriteBatch::default();
        records.each_key(|key| batch.delete(key));
        self.write(batch, true);
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        let snapshot = self.0.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&snapshot);
        work(&mut RocksReader {
            database: &self.0,
            snapshot: &snapshot,
            options,
        });
    }
}

struct RocksReader<'a> {
    database: &'a DB,
    snapshot: &'a SnapshotWithThreadMode<'a, DB>,
    options: ReadOptions,
}

impl Reader for RocksReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.database.get_pinned_opt(key, &self.options);
        let found = found.expect("it can be read");
        found.map(|found| copy(&found, value)).is_some()
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        let mut cursor = self.snapshot.raw_iterator();
        cursor.seek(key);
        let mut count = 0;
        while count < limit
            && let Some(found) = cursor.value()
        {
            copy(found, value);
            count += 1;
            cursor.next();
        }
        cursor.status().expect("it can be read");
        count
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        let mut cursor = self.snapshot.raw_iterator();
        if reverse {
            cursor.seek_to_last();
        } else {
            cursor.seek_to_first();
        }
        let mut count = 0;
        while let Some(found) = cursor.value() {
            copy(found, value);
            count += 1;
            if reverse {
                cursor.prev();
            } else {
                cursor.next();
            }
        }
        cursor.status().expect("it can be read");
        count
    }
}

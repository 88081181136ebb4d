use std::path::Path;

use canopydb::{Bytes, Database, DbOptions, EnvOptions, SnapshotCollection};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

const TREE: &[u8] = b"records";

/// Opens a database whose log stays on, so that durable commits are possible. Its changed pages (up
/// to 256 MiB by default) come on top of the cache.
pub(crate) fn open(directory: &Path, setup: Setup) -> Canopy {
    let path = directory.join("canopydb");
    std::fs::create_dir_all(&path).expect("a new directory");
    let mut options = EnvOptions::new(&path);
    options.page_cache_size = setup.cache_bytes;
    // As in Mangrove, redb, fjall and RocksDB.
    options.use_checksums = true;
    Canopy(Database::with_options(options, DbOptions::default()).expect("a new database"))
}

pub(crate) struct Canopy(Database);

impl Engine for Canopy {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let transaction = self.0.begin_write().expect("it can be written");
        {
            let mut tree = transaction.get_or_create_tree(TREE).expect("it can be written");
            records.each(|key, value| tree.insert(key, value).expect("it can be written"));
        }
        transaction.commit_with(durable).expect("it can be written");
    }

    fn remove(&self, records: &Records<'_>) {
        let transaction = self.0.begin_write().expect("it can be written");
        {
            let mut tree = transaction.get_or_create_tree(TREE).expect("it can be written");
            records.each_key(|key| {
                tree.delete(key).expect("it can be written");
            });
        }
        transaction.commit_with(true).expect("it can be written");
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        let transaction = self.0.begin_read().expect("it can be read");
        let tree = transaction.get_tree(TREE).expect("it can be read");
        work(&mut CanopyReader(tree.expect("it has records")));
    }
}

struct CanopyReader<'a>(SnapshotCollection<'a>);

fn count(entries: impl Iterator<Item = Result<(Bytes, Bytes), canopydb::Error>>, into: &mut Vec<u8>) -> usize {
    entries
        .map(|entry| copy(&entry.expect("it can be read").1, into))
        .count()
}

impl Reader for CanopyReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.0.get(key).expect("it can be read");
        found.map(|found| copy(&found, value)).is_some()
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

//! One interface over the engines, as small as the workloads need.

use std::path::Path;

mod lmdb;
mod mangrove;
mod redb;

pub(crate) type Record = ([u8; 24], [u8; 150]);

/// Memory that each engine may use as its cache, in bytes.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// Names of the engines, as they are printed.
pub(crate) const NAMES: [&str; 4] = ["mangrove", "mangrove without LZ4", "redb", "lmdb"];

pub(crate) trait Engine: Sync {
    /// Stores records in one transaction.
    fn insert(&self, records: &[Record], durable: bool);
    /// Removes records in one durable transaction.
    fn remove(&self, keys: &[[u8; 24]]);
    /// A view for reading.
    fn reader(&self) -> Box<dyn Reader + '_>;
    /// Bytes written to blocks, where the engine counts them.
    fn bytes_written(&self) -> Option<u64> {
        None
    }
}

pub(crate) trait Reader {
    fn len(&self) -> u64;
    /// Length of the value of a key.
    fn get(&self, key: &[u8; 24]) -> Option<usize>;
    /// Reads up to `limit` records from `key` on; returns how many there were.
    fn range(&self, key: &[u8; 24], limit: usize) -> usize;
    /// Reads everything; returns the number of records.
    fn scan(&self, reverse: bool) -> u64;
}

/// Opens a new database of the engine with this name.
pub(crate) fn open(name: &str, directory: &Path) -> Box<dyn Engine> {
    match name {
        "mangrove" => Box::new(mangrove::open(directory, true)),
        "mangrove without LZ4" => Box::new(mangrove::open(directory, false)),
        "redb" => Box::new(redb::open(directory)),
        "lmdb" => Box::new(lmdb::open(directory)),
        _ => panic!("there is no engine {name}"),
    }
}

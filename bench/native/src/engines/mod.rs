//! One interface over the engines, as small as the workloads need.

use std::path::Path;

use mangrove_engine::Record;
use mangrove_engine::index::{BTree, CritBit};

use crate::measure::Written;
use crate::records::Records;

#[cfg(feature = "canopydb")]
mod canopy;
mod counting;
#[cfg(feature = "fjall")]
mod fjall;
mod lmdb;
mod mangrove;
mod memory;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Memory that each engine may use as its cache, in bytes.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// Names of the engines that are built in, as they are printed; what is not a peer begins with `mangrove`.
pub(crate) const NAMES: &[&str] = &[
    "mangrove",
    "mangrove without LZ4",
    "mangrove in memory",
    "mangrove in memory with CritBit",
    "redb",
    "lmdb",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "sqlite")]
    "sqlite",
    #[cfg(feature = "canopydb")]
    "canopydb",
];

pub(crate) trait Engine: Sync {
    /// Stores records in one transaction. A durable one is on the disk when this returns.
    fn insert(&self, records: &Records<'_>, durable: bool);
    /// Removes records in one durable transaction.
    fn remove(&self, records: &Records<'_>);
    /// Lends a view for reading to one thread.
    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader));
    /// All bytes, writes and flushes so far, where the engine's storage is counted.
    fn written(&self) -> Option<Written> {
        None
    }
    /// Stores records in one transaction that expire after so many seconds each; returns whether the engine can.
    fn insert_expiring(&self, _records: &Records<'_>, _seconds: u64) -> bool {
        false
    }
}

/// What is read is copied into `value`, as a caller would who keeps it.
pub(crate) trait Reader {
    /// Reads the value of a key; returns whether it is there.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool;
    /// Reads up to `limit` records from `key` on; returns how many there were.
    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize;
    /// Reads everything; returns the number of records.
    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize;
}

/// Opens a new database of the engine with this name.
pub(crate) fn open(name: &str, directory: &Path) -> Box<dyn Engine> {
    match name {
        "mangrove" => Box::new(mangrove::open(directory, true)),
        "mangrove without LZ4" => Box::new(mangrove::open(directory, false)),
        "mangrove in memory" => Box::new(memory::open::<BTree<Record>>()),
        "mangrove in memory with CritBit" => Box::new(memory::open::<CritBit<Record>>()),
        "redb" => Box::new(redb::open(directory)),
        "lmdb" => Box::new(lmdb::open(directory)),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(fjall::open(directory)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::open(directory)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::new(sqlite::open(directory)),
        #[cfg(feature = "canopydb")]
        "canopydb" => Box::new(canopy::open(directory)),
        _ => panic!("there is no engine {name}"),
    }
}

fn copy(from: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.extend_from_slice(from);
}

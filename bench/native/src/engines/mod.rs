//! One interface over the engines, as small as the workloads need.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::Clock;
use mangrove_memory::CritBit;
use mangrove_memory::Record;
use mangrove_memory::index::BTree;

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
#[cfg(feature = "rocksdb")]
mod rocksdb_expiring;
#[cfg(feature = "sqlite")]
mod sqlite;

/// How to open an engine.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    /// Memory that it may use as its cache.
    pub cache_bytes: usize,
    /// The workload has records that expire, for which some engines have to be opened in another way.
    pub expiring: bool,
}

impl Setup {
    /// Where records expire, a clock that stands still at so many milliseconds until it is moved.
    fn clock(self, now: &Arc<AtomicU64>) -> Clock {
        if !self.expiring {
            return Clock::default();
        }
        let now = Arc::clone(now);
        Clock::new(move || now.load(Ordering::Relaxed))
    }
}

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
    /// Whether it has a cache of its own, to which its memory can be compared.
    fn has_cache(&self) -> bool {
        true
    }
    /// Stores one record so that it survives the death of the process but not a power cut. For most that is what an undurable commit does.
    fn set_logged(&self, record: &Records<'_>) {
        self.insert(record, false);
    }
    /// Stores records in one transaction that expire in turn from so many seconds on; returns whether the engine can.
    fn insert_expiring(&self, _records: &Records<'_>, _seconds: u64) -> bool {
        false
    }
    /// Lets so many seconds pass for the records that expire.
    fn pass(&self, _seconds: u64) {}
    /// Gives back the space of up to `limit` expired records; returns how many there were, less than `limit` if there are no more.
    fn purge(&self, _limit: usize) -> usize {
        0
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
pub(crate) fn open(name: &str, directory: &Path, setup: Setup) -> Box<dyn Engine> {
    match name {
        "mangrove" => Box::new(mangrove::open(directory, setup, true)),
        "mangrove without LZ4" => Box::new(mangrove::open(directory, setup, false)),
        "mangrove in memory" => Box::new(memory::open::<BTree<Record>>(setup)),
        "mangrove in memory with CritBit" => Box::new(memory::open::<CritBit<Record>>(setup)),
        "redb" => Box::new(redb::open(directory, setup)),
        "lmdb" => Box::new(lmdb::open(directory)),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(fjall::open(directory, setup)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" if setup.expiring => Box::new(rocksdb_expiring::open(directory, setup)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::open(directory, setup)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::new(sqlite::open(directory, setup)),
        #[cfg(feature = "canopydb")]
        "canopydb" => Box::new(canopy::open(directory, setup)),
        _ => panic!("there is no engine {name}"),
    }
}

fn copy(from: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.extend_from_slice(from);
}

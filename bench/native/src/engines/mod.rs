//! One interface over the engines, as small as the workloads need.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::{Clock, Compression, Key};
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
    /// Memory that the engine may use as its cache.
    pub cache_bytes: usize,
    /// Whether records expire, for which some engines have to be opened differently.
    pub expiring: bool,
}

impl Setup {
    /// Returns a clock. Where records expire, it stands still at `now` milliseconds until it is
    /// moved.
    fn clock(self, now: &Arc<AtomicU64>) -> Clock {
        if !self.expiring {
            return Clock::default();
        }
        let now = Arc::clone(now);
        Clock::new(move || now.load(Ordering::Relaxed))
    }
}

/// Names of the built-in engines as printed; those that are not peers begin with `mangrove`.
pub(crate) const NAMES: &[&str] = &[
    "mangrove",
    "mangrove without LZ4",
    "mangrove encrypted",
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
    /// Stores records in one transaction, which is on disk on return if it is durable.
    fn insert(&self, records: &Records<'_>, durable: bool);
    /// Removes records in one durable transaction.
    fn remove(&self, records: &Records<'_>);
    /// Lends one thread a view for reading.
    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader));
    /// Returns all bytes, writes and flushes so far, if the engine's storage counts them.
    fn written(&self) -> Option<Written> {
        None
    }
    /// Whether the engine has a cache of its own, to which its memory can be compared.
    fn has_cache(&self) -> bool {
        true
    }
    /// Stores one record so that it survives process death but not a power cut. For most engines an
    /// undurable commit does that.
    fn set_logged(&self, record: &Records<'_>) {
        self.insert(record, false);
    }
    /// Stores records in one transaction; returns whether the engine can. The records expire one
    /// after another, beginning `seconds` from now.
    fn insert_expiring(&self, _records: &Records<'_>, _seconds: u64) -> bool {
        false
    }
    /// Lets `seconds` pass for the records that expire.
    fn pass(&self, _seconds: u64) {}
    /// Frees the space of up to `limit` expired records; returns their number. A number below
    /// `limit` means that there are no more.
    fn purge(&self, _limit: usize) -> usize {
        0
    }
}

/// A view that copies what it reads into `value`, as for a caller that keeps the data.
pub(crate) trait Reader {
    /// Reads the value of a key; returns whether it exists.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool;
    /// Reads up to `limit` records from `key` on; returns their number.
    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize;
    /// Reads everything; returns the number of records.
    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize;
}

/// Opens a new database of the engine with this name.
pub(crate) fn open(name: &str, directory: &Path, setup: Setup) -> Box<dyn Engine> {
    match name {
        "mangrove" => Box::new(mangrove::open(directory, setup, Compression::Lz4, None)),
        "mangrove without LZ4" => Box::new(mangrove::open(directory, setup, Compression::None, None)),
        "mangrove encrypted" => {
            let key = Key::new([7; 32]);
            Box::new(mangrove::open(directory, setup, Compression::Lz4, Some(key)))
        }
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

//! How a database is opened.

use crate::block::Compression;
use crate::clock::Clock;

/// How to open a database. `unit_bytes`, `node_bytes`, `compression`, `database_id` and `log_bytes` count at creation only.
#[derive(Clone, Debug)]
pub struct Options {
    /// Create the database if it is not there. Default `true`.
    pub create: bool,
    /// Fail if it is there already. Default `false`.
    pub exclusive: bool,
    /// Refuse all writes. Default `false`.
    pub read_only: bool,
    /// Bound of cached nodes and memtables, in bytes. Default 32 MiB, at least 64 KiB.
    pub cache_bytes: usize,
    /// Allocation unit: a power of two from 512 to 65,536 bytes. Default 4,096.
    pub unit_bytes: u32,
    /// Node size with its block header: 256 to 65,536 bytes. Default 16,384. Keys are limited to a quarter of it.
    pub node_bytes: u32,
    /// Block compression. Default LZ4.
    pub compression: Compression,
    /// Identity of the database; `None`: a random one. Hosts without an entropy source in the standard library (WebAssembly) give one.
    pub database_id: Option<u128>,
    /// Length of the log file at most: two halves of 4 KiB to 512 MiB, or 0 for no log, which makes every durable commit a checkpoint. `None`, the
    /// default: half of the cache, so that memtables are merged when they have their share of it and not before, but at least 32 MiB.
    pub log_bytes: Option<u32>,
    /// Bytes that the data file is kept longer than its content, so that records can be removed, and checkpoints made, where the storage has
    /// no room left. With it a commit that stores something fails, before it is in the log, where a checkpoint of it would not find room.
    /// At least 32 nodes. It is the length that is reserved: on a storage that takes room only for what is written (sparse files) it is worth nothing.
    /// 0: none. Default 0.
    pub reserve_bytes: u32,
    /// Random number that tells this opening from others; `None`: from the system. Hosts without an entropy source give one.
    pub session: Option<u64>,
    /// Keep a feed of the last N commits in the database; permanent once enabled. 0, the default, leaves the setting as it is.
    /// Each commit's changes are then stored a second time.
    pub feed_commits: u64,
    /// Decides which records have expired. Default: the system's.
    pub clock: Clock,
}

/// Default length of the log.
const LOG_BYTES: usize = 32 << 20;
pub(super) const MAX_LOG_BYTES: u32 = 1 << 30;

impl Options {
    /// Length of both halves of the log of a database that is created.
    pub(super) fn log_bytes(&self) -> u32 {
        self.log_bytes.unwrap_or_else(|| {
            let bytes = (self.cache_bytes / 2).max(LOG_BYTES);
            u32::try_from(bytes).map_or(MAX_LOG_BYTES, |bytes| bytes.min(MAX_LOG_BYTES))
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            exclusive: false,
            read_only: false,
            cache_bytes: 32 << 20,
            unit_bytes: 4096,
            node_bytes: 16384,
            compression: Compression::Lz4,
            database_id: None,
            log_bytes: None,
            reserve_bytes: 0,
            session: None,
            feed_commits: 0,
            clock: Clock::default(),
        }
    }
}

//! Options for opening a database.

use crate::block::Compression;
use crate::cipher::Key;
use crate::clock::Clock;

/// Options for opening a database. `compression` and most of `advanced` take effect only at creation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Create the database if it does not exist. Default `true`.
    pub create: bool,
    /// Fail if it already exists. Default `false`.
    pub exclusive: bool,
    /// Refuse all writes. Default `false`.
    pub read_only: bool,
    /// Memory limit for cached nodes and memtables, in bytes. Default 32 MiB, at least 64 KiB.
    pub cache_bytes: usize,
    /// Block compression. Default LZ4.
    pub compression: Compression,
    /// Keep a feed of the last N commits in the database; permanent once enabled. 0, the default,
    /// leaves the setting as it is. A feed stores each commit's changes a second time, except those
    /// of collections whose names begin with `mangrove:private/`, which no follower sees.
    pub feed_commits: u64,
    /// Decides which records have expired. Default: the system clock.
    pub clock: Clock,
    /// Key of an encrypted database. `None`, the default: it is not encrypted. Whether a database is
    /// encrypted is decided at its creation. Needs the feature `encryption`.
    pub key: Option<Key>,
    /// Options of the storage engine. The defaults suit almost every program.
    pub advanced: AdvancedOptions,
}

/// Options of the storage engine, for unusual storage and for hosts without an entropy source.
/// `unit_bytes`, `node_bytes`, `database_id` and `log_bytes` take effect only at creation.
///
/// ```
/// # use mangrove_engine::{AdvancedOptions, Options};
/// let options = Options {
///     advanced: AdvancedOptions {
///         reserve_bytes: 1 << 20,
///         ..AdvancedOptions::default()
///     },
///     ..Options::default()
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AdvancedOptions {
    /// Allocation unit: a power of two from 512 to 65,536 bytes. Default 4,096.
    pub unit_bytes: u32,
    /// Node size including its block header: 256 to 65,536 bytes. Default 16,384. Keys are limited
    /// to a quarter of it.
    pub node_bytes: u32,
    /// Maximum length of the log file: two halves of 4 KiB to 512 MiB, or 0 for no log, which makes
    /// every durable commit a checkpoint. `None`, the default, selects half of the cache, but at
    /// least 32 MiB, so that the log does not force a merge before the memtables have used up their
    /// share of the cache.
    pub log_bytes: Option<u32>,
    /// Bytes by which the data file stays longer than its content. Default 0: no reserve.
    /// Otherwise at least 32 nodes.
    ///
    /// The reserve allows removing records and making checkpoints when the storage is full. With a
    /// reserve, a commit that stores something fails before it is in the log if a checkpoint of it
    /// would run out of space. The reserve is file length: it is worth nothing on storage that
    /// allocates blocks only for what is written (sparse files).
    pub reserve_bytes: u32,
    /// Identity of the database; `None`: a random one. Hosts without an entropy source in the
    /// standard library (WebAssembly) must supply one.
    pub database_id: Option<u128>,
    /// Random number that distinguishes this open from others; `None`: from the system. Hosts
    /// without an entropy source must supply one.
    pub session: Option<u64>,
}

/// Default length of the log.
const LOG_BYTES: usize = 32 << 20;
pub(super) const MAX_LOG_BYTES: u32 = 1 << 30;

impl Options {
    /// Length of both halves of the log of a new database.
    pub(super) fn log_bytes(&self) -> u32 {
        self.advanced.log_bytes.unwrap_or_else(|| {
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
            compression: Compression::Lz4,
            feed_commits: 0,
            clock: Clock::default(),
            key: None,
            advanced: AdvancedOptions::default(),
        }
    }
}

impl Default for AdvancedOptions {
    fn default() -> Self {
        Self {
            unit_bytes: 4096,
            node_bytes: 16384,
            log_bytes: None,
            reserve_bytes: 0,
            database_id: None,
            session: None,
        }
    }
}

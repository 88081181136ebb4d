//! Statistics of an open database.

use std::sync::atomic::Ordering;

use crate::log::Log;
use crate::state::Shared;
use crate::state::expiry::HIDDEN;
use crate::tree::Pages;

/// Statistics of an open database. Counters start at 0 when it is opened; sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Commit sequence number of the newest commit.
    pub version: u64,
    /// Commit sequence number of the newest durable commit.
    pub durable_version: u64,
    /// Number of collections.
    pub collections: u64,
    /// Records in all collections, including expired ones not yet purged.
    pub entries: u64,
    /// Length of the data file.
    pub file_bytes: u64,
    /// Bytes of the file that can be reused immediately.
    pub free_bytes: u64,
    /// Bytes of the file that only the older superblock or a snapshot still reaches.
    pub kept_bytes: u64,
    /// Allocation unit.
    pub unit_bytes: u64,
    /// Levels of the deepest collection, leaves included; 0 if all are empty.
    pub depth: u8,
    /// Pages found in memory.
    pub cache_hits: u64,
    /// Pages read from storage.
    pub cache_misses: u64,
    /// Bytes of pages in memory.
    pub cache_bytes: u64,
    /// Memory of changes not yet merged into the trees.
    pub dirty_bytes: u64,
    /// Open snapshots.
    pub snapshots: u64,
    /// Version of the oldest open snapshot.
    pub oldest_snapshot: Option<u64>,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Length of the log file.
    pub log_file_bytes: u64,
    /// Bytes of records appended to the log.
    pub log_bytes_written: u64,
    /// Records appended to the log.
    pub log_records: u64,
    /// Log flushes, each for one or more commits.
    pub log_flushes: u64,
    /// Whether the newest checkpoint was damaged on open and the previous one plus the log gave the
    /// same state. The next checkpoint repairs it.
    pub recovered_from_older: bool,
    /// Bytes of blocks read from storage.
    pub bytes_read: u64,
    /// Bytes of blocks written to storage.
    pub bytes_written: u64,
}

pub(super) fn collect(shared: &Shared) -> Stats {
    let writer = shared.lock_writer();
    let published = shared.published();
    let current = std::sync::Arc::clone(&published.current);
    let snapshots = published.snapshots() as u64;
    let oldest_snapshot = published.oldest().map(|age| age.version);
    drop(published);
    let pager = &shared.pager;
    let unit_bytes = pager.blocks.unit_bytes() as u64;
    let depth = |id: u32, root| pager.root(root, id).map_or(0, |node| node.level() + 1);
    let depths = current
        .collections
        .values()
        .filter_map(|collection| collection.root.as_ref().map(|root| depth(collection.id, root)));
    let visible = || current.collections.iter().filter(|(name, _)| !name.starts_with(HIDDEN));
    Stats {
        version: current.version,
        durable_version: shared.flush.durable_version(),
        collections: visible().count() as u64,
        entries: visible().map(|(_, collection)| collection.count(&shared.pager)).sum(),
        file_bytes: writer.space.free.end() * unit_bytes,
        free_bytes: writer.space.free.free_units() * unit_bytes,
        kept_bytes: writer.space.unreleased().map(|extent| extent.units).sum::<u64>() * unit_bytes,
        unit_bytes,
        depth: depths.max().unwrap_or(0),
        cache_hits: pager.hits.sum(),
        cache_misses: pager.misses.load(Ordering::Relaxed),
        cache_bytes: pager.clean_bytes() as u64,
        dirty_bytes: current.memory_bytes() as u64,
        snapshots,
        oldest_snapshot,
        checkpoints: writer.checkpoints,
        log_file_bytes: writer.log.as_ref().map_or(0, Log::file_bytes),
        log_bytes_written: writer.log.as_ref().map_or(0, |log| log.bytes_written),
        log_records: writer.log.as_ref().map_or(0, |log| log.records),
        log_flushes: shared.flush.flushes(),
        recovered_from_older: writer.log.as_ref().is_some_and(|log| log.checkpoint_first),
        bytes_read: pager.blocks.bytes_read.load(Ordering::Relaxed),
        bytes_written: pager.blocks.bytes_written.load(Ordering::Relaxed),
    }
}

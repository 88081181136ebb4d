//! `stat`: prints statistics under the names that the JavaScript package gives them.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{CollectionInfo, Database};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::print;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

pub(super) fn collection(info: &CollectionInfo) -> Value {
    json!({
        "name": info.name,
        "count": info.count,
        "keyCodec": info.key_codec,
        "valueCodec": info.value_codec,
    })
}

fn figures(database: &Database) -> Value {
    let stats = database.stats();
    let collections = database.collections();
    let collections = collections.iter().map(collection);
    json!({
        "version": stats.version,
        "durableVersion": stats.durable_version,
        "collections": collections.collect::<Vec<Value>>(),
        "entries": stats.entries,
        "fileSize": stats.file_bytes,
        "freeSize": stats.free_bytes,
        "keptSize": stats.kept_bytes,
        "unitSize": stats.unit_bytes,
        "depth": stats.depth,
        "maxKeySize": database.max_key_bytes(),
        "cacheHits": stats.cache_hits,
        "cacheMisses": stats.cache_misses,
        "cacheSize": stats.cache_bytes,
        "dirtySize": stats.dirty_bytes,
        "openSnapshots": stats.snapshots,
        "oldestSnapshot": stats.oldest_snapshot,
        "checkpoints": stats.checkpoints,
        "logFileSize": stats.log_file_bytes,
        "logBytesWritten": stats.log_bytes_written,
        "logRecords": stats.log_records,
        "logFlushes": stats.log_flushes,
        "recoveredFromOlder": stats.recovered_from_older,
        "bytesRead": stats.bytes_read,
        "bytesWritten": stats.bytes_written,
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let figures = store::read(&arguments.path, |database| Ok(figures(database)))?;
    print(&figures.to_string())
}

//! `stat`: prints statistics under the names that the JavaScript package gives them.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{CollectionInfo, Database, Index, Snapshot};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::print;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

/// Collections of a state, with their indexes.
pub(super) fn collections(snapshot: &Snapshot) -> Result<Vec<Value>> {
    let collections = snapshot.collections();
    collections.iter().map(|info| collection(snapshot, info)).collect()
}

fn collection(snapshot: &Snapshot, info: &CollectionInfo) -> Result<Value> {
    let mut value = json!({
        "name": info.name,
        "count": info.count,
        "keyCodec": info.key_codec,
        "valueCodec": info.value_codec,
    });
    let indexes = snapshot.indexes(&info.name);
    if !indexes.is_empty() {
        let indexes: Result<Vec<Value>> = indexes.iter().map(|one| index(snapshot, &info.name, one)).collect();
        value["indexes"] = indexes?.into();
    }
    Ok(value)
}

/// The number of entries of an index is known when it is complete.
fn index(snapshot: &Snapshot, collection: &str, index: &Index) -> Result<Value> {
    let name = &index.definition.name;
    let mut value = json!({
        "name": name,
        "version": index.definition.version,
        "unique": index.definition.unique,
        "complete": index.is_complete(),
    });
    if index.is_complete() {
        value["count"] = snapshot.index(collection, name)?.len().into();
    }
    Ok(value)
}

fn figures(database: &Database) -> Result<Value> {
    let stats = database.stats();
    let collections = collections(&database.snapshot())?;
    Ok(json!({
        "version": stats.version,
        "durableVersion": stats.durable_version,
        "collections": collections,
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
    }))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let figures = store::read(&arguments.path, figures)?;
    print(&figures.to_string())
}

//! `stat`: figures, under the names that the JavaScript package gives them.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::print;
use crate::store::{Access, Store};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = Store::open(&arguments.path, Access::Read)?;
    let stats = store.database.stats();
    let collections = store.database.collections().into_iter().map(|info| {
        json!({
            "name": info.name,
            "count": info.count,
            "keyCodec": info.key_codec,
            "valueCodec": info.value_codec,
        })
    });
    let figures = json!({
        "version": stats.version,
        "durableVersion": stats.durable_version,
        "collections": collections.collect::<Vec<Value>>(),
        "entries": stats.entries,
        "fileSize": stats.file_bytes,
        "freeSize": stats.free_bytes,
        "keptSize": stats.kept_bytes,
        "unitSize": stats.unit_bytes,
        "depth": stats.depth,
        "maxKeySize": store.database.max_key_bytes(),
        "cacheHits": stats.cache_hits,
        "cacheMisses": stats.cache_misses,
        "cacheSize": stats.cache_bytes,
        "dirtySize": stats.dirty_bytes,
        "openSnapshots": stats.snapshots,
        "checkpoints": stats.checkpoints,
        "bytesRead": stats.bytes_read,
        "bytesWritten": stats.bytes_written,
    });
    print(&figures.to_string())
}

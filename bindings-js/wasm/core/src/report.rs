//! Reports on a database: collections in binary, statistics and findings as JSON in the names of
//! the TypeScript API.

use mangrove_engine::{CollectionInfo, Database, IndexInfo, Result, VerifyReport};
use mangrove_host::json::{Object, array, problem};

use crate::protocol::Writer;

/// Writes names, record counts and codecs.
pub(crate) fn collections(collections: &[CollectionInfo], out: &mut Writer) {
    out.uv(collections.len() as u64);
    for collection in collections {
        out.bytes(collection.name.as_bytes());
        out.uv(collection.count);
        out.bytes(collection.key_codec.as_bytes());
        out.bytes(collection.value_codec.as_bytes());
    }
}

/// Returns the `Stats` of the TypeScript API.
pub(crate) fn stats(database: &Database) -> Result<String> {
    let stats = database.stats();
    let mut object = Object::default();
    for (name, value) in [
        ("version", stats.version),
        ("durableVersion", stats.durable_version),
        ("collections", stats.collections),
        ("entries", stats.entries),
        ("fileSize", stats.file_bytes),
        ("freeSize", stats.free_bytes),
        ("keptSize", stats.kept_bytes),
        ("unitSize", stats.unit_bytes),
        ("depth", u64::from(stats.depth)),
        ("maxKeySize", database.max_key_bytes() as u64),
        ("maxExpiringKeySize", database.max_expiring_key_bytes() as u64),
        ("cacheHits", stats.cache_hits),
        ("cacheMisses", stats.cache_misses),
        ("cacheSize", stats.cache_bytes),
        ("dirtySize", stats.dirty_bytes),
        ("openSnapshots", stats.snapshots),
        ("checkpoints", stats.checkpoints),
        ("logSize", stats.log_file_bytes),
        ("logBytesWritten", stats.log_bytes_written),
        ("logRecords", stats.log_records),
        ("logFlushes", stats.log_flushes),
        ("bytesRead", stats.bytes_read),
        ("bytesWritten", stats.bytes_written),
    ] {
        object = object.number(name, value);
    }
    #[cfg(target_arch = "wasm32")]
    {
        object = object.number("memorySize", (core::arch::wasm32::memory_size::<0>() as u64) << 16);
    }
    object = object.flag("recoveredFromOlder", stats.recovered_from_older);
    if let Some(version) = stats.oldest_snapshot {
        object = object.number("oldestSnapshot", version);
    }
    let indexes = database.snapshot().index_infos()?;
    Ok(object.raw("indexes", &array(indexes.iter().map(index))).end())
}

/// Returns the `IndexStats` of the TypeScript API.
fn index(info: &IndexInfo) -> String {
    let definition = &info.index.definition;
    Object::default()
        .text("collection", &info.collection)
        .text("name", &definition.name)
        .number("version", u64::from(definition.version))
        .flag("unique", definition.unique)
        .flag("complete", info.index.is_complete())
        .number("count", info.count)
        .number("done", info.covered)
        .number("total", info.records)
        .end()
}

/// Returns the `VerifyReport` of the TypeScript API.
pub(crate) fn verify(report: &VerifyReport) -> String {
    Object::default()
        .flag("ok", report.is_ok())
        .number("pagesChecked", report.blocks)
        .number("entries", report.entries)
        .raw("problems", &array(report.problems.iter().map(problem)))
        .end()
}

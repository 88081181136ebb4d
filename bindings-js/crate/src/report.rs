//! What is told about a database: collections in binary, figures and findings as JSON in the names of the
//! TypeScript API.

use mangrove_engine::{CollectionInfo, Error, Stats, VerifyReport};

use crate::protocol::Writer;

/// Names, sizes and codecs.
pub(crate) fn collections(collections: &[CollectionInfo], out: &mut Writer) {
    out.uv(collections.len() as u64);
    for collection in collections {
        out.bytes(collection.name.as_bytes());
        out.uv(collection.count);
        out.bytes(collection.key_codec.as_bytes());
        out.bytes(collection.value_codec.as_bytes());
    }
}

/// Writes one JSON object.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    fn raw(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push_str(value);
        self
    }

    fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(character);
                }
                ' '.. => self.0.push(character),
                // A line break or the like is of no use in a message.
                _ => self.0.push(' '),
            }
        }
        self.0.push('"');
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// `Stats` of the TypeScript API.
pub(crate) fn stats(stats: &Stats) -> String {
    let mut object = Object::new();
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
    object = object.raw(
        "recoveredFromOlder",
        if stats.recovered_from_older { "true" } else { "false" },
    );
    if let Some(version) = stats.oldest_snapshot {
        object = object.number("oldestSnapshot", version);
    }
    object.end()
}

/// `VerifyReport` of the TypeScript API.
pub(crate) fn verify(report: &VerifyReport) -> String {
    let mut problems = "[".to_owned();
    for error in &report.problems {
        if problems.len() > 1 {
            problems.push(',');
        }
        problems.push_str(&problem(error));
    }
    problems.push(']');
    Object::new()
        .raw("ok", if report.is_ok() { "true" } else { "false" })
        .number("pagesChecked", report.blocks)
        .number("entries", report.entries)
        .raw("problems", &problems)
        .end()
}

fn problem(error: &Error) -> String {
    let mut object = Object::new()
        .text("code", error.code())
        .text("message", &error.to_string());
    if let Error::Corrupt(corruption) = error {
        if let Some(unit) = corruption.unit {
            object = object.number("page", unit);
        }
        if let Some(collection) = &corruption.collection {
            object = object.text("collection", collection);
        }
    }
    object.end()
}

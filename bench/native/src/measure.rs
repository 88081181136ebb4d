//! Measurements of an engine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::engines::Engine;

/// One figure of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: Unit,
    /// Average writes of an operation.
    pub written: Option<Written>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Higher is better.
    PerSecond,
    /// Lower is better, as for the units below.
    Mebibytes,
    Milliseconds,
    /// A multiple of another figure.
    Times,
}

/// Amounts written. The flushes of peers are unknown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub bytes: f64,
    pub writes: f64,
    pub flushes: Option<f64>,
}

/// Collects the figures of one run of an engine.
pub(crate) struct Meter<'a> {
    engine: &'a dyn Engine,
    figures: Vec<Figure>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(engine: &'a dyn Engine) -> Self {
        Self {
            engine,
            figures: Vec::new(),
        }
    }

    pub(crate) fn figures(self) -> Vec<Figure> {
        self.figures
    }

    /// Times a given number of operations.
    pub(crate) fn time(&mut self, name: &str, operations: usize, work: impl FnOnce()) {
        self.time_counted(name, || {
            work();
            operations
        });
    }

    /// Times work that returns its number of operations.
    pub(crate) fn time_counted(&mut self, name: &str, work: impl FnOnce() -> usize) {
        let before = self.written();
        let start = Instant::now();
        let operations = work() as f64;
        let seconds = start.elapsed().as_secs_f64();
        let written = before.zip(self.written()).map(|(before, after)| Written {
            bytes: (after.bytes - before.bytes) / operations,
            writes: (after.writes - before.writes) / operations,
            flushes: after
                .flushes
                .zip(before.flushes)
                .map(|(after, before)| (after - before) / operations),
        });
        self.figures.push(Figure {
            name: name.to_owned(),
            value: operations / seconds,
            unit: Unit::PerSecond,
            written,
        });
    }

    pub(crate) fn size(&mut self, name: &str, bytes: u64) {
        self.value(name, mebibytes(bytes), Unit::Mebibytes);
    }

    /// Records a size, and its ratio to the keys and values themselves.
    pub(crate) fn size_of_raw(&mut self, name: &str, bytes: u64, raw: u64) {
        self.size(name, bytes);
        self.value(&format!("{name} / raw"), bytes as f64 / raw as f64, Unit::Times);
    }

    /// Records memory above a baseline; negative if the cache was not filled.
    pub(crate) fn memory_above(&mut self, name: &str, peak: u64, without: u64) {
        self.value(name, mebibytes(peak) - mebibytes(without), Unit::Mebibytes);
    }

    pub(crate) fn pause(&mut self, name: &str, pause: Duration) {
        self.value(name, pause.as_secs_f64() * 1e3, Unit::Milliseconds);
    }

    fn value(&mut self, name: &str, value: f64, unit: Unit) {
        self.figures.push(Figure {
            name: name.to_owned(),
            value,
            unit,
            written: None,
        });
    }

    fn written(&self) -> Option<Written> {
        self.engine.written().or_else(written_by_process)
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns what the system counts: every write call of all threads. It does not count writes
/// through file mappings, but no engine here writes much that way.
fn written_by_process() -> Option<Written> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    let counter = |name: &str| {
        let line = counters.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<f64>().ok())
    };
    Some(Written {
        bytes: counter("wchar:")?,
        writes: counter("syscw:")?,
        flushes: None,
    })
}

/// Returns the bytes that the files take on disk.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => allocated(&metadata),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

/// Returns the peak resident set of this process, or 0 where the system does not report it.
pub(crate) fn peak_memory() -> u64 {
    status("VmHWM:")
}

/// Returns the resident set of this process.
pub(crate) fn memory() -> u64 {
    status("VmRSS:")
}

fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

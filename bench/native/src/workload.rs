//! The workloads of redb's published benchmark, scaled: what one engine does in one process.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::engines::{Engine, Record, open};

/// One figure of one engine. Higher is better if `per_second`, else lower.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Unit {
    PerSecond,
    Mebibytes,
    Bytes,
}

/// Times a workload of so many operations.
type Timed<'a> = dyn FnMut(&str, usize, &mut dyn FnMut()) + 'a;

fn random_record(rng: &mut fastrand::Rng) -> Record {
    let (mut key, mut value) = ([0; 24], [0; 150]);
    rng.fill(&mut key);
    rng.fill(&mut value);
    (key, value)
}

fn random_records(rng: &mut fastrand::Rng, count: usize) -> Vec<Record> {
    (0..count).map(|_| random_record(rng)).collect()
}

/// Runs all workloads on a new database of an engine.
pub(crate) fn run(name: &str, records: usize, seed: u64) -> Vec<Figure> {
    let directory = tempfile::tempdir_in(scratch()).expect("the build directory can be written");
    let engine = open(name, directory.path());
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut figures = Vec::new();
    let mut timed = |name: &str, operations: usize, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        figures.push(Figure {
            name: name.to_owned(),
            value: operations as f64 / start.elapsed().as_secs_f64(),
            unit: Unit::PerSecond,
        });
    };

    let bulk = random_records(&mut rng, records);
    timed("random inserts, one transaction", records, &mut || {
        engine.insert(&bulk, true);
    });
    let loaded = size(directory.path());
    let written = engine.bytes_written();
    let singles = random_records(&mut rng, 1000);
    timed("durable commits of 1", singles.len(), &mut || {
        for record in &singles {
            engine.insert(std::slice::from_ref(record), true);
        }
    });
    let per_single = engine
        .bytes_written()
        .zip(written)
        .map(|(now, then)| (now - then) / singles.len() as u64);
    let batches = random_records(&mut rng, 100 * 1000);
    timed("durable commits of 1000, records", batches.len(), &mut || {
        for batch in batches.chunks(1000) {
            engine.insert(batch, true);
        }
    });
    let unsynced = random_records(&mut rng, 20_000);
    timed("unsynced commits of 1", unsynced.len(), &mut || {
        for record in &unsynced {
            engine.insert(std::slice::from_ref(record), false);
        }
    });
    read(&*engine, &bulk, &mut rng, &mut timed);
    let removed: Vec<[u8; 24]> = bulk.iter().take(records / 2).map(|(key, _)| *key).collect();
    timed("removals, one transaction", removed.len(), &mut || {
        engine.remove(&removed);
    });
    let mut other = |name: &str, value: f64, unit| {
        figures.push(Figure {
            name: name.to_owned(),
            value,
            unit,
        });
    };
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    other("size after the inserts", mebibytes(loaded), Unit::Mebibytes);
    other("size at the end", mebibytes(size(directory.path())), Unit::Mebibytes);
    other("peak memory", mebibytes(peak_memory()), Unit::Mebibytes);
    if let Some(bytes) = per_single {
        other("bytes written per durable commit of 1", bytes as f64, Unit::Bytes);
    }
    figures
}

fn read(engine: &dyn Engine, bulk: &[Record], rng: &mut fastrand::Rng, timed: &mut Timed<'_>) {
    let reader = engine.reader();
    assert!(reader.len() >= bulk.len() as u64);
    let wanted: Vec<[u8; 24]> = (0..bulk.len()).map(|_| bulk[rng.usize(..bulk.len())].0).collect();
    timed("random gets", wanted.len(), &mut || {
        for key in &wanted {
            assert_eq!(reader.get(key), Some(150));
        }
    });
    timed("random gets, 2 threads", wanted.len(), &mut || {
        std::thread::scope(|scope| {
            for half in wanted.chunks(wanted.len().div_ceil(2)) {
                scope.spawn(move || {
                    let reader = engine.reader();
                    for key in half {
                        assert_eq!(reader.get(key), Some(150));
                    }
                });
            }
        });
    });
    let starts: Vec<[u8; 24]> = (0..bulk.len() / 10).map(|_| random_record(rng).0).collect();
    timed("ranges of 10", starts.len(), &mut || {
        for key in &starts {
            assert!(reader.range(key, 10) <= 10);
        }
    });
    let total = reader.len() as usize;
    timed("scan forwards, records", total, &mut || {
        assert_eq!(reader.scan(false), total as u64);
    });
    timed("scan backwards, records", total, &mut || {
        assert_eq!(reader.scan(true), total as u64);
    });
}

/// A directory on a real disk, which the system's temporary one need not be.
fn scratch() -> &'static Path {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench"));
    fs::create_dir_all(path).expect("the build directory can be written");
    path
}

/// Bytes that the files take on the disk.
fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name() != "lmdb-unsynced")
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
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

/// Largest resident set of this process so far; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

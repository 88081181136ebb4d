//! The work of one engine in one process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engines::{Engine, Reader, Setup, open};
use crate::measure::{Figure, Meter, disk_bytes, memory, peak_memory};
use crate::records::{Records, Set, Shape};

mod beyond_cache;
mod expiring;
mod general;
mod many;
mod pauses;

/// Memory that each engine may use as its cache, unless the workload says otherwise.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// Records per commit of a bulk insert, so that no engine has to hold the largest sets at once.
const BULK_RECORDS: usize = 1_000_000;

/// A workload and its number of records.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub kind: Kind,
    pub records: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The workloads of redb's published benchmark and overwrites.
    General,
    /// Keys in ascending order.
    Ascending,
    /// Values of 1 MiB.
    Large,
    /// 64-bit numbers to 64-bit numbers.
    Ints,
    /// Strings to strings.
    Strings,
    /// 16-byte identifiers to 100 bytes.
    Guids,
    /// 32-bit numbers to 16-byte identifiers.
    Int32Guids,
    /// Strings to text that compresses.
    Json,
    /// Records that expire; only for engines that can.
    Expiring,
    /// Random overwrites in data of eight times the cache.
    BeyondCache,
    /// Random writes to far more records than any cache holds.
    Many,
    /// How long single sets take at worst.
    Pauses,
}

impl Workload {
    pub(crate) fn title(self) -> String {
        let records = crate::report::thousands(self.records as f64);
        let what = match self.kind {
            Kind::General => "24-byte random keys, 150-byte values",
            Kind::Ascending => "24-byte ascending keys, 150-byte values",
            Kind::Large => "24-byte random keys, 1 MiB values",
            Kind::Ints => "ascending 64-bit numbers to 64-bit numbers",
            Kind::Strings => "`abcdefghijklmno<number>` to the same",
            Kind::Guids => "random 16-byte identifiers to 100 bytes",
            Kind::Int32Guids => "ascending 32-bit numbers to 16-byte identifiers",
            Kind::Expiring => "24-byte random keys, 150-byte values that expire",
            Kind::Json => "`user:<number>` to 150 bytes of JSON",
            Kind::BeyondCache | Kind::Many => {
                let cache = self.cache_bytes() >> 20;
                return format!("{records} records in {cache} MiB of cache: 24-byte random keys, 150-byte values");
            }
            Kind::Pauses => "24-byte random keys, 150-byte values, set one by one",
        };
        format!("{records} records: {what}")
    }

    /// Runs the workload on a new database of an engine.
    pub(crate) fn run(self, engine: &str, seed: u64) -> Vec<Figure> {
        let directory = tempfile::tempdir_in(scratch()).expect("the build directory can be written");
        let set = Set::new(self.shape(), seed, self.total());
        let setup = Setup {
            cache_bytes: self.cache_bytes(),
            expiring: self.kind == Kind::Expiring,
        };
        // The benchmark's own memory is allocated by now: it generates records when it uses them,
        // and keeps only values of 1 MiB.
        let baseline = memory();
        let engine = open(engine, directory.path(), setup);
        let mut bench = Bench {
            meter: Meter::new(&*engine),
            engine: &*engine,
            directory: directory.path(),
            set: &set,
            seed,
            memory_without: baseline + setup.cache_bytes as u64,
        };
        match self.kind {
            Kind::General => bench.general(self.records),
            Kind::Large => bench.large(self.records),
            Kind::Expiring => bench.expiring(self.records),
            Kind::BeyondCache => bench.beyond_cache(self.records),
            Kind::Many => bench.many(self.records),
            Kind::Pauses => bench.pauses(self.records),
            _ => bench.simple(self.records),
        }
        bench.meter.figures()
    }

    fn shape(self) -> Shape {
        match self.kind {
            Kind::General | Kind::Expiring | Kind::BeyondCache | Kind::Many | Kind::Pauses => Shape::Random,
            Kind::Ascending => Shape::Ascending,
            Kind::Large => Shape::Large,
            Kind::Ints => Shape::Ints,
            Kind::Strings => Shape::Strings,
            Kind::Guids => Shape::Guids,
            Kind::Int32Guids => Shape::Int32Guids,
            Kind::Json => Shape::Json,
        }
    }

    fn total(self) -> usize {
        match self.kind {
            Kind::General => general::total(self.records),
            _ => self.records,
        }
    }

    fn cache_bytes(self) -> usize {
        match self.kind {
            Kind::BeyondCache => beyond_cache::cache_bytes(self.records),
            Kind::Many => many::CACHE_BYTES,
            Kind::Pauses => pauses::CACHE_BYTES,
            _ => CACHE_BYTES,
        }
    }
}

/// Returns a directory on a real disk, where the system's temporary one need not be.
pub(crate) fn scratch() -> PathBuf {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench"));
    fs::create_dir_all(path).expect("the build directory can be written");
    path.to_owned()
}

struct Bench<'a> {
    engine: &'a dyn Engine,
    meter: Meter<'a>,
    directory: &'a Path,
    set: &'a Set,
    seed: u64,
    /// Memory before the engine was opened, plus its cache.
    memory_without: u64,
}

impl Bench<'_> {
    fn simple(&mut self, records: usize) {
        let all = self.set.range(0..records);
        let name = if records > BULK_RECORDS {
            "inserts, transactions of 1,000,000"
        } else {
            "inserts, one transaction"
        };
        self.insert(name, &all, BULK_RECORDS);
        self.size("size after the inserts", &all);
        self.gets(&all.sample(records.min(BULK_RECORDS), self.seed), 1);
        self.scan("scan forwards, records", false, records);
        self.end();
    }

    fn large(&mut self, records: usize) {
        let set = self.set;
        let all = set.range(0..records);
        let half = records / 2;
        self.insert("inserts, one transaction", &set.range(0..half), BULK_RECORDS);
        self.insert("durable commits of 1", &set.range(half..records), 1);
        self.gets(&all.sample(records * 5, self.seed), 1);
        self.scan("scan forwards, records", false, records);
        let some = all.changed(1).sample(half, self.seed + 1);
        self.insert("overwrites, one transaction", &some, BULK_RECORDS);
        self.end();
    }

    fn insert(&mut self, name: &str, records: &Records<'_>, transaction: usize) {
        let engine = self.engine;
        self.meter.time(name, records.len(), || {
            records
                .chunks(transaction)
                .for_each(|records| engine.insert(&records, true));
        });
    }

    fn gets(&mut self, records: &Records<'_>, threads: usize) {
        let engine = self.engine;
        let each = records.len() / threads;
        let name = match threads {
            1 => "random gets".to_owned(),
            _ => format!("random gets, {threads} threads"),
        };
        self.meter.time(&name, each * threads, || {
            std::thread::scope(|scope| {
                for part in records.chunks(each).take(threads) {
                    scope.spawn(move || engine.read(&mut |reader| get_all(reader, &part)));
                }
            });
        });
    }

    fn scan(&mut self, name: &str, reverse: bool, records: usize) {
        let engine = self.engine;
        self.meter.time(name, records, || {
            engine.read(&mut |reader| assert_eq!(reader.scan(reverse, &mut Vec::new()), records));
        });
    }

    fn size(&mut self, name: &str, records: &Records<'_>) {
        if let Some(bytes) = self.disk_bytes() {
            self.meter.size_of_raw(name, bytes, records.raw_bytes());
        }
    }

    /// Returns `None` if everything is in memory.
    fn disk_bytes(&self) -> Option<u64> {
        Some(disk_bytes(self.directory)).filter(|bytes| *bytes > 0)
    }

    fn end(&mut self) {
        if let Some(bytes) = self.disk_bytes() {
            self.meter.size("size at the end", bytes);
        }
        self.memory();
    }

    fn memory(&mut self) {
        let peak = peak_memory();
        self.meter.size("peak memory", peak);
        if self.engine.has_cache() {
            self.meter
                .memory_above("memory above the cache", peak, self.memory_without);
        }
    }
}

fn get_all(reader: &mut dyn Reader, records: &Records<'_>) {
    let mut value = Vec::new();
    records.each_key(|key| assert!(reader.get(key, &mut value) && !value.is_empty()));
}

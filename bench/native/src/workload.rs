//! What one engine does in one process.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::engines::{Engine, Reader, open};
use crate::measure::{Figure, Meter, disk_bytes, peak_memory};
use crate::records::{Records, Set, Shape};

/// Bulk inserts commit this often, so that no engine has to hold the largest sets in one transaction.
const BULK_RECORDS: usize = 1_000_000;

/// A workload with the number of records it runs on.
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
    /// Records that expire; only for engines that can.
    Expiring,
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
        };
        format!("{records} records: {what}")
    }

    /// Runs on a new database of an engine.
    pub(crate) fn run(self, engine: &str, seed: u64) -> Vec<Figure> {
        let directory = tempfile::tempdir_in(scratch()).expect("the build directory can be written");
        let engine = open(engine, directory.path());
        let mut bench = Bench {
            meter: Meter::new(&*engine),
            engine: &*engine,
            directory: directory.path(),
            seed,
        };
        match self.kind {
            Kind::General => bench.general(self.records),
            Kind::Ascending => bench.simple(Shape::Ascending, self.records),
            Kind::Large => bench.large(self.records),
            Kind::Ints => bench.simple(Shape::Ints, self.records),
            Kind::Strings => bench.simple(Shape::Strings, self.records),
            Kind::Guids => bench.simple(Shape::Guids, self.records),
            Kind::Int32Guids => bench.simple(Shape::Int32Guids, self.records),
            Kind::Expiring => bench.expiring(self.records),
        }
        bench.meter.figures()
    }
}

/// A directory on a real disk, which the system's temporary one need not be.
pub(crate) fn scratch() -> PathBuf {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench"));
    fs::create_dir_all(path).expect("the build directory can be written");
    path.to_owned()
}

struct Bench<'a> {
    engine: &'a dyn Engine,
    meter: Meter<'a>,
    directory: &'a Path,
    seed: u64,
}

impl Bench<'_> {
    fn general(&mut self, records: usize) {
        let (singles, batches, unsynced) = (1000, 100 * 1000, 20_000);
        let total = records + singles + batches + unsynced;
        let set = Set::new(Shape::Random, self.seed, total);
        let bulk = set.range(0..records);
        self.probe();
        self.insert("inserts, one transaction", &bulk, BULK_RECORDS);
        self.meter.size("size after the inserts", disk_bytes(self.directory));
        let mut start = records;
        let mut next = |count: usize| {
            start += count;
            set.range(start - count..start)
        };
        self.insert("durable commits of 1", &next(singles), 1);
        self.insert("durable commits of 1000, records", &next(batches), 1000);
        let engine = self.engine;
        let unsynced = next(unsynced);
        self.meter.time("unsynced commits of 1", unsynced.len(), || {
            unsynced.chunks(1).for_each(|record| engine.insert(&record, false));
        });
        self.overwrite(&bulk);
        for threads in [1, 2, 4] {
            self.gets(&bulk.sample(records, self.seed), threads);
        }
        self.ranges(&bulk.sample(records / 10, self.seed + 1));
        self.scan("scan forwards, records", false, total);
        self.scan("scan backwards, records", true, total);
        let removed = set.range(0..records / 2);
        self.meter
            .time("removals, one transaction", removed.len(), || engine.remove(&removed));
        self.end();
    }

    fn simple(&mut self, shape: Shape, records: usize) {
        let set = Set::new(shape, self.seed, records);
        let all = set.range(0..records);
        let name = if records > BULK_RECORDS {
            "inserts, transactions of 1,000,000"
        } else {
            "inserts, one transaction"
        };
        self.insert(name, &all, BULK_RECORDS);
        self.gets(&all.sample(records.min(BULK_RECORDS), self.seed), 1);
        self.scan("scan forwards, records", false, records);
        self.end();
    }

    fn large(&mut self, records: usize) {
        let set = Set::new(Shape::Large, self.seed, records);
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

    fn expiring(&mut self, records: usize) {
        let set = Set::new(Shape::Random, self.seed, records);
        let all = set.range(0..records);
        if !self.engine.insert_expiring(&set.range(0..1), 3600) {
            return;
        }
        let engine = self.engine;
        self.meter.time("inserts, one transaction", records, || {
            assert!(engine.insert_expiring(&all, 3600));
        });
        self.gets(&all.sample(records, self.seed), 1);
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

    fn overwrite(&mut self, records: &Records<'_>) {
        let changed = records.changed(1);
        let some = changed.sample(records.len() / 4, self.seed + 2);
        self.insert("overwrites, one transaction", &some, BULK_RECORDS);
        let some = changed.sample(20 * 1000, self.seed + 3);
        self.insert("overwrites, durable commits of 1000, records", &some, 1000);
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

    fn ranges(&mut self, starts: &Records<'_>) {
        let engine = self.engine;
        self.meter.time("ranges of 10", starts.len(), || {
            engine.read(&mut |reader| {
                let mut value = Vec::new();
                starts.each_key(|key| assert!((1..=10).contains(&reader.range(key, 10, &mut value))));
            });
        });
    }

    fn scan(&mut self, name: &str, reverse: bool, records: usize) {
        let engine = self.engine;
        self.meter.time(name, records, || {
            engine.read(&mut |reader| assert_eq!(reader.scan(reverse, &mut Vec::new()), records));
        });
    }

    /// What the disk does without an engine: the figures of durable commits mean little where it differs within a row.
    fn probe(&mut self) {
        let path = self.directory.join("probe");
        let file = fs::File::create(&path).expect("the build directory can be written");
        let flushes = 200;
        self.meter.time("disk: 4 KiB written and flushed", flushes, || {
            for _ in 0..flushes {
                (&file).write_all(&[1; 4096]).expect("the disk has room");
                file.sync_data().expect("the disk works");
            }
        });
        fs::remove_file(path).expect("it was just made");
    }

    fn end(&mut self) {
        self.meter.size("size at the end", disk_bytes(self.directory));
        self.meter.size("peak memory", peak_memory());
    }
}

fn get_all(reader: &mut dyn Reader, records: &Records<'_>) {
    let mut value = Vec::new();
    records.each_key(|key| assert!(reader.get(key, &mut value) && !value.is_empty()));
}

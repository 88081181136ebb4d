use std::fs;
use std::io::Write as _;

use super::{BULK_RECORDS, Bench};
use crate::records::Records;

const SINGLES: usize = 1000;
const BATCHES: usize = 100 * 1000;
const UNSYNCED: usize = 20_000;

/// Returns the number of records of the workload, including the bulk insert.
pub(super) fn total(records: usize) -> usize {
    records + SINGLES + BATCHES + UNSYNCED
}

impl Bench<'_> {
    pub(super) fn general(&mut self, records: usize) {
        let set = self.set;
        let bulk = set.range(0..records);
        self.probe();
        self.insert("inserts, one transaction", &bulk, BULK_RECORDS);
        self.size("size after the inserts", &bulk);
        let mut start = records;
        let mut next = |count: usize| {
            start += count;
            set.range(start - count..start)
        };
        self.insert("durable commits of 1", &next(SINGLES), 1);
        self.insert("durable commits of 1000, records", &next(BATCHES), 1000);
        let engine = self.engine;
        let unsynced = next(UNSYNCED);
        self.meter.time("unsynced commits of 1", unsynced.len(), || {
            unsynced.chunks(1).for_each(|record| engine.insert(&record, false));
        });
        self.overwrite(&bulk);
        for threads in [1, 2, 4] {
            self.gets(&bulk.sample(records, self.seed), threads);
        }
        self.ranges(&bulk.sample(records / 10, self.seed + 1));
        self.scan("scan forwards, records", false, total(records));
        self.scan("scan backwards, records", true, total(records));
        let removed = set.range(0..records / 2);
        self.meter
            .time("removals, one transaction", removed.len(), || engine.remove(&removed));
        self.end();
    }

    fn overwrite(&mut self, records: &Records<'_>) {
        let changed = records.changed(1);
        let some = changed.sample(records.len() / 4, self.seed + 2);
        self.insert("overwrites, one transaction", &some, BULK_RECORDS);
        let some = changed.sample(20 * 1000, self.seed + 3);
        self.insert("overwrites, durable commits of 1000, records", &some, 1000);
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

    /// Measures the disk without an engine. The figures of durable commits mean little where it
    /// differs within a row.
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
}

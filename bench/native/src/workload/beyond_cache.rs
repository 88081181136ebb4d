use super::Bench;
use crate::records::Records;

/// Size of the data as a multiple of the cache.
const FACTOR: usize = 8;
const RECORD_BYTES: usize = 24 + 150;

/// Small enough that no transaction takes memory beside the cache.
const INSERTS: usize = 10_000;

pub(super) fn cache_bytes(records: usize) -> usize {
    (records * RECORD_BYTES / FACTOR).next_multiple_of(1 << 20)
}

impl Bench<'_> {
    pub(super) fn beyond_cache(&mut self, records: usize) {
        let engine = self.engine;
        let all = self.set.range(0..records);
        self.insert("inserts, transactions of 10,000", &all, INSERTS);
        self.size("size after the inserts", &all);
        let unsynced = all.changed(1).sample(records / 15, self.seed);
        self.meter
            .time("overwrites, unsynced commits of 1", unsynced.len(), || {
                unsynced.chunks(1).for_each(|record| engine.insert(&record, false));
            });
        let logged = all.changed(2).sample(records / 15, self.seed + 1);
        self.meter.time("overwrites, logged commits of 1", logged.len(), || {
            logged.chunks(1).for_each(|record| engine.set_logged(&record));
        });
        let batches: Records<'_> = all.changed(3).sample(records / 30, self.seed + 2);
        self.insert("overwrites, durable commits of 1000, records", &batches, 1000);
        self.gets(&all.sample(records / 15, self.seed + 3), 1);
        self.end();
    }
}

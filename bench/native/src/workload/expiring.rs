use std::time::{Duration, Instant};

use super::Bench;

/// Lifetime of the records.
const SECONDS: u64 = 3600;

/// Expired records that one commit removes, as in the engine's own maintenance.
const SLICE: usize = 1000;

impl Bench<'_> {
    pub(super) fn expiring(&mut self, records: usize) {
        let engine = self.engine;
        let all = self.set.range(0..records);
        // Asks with a record that is inserted again anyway.
        if !engine.insert_expiring(&all.chunks(1).next().expect("there are records"), SECONDS) {
            return;
        }
        self.meter.time("inserts, one transaction", records, || {
            engine.insert_expiring(&all, SECONDS);
        });
        self.size("size after the inserts", &all);
        self.gets(&all.sample(records, self.seed), 1);
        // Each record expires a millisecond after the previous one.
        engine.pass(SECONDS + records as u64);
        let mut longest = Duration::ZERO;
        self.meter.time("purge, records", records, || {
            loop {
                let start = Instant::now();
                let purged = engine.purge(SLICE);
                longest = longest.max(start.elapsed());
                if purged < SLICE {
                    break;
                }
            }
        });
        self.meter.pause("purge: longest slice", longest);
        engine.read(&mut |reader| assert_eq!(reader.scan(false, &mut Vec::new()), 0));
        self.end();
    }
}

use std::time::{Duration, Instant};

use super::{BULK_RECORDS, Bench};
use crate::records::Records;

/// Mangrove's default, so that it has to write pages and make checkpoints meanwhile.
pub(super) const CACHE_BYTES: usize = 32 << 20;

/// Time limit of the sets, for slow disks.
const LIMIT: Duration = Duration::from_secs(30);

impl Bench<'_> {
    pub(super) fn pauses(&mut self, records: usize) {
        let engine = self.engine;
        let all = self.set.range(0..records);
        self.insert("inserts, one transaction", &all, BULK_RECORDS);
        let seed = self.seed;
        let sets = |generation| all.changed(generation).sample(records / 5, seed + generation);
        self.set_each("unsynced sets", &sets(1), |record| engine.insert(record, false));
        // Otherwise the first logged set would make all the unsynced ones durable.
        engine.insert(&all.changed(2).sample(1, seed), true);
        self.set_each("logged sets", &sets(2), |record| engine.set_logged(record));
        self.set_each("durable sets", &sets(3), |record| engine.insert(record, true));
        self.end();
    }

    fn set_each(&mut self, name: &str, records: &Records<'_>, set: impl Fn(&Records<'_>)) {
        let mut times = Vec::with_capacity(records.len());
        self.meter.time_counted(name, || {
            let begin = Instant::now();
            for record in records.chunks(1) {
                let start = Instant::now();
                set(&record);
                let end = Instant::now();
                times.push(end - start);
                if end - begin > LIMIT {
                    break;
                }
            }
            times.len()
        });
        times.sort_unstable();
        let thousandth = times[(times.len() * 999).div_ceil(1000) - 1];
        self.meter.pause(&format!("{name}: 99.9th percentile"), thousandth);
        let longest = times[times.len() - 1];
        self.meter.pause(&format!("{name}: longest"), longest);
    }
}

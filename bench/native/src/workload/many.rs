use super::Bench;
use crate::records::Records;

/// One twenty-sixth of the size of ten million records.
pub(super) const CACHE_BYTES: usize = 64 << 20;
const FILL: usize = 100_000;
/// One in this many records is inserted durably, overwritten and looked up.
const PART: usize = 50;

impl Bench<'_> {
    pub(super) fn many(&mut self, records: usize) {
        let part = records / PART;
        let all = self.set.range(0..records);
        let filled = records - part;
        self.insert("inserts, transactions of 100,000", &self.set.range(0..filled), FILL);
        self.insert(
            "inserts, durable commits of 1000, records",
            &self.set.range(filled..records),
            1000,
        );
        self.size("size after the inserts", &all);
        let changed: Records<'_> = all.changed(1).sample(part, self.seed);
        self.insert("overwrites, durable commits of 1000, records", &changed, 1000);
        self.gets(&all.sample(part, self.seed + 1), 1);
        self.end();
    }
}

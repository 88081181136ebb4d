//! The same operations of the engine, on a database in memory, for a native program and for a
//! WebAssembly module.
//!
//! The caller takes the time: neither the module nor the engine has a clock.

use std::sync::Arc;

use fastrand::Rng;
use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::stages::{STAGES, Stages};
use mangrove_engine::{
    AdvancedOptions, Compression, Cursor, Database, Direction, Durability, KeyRange, Options, Result,
};

#[cfg(target_arch = "wasm32")]
#[path = "../../../bindings-js/wasm/host/src/alloc.rs"]
mod alloc;
#[cfg(target_arch = "wasm32")]
mod exports;

/// The operations on the database, in the order in which they have to run.
pub const OPERATIONS: [&str; 8] = [
    "inserts, one transaction",
    "sets, one by one",
    "overwrites, durable commits of 100",
    "random gets",
    "ranges of 10",
    "scan forwards",
    "scan backwards",
    "removals, one transaction",
];

/// Leaves for the steps of a cold read: node size and compression.
const LEAVES: [(usize, Compression); 4] = [
    (16384, Compression::Lz4),
    (16384, Compression::None),
    (4096, Compression::Lz4),
    (4096, Compression::None),
];
/// Number of runs of a step.
const TIMES: usize = 2000;

/// Returns the names of all operations. Those on the database come first, then the steps of a cold
/// read of each kind of leaf.
#[must_use]
pub fn names() -> Vec<String> {
    let steps = LEAVES.iter().flat_map(|(node_bytes, compression)| {
        let packed = if *compression == Compression::Lz4 { "LZ4" } else { "raw" };
        STAGES
            .iter()
            .map(move |stage| format!("leaf of {} KiB, {packed}: {stage}", node_bytes >> 10))
    });
    OPERATIONS.iter().map(|name| (*name).to_owned()).chain(steps).collect()
}

const COLLECTION: &str = "records";
const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 150;
/// Cache per record, with room for the pages that changes leave behind. Nothing should have to be
/// read a second time.
const CACHE_BYTES: usize = 2048;

/// A database and the records that go into it.
pub struct Bench {
    database: Database,
    /// Key and value of each record.
    records: Vec<u8>,
    order: Vec<u32>,
    leaves: Vec<Stages>,
}

impl Bench {
    /// Creates a database for `count` records. Half of the bytes of a value repeat, so that
    /// compression has something to do.
    ///
    /// # Errors
    /// Returns the errors of opening a database.
    pub fn new(count: usize) -> Result<Self> {
        let mut rng = Rng::with_seed(7);
        let mut records = vec![b'm'; count * (KEY_BYTES + VALUE_BYTES)];
        for record in records.chunks_exact_mut(KEY_BYTES + VALUE_BYTES) {
            rng.fill(&mut record[..KEY_BYTES + VALUE_BYTES / 2]);
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        rng.shuffle(&mut order);
        // WebAssembly has no source of random numbers for these.
        let options = Options {
            cache_bytes: count * CACHE_BYTES,
            advanced: AdvancedOptions {
                database_id: Some(1),
                session: Some(1),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let mut sorted: Vec<(Vec<u8>, Vec<u8>)> = records
            .chunks_exact(KEY_BYTES + VALUE_BYTES)
            .take(1000)
            .map(|record| (record[..KEY_BYTES].to_vec(), record[KEY_BYTES..].to_vec()))
            .collect();
        sorted.sort();
        let leaves = LEAVES
            .iter()
            .map(|(node_bytes, compression)| Stages::new(*node_bytes, *compression, &sorted));
        Ok(Self {
            leaves: leaves.collect::<Result<_>>()?,
            database: Database::open(Arc::new(MemoryStorage::new()), options)?,
            records,
            order,
        })
    }

    /// Runs the operation at a place in [`names`]; returns how many times it ran.
    ///
    /// # Errors
    /// Returns the errors of the engine.
    pub fn run(&self, operation: usize) -> Result<usize> {
        match operation {
            0 => self.insert(),
            1 => self.set_singly(),
            2 => self.overwrite(),
            3 => self.gets(),
            4 => self.ranges(),
            5 => self.scan(Direction::Forward),
            6 => self.scan(Direction::Reverse),
            7 => self.remove(),
            step => self.step(step - OPERATIONS.len()),
        }
    }

    /// Returns the pages that had to be read so far. Misses on one side only would make this a
    /// comparison of caches, which differ: the module's is not divided among threads.
    pub fn misses(&self) -> u64 {
        self.database.stats().cache_misses
    }

    fn step(&self, step: usize) -> Result<usize> {
        self.leaves[step / STAGES.len()].run(step % STAGES.len(), TIMES)?;
        Ok(TIMES)
    }

    fn record(&self, number: usize) -> (&[u8], &[u8]) {
        self.records[number * (KEY_BYTES + VALUE_BYTES)..][..KEY_BYTES + VALUE_BYTES].split_at(KEY_BYTES)
    }

    /// Returns the first of `parts` equal parts of the records, in random order.
    fn part(&self, parts: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let numbers = &self.order[..self.order.len() / parts];
        numbers.iter().map(|number| self.record(*number as usize))
    }

    fn insert(&self) -> Result<usize> {
        let mut transaction = self.database.begin()?;
        for number in 0..self.order.len() {
            let (key, value) = self.record(number);
            transaction.set(COLLECTION, key, value)?;
        }
        transaction.commit(Durability::Strict)?;
        Ok(self.order.len())
    }

    fn set_singly(&self) -> Result<usize> {
        let mut count = 0;
        for (key, value) in self.part(4) {
            self.database.set(COLLECTION, key, value, Durability::Relaxed)?;
            count += 1;
        }
        Ok(count)
    }

    fn overwrite(&self) -> Result<usize> {
        let records: Vec<_> = self.part(4).collect();
        for records in records.chunks(100) {
            let mut transaction = self.database.begin()?;
            for (key, value) in records {
                transaction.set(COLLECTION, key, value)?;
            }
            transaction.commit(Durability::Strict)?;
        }
        Ok(records.len())
    }

    fn gets(&self) -> Result<usize> {
        let snapshot = self.database.snapshot();
        let mut value = Vec::new();
        let mut found = 0;
        if let Some(tree) = snapshot.collection(COLLECTION) {
            for (key, _) in self.part(1) {
                value.clear();
                found += usize::from(tree.get_into(key, &mut value)?);
            }
        }
        Ok(found)
    }

    fn ranges(&self) -> Result<usize> {
        let snapshot = self.database.snapshot();
        let mut count = 0;
        if let Some(tree) = snapshot.collection(COLLECTION) {
            for (key, _) in self.part(10) {
                let range = KeyRange {
                    lower: std::ops::Bound::Included(key),
                    upper: std::ops::Bound::Unbounded,
                };
                read(tree.cursor(range, Direction::Forward), 10)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn scan(&self, direction: Direction) -> Result<usize> {
        let snapshot = self.database.snapshot();
        let tree = snapshot.collection(COLLECTION);
        tree.map_or(Ok(0), |tree| read(tree.cursor(KeyRange::all(), direction), usize::MAX))
    }

    fn remove(&self) -> Result<usize> {
        let mut transaction = self.database.begin()?;
        let mut count = 0;
        for (key, _) in self.part(2) {
            count += usize::from(transaction.delete(COLLECTION, key)?);
        }
        transaction.commit(Durability::Strict)?;
        Ok(count)
    }
}

fn read(mut cursor: Cursor, limit: usize) -> Result<usize> {
    let mut value = Vec::new();
    let mut count = 0;
    while count < limit && cursor.advance()? {
        value.clear();
        cursor.value_into(&mut value)?;
        count += 1;
    }
    Ok(count)
}

//! Proves that compaction gives space back, changes nothing that can be read, and can be broken off, cut and refused at any point.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Flavour, History, State, check, options, read_state, run, without_empty};
use mangrove_engine::storage::sim::{CrashPolicy, Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::storage::{MemoryStorage, Storage, StorageFile};
use mangrove_engine::{
    CompactEnd, CompactOptions, CompactProgress, CompactReport, Compression, Database, Durability, Error, KeyRange,
    Options,
};

const UNIT: u64 = 512;

fn small() -> Options {
    Options {
        unit_bytes: UNIT as u32,
        node_bytes: 1024,
        cache_bytes: 64 << 10,
        log_bytes: 64 << 10,
        compression: Compression::None,
        database_id: Some(7),
        session: Some(1),
        ..Options::default()
    }
}

fn fine() -> CompactOptions {
    CompactOptions {
        slice_bytes: 16 << 10,
        threshold_bytes: 16 << 10,
    }
}

fn go_on(_: CompactProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

fn open(storage: &SimStorage) -> Database {
    Database::open(shared(storage), small()).expect("it opens")
}

fn value(number: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (number + at / 5) as u8).collect()
}

/// Fills two collections and deletes all but every eighth record, in an order that leaves holes everywhere.
fn fill_and_thin(database: &Database, records: u64, longest: u64) {
    let mut rng = SimRng::new(3);
    let mut keys: Vec<u64> = (0..records).collect();
    for index in (1..keys.len()).rev() {
        keys.swap(index, rng.below(index as u64 + 1) as usize);
    }
    for part in keys.chunks(50) {
        let mut transaction = database.begin().expect("it can be written");
        for key in part {
            let name = ["a", "b"][(key % 2) as usize];
            let bytes = value(*key, rng.below(longest));
            transaction
                .set(name, &key.to_be_bytes(), &bytes)
                .expect("there is room");
        }
        transaction.commit(Durability::Relaxed).expect("there is room");
    }
    for part in keys.chunks(50) {
        let mut transaction = database.begin().expect("it can be written");
        for key in part.iter().filter(|key| **key / 2 % 8 != 0) {
            let name = ["a", "b"][(key % 2) as usize];
            transaction.delete(name, &key.to_be_bytes()).expect("there is room");
        }
        transaction.commit(Durability::Relaxed).expect("there is room");
    }
}

fn content(database: &Database) -> State {
    read_state(&database.snapshot()).expect("it can be read")
}

fn assert_intact(database: &Database, expected: &State) {
    assert!(content(database) == *expected, "the content changed");
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
}

fn used_bytes(database: &Database) -> u64 {
    let stats = database.stats();
    stats.file_bytes - stats.free_bytes - stats.kept_bytes
}

/// Compacts and checks what must hold whatever comes of it.
fn compact(database: &Database, options: CompactOptions) -> CompactReport {
    let (before, version) = (content(database), database.version());
    let report = database.compact(options, &mut go_on).expect("nothing fails");
    assert_eq!(database.version(), version);
    assert!(report.file_bytes_after <= report.file_bytes_before);
    assert_intact(database, &before);
    report
}

#[test]
fn a_thinned_file_shrinks_to_what_it_needs() {
    for (records, longest) in [(4000, 100), (1500, 3000)] {
        let storage = SimStorage::new();
        let database = open(&storage);
        fill_and_thin(&database, records, longest);
        database.checkpoint().expect("there is room");
        let report = compact(&database, fine());
        assert_eq!(report.end, CompactEnd::Done, "{report:?}");
        assert!(
            report.file_bytes_after <= used_bytes(&database) + fine().threshold_bytes,
            "{report:?}"
        );
        println!("{report:?}");
        assert!(report.file_bytes_after < report.file_bytes_before / 3, "{report:?}");
        assert!(report.moved_bytes > 0 && report.slices > 1);

        let operations = storage.counters().operations;
        let again = compact(&database, fine());
        assert_eq!((again.end, again.moved_bytes, again.slices), (CompactEnd::Done, 0, 0));
        assert_eq!(storage.counters().operations, operations, "a second run does nothing");

        let before = content(&database);
        drop(database);
        assert_intact(&open(&storage), &before);
    }
}

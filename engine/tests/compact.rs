//! Proves that compaction returns space, changes nothing that can be read, and survives
//! cancellation, power cuts and a full storage at any point.

#![allow(clippy::print_stdout, reason = "the number of images is a result")]

mod crashes;
mod running;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{State, read_state};
use mangrove_engine::storage::{MemoryStorage, Storage, StorageFile};
use mangrove_engine::testing::sim::{Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, CompactEnd, CompactOptions, CompactProgress, CompactReport, Compression, Database, Durability,
    Error, Options,
};

const UNIT: u64 = 512;

fn small() -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: UNIT as u32,
            node_bytes: 1024,
            log_bytes: Some(64 << 10),
            database_id: Some(7),
            session: Some(1),
            ..AdvancedOptions::default()
        },
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

/// Fills two collections and deletes all but every eighth record, leaving holes everywhere.
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

/// Compacts and checks what must hold however it ends.
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
        assert!(report.file_bytes_after < report.file_bytes_before / 3, "{report:?}");
        assert!(report.moved_bytes > 0 && report.slices > 0, "{report:?}");

        let operations = storage.counters().operations;
        let again = compact(&database, fine());
        assert_eq!((again.end, again.moved_bytes, again.slices), (CompactEnd::Done, 0, 0));
        assert_eq!(storage.counters().operations, operations, "a second run does nothing");

        let before = content(&database);
        drop(database);
        assert_intact(&open(&storage), &before);
    }
}

#[test]
fn space_of_removals_in_memtables_is_given_back() {
    let storage = SimStorage::new();
    let options = || Options {
        cache_bytes: 64 << 20,
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..small().advanced
        },
        ..small()
    };
    let database = Database::open(shared(&storage), options()).expect("it opens");
    let mut transaction = database.begin().expect("it is open");
    for number in 0..2000_u64 {
        let value = value(number, 200);
        transaction
            .put("c", &number.to_be_bytes(), &value)
            .expect("it is small");
    }
    transaction.commit(Durability::Strict).expect("no faults");
    // The next opening merges what the log holds.
    drop(database);
    let database = Database::open(shared(&storage), options()).expect("it opens");
    compact(&database, fine());
    let mut transaction = database.begin().expect("it is open");
    for number in 0..1900_u64 {
        assert!(transaction.delete("c", &number.to_be_bytes()).expect("it is there"));
    }
    transaction.commit(Durability::Strict).expect("no faults");

    let before = database.stats().file_bytes;
    let report = compact(&database, fine());
    assert_eq!(report.end, CompactEnd::Done);
    assert!(report.file_bytes_after * 4 < before, "{before} bytes became {report:?}");
}

/// Values of many chunks, some low and some high in the file, and a catalog of many nodes.
#[test]
fn large_values_and_many_collections() {
    let database = open(&SimStorage::new());
    for number in 0..300 {
        let mut transaction = database.begin().expect("it can be written");
        let name = format!("collection {number} with a long name");
        transaction
            .set(&name, b"key", &value(number, 700))
            .expect("there is room");
        transaction.commit(Durability::Relaxed).expect("there is room");
    }
    for number in 0..6_u64 {
        let mut transaction = database.begin().expect("it can be written");
        transaction
            .set("large", &number.to_be_bytes(), &value(number, 2_500_000 + number))
            .expect("there is room");
        transaction.commit(Durability::Strict).expect("there is room");
    }
    let mut transaction = database.begin().expect("it can be written");
    for number in (0..300).filter(|number| number % 10 != 9) {
        let name = format!("collection {number} with a long name");
        transaction.drop_collection(&name).expect("it is there");
    }
    for number in [0_u64, 1, 3] {
        transaction.delete("large", &number.to_be_bytes()).expect("it is there");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    let report = compact(&database, fine());
    assert!(report.file_bytes_after <= used_bytes(&database) * 11 / 10, "{report:?}");
}

#[test]
fn it_can_be_interrupted_and_continued() {
    let database = open(&SimStorage::new());
    fill_and_thin(&database, 1500, 3000);
    let before = content(&database);
    let mut calls = 0;
    loop {
        let mut left = 3;
        let report = database
            .compact(fine(), &mut |progress| {
                assert!(progress.used_bytes <= progress.file_bytes);
                calls += 1;
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .expect("nothing fails");
        assert_intact(&database, &before);
        if report.end != CompactEnd::Cancelled {
            assert_eq!(report.end, CompactEnd::Done);
            break;
        }
    }
    assert!(calls > 6);
}

#[test]
fn open_snapshots_are_reported_and_stay_as_they_are() {
    let database = open(&SimStorage::new());
    fill_and_thin(&database, 1500, 3000);
    let snapshot = database.snapshot();
    let before = read_state(&snapshot).expect("it can be read");
    let report = compact(&database, fine());
    assert_eq!(report.end, CompactEnd::Snapshots);
    assert!(report.held_bytes > 0);
    assert!(read_state(&snapshot).expect("it can be read") == before);
    // A second snapshot of the same version, taken after blocks moved.
    let second = database.snapshot();
    assert_eq!(second.version(), snapshot.version());
    drop(snapshot);
    let report = compact(&database, fine());
    assert!(read_state(&second).expect("it can be read") == before, "{report:?}");
    drop(second);
    let report = compact(&database, fine());
    assert_eq!(report.held_bytes, 0);
    assert!(report.file_bytes_after < used_bytes(&database) * 5 / 4, "{report:?}");
}

/// A storage whose data file cannot grow past a limit, which truncation lowers.
struct Full(SimStorage, Arc<AtomicU64>);

struct FullFile(Arc<dyn StorageFile>, Arc<AtomicU64>);

impl Storage for Full {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>, Error> {
        let file = self.0.open(name, create)?;
        Ok(if name == "data" {
            Arc::new(FullFile(file, Arc::clone(&self.1)))
        } else {
            file
        })
    }

    fn exists(&self, name: &str) -> Result<bool, Error> {
        self.0.exists(name)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.0.remove(name)
    }
}

impl StorageFile for FullFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        if offset + from.len() as u64 > self.1.load(Ordering::Relaxed) {
            let context = "the disk is full".to_owned();
            return Err(Error::StorageFull {
                context: context.into(),
            });
        }
        self.0.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), Error> {
        self.0.flush()
    }

    fn len(&self) -> Result<u64, Error> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        if len > self.1.load(Ordering::Relaxed) {
            let context = "the disk is full".to_owned();
            return Err(Error::StorageFull {
                context: context.into(),
            });
        }
        if len < self.0.len()? {
            self.1.fetch_min(len, Ordering::Relaxed);
        }
        self.0.set_len(len)
    }
}

#[test]
fn the_file_never_grows() {
    for (records, longest) in [(3000, 100), (1000, 3000)] {
        let storage = SimStorage::new();
        let limit = Arc::new(AtomicU64::new(u64::MAX));
        let full: Arc<dyn Storage> = Arc::new(Full(storage.clone(), Arc::clone(&limit)));
        let database = Database::open(full, small()).expect("it opens");
        fill_and_thin(&database, records, longest);
        database.checkpoint().expect("there is room");
        // This storage loses truncated space at once.
        limit.store(storage.files()["data"].len() as u64, Ordering::Relaxed);
        let report = compact(&database, fine());
        assert_eq!(report.end, CompactEnd::Done, "{report:?}");
    }
}

#[test]
fn a_full_file_has_no_room_and_stays_usable() {
    let storage = SimStorage::new();
    let database = open(&storage);
    let mut transaction = database.begin().expect("it can be written");
    for key in 0..300_u64 {
        // Values of one unit, deleted below, leave holes between values of two.
        transaction
            .set(
                "a",
                &key.to_be_bytes(),
                &value(key, if key % 2 == 0 { 300 } else { 900 }),
            )
            .expect("there is room");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    database.checkpoint().expect("there is room");
    let mut transaction = database.begin().expect("it can be written");
    for key in (0..300_u64).step_by(2) {
        transaction.delete("a", &key.to_be_bytes()).expect("it is there");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    compact(
        &database,
        CompactOptions {
            threshold_bytes: 0,
            ..fine()
        },
    );
    for _ in 0..3 {
        let report = compact(
            &database,
            CompactOptions {
                threshold_bytes: 0,
                ..fine()
            },
        );
        assert!(report.moved_bytes < 64 << 10, "{report:?}");
    }
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("a", b"x", b"y").expect("there is room");
    transaction.commit(Durability::Strict).expect("there is room");
}

/// A file that is as short as it gets has free units for a block, and none for the checkpoint that would
/// follow.
#[test]
fn a_dense_file_does_not_grow_to_become_shorter() {
    let tight = |slice_bytes| CompactOptions {
        threshold_bytes: 0,
        slice_bytes,
    };
    for seed in 0..30 {
        let database = open(&SimStorage::new());
        let mut rng = SimRng::new(seed);
        let count = 20 + rng.below(200);
        let mut transaction = database.begin().expect("it can be written");
        for key in 0..count {
            let len = [60, 300, 900, 1400][rng.below(4) as usize];
            transaction
                .set("a", &key.to_be_bytes(), &value(key, len))
                .expect("there is room");
        }
        transaction.commit(Durability::Strict).expect("there is room");
        database.checkpoint().expect("there is room");
        for _ in 0..=rng.below(8) {
            let mut transaction = database.begin().expect("it can be written");
            transaction
                .discard("a", &rng.below(count).to_be_bytes())
                .expect("it can be written");
            transaction.commit(Durability::Strict).expect("there is room");
        }
        database.checkpoint().expect("there is room");
        compact(&database, tight(4096));
        let before = database.stats().file_bytes;
        let report = database.compact(tight(512 << rng.below(4)), &mut |progress| {
            assert!(
                progress.file_bytes <= before,
                "seed {seed}: {progress:?}, {before} before"
            );
            ControlFlow::Continue(())
        });
        assert_eq!(report.expect("nothing fails").end, CompactEnd::NoRoom, "seed {seed}");
    }
}

#[test]
fn faults_leave_a_usable_database_or_poison_it() {
    let storage = SimStorage::new();
    let database = open(&storage);
    fill_and_thin(&database, 400, 2000);
    let before = content(&database);
    database.close().expect("there is room");
    let image = storage.files();
    let (mut number, mut done) = (0, false);
    while !done {
        for kind in [FaultKind::StorageFull, FaultKind::Io] {
            let storage = SimStorage::from_files(image.clone());
            let database = open(&storage);
            let at = storage.counters().operations + number;
            storage.set_fault(Some(if number % 2 == 0 {
                Fault::once(at, kind)
            } else {
                Fault::from(at, kind)
            }));
            let result = database.compact(fine(), &mut go_on);
            done = storage.counters().operations < at;
            storage.set_fault(None);
            assert!(content(&database) == before, "operation {number}");
            let written = database.begin().and_then(|mut transaction| {
                transaction.set("a", b"new", &value(1, 900))?;
                transaction.commit(Durability::Strict)
            });
            match written {
                Ok(_) => {
                    database.compact(fine(), &mut go_on).expect("the storage works again");
                    assert!(database.verify().expect("it can be read").is_ok());
                }
                Err(Error::Poisoned { .. }) => assert!(result.is_err()),
                Err(error) => panic!("operation {number}: {error}"),
            }
        }
        number += 1;
    }
    assert!(number > 20);
}

#[test]
fn read_only_and_poisoned_databases_refuse() {
    let storage = SimStorage::new();
    let database = open(&storage);
    fill_and_thin(&database, 400, 2000);
    database.close().expect("there is room");
    let read_only = Options {
        read_only: true,
        ..small()
    };
    let database = Database::open(shared(&storage), read_only).expect("it opens");
    assert_eq!(database.compact(fine(), &mut go_on), Err(Error::ReadOnly));
    drop(database);
    let database = open(&storage);
    storage.set_fault(Some(Fault::from(storage.counters().operations, FaultKind::Io)));
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("a", b"x", b"y").expect("it stays in memory");
    transaction.commit(Durability::Strict).expect_err("the storage fails");
    assert!(matches!(
        database.compact(fine(), &mut go_on),
        Err(Error::Poisoned { .. })
    ));
}

/// Checkpoints do not write the dead cells that smaller ones replaced.
#[test]
fn shrunken_values_take_no_space_in_the_file() {
    let storage = SimStorage::new();
    let database = open(&storage);
    let store = |len| {
        let mut transaction = database.begin().expect("nothing fails");
        for number in 0..400_u64 {
            let stored = transaction.set("c", &number.to_be_bytes(), &value(number, len));
            stored.expect("nothing fails");
        }
        transaction.commit(Durability::Strict).expect("nothing fails");
        database.checkpoint().expect("nothing fails");
    };
    store(120);
    let before = used_bytes(&database);
    store(10);
    let after = used_bytes(&database);
    assert!(after * 3 < before * 2, "{before} bytes became {after}");
}

/// Of several snapshots the oldest decides which blocks are kept.
#[test]
fn an_old_snapshot_is_read_beside_younger_ones() {
    let options = Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
    let write = |fill: u8| {
        let mut transaction = database.begin().expect("it is open");
        for number in 0..400_u16 {
            transaction
                .set("c", &number.to_be_bytes(), &[fill; 60])
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
        database.checkpoint().expect("memory works");
    };
    write(0);
    let oldest = database.snapshot().collection("c").expect("it was created");
    let mut younger = Vec::new();
    for fill in 1..8 {
        write(fill);
        younger.push(database.snapshot());
        if younger.len() > 2 {
            younger.remove(0);
        }
    }
    for number in 0..400_u16 {
        assert_eq!(oldest.get(&number.to_be_bytes()), Ok(Some(vec![0; 60])));
    }
}

/// The catalog stands behind everything else, and the collections that it lists have no blocks to move.
#[test]
fn a_catalog_of_empty_collections_moves() {
    let database = open(&SimStorage::new());
    let mut transaction = database.begin().expect("it can be written");
    transaction
        .set("large", b"key", &value(1, 2_500_000))
        .expect("there is room");
    transaction.commit(Durability::Strict).expect("there is room");
    database.checkpoint().expect("there is room");
    for first in (0..300).step_by(20) {
        let mut transaction = database.begin().expect("it can be written");
        for number in first..first + 20 {
            let name = format!("collection {number} with a long name");
            transaction.set(&name, b"key", b"value").expect("there is room");
            assert!(transaction.delete(&name, b"key").expect("it is there"));
        }
        transaction.commit(Durability::Strict).expect("there is room");
    }
    database.checkpoint().expect("there is room");
    let mut transaction = database.begin().expect("it can be written");
    assert!(transaction.delete("large", b"key").expect("it is there"));
    transaction.commit(Durability::Strict).expect("there is room");
    let report = compact(&database, fine());
    assert!(report.file_bytes_before > 2_500_000, "{report:?}");
    assert!(
        report.file_bytes_after <= used_bytes(&database) * 11 / 10 + 2048,
        "{report:?}"
    );
    assert_eq!(database.collections().len(), 301);
}

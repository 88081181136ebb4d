//! Merging in idle time: worthwhile merges run slice by slice alongside commits; the rest waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{CrashPolicy, SimStorage};
use mangrove_engine::{AdvancedOptions, Background, Database, Direction, Durability, KeyRange, Options};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open() -> Database {
    let options = Options {
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works")
}

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()
}

/// Stores records in one commit.
fn store(database: &Database, model: &mut Model, numbers: std::ops::Range<u64>, fill: u8) {
    let mut transaction = database.begin().expect("it is open");
    for number in numbers {
        let value = vec![fill; 80 + number as usize % 40];
        transaction.put("c", &key(number), &value).expect("memory works");
        model.insert(key(number), value);
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

fn check(database: &Database, model: &Model) {
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.len(), model.len() as u64);
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    for (key, value) in model {
        assert!(cursor.advance().expect("memory works"));
        assert_eq!(
            (cursor.key(), &cursor.value().expect("memory works")),
            (key.as_slice(), value)
        );
    }
    assert!(!cursor.advance().expect("memory works"));
    assert!(database.verify().expect("memory works").is_ok());
}

#[test]
fn worthwhile_merges_run_in_slices() {
    let (database, mut model) = (open(), Model::new());
    store(&database, &mut model, 0..1000, 1);
    let before = database.stats();
    assert!(before.dirty_bytes > 0);
    let mut slices = 0;
    while database.merge_slice().expect("memory works") {
        slices += 1;
    }
    assert!(slices > 1);
    let after = database.stats();
    assert_eq!((after.dirty_bytes, after.durable_version), (0, database.version()));
    assert!(after.checkpoints > before.checkpoints);
    check(&database, &model);
    assert_eq!(database.merge_slice(), Ok(false));
}

/// Ascending keys all go after the last leaf.
#[test]
fn ascending_records_are_merged_in_slices() {
    let (database, mut model) = (open(), Model::new());
    let mut transaction = database.begin().expect("it is open");
    for number in 0..2000_u64 {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![1; 90]);
        transaction.put("c", &key, &value).expect("memory works");
        model.insert(key, value);
    }
    transaction.commit(Durability::Strict).expect("memory works");
    let mut slices = 0;
    while database.merge_slice().expect("memory works") {
        slices += 1;
    }
    assert!(slices > 2000 * 98 / (64 << 10), "{slices} slices");
    check(&database, &model);
}

#[test]
fn merges_with_high_write_amplification_wait() {
    let (database, mut model) = (open(), Model::new());
    for part in 0..40 {
        store(&database, &mut model, part * 1000..(part + 1) * 1000, 1);
    }
    database.checkpoint().expect("memory works");
    store(&database, &mut model, 0..200, 2);
    let before = database.stats();
    assert!(before.dirty_bytes > 16 << 10);
    assert_eq!(database.merge_slice(), Ok(false));
    assert_eq!(database.stats().bytes_written, before.bytes_written);
    check(&database, &model);
}

#[test]
fn commits_come_between_two_slices() {
    let (database, mut model) = (open(), Model::new());
    for round in 0..60 {
        let from = round * 37 % 900;
        store(&database, &mut model, from..from + 30 + round % 5 * 40, round as u8);
        for _ in 0..round % 4 {
            database.merge_slice().expect("memory works");
        }
        if round % 20 == 0 {
            database
                .begin()
                .and_then(|mut transaction| {
                    transaction.clear("c", KeyRange::all())?;
                    transaction.commit(Durability::Strict)
                })
                .expect("memory works");
            model.clear();
            store(&database, &mut model, 0..50, 7);
        }
        check(&database, &model);
    }
}

#[test]
fn a_background_thread_merges_while_there_are_no_writes() {
    let (database, mut model) = (Arc::new(open()), Model::new());
    let background = Background::start(Arc::clone(&database), Duration::from_millis(1));
    store(&database, &mut model, 0..1000, 1);
    while database.stats().dirty_bytes > 0 {
        std::thread::yield_now();
    }
    drop(background);
    check(&database, &model);
}

/// Merges alongside the test until that is over; returns how often there was something to merge.
/// Ends the merging thread when it is dropped, also by a panic: otherwise that would not end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn merge_until(database: &Database, is_over: &AtomicBool) -> u64 {
    let mut merged = 0;
    while !is_over.load(Ordering::Relaxed) {
        if database.merge_beside().expect("memory works") {
            merged += 1;
        } else {
            database.await_merge(Duration::from_millis(5));
        }
    }
    merged
}

fn merge_beside_commits() {
    let storage = Arc::new(MemoryStorage::new());
    let options = Options {
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let database = Database::open(Arc::clone(&storage) as Arc<dyn Storage>, options.clone()).expect("memory works");
    let mut model = Model::new();
    let is_over = AtomicBool::new(false);
    let merged = std::thread::scope(|scope| {
        let merger = scope.spawn(|| merge_until(&database, &is_over));
        let end = End(&is_over);
        let mut held = Vec::new();
        for round in 0..400_u64 {
            let from = round * 131 % 6000;
            store(&database, &mut model, from..from + 150, round as u8);
            match round % 50 {
                7 => database.checkpoint().expect("memory works"),
                19 => held.push((database.snapshot(), model.clone())),
                31 => check(&database, &model),
                43 => {
                    let mut transaction = database.begin().expect("memory works");
                    let cleared = transaction.clear("c", KeyRange::all()).expect("memory works");
                    assert_eq!(cleared, model.len() as u64);
                    transaction.commit(Durability::Strict).expect("memory works");
                    model.clear();
                }
                _ => {}
            }
        }
        drop(end);
        for (snapshot, model) in held {
            let tree = snapshot.collection("c").expect("it was there");
            assert_eq!(tree.len(), model.len() as u64);
            for (key, value) in &model {
                assert_eq!(tree.get(key).expect("memory works").as_ref(), Some(value));
            }
        }
        merger.join().expect("it merges without a panic")
    });
    assert!(merged > 0, "nothing was merged beside commits");
    check(&database, &model);
    drop(database);
    // The log leads from the last checkpoint, perhaps a partial one, to the newest commit.
    let database = Database::open(storage, options).expect("memory works");
    check(&database, &model);
}

/// Several at once, so that the threads lose their processors at all points: a collection was
/// cleared once while the thread made a checkpoint, and nodes were given up twice.
#[test]
fn a_thread_merges_beside_commits() {
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(merge_beside_commits);
            }
        });
    }
}

/// A background thread ends at once, whatever it is waiting for.
#[test]
fn a_background_thread_that_sleeps_can_be_stopped() {
    let database = Arc::new(open());
    for _ in 0..20 {
        drop(Background::start(Arc::clone(&database), Duration::from_hours(1)));
    }
}

/// The checkpoint of a merge does not reach the blocks of commits beside it. If a power cut takes
/// those, their space is free again.
#[test]
fn a_merge_keeps_no_space_of_lost_commits_beside_it() {
    let options = |session| Options {
        cache_bytes: 256 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options(1)).expect("the storage works");
    let mut model = Model::new();
    store(&database, &mut model, 0..600, 1);
    assert!(database.merge_slice().expect("the storage works"));
    let value: Vec<u8> = (0..6000_u32).map(|at| ((at * at) >> 5) as u8).collect();
    database
        .set("c", b"beside", &value, Durability::None)
        .expect("the storage works");
    let before = database.stats().checkpoints;
    while database.merge_slice().expect("the storage works") {}
    assert!(database.stats().checkpoints > before);
    let files = storage.crash(CrashPolicy::Nothing, 0);
    let database = Database::open(Arc::new(SimStorage::from_files(files)), options(2)).expect("every image opens");
    check(&database, &model);
}

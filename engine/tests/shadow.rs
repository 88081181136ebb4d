//! Proves that the shadow of the simulated storage finds what it is there for, and with it that a
//! merge never gives away what a recovery needs.

use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::shadow::ShadowStorage;
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Clock, Database, Durability, Options};

const RECORDS: u64 = 6000;
const HEAD: u64 = 40;

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

fn options(session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        clock: Clock::new(|| 1000),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            database_id: Some(7),
            session: Some(1 + session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn noise(rng: &mut SimRng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

fn set(database: &Database, collection: &str, number: u64, value: &[u8]) {
    let done = database.set(collection, &key(number), value, Durability::Strict);
    done.expect("the storage works");
}

/// A closed database whose trees are larger than a round of a merge.
fn filled(rng: &mut SimRng) -> SimStorage {
    let storage = SimStorage::new();
    let database = Database::open(shared(&storage), options(1)).expect("it is new");
    for first in (0..RECORDS).step_by(500) {
        let mut transaction = database.begin().expect("the storage works");
        for number in first..first + 500 {
            let value = noise(rng, 40);
            transaction.put("", &key(number), &value).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    set(&database, "zoo", 0, b"1");
    database.close().expect("the storage works");
    storage
}

/// Long values at the front, then commits elsewhere until the merge of those has made checkpoints.
fn until_checkpoints(database: &Database, rng: &mut SimRng, checkpoints: u64) {
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..HEAD {
        let value = noise(rng, 700);
        transaction.put("", &key(number), &value).expect("the storage works");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    while database.stats().checkpoints < checkpoints {
        let value = noise(rng, 40);
        set(database, "", 100 + rng.below(RECORDS - 100), &value);
    }
}

fn overwrite_head(database: &Database) {
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..HEAD {
        transaction.put("", &key(number), b"new").expect("the storage works");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
}

fn write_long_values(database: &Database, rng: &mut SimRng, commits: u64) {
    for _ in 0..commits {
        let value_len = 600 + rng.below(200);
        let value = noise(rng, value_len);
        set(database, "", 100 + rng.below(RECORDS - 100), &value);
    }
}

fn reopened(storage: &SimStorage, session: u64) -> Database {
    let database = Database::open(shared(storage), options(session)).expect("it opens");
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    database
}

/// The log from before a freeze names values. Two lives that end behind partial checkpoints replay it
/// twice; what the first replay gave up must stay for the second.
#[test]
fn values_of_a_log_that_is_replayed_twice_stay() {
    let mut rng = SimRng::new(1);
    let storage = filled(&mut rng);
    let database = reopened(&storage, 2);
    until_checkpoints(&database, &mut rng, 3);
    drop(database);
    let database = reopened(&storage, 3);
    overwrite_head(&database);
    write_long_values(&database, &mut rng, 400);
    drop(database);
    reopened(&storage, 4);
}

/// A merge that is given up behind a partial checkpoint has moved values; what replaces those must not
/// free what the partial checkpoint reaches.
#[test]
fn values_that_an_abandoned_merge_has_moved_stay() {
    let mut rng = SimRng::new(2);
    let storage = filled(&mut rng);
    let database = reopened(&storage, 2);
    set(&database, "zoo", 1, b"2");
    until_checkpoints(&database, &mut rng, 3);
    let mut transaction = database.begin().expect("the storage works");
    transaction
        .clear("zoo", mangrove_engine::KeyRange::all())
        .expect("the storage works");
    transaction.commit(Durability::Strict).expect("the storage works");
    overwrite_head(&database);
    write_long_values(&database, &mut rng, 400);
    drop(database);
    reopened(&storage, 3);
}

/// Runs `damage` on a database whose shadow then has to report a write.
fn assert_reported(damage: impl FnOnce(&SimStorage, &Database) + std::panic::UnwindSafe, expected: &str) {
    let caught = std::panic::catch_unwind(|| {
        let mut rng = SimRng::new(3);
        let storage = filled(&mut rng);
        let database = reopened(&storage, 2);
        set(&database, "", 1, &noise(&mut rng, 900));
        damage(&storage, &database);
    });
    let panic = caught.expect_err("the shadow reports it");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.starts_with("shadow: ") && text.contains(expected), "{text}");
}

/// Writes where another process would.
fn scribble(storage: &SimStorage, name: &str, offset: u64, bytes: &[u8]) {
    let files = storage.writer(name).expect("the file is there");
    files.write_at(offset, bytes).expect("the storage works");
}

#[test]
fn writes_to_what_a_recovery_needs_are_reported() {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let unit = |reference: u64| (reference & ((1 << 48) - 1)) * 512;
    let newest = |storage: &SimStorage| {
        let data = &storage.files()["data"];
        if word(data, 32) > word(data, 4128) { 0 } else { 4096 }
    };
    let reported_at = |field: usize, expected: &str| {
        assert_reported(
            move |storage, _| {
                let slot = newest(storage);
                let data = storage.files()["data"].clone();
                scribble(storage, "data", unit(word(&data, slot + field)), &[1; 512]);
            },
            expected,
        );
    };
    reported_at(48, "a node of the catalog");
    reported_at(72, "the free map");
    assert_reported(
        |storage, _| {
            // The newest value, which only the log names.
            let data = storage.files()["data"].clone();
            let is_chunk = |unit: &usize| data[unit * 512..].starts_with(b"MGBK\x03");
            let last = (16..data.len() / 512).rfind(is_chunk).expect("it was written");
            scribble(storage, "data", last as u64 * 512, &[1; 512]);
        },
        "the log behind the superblock",
    );
    assert_reported(
        move |storage, database| {
            database.checkpoint().expect("the storage works");
            scribble(storage, "data", newest(storage) as u64, &[0; 4096]);
        },
        "which is the newest",
    );
    assert_reported(
        move |storage, _| scribble(storage, "data", 4096 - newest(storage) as u64, &[0; 4096]),
        "no superblock in two copies",
    );
    assert_reported(
        |storage, _| scribble(storage, "log", 1030, &[1; 8]),
        "leads through them",
    );
    assert_reported(
        |storage, _| {
            let files = storage.writer("data").expect("the file is there");
            files.set_len(10_000).expect("the storage works");
        },
        "truncated",
    );
    assert_reported(
        |storage, database| {
            let snapshot = database.snapshot();
            let held = storage.hold_snapshot(&snapshot);
            let mut rng = SimRng::new(4);
            // The engine may reuse what only the snapshot reaches once that is dropped.
            drop(snapshot);
            for round in 0..40 {
                for number in 0..100 {
                    let value = noise(&mut rng, 300);
                    set(database, "", round * 100 + number, &value);
                }
                database.checkpoint().expect("the storage works");
            }
            drop(held);
        },
        "a snapshot of version",
    );
}

/// What an ordinary life of a database does is nothing to report, over any storage.
#[test]
fn a_shadow_over_another_storage_lets_the_engine_work() {
    let shadowed = ShadowStorage::new(Arc::new(MemoryStorage::new()));
    let mut rng = SimRng::new(5);
    for session in 0..3 {
        let database = Database::open(Arc::new(shadowed.clone()), options(session)).expect("it opens");
        for _ in 0..1500 {
            let value_len = [20, 20, 20, 700][rng.below(4) as usize];
            let value = noise(&mut rng, value_len);
            set(&database, "", rng.below(2000), &value);
        }
        while database.merge_slice().expect("the storage works") {}
        database.close().expect("the storage works");
    }
    let counts = shadowed.counts();
    println!("{counts:?}");
    assert!(
        counts.checkpoints > 3 && counts.reused > 300 && counts.closes == 6,
        "{counts:?}"
    );
}

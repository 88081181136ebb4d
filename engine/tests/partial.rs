//! Deaths behind partial checkpoints. Their superblocks name the log from before the freeze, so
//! what that log names has to stay until a whole checkpoint replaces them, in whatever life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::testing::sim::{Fault, FaultKind, Scope, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Clock, Database, Durability, Error, KeyRange, Options};

const RECORDS: u64 = 6000;
/// The first records of the tree get values out of line: each merge starts with them.
const HEAD: u64 = 40;

fn options(session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage, session: u64) -> Result<Database, Error> {
    Database::open(Arc::new(storage.clone()), options(session))
}

fn bytes(rng: &mut SimRng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// The records of the collection "a" that every image has to hold.
type Expected = BTreeMap<Vec<u8>, Vec<u8>>;

fn set(database: &Database, expected: &mut Expected, number: u64, value: Vec<u8>) {
    let key = number.to_be_bytes().to_vec();
    database
        .set("a", &key, &value, Durability::Strict)
        .expect("the storage works");
    expected.insert(key, value);
}

/// A closed database of short records, in a tree that takes many rounds to merge.
fn filled(storage: &SimStorage, rng: &mut SimRng) -> Expected {
    let database = open(storage, 1).expect("it is new");
    let mut expected = Expected::new();
    for from in (0..RECORDS).step_by(500) {
        let mut transaction = database.begin().expect("it is open");
        for number in from..from + 500 {
            let (key, value) = (number.to_be_bytes().to_vec(), bytes(rng, 40));
            transaction.set("a", &key, &value).expect("it fits");
            expected.insert(key, value);
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    database
        .set("b", b"key", b"value", Durability::Strict)
        .expect("the storage works");
    database.close().expect("the storage works");
    expected
}

/// Writes short values to the records behind the head until `count` more checkpoints have passed.
fn write_past_checkpoints(database: &Database, expected: &mut Expected, rng: &mut SimRng, count: u64) {
    let end = database.stats().checkpoints + count;
    while database.stats().checkpoints < end {
        let number = HEAD + rng.below(RECORDS - HEAD);
        set(database, expected, number, bytes(rng, 40));
    }
}

fn check(storage: &SimStorage, expected: &Expected, context: &str) {
    let image = SimStorage::from_files(storage.files());
    let database = open(&image, 99).unwrap_or_else(|error| panic!("{context}: {error}"));
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
    let tree = database.snapshot().collection("a").expect("it exists");
    assert_eq!(tree.len(), expected.len() as u64, "{context}");
    for (key, value) in expected {
        assert_eq!(
            tree.get(key).expect("it can be read").as_ref(),
            Some(value),
            "{context}"
        );
    }
}

/// Commits values out of line, and checks what the death of the process would leave between them.
fn check_images(storage: &SimStorage, database: &Database, expected: &mut Expected, rng: &mut SimRng, context: &str) {
    let begin = database.stats().checkpoints;
    for commit in 0..700 {
        let number = HEAD + rng.below(RECORDS - HEAD);
        let len = 600 + rng.below(200);
        set(database, expected, number, bytes(rng, len));
        if commit % 10 == 0 {
            check(storage, expected, &format!("{context}, commit {commit}"));
        }
    }
    let passed = database.stats().checkpoints - begin;
    assert!(passed > 3, "{context}: {passed} checkpoints, so little was tested");
}

/// Values that the log from before a freeze names were freed, and their extents reused, when they
/// were overwritten after a death and merged behind partial checkpoints.
#[test]
fn values_of_the_first_life_stay_until_a_whole_checkpoint() {
    for seed in 0..3 {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let mut expected = filled(&storage, &mut rng);
        let database = open(&storage, 2).expect("it opens");
        for number in 0..HEAD {
            set(&database, &mut expected, number, bytes(&mut rng, 700));
        }
        write_past_checkpoints(&database, &mut expected, &mut rng, 3 + seed);
        drop(database);
        let storage = SimStorage::from_files(storage.files());
        let database = open(&storage, 3).expect("it opens after a death");
        for number in 0..HEAD {
            set(&database, &mut expected, number, b"new".to_vec());
        }
        check_images(&storage, &database, &mut expected, &mut rng, &format!("seed {seed}"));
    }
}

/// The same without a death: clearing another collection abandons the merge, whose partial
/// checkpoints stay.
#[test]
fn values_of_an_abandoned_merge_stay_until_a_whole_checkpoint() {
    for (seed, drops) in [(0, false), (1, true), (2, false)] {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let mut expected = filled(&storage, &mut rng);
        let database = open(&storage, 2).expect("it opens");
        for number in 0..HEAD {
            set(&database, &mut expected, number, bytes(&mut rng, 700));
        }
        database
            .set("b", b"other", b"value", Durability::Strict)
            .expect("the storage works");
        write_past_checkpoints(&database, &mut expected, &mut rng, 3);
        let mut transaction = database.begin().expect("it is open");
        if drops {
            transaction.drop_collection("b").expect("the storage works");
        } else {
            transaction.clear("b", KeyRange::all()).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
        for number in 0..HEAD {
            set(&database, &mut expected, number, b"new".to_vec());
        }
        check_images(&storage, &database, &mut expected, &mut rng, &format!("seed {seed}"));
    }
}

/// Replay found the values in the trees of a partial checkpoint and did not add their hints.
#[test]
fn hints_of_values_that_were_merged_in_part_come_back() {
    let mut rng = SimRng::new(5);
    let storage = SimStorage::new();
    filled(&storage, &mut rng);
    let database = open(&storage, 2).expect("it opens");
    for number in 0..HEAD {
        let mut transaction = database.begin().expect("it is open");
        transaction
            .put_until("a", &number.to_be_bytes(), &bytes(&mut rng, 700), Some(1000 + number))
            .expect("it fits");
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    write_past_checkpoints(&database, &mut Expected::new(), &mut rng, 3);
    drop(database);
    let now = Arc::new(AtomicU64::new(1));
    let clock = Arc::clone(&now);
    let options = Options {
        clock: Clock::new(move || clock.load(Ordering::Relaxed)),
        ..options(3)
    };
    let database = Database::open(Arc::new(SimStorage::from_files(storage.files())), options).expect("it opens");
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    now.store(2000, Ordering::Relaxed);
    let count = || {
        let tree = database.snapshot().collection("a").expect("it exists");
        tree.count(KeyRange::all()).expect("it can be read")
    };
    assert_eq!(count(), RECORDS - HEAD);
    assert_eq!(database.purge_expired(1000).expect("the storage works"), HEAD as usize);
    assert_eq!(count(), RECORDS - HEAD);
    assert_eq!(database.stats().entries, RECORDS - HEAD + 1);
}

/// Flips a bit in the last record of the log that has not been damaged yet; returns its offset.
fn damage_last_record(files: &mut BTreeMap<String, Vec<u8>>, before: usize) -> usize {
    let log = files.get_mut("log").expect("it has a log");
    let last = log[..before]
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("it has records");
    log[last] ^= 1;
    last
}

/// Pairs of keys that are committed together lie far apart, so a partial checkpoint has half of
/// them. If the log ends before the record that has both, opening must not show half of the commit.
#[test]
fn a_log_that_ends_early_shows_no_half_of_a_commit() {
    let mut refused = 0;
    let mut opened = 0;
    for rounds in 1..=6 {
        let mut rng = SimRng::new(rounds);
        let storage = SimStorage::new();
        let initial = filled(&storage, &mut rng);
        let database = open(&storage, 2).expect("it opens");
        let pair = |number: u64| [number, RECORDS - 1 - number].map(u64::to_be_bytes);
        let mut last = BTreeMap::new();
        let end = database.stats().checkpoints + rounds;
        let mut merges = false;
        while database.stats().checkpoints < end {
            let (number, value) = (rng.below(RECORDS / 2), bytes(&mut rng, 40));
            let mut transaction = database.begin().expect("it is open");
            for key in pair(number) {
                transaction.set("a", &key, &value).expect("it fits");
            }
            let version = transaction
                .commit(Durability::Strict)
                .expect("the storage works")
                .version;
            last.insert(version, (number, value));
            // The last commits of the frozen version are the newest records of the log.
            if merges || database.stats().dirty_bytes > 24 << 10 {
                merges = true;
                while database.merge_slice().expect("the storage works") && database.stats().checkpoints < end {}
            }
        }
        drop(database);
        let mut files = storage.files();
        let mut before = files["log"].len();
        for damaged in 1..=8 {
            before = damage_last_record(&mut files, before).saturating_sub(120);
            let context = format!("{rounds} checkpoints, damage {damaged}");
            let image = SimStorage::from_files(files.clone());
            let database = match open(&image, 9) {
                Err(Error::Corrupt(_)) => {
                    assert_eq!(image.files(), files, "{context}: a failed open changed a file");
                    refused += 1;
                    continue;
                }
                result => result.unwrap_or_else(|error| panic!("{context}: {error}")),
            };
            let tree = database.snapshot().collection("a").expect("it exists");
            for (number, _) in last.values() {
                let keys = pair(*number);
                let found = keys.map(|key| tree.get(&key).expect("it can be read"));
                let was_never_set = (0..2).all(|at| found[at].as_ref() == initial.get(keys[at].as_slice()));
                assert!(
                    was_never_set || found[0] == found[1],
                    "{context}: half of a commit to {number}"
                );
            }
            opened += 1;
        }
    }
    assert!(refused > 10 && opened > 0, "{refused} refused, {opened} opened");
}

fn set_undurably(database: &Database, collection: &str, number: u64) {
    database
        .set(collection, &number.to_be_bytes(), &[9; 40], Durability::None)
        .expect("memory takes it");
}

/// A database whose frozen version has commits that are missing from the log.
fn frozen_without_log() -> (SimStorage, Database) {
    let mut rng = SimRng::new(1);
    let storage = SimStorage::new();
    filled(&storage, &mut rng);
    let database = open(&storage, 2).expect("it opens");
    set_undurably(&database, "b", 1);
    while database.merge_events().begun == 0 {
        set_undurably(&database, "a", rng.below(RECORDS));
    }
    (storage, database)
}

/// What the death of the process leaves.
fn left(storage: &SimStorage) -> Result<Database, Error> {
    open(&SimStorage::from_files(storage.files()), 99)
}

/// The newest superblock, in both of its copies, is lost.
fn without_newest_superblock(storage: &SimStorage) -> SimStorage {
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let [one, other] = [0, 4096].map(|slot| u64::from_le_bytes(*data[slot + 32..].first_chunk().expect("8 bytes")));
    let newest = if one > other { 0 } else { 4096 };
    data[newest..newest + 4096].fill(0);
    SimStorage::from_files(files).without_shadow()
}

/// The log does not lead to a version that has commits without durability, so no checkpoint may hold
/// part of it. The checkpoint that holds it all leaves a mark in the log.
#[test]
fn commits_without_durability_are_merged_whole() {
    let (storage, database) = frozen_without_log();
    let before = database.stats().durable_version;
    let mut slices = 0;
    while database.merge_slice().expect("the storage works") {
        slices += 1;
        let version = left(&storage).expect("every image opens").version();
        assert_eq!(version, database.stats().durable_version, "slice {slices}");
    }
    assert!(slices > 4, "{slices}");
    let durable = database.stats().durable_version;
    assert!(durable > before, "the merge has ended");
    let older = open(&without_newest_superblock(&storage), 98);
    assert!(
        matches!(older, Err(Error::Corrupt(_))),
        "an older state is shown: {older:?}"
    );
}

/// A commit that is to be durable is not logged behind some that are being merged and in no log.
#[test]
fn a_durable_commit_takes_those_that_are_being_merged_with_it() {
    let (storage, database) = frozen_without_log();
    let info = database
        .set("a", b"durable", b"1", Durability::Relaxed)
        .expect("the storage works");
    let found = left(&storage).expect("every image opens");
    assert_eq!(found.version(), info.version);
    assert!(found.verify().expect("it can be read").is_ok());
}

/// The same where the merge was given up before: what it was to merge is still in no log.
#[test]
fn a_durable_commit_takes_those_of_an_abandoned_merge_with_it() {
    let (storage, database) = frozen_without_log();
    let mut transaction = database.begin().expect("it is open");
    transaction.clear("b", KeyRange::all()).expect("the storage works");
    let info = transaction.commit(Durability::Relaxed).expect("the storage works");
    assert_eq!(database.merge_events().abandoned, 1);
    let found = left(&storage).expect("every image opens");
    assert_eq!(found.version(), info.version);
    assert!(found.verify().expect("it can be read").is_ok());
}

/// A collection that was cleared since the last whole checkpoint is in no partial one: replay clears it
/// again, and has to find what it then gives up.
#[test]
fn a_cleared_collection_is_in_no_partial_checkpoint() {
    let mut rng = SimRng::new(4);
    let storage = SimStorage::new();
    filled(&storage, &mut rng);
    let database = open(&storage, 2).expect("it opens");
    let mut transaction = database.begin().expect("it is open");
    transaction.clear("b", KeyRange::all()).expect("the storage works");
    transaction.set("b", b"new", b"value").expect("the storage works");
    transaction.commit(Durability::Strict).expect("the storage works");
    let mut expected = Expected::new();
    for _ in 0..3 {
        write_past_checkpoints(&database, &mut expected, &mut rng, 1);
        if database.merge_events().ends_partial {
            let found = left(&storage).expect("every image opens");
            let report = found.verify().expect("it can be read");
            assert!(report.is_ok(), "{:?}", report.problems);
        }
    }
    assert!(database.merge_events().partial > 0);
}

/// A merge that fails goes on from its last checkpoint, not from a state before it, whose nodes are used
/// again by now.
#[test]
fn a_merge_that_fails_goes_on_from_its_last_checkpoint() {
    for partial in 1..6 {
        let context = format!("{partial} partial checkpoints");
        let mut rng = SimRng::new(partial);
        let storage = SimStorage::new();
        let mut expected = filled(&storage, &mut rng);
        let database = open(&storage, 2).expect("it opens");
        while database.merge_events().partial < partial || !database.merge_events().ends_partial {
            write_past_checkpoints(&database, &mut expected, &mut rng, 1);
        }
        storage.set_fault(Some(Fault {
            scope: Scope::WritesOf("data"),
            ..Fault::once(storage.counters().operations + 2, FaultKind::StorageFull)
        }));
        write_past_checkpoints(&database, &mut expected, &mut rng, 4);
        database.checkpoint().expect("the storage works again");
        assert_eq!(storage.first_failed().map(|_| ()), Some(()), "{context}");
        let report = database.verify().expect("it can be read");
        assert!(report.is_ok(), "{context}: {:?}", report.problems);
        check(&storage, &expected, &context);
    }
}

/// What a partial checkpoint has flushed was there: a value whose block is damaged since is named, and the
/// log is not said to end with it.
#[test]
fn a_damaged_value_behind_a_partial_checkpoint_is_named() {
    let mut rng = SimRng::new(6);
    let storage = SimStorage::new();
    filled(&storage, &mut rng);
    let database = open(&storage, 2).expect("it opens");
    let mut number = 0;
    let mut relaxed = |value: &[u8]| {
        // The last record of the tree is merged last.
        let key = if value.len() > 100 {
            RECORDS - 1
        } else {
            number * 37 % RECORDS
        };
        number += 1;
        let set = database.set("a", &key.to_be_bytes(), value, Durability::Relaxed);
        set.expect("the storage works");
    };
    while database.stats().dirty_bytes < 16 << 10 {
        relaxed(&[1; 40]);
    }
    let value = bytes(&mut rng, 700);
    relaxed(&value);
    assert_eq!(database.merge_events().begun, 0);
    while database.merge_events().partial == 0 {
        assert_eq!(database.merge_slice(), Ok(true), "the merge goes on");
    }
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let at = data.windows(64).position(|bytes| bytes == &value[..64]);
    let at = at.expect("it does not compress");
    data[at] ^= 1;
    match open(&SimStorage::from_files(files).without_shadow(), 3) {
        Err(Error::Corrupt(found)) => assert_eq!(found.unit, Some(at as u64 / 512), "{found:?}"),
        opened => panic!("{opened:?}"),
    }
}

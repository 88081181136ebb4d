//! Proves what a failing storage may do to a database: a failed operation surfaces as a typed
//! error, nothing half-applied becomes visible, reads continue, a full disk leaves the database
//! writable, a failed flush does not, and reopening yields a committed state.
//!
//! The tests repeat a workload with every storage operation failing in turn, once or from then on,
//! with and without a partial write.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Flavour, History, check, options, read_state, run};
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{Fault, FaultKind, Keeps, Scope, SimOperation, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Cursor, Database, Direction, Durability, Error, KeyRange, Options, WriteBatch};

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

fn fault_everywhere(flavour: Flavour, kind: FaultKind, forever: bool) {
    let whole = SimStorage::new();
    run(&shared(&whole), flavour, 11, 25, &mut History::default()).expect("nothing fails without a fault");
    for at in 0..whole.counters().operations {
        let context = format!("{flavour:?} {kind:?} at {at}, forever {forever}");
        let storage = SimStorage::new();
        storage.set_fault(Some(Fault {
            times: if forever { u64::MAX } else { 1 },
            keeps: if at % 2 == 0 { Keeps::Half } else { Keeps::Nothing },
            ..Fault::once(at, kind)
        }));
        let mut history = History::default();
        match run(&shared(&storage), flavour, 11, 25, &mut history) {
            // Truncating the file's free tail may fail without harm. A commit that has already
            // taken effect leaves its error to the next one, even if the superblock may or may not
            // have been written.
            Ok(()) | Err(Error::Io(_) | Error::Poisoned { .. }) => {}
            Err(Error::StorageFull { .. }) => assert_eq!(kind, FaultKind::StorageFull, "{context}"),
            Err(other) => panic!("{context}: {other}"),
        }
        storage.set_fault(None);
        // The process goes on without a power cut, so everything written is there.
        let database =
            Database::open(shared(&storage), options(flavour, 2)).unwrap_or_else(|error| panic!("{context}: {error}"));
        check(&database, &history, &context);
    }
}

#[test]
fn every_operation_may_fail_once() {
    for flavour in [Flavour::Tiny, Flavour::Mixed, Flavour::Merging] {
        fault_everywhere(flavour, FaultKind::Io, false);
    }
}

#[test]
fn every_operation_may_fail_forever() {
    for flavour in [Flavour::Tiny, Flavour::Large] {
        fault_everywhere(flavour, FaultKind::Io, true);
    }
}

#[test]
fn the_disk_may_be_full_at_every_operation() {
    for flavour in [Flavour::Batches, Flavour::Large, Flavour::Merging] {
        fault_everywhere(flavour, FaultKind::StorageFull, true);
    }
}

/// Makes commits that are merged in parts, on a storage that refuses one operation. Returns the
/// number of refused commits and of operations.
fn merge_with_a_refusal(at: u64) -> (u32, u64) {
    let storage = SimStorage::new();
    let merging = || options(Flavour::Merging, 1);
    let database = Database::open(shared(&storage), merging()).expect("nothing fails yet");
    let mut rng = SimRng::new(7);
    let begin = storage.counters().operations;
    storage.set_fault(Some(Fault::once(begin.saturating_add(at), FaultKind::StorageFull)));
    let mut expected = BTreeMap::new();
    let mut refused = 0;
    let (mut is_poisoned, mut doubtful) = (false, None);
    let mut commit = |expected: &mut BTreeMap<Vec<u8>, Vec<u8>>, count: u64, durability: Durability| {
        let mut after = expected.clone();
        let done = database.begin().and_then(|mut transaction| {
            for _ in 0..count {
                let key = rng.below(2000).wrapping_mul(40_503).to_be_bytes().to_vec();
                if rng.below(4) == 0 {
                    transaction.delete("c", &key)?;
                    after.remove(&key);
                } else {
                    let value = vec![rng.below(256) as u8; 20 + rng.below(60) as usize];
                    transaction.set("c", &key, &value)?;
                    after.insert(key, value);
                }
            }
            transaction.commit(durability)
        });
        match done {
            Ok(_) => *expected = after,
            Err(Error::StorageFull { .. }) => refused += 1,
            // Whether a refused superblock reached the file is unknown, so nothing is written until
            // the database is reopened.
            Err(Error::Io(_)) => {
                refused += 1;
                doubtful = Some(after);
            }
            Err(Error::Poisoned { .. }) => is_poisoned = true,
            Err(other) => panic!("at {at}: {other}"),
        }
    };
    commit(&mut expected, 1500, Durability::Strict);
    for number in 0..60 {
        let durability = [Durability::Strict, Durability::Relaxed][number % 2];
        commit(&mut expected, 40, durability);
        if number % 20 == 19 {
            // A later commit completes what fails here.
            while database.merge_slice().unwrap_or(false) {}
        }
    }
    let found = |database: &Database| {
        let state = read_state(&database.snapshot()).expect("reads continue");
        state.get("c").cloned().unwrap_or_default()
    };
    assert!(found(&database) == expected, "at {at}");
    if is_poisoned || at.is_multiple_of(4) {
        let report = database.verify().expect("it can be read");
        assert!(report.is_ok(), "at {at}: {:?}", report.problems);
    }
    let operations = storage.counters().operations - begin;
    // As if the process died here.
    drop(database);
    let database = Database::open(shared(&storage), merging()).expect("it opens");
    let found = found(&database);
    assert!(
        found == expected || is_poisoned && doubtful == Some(found),
        "opened again, at {at}"
    );
    assert!(
        database.verify().expect("it can be read").is_ok(),
        "opened again, at {at}"
    );
    (refused, operations)
}

#[test]
fn merges_continue_after_a_refusal_at_any_of_their_writes() {
    let (refused, operations) = merge_with_a_refusal(u64::MAX);
    assert_eq!(refused, 0);
    assert!(operations > 300, "{operations}");
    let refused: u32 = (0..operations).map(|at| merge_with_a_refusal(at).0).sum();
    println!("{operations} operations, {refused} commits were refused");
    assert!(refused > 30, "{refused} commits were refused");
}

/// Makes one-record commits, some through the in-place path; returns how many were refused.
fn refused_stays_unseen(at: u64, kind: FaultKind, durabilities: &[Durability]) -> u32 {
    let storage = SimStorage::new();
    let small = options(Flavour::Tiny, 1);
    let database = Database::open(shared(&storage), small).expect("nothing fails yet");
    let mut rng = SimRng::new(at);
    storage.set_fault(Some(Fault::once(storage.counters().operations + at, kind)));
    let mut expected = BTreeMap::new();
    let mut refused = 0;
    for number in 0..150_u32 {
        let (key, value) = (vec![rng.below(50) as u8], number.to_be_bytes().repeat(30));
        let durability = durabilities[rng.below(durabilities.len() as u64) as usize];
        let done = if rng.below(2) == 0 {
            database.set("c", &key, &value, durability).map(|_| ())
        } else {
            database.begin().and_then(|mut transaction| {
                transaction.set("c", &key, &value)?;
                transaction.commit(durability).map(|_| ())
            })
        };
        if done.is_ok() {
            expected.insert(key, value);
        } else {
            refused += 1;
        }
        let found = read_state(&database.snapshot()).expect("reads continue");
        let found = found.get("c").cloned().unwrap_or_default();
        assert!(found == expected, "{kind:?} at {at}, commit {number}: {done:?}");
    }
    refused
}

/// Regression: a relaxed commit that filled the log was visible but refused. The flush of its
/// checkpoint had failed.
#[test]
fn a_refused_commit_is_not_seen() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        for durabilities in [&[Durability::Relaxed][..], &[Durability::Strict, Durability::Relaxed]] {
            let refused: u32 = (0..200).map(|at| refused_stays_unseen(at, kind, durabilities)).sum();
            assert!(
                refused > 100,
                "{kind:?} {durabilities:?}: {refused} commits were refused"
            );
        }
    }
}

fn open_with_one_record() -> (SimStorage, Database) {
    let storage = SimStorage::new();
    let small = Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(shared(&storage), small).expect("the storage works");
    set(&database, b"first", &[1; 100]).expect("the storage works");
    (storage, database)
}

fn set(database: &Database, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut transaction = database.begin()?;
    transaction.set("c", key, value)?;
    transaction.commit(Durability::Strict)?;
    Ok(())
}

fn fail_from(storage: &SimStorage, after: u64, kind: FaultKind, forever: bool) {
    let fault = Fault {
        times: if forever { u64::MAX } else { 1 },
        keeps: Keeps::Half,
        ..Fault::once(storage.counters().operations + after, kind)
    };
    storage.set_fault(Some(fault));
}

#[test]
fn a_full_disk_undoes_the_commit_and_the_next_one_succeeds() {
    let (storage, database) = open_with_one_record();
    let before = read_state(&database.snapshot()).expect("reads continue");
    // A commit with a large value first writes that value, then the log record.
    for after in 0..2 {
        fail_from(&storage, after, FaultKind::StorageFull, true);
        let failed = set(&database, b"second", &[2; 5000]);
        assert!(matches!(failed, Err(Error::StorageFull { .. })), "{failed:?}");
        assert!(read_state(&database.snapshot()).expect("reads continue") == before);
        assert!(database.verify().expect("it can be read").is_ok());
    }
    storage.set_fault(None);
    set(&database, b"second", &[2; 5000]).expect("there is space again");
    assert!(database.verify().expect("it can be read").is_ok());
    assert_eq!(database.version(), 2);
}

#[test]
fn a_failed_flush_of_the_log_poisons_writes_but_not_reads() {
    let (storage, database) = open_with_one_record();
    // Operations of a small commit: record, flush.
    a_failure_poisons(&storage, database, 1, |database| set(database, b"lost", b""));
}

#[test]
fn a_failed_write_to_the_log_poisons_writes_but_not_reads() {
    let (storage, database) = open_with_one_record();
    a_failure_poisons(&storage, database, 0, |database| set(database, b"lost", b""));
}

#[test]
fn a_failed_flush_of_a_checkpoint_poisons_writes_but_not_reads() {
    for operation in [2, 3, 4] {
        let (storage, database) = open_with_one_record();
        // Operations of a checkpoint: nodes, free map, flush, superblock, flush.
        a_failure_poisons(&storage, database, operation, Database::checkpoint);
    }
}

fn a_failure_poisons(
    storage: &SimStorage,
    database: Database,
    operation: u64,
    fail: impl FnOnce(&Database) -> Result<(), Error>,
) {
    let before = read_state(&database.snapshot()).expect("reads continue");
    fail_from(storage, operation, FaultKind::Io, false);
    assert!(matches!(fail(&database), Err(Error::Io(_))));
    let refused = set(&database, b"refused", b"");
    assert!(
        matches!(refused, Err(Error::Poisoned { .. })),
        "a flush that succeeds later must not be believed"
    );
    assert!(matches!(database.checkpoint(), Err(Error::Poisoned { .. })));
    assert!(matches!(database.flush(), Err(Error::Poisoned { .. })));
    assert!(read_state(&database.snapshot()).expect("reads continue") == before);
    drop(database);
    let database = Database::open(shared(storage), Options::default()).expect("opening again heals it");
    set(&database, b"after", b"").expect("writing works again");
}

/// Regression: a commit that was a checkpoint was visible but refused. The log record that follows
/// it had failed.
#[test]
fn a_checkpoint_counts_whatever_the_log_does_after_it() {
    let (storage, database) = open_with_one_record();
    // Too large for the log: the commit is a checkpoint, followed by a log record of its version.
    let large = 8 << 20;
    storage.set_fault(Some(Fault {
        scope: Scope::WritesOf("log"),
        ..Fault::once(0, FaultKind::Io)
    }));
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..large / 64_u32 {
        transaction
            .set("c", &number.to_be_bytes(), &[number as u8; 60])
            .expect("memory takes it");
    }
    let info = transaction.commit(Durability::Strict).expect("it is durable");
    assert_eq!((database.version(), info.version), (2, 2));
    assert!(matches!(set(&database, b"next", b""), Err(Error::Poisoned { .. })));
    drop(database);
    storage.set_fault(None);
    let database = Database::open(shared(&storage), Options::default()).expect("opening again heals it");
    assert_eq!(database.version(), 2);
}

#[test]
fn undurable_commits_survive_a_full_disk_in_memory() {
    let (storage, database) = open_with_one_record();
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("c", b"memory", b"1").expect("memory takes it");
    transaction.commit(Durability::None).expect("memory takes it");
    fail_from(&storage, 0, FaultKind::StorageFull, true);
    assert!(matches!(database.checkpoint(), Err(Error::StorageFull { .. })));
    assert!(matches!(
        set(&database, b"strict", b"2"),
        Err(Error::StorageFull { .. })
    ));
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"memory").expect("reads continue"), Some(b"1".to_vec()));
    assert_eq!(tree.get(b"strict").expect("reads continue"), None);
    // The files stay open as long as something reads them.
    drop(tree);
    storage.set_fault(None);
    database.close().expect("there is space again");
    let database = Database::open(shared(&storage), Options::default()).expect("it opens");
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"memory").expect("reads continue"), Some(b"1".to_vec()));
}

#[test]
fn bad_input_leaves_the_transaction_usable() {
    let (_storage, database) = open_with_one_record();
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("c", b"kept", b"1").expect("memory takes it");
    let long = vec![0; database.max_key_bytes() + 1];
    assert!(matches!(transaction.set("c", &long, b""), Err(Error::KeyTooLarge(_))));
    assert!(matches!(
        transaction.set(&"n".repeat(300), b"k", b""),
        Err(Error::InvalidArgument { .. })
    ));
    transaction.set_codecs("coded", "any", "json").expect("it is new");
    let mismatch = transaction.set_codecs("coded", "any", "bytes");
    assert!(matches!(mismatch, Err(Error::CodecMismatch(_))));
    transaction.commit(Durability::Strict).expect("the storage works");
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"kept").expect("reads continue"), Some(b"1".to_vec()));
    assert_eq!(tree.get(&long).expect("asking for it is no error"), None);
}

/// Advances to the end; returns how often reading failed on the way.
fn rest(cursor: &mut Cursor, keys: &mut Vec<Vec<u8>>) -> u32 {
    let mut failures = 0;
    loop {
        match cursor.advance() {
            Ok(true) => keys.push(cursor.key().to_vec()),
            Ok(false) => return failures,
            Err(error) => {
                assert!(matches!(error, Error::Io(_)), "{error}");
                failures += 1;
                // The cursor keeps its position.
                assert!(keys.is_empty() || cursor.value().is_ok());
            }
        }
    }
}

/// Regression: a failed read cost a cursor its leaf. The next step panicked or read an inner node
/// as a leaf.
#[test]
fn a_cursor_continues_after_a_failed_read() {
    let storage = SimStorage::new();
    let options = Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 256,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(shared(&storage), options.clone()).expect("nothing fails yet");
    let all: Vec<Vec<u8>> = (0..300_u16).map(|number| number.to_be_bytes().to_vec()).collect();
    let mut transaction = database.begin().expect("nothing fails yet");
    for key in &all {
        transaction.set("c", key, b"value").expect("nothing fails yet");
    }
    transaction.commit(Durability::Strict).expect("nothing fails yet");
    drop(database);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut expected = all.clone();
        if direction == Direction::Reverse {
            expected.reverse();
        }
        for at in 0..40 {
            for (seek, skip) in [(false, false), (true, false), (false, true)] {
                let database = Database::open(shared(&storage), options.clone()).expect("nothing fails yet");
                let tree = database.snapshot().collection("c").expect("it was written");
                let mut cursor = tree.cursor(KeyRange::all(), direction);
                assert!(cursor.advance().expect("nothing fails yet"));
                let mut keys = vec![cursor.key().to_vec()];
                storage.set_read_fault(Some(Fault::once(storage.counters().reads + at, FaultKind::Io)));
                let mut from = 1;
                if (seek && cursor.seek(&expected[200]).is_ok()) || (skip && cursor.skip(199).is_ok()) {
                    from = 200;
                }
                let failures = rest(&mut cursor, &mut keys);
                assert!(failures <= 1);
                assert!(keys[1..] == expected[from..], "{direction:?} {at} {seek} {skip}");
                storage.set_read_fault(None);
            }
        }
    }
}

/// A batch of which a part is in the transaction when it fails must not be committed by accident.
#[test]
fn a_batch_that_fails_in_part_ends_its_transaction() {
    let storage = SimStorage::new();
    let database = Database::open(shared(&storage), options(Flavour::Tiny, 1)).expect("the storage works");
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..3000_u32 {
        transaction
            .set("old", &number.to_be_bytes(), &[1; 40])
            .expect("the storage works");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    database.close().expect("the storage works");
    let database = Database::open(shared(&storage), options(Flavour::Tiny, 2)).expect("the storage works");
    let mut batch = WriteBatch::new();
    batch.set("new", b"first", b"1");
    batch.delete("old", &1500_u32.to_be_bytes());
    let mut transaction = database.begin().expect("the storage works");
    storage.set_read_fault(Some(Fault::from(0, FaultKind::Io)));
    let failed = transaction.apply(&batch);
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    storage.set_read_fault(None);
    let committed = transaction.commit(Durability::Strict);
    assert!(matches!(committed, Err(Error::Io(_))), "{committed:?}");
    assert!(database.snapshot().collection("new").is_none());
}

/// A checkpoint that the storage refuses at any point leaves its space free.
#[test]
fn a_refused_checkpoint_loses_no_space() {
    let mut refused = 0;
    for at in 0..60 {
        let storage = SimStorage::new();
        let database = Database::open(shared(&storage), options(Flavour::Tiny, 1)).expect("the storage works");
        for round in 0..3_u8 {
            for number in 0..60_u8 {
                let mut transaction = database.begin().expect("the storage works");
                transaction
                    .set("c", &[number], &[round; 50])
                    .expect("the storage works");
                transaction
                    .set(&format!("collection {}", number % 20), b"1", b"2")
                    .expect("the storage works");
                transaction.commit(Durability::Relaxed).expect("the storage works");
            }
            if round < 2 {
                database.checkpoint().expect("the storage works");
            }
        }
        // It is tried again after room was made.
        storage.set_fault(Some(Fault {
            times: u64::MAX,
            ..Fault::once(storage.counters().operations + at, FaultKind::StorageFull)
        }));
        let made = database.checkpoint();
        storage.set_fault(None);
        let Err(error) = made else { continue };
        if !matches!(error, Error::StorageFull { .. }) || database.begin().is_err() {
            // Nobody knows whether the superblock was written.
            continue;
        }
        refused += 1;
        for _ in 0..2 {
            let report = database.verify().expect("the storage works");
            assert!(report.is_ok(), "at {at}: {:?}", report.problems);
            database.checkpoint().expect("the storage works again");
        }
    }
    assert!(refused > 3, "{refused}");
}

/// A transaction larger than memory is merged while it grows. If that fails, it is over.
#[test]
fn a_transaction_whose_merge_failed_cannot_be_committed() {
    let storage = SimStorage::new();
    let database = Database::open(shared(&storage), options(Flavour::Tiny, 1)).expect("the storage works");
    database
        .set("c", b"before", b"1", Durability::Strict)
        .expect("the storage works");
    let mut transaction = database.begin().expect("the storage works");
    storage.set_fault(Some(Fault::once(storage.counters().operations, FaultKind::StorageFull)));
    let mut numbers = 0..20_000_u32;
    let failed = numbers.find_map(|number| transaction.set("c", &number.to_be_bytes(), &[1; 40]).err());
    assert!(matches!(failed, Some(Error::StorageFull { .. })), "{failed:?}");
    let committed = transaction.commit(Durability::Strict);
    assert!(matches!(committed, Err(Error::StorageFull { .. })), "{committed:?}");
    assert_eq!(database.snapshot().collection("c").map(|tree| tree.len()), Some(1));
    let report = database.verify().expect("the storage works");
    assert!(report.is_ok(), "{:?}", report.problems);
}

/// Stores records through one transaction, whose long values and whose size make it merge and make
/// room before it commits. Returns the first refusal of a single call, and that of the commit.
fn store_through_refusals(database: &Database, count: u64, len: usize) -> (Option<Error>, Result<(), Error>) {
    let mut transaction = match database.begin() {
        Ok(transaction) => transaction,
        Err(error) => return (None, Err(error)),
    };
    let mut refused = None;
    for number in 0..count {
        let key = (number * 7 % 1500).to_be_bytes();
        let stored = transaction.set("c", &key, &vec![number as u8; len]);
        refused = refused.or(stored.err());
    }
    (refused, transaction.commit(Durability::Relaxed).map(drop))
}

/// A call of a transaction that the storage refuses for lack of space ends it, also where making
/// room is what fails: earlier commits are merged by then, in part or as a whole, and what the
/// transaction builds on is no more.
#[test]
fn a_refused_call_ends_the_transaction_however_far_making_room_came() {
    for (count, len, reserve_bytes) in [(6, 3000, 0), (6, 3000, 16 << 10), (700, 100, 0)] {
        let prepare = || {
            let storage = SimStorage::new();
            let options = Options {
                advanced: AdvancedOptions {
                    reserve_bytes,
                    log_bytes: Some(64 << 10),
                    ..options(Flavour::Large, 1).advanced
                },
                ..options(Flavour::Large, 1)
            };
            let database = Database::open(shared(&storage), options).expect("nothing fails yet");
            for number in 0..180_u64 {
                let key = (number % 150).to_be_bytes();
                let value = vec![number as u8; if number % 3 == 0 { 1700 } else { 60 }];
                database
                    .set("c", &key, &value, Durability::Relaxed)
                    .expect("nothing fails yet");
                if number == 119 {
                    database.checkpoint().expect("nothing fails yet");
                }
            }
            (storage, database)
        };
        let state_of = |database: &Database| read_state(&database.snapshot()).expect("reads continue");
        let (_, whole) = prepare();
        let before = state_of(&whole);
        let (None, Ok(())) = store_through_refusals(&whole, count, len) else {
            panic!("nothing fails without a fault");
        };
        let after = state_of(&whole);
        let mut refusals = 0;
        for times in 1..=3 {
            for at in 0.. {
                let context = format!("{count} values of {len} bytes, {times} writes refused from {at} on");
                let (storage, database) = prepare();
                storage.set_fault(Some(Fault {
                    times,
                    scope: Scope::Writes,
                    ..Fault::once(storage.counters().operations + at, FaultKind::StorageFull)
                }));
                let (refused, committed) = store_through_refusals(&database, count, len);
                let is_over = storage.first_failed().is_none();
                storage.set_fault(None);
                assert!(refused.is_none() || committed.is_err(), "{context}: {refused:?}");
                refusals += u64::from(refused.is_some());
                let expected = if committed.is_ok() { &after } else { &before };
                assert!(state_of(&database) == *expected, "{context}");
                for _ in 0..2 {
                    let report = database.verify().expect("it can be read");
                    assert!(report.is_ok(), "{context}: {:?}", report.problems);
                    match database.set("d", b"key", &[1; 3000], Durability::Relaxed) {
                        Ok(_) => {}
                        // It was a superblock that was refused (I10).
                        Err(Error::Poisoned { .. }) => break,
                        Err(error) => panic!("{context}: {error}"),
                    }
                    database
                        .checkpoint()
                        .unwrap_or_else(|error| panic!("{context}: {error}"));
                }
                let mut found = state_of(&database);
                found.remove("d");
                assert!(found == *expected, "{context}");
                if is_over {
                    break;
                }
            }
        }
        assert!(refusals > 0, "{count} values of {len} bytes: no call was refused");
    }
}

/// A transaction that was too large for the log, and for the disk, leaves the log as it was: small
/// commits need no room in the data file.
#[test]
fn a_refused_checkpoint_leaves_the_log_to_smaller_commits() {
    let mut refused = 0;
    for at in 0..200 {
        let storage = SimStorage::new();
        let database = Database::open(shared(&storage), options(Flavour::Tiny, 1)).expect("the storage works");
        set(&database, b"first", b"1").expect("the storage works");
        storage.set_fault(Some(Fault {
            times: u64::MAX,
            scope: Scope::WritesOf("data"),
            ..Fault::once(storage.counters().operations + at, FaultKind::StorageFull)
        }));
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..100_u32 {
            transaction
                .put("c", &number.to_be_bytes(), &[number as u8; 60])
                .expect("memory takes it");
        }
        match transaction.commit(Durability::Strict) {
            Ok(_) => break,
            Err(Error::StorageFull { .. }) => {}
            // It was the superblock (I10).
            Err(Error::Io(_)) => continue,
            Err(error) => panic!("at {at}: {error}"),
        }
        refused += 1;
        let before = database.stats().checkpoints;
        set(&database, b"small", b"2").unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert_eq!(database.stats().checkpoints, before, "at {at}");
    }
    assert!(refused > 1, "{refused}");
}

/// A record that finds no room is written again once room was made.
#[test]
fn a_record_that_the_log_refuses_once_is_committed() {
    let (storage, database) = open_with_one_record();
    storage.set_fault(Some(Fault {
        scope: Scope::WritesOf("log"),
        ..Fault::once(0, FaultKind::StorageFull)
    }));
    set(&database, b"second", b"2").expect("there is room the second time");
    assert!(storage.first_failed().is_some(), "a write was refused");
    drop(database);
    let database = Database::open(shared(&storage), Options::default()).expect("it opens");
    assert_eq!(database.snapshot().collection("c").map(|tree| tree.len()), Some(2));
}

/// The marker behind a checkpoint fails, and may be in the file: the commit that the checkpoint made
/// room for must not stand there.
#[test]
fn no_record_follows_a_marker_that_failed() {
    for keeps in [Keeps::Nothing, Keeps::Half, Keeps::All] {
        let (storage, database) = open_with_one_record();
        database
            .set("c", b"memory", b"1", Durability::None)
            .expect("memory takes it");
        storage.set_fault(Some(Fault {
            scope: Scope::WritesOf("log"),
            keeps,
            ..Fault::once(0, FaultKind::Io)
        }));
        let refused = database.set("c", b"relaxed", b"2", Durability::Relaxed);
        assert!(storage.first_failed().is_some(), "{keeps:?}: the marker failed");
        assert!(
            matches!(refused, Err(Error::Poisoned { .. } | Error::Io(_))),
            "{keeps:?}: {refused:?}"
        );
        drop(database);
        let database = Database::open(shared(&storage), Options::default()).expect("it opens");
        let tree = database.snapshot().collection("c").expect("it is there");
        assert_eq!(tree.get(b"relaxed").expect("it can be read"), None, "{keeps:?}");
    }
}

/// Commits short records until some were merged, and the log has switched halves.
fn commit_records(database: &Database, from: u32, to: u32) {
    for number in from..to {
        // Once writing has ended, all are refused.
        let _ = database.set("c", &number.to_be_bytes(), &[7; 60], Durability::Relaxed);
    }
}

/// After a superblock that could not be written nothing more is written (I10), whatever it was for: a
/// checkpoint, or the log's other half, for which no commit fails.
#[test]
fn a_failed_superblock_ends_writing_whatever_it_was_for() {
    let mut failed = 0;
    for nth in 0.. {
        let storage = SimStorage::new().without_shadow();
        let database = Database::open(shared(&storage), options(Flavour::Tiny, 1)).expect("the storage works");
        storage.set_fault(Some(Fault {
            scope: Scope::WritesOf("data"),
            ..Fault::once(storage.counters().operations + 5 * nth, FaultKind::Io)
        }));
        commit_records(&database, 0, 900);
        match storage.first_failed() {
            None => break,
            Some(SimOperation::Write(0 | 4096)) => failed += 1,
            Some(_) => continue,
        }
        let begun = database.begin().map(drop);
        assert!(
            matches!(begun, Err(Error::Poisoned { .. })),
            "operation {nth}: {begun:?}"
        );
    }
    assert!(failed > 5, "{failed} superblocks");
}

/// A merge that found no room waits until it has to be done: commits do not try it again and again.
#[test]
fn a_failed_merge_is_not_tried_with_each_commit() {
    let storage = SimStorage::new();
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..options(Flavour::Tiny, 1).advanced
        },
        ..options(Flavour::Tiny, 1)
    };
    let database = Database::open(shared(&storage), options).expect("the storage works");
    let mut number = 0;
    let mut commit = || {
        number += 1;
        let done = database.set("c", &u32::to_be_bytes(number), &[7; 60], Durability::Relaxed);
        done.expect("the log has room");
        storage.first_failed().is_some()
    };
    commit();
    storage.set_fault(Some(Fault {
        scope: Scope::WritesOf("data"),
        ..Fault::from(0, FaultKind::StorageFull)
    }));
    while !commit() {}
    let before = storage.counters().writes;
    for _ in 0..20 {
        commit();
    }
    let writes = storage.counters().writes - before;
    assert!(writes < 30, "{writes} writes for 20 commits");
    assert_eq!(database.merge_slice(), Ok(false), "idle time does not try it either");
    storage.set_fault(None);
    database.checkpoint().expect("there is room again");
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
}

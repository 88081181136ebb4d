//! Proves that a re-encryption leaves nothing under the previous data key, loses nothing wherever it
//! is cut, and keeps that key as long as anything needs it.

#![allow(clippy::print_stdout, reason = "the number of images is a result")]

mod crashes;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{Fault, FaultKind, SimStorage};
use mangrove_engine::{
    Background, Completeness, Database, Durability, Error, ExtentKind, IndexBy, Key, Options, ReencryptEnd,
    ReencryptOptions, ReencryptProgress, recover, restore,
};

use crate::common::re_encrypt;
use crate::encryption::{
    Files, MARKER, NAME, UNIT_BYTES, assert_unreadable, backup_of, fill, filled, key_of, newest_slot, number, open,
    options, records, value,
};

const SMALL: ReencryptOptions = ReencryptOptions {
    slice_bytes: 512,
    continues_only: false,
};
const CONTINUE: ReencryptOptions = ReencryptOptions {
    slice_bytes: 4096,
    continues_only: true,
};

fn go_on(_: ReencryptProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What the newest superblock says of encryption: its kind, and the first generation under the new key.
fn renewal(data: &[u8]) -> (u8, u64) {
    let newest = newest_slot(data);
    (data[newest + 164], number(data, newest + 480))
}

/// Whether no superblock holds a previous key.
fn is_over(files: &Files) -> bool {
    let data = &files["data"];
    let slots = [0, 2048, 4096, 6144];
    slots
        .into_iter()
        .all(|slot| data[slot + 164] == 1 && data[slot + 408..slot + 508].iter().all(|byte| *byte == 0))
}

/// The oldest generation among all blocks that the newest state reaches.
fn oldest_generation(database: &Database, data: &[u8]) -> u64 {
    let mut scan = database.layout_scan().expect("it can be read");
    let mut oldest = u64::MAX;
    while let Some(parts) = scan.next_parts(1000).expect("it can be read") {
        for part in parts {
            if !matches!(part.kind, ExtentKind::Superblock | ExtentKind::Free | ExtentKind::Kept) {
                let at = part.start_unit as usize * UNIT_BYTES;
                assert_eq!(&data[at..at + 4], b"MGBK", "{part:?}");
                oldest = oldest.min(number(data, at + 16));
            }
        }
    }
    oldest
}

fn assert_intact(database: &Database, context: &str) {
    let report = database.verify().expect("it can be read");
    let first = report.problems.first();
    assert!(
        report.is_ok(),
        "{context}: {} problems, first {first:?}",
        report.problems.len()
    );
}

#[test]
fn every_block_gets_another_data_key_while_the_database_is_used() {
    let (storage, database) = filled(120);
    let by_value = IndexBy::new("by value", |_, value| Some(value[..value.len().min(40)].to_vec()));
    let indexed = database.indexed_collection("others", [by_value]).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..50_u32 {
        indexed
            .set(
                &mut transaction,
                &number.to_be_bytes(),
                &value(number, 60),
                Some(u64::MAX / 2),
            )
            .expect("memory works");
    }
    transaction
        .set(NAME, b"long", &value(7, 3 << 20))
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let before = database.snapshot();
    let expected = records(&database).expect("it can be read");
    let stream = backup_of(&database);
    assert!(!database.is_reencrypting());

    let (mut slices, mut first, mut last) = (0_u32, 0, 0);
    let end = database.reencrypt(
        ReencryptOptions {
            slice_bytes: 4096,
            ..SMALL
        },
        &mut |progress| {
            assert!(database.is_reencrypting());
            let (kind, from) = renewal(&storage.files()["data"]);
            assert_eq!(kind, 2, "the previous key is there");
            assert!(first == 0 || first == from);
            first = from;
            assert!(progress.moved_bytes >= last);
            last = progress.moved_bytes;
            slices += 1;
            // Others write meanwhile.
            if slices.is_multiple_of(7) {
                fill(&database, 2000 + slices, 1).expect("memory works");
            }
            ControlFlow::Continue(())
        },
    );
    assert_eq!(end, Ok(ReencryptEnd::Done));
    assert!(slices > 50 && last > 3 << 20, "{slices} slices, {last} bytes");
    let files = storage.files();
    assert!(is_over(&files) && !database.is_reencrypting());
    assert!(oldest_generation(&database, &files["data"]) >= first);
    assert_unreadable(&files, "after a re-encryption");
    assert_intact(&database, "at the end");
    let now = records(&database).expect("it can be read");
    assert!(now.len() > expected.len());
    assert!(expected.iter().all(|(key, value)| now.get(key) == Some(value)));
    // The snapshot reads blocks under the previous key.
    let tree = before.collection(NAME).expect("it is there");
    assert_eq!(tree.get(b"long").expect("it can be read"), Some(value(7, 3 << 20)));
    assert_eq!(tree.get(&key_of(2007)).expect("it can be read"), None);
    drop((tree, before));
    drop(database);

    let database = open(&storage, 1).expect("it is the key");
    assert!(records(&database).expect("it can be read") == now);
    assert_intact(&database, "opened again");
    // A second one replaces the key of the first.
    fill(&database, 3000, 20).expect("memory works");
    assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Done));
    assert_intact(&database, "twice");
    assert!(is_over(&storage.files()));
    database.close().expect("memory works");
    assert_eq!(open(&storage, 2).map(drop), Err(Error::WrongKey { is_missing: false }));
    assert_intact(&open(&storage, 1).expect("it is the key"), "closed");
    // A backup has its own copy of the key it was made with.
    let target = MemoryStorage::new();
    let restored = restore(&mut &stream[..], Arc::new(target.clone()), options(1), &mut |_| {
        ControlFlow::Continue(())
    });
    restored.expect("it is the key");
    assert!(records(&open(&target, 1).expect("it is the key")).expect("it can be read") == expected);
}

/// Regression: a slice searched the leaves after its start key for that key's suffix alone, and
/// skipped values in them. The previous key was dropped all the same.
#[test]
fn slices_that_go_on_within_a_leaf_pass_over_no_value() {
    for slice_bytes in [512, 64 << 10, 1 << 20] {
        let storage = MemoryStorage::new();
        let database = open(&storage, 1).expect("memory works");
        // More values out of line than one slice looks at, in leaves with prefixes of different lengths.
        for number in 0..2500_u32 {
            let key = key_of(number * 7);
            database
                .set(NAME, &key, &value(number, 300), Durability::Relaxed)
                .expect("memory works");
        }
        let expected = records(&database).expect("it can be read");
        let options = ReencryptOptions { slice_bytes, ..SMALL };
        assert_eq!(database.reencrypt(options, &mut go_on), Ok(ReencryptEnd::Done));
        database.close().expect("memory works");
        let database = open(&storage, 1).expect("it is the key");
        assert_intact(&database, &format!("slices of {slice_bytes} bytes"));
        assert!(records(&database).expect("it can be read") == expected);
    }
}

/// What an attacker has who copied the files, and knows the user's key of that time, opens nothing.
#[test]
fn the_previous_data_key_opens_nothing_new() {
    let (storage, database) = filled(30);
    database.close().expect("memory works");
    let old = storage.files();
    let database = open(&storage, 1).expect("it is the key");
    database.reencrypt(SMALL, &mut go_on).expect("memory works");
    database.change_key(&Key::new([2; 32])).expect("memory works");
    database.close().expect("memory works");
    let mut mixed = storage.files();
    // The old superblocks have the old data key; their references are to places that still exist.
    mixed.get_mut("data").expect("it is there")[..8192].copy_from_slice(&old["data"][..8192]);
    let len = mixed["data"].len().max(old["data"].len());
    mixed.get_mut("data").expect("it is there").resize(len, 0);
    let opened = open(&MemoryStorage::from_files(mixed), 1);
    let read = opened.and_then(|database| records(&database)).map(drop);
    assert_eq!(read.map_err(|error| error.code()), Err("KV_CORRUPT"));
}

#[test]
fn a_re_encryption_goes_on_after_a_break_a_change_of_key_and_an_opening() {
    let (storage, database) = filled(60);
    let expected = records(&database).expect("it can be read");
    assert_eq!(
        database.reencrypt(CONTINUE, &mut go_on),
        Ok(ReencryptEnd::Done),
        "there is none"
    );
    assert_eq!(renewal(&storage.files()["data"]).0, 1);
    let end = re_encrypt(&database, 512, 20);
    assert_eq!(end, Ok(ReencryptEnd::Cancelled));
    let (kind, from) = renewal(&storage.files()["data"]);
    assert_eq!(kind, 2);
    database.change_key(&Key::new([2; 32])).expect("memory works");
    fill(&database, 200, 5).expect("memory works");
    let now = records(&database).expect("it can be read");
    drop(database);
    assert_eq!(open(&storage, 1).map(drop), Err(Error::WrongKey { is_missing: false }));
    let database = open(&storage, 2).expect("it is the key");
    assert!(database.is_reencrypting());
    assert!(records(&database).expect("it can be read") == now);
    assert_intact(&database, "between");
    // A backup is under the new data key, also of blocks under the previous one.
    let target = MemoryStorage::new();
    restore(
        &mut &backup_of(&database)[..],
        Arc::new(target.clone()),
        options(2),
        &mut |_| ControlFlow::Continue(()),
    )
    .expect("it is the key");
    assert!(records(&open(&target, 2).expect("it is the key")).expect("it can be read") == now);
    assert!(is_over(&target.files()));
    // It does not begin anew.
    assert_eq!(re_encrypt(&database, 512, 5), Ok(ReencryptEnd::Cancelled));
    assert_eq!(renewal(&storage.files()["data"]), (2, from));
    assert_eq!(database.reencrypt(CONTINUE, &mut go_on), Ok(ReencryptEnd::Done));
    assert!(is_over(&storage.files()));
    assert!(oldest_generation(&database, &storage.files()["data"]) >= from);
    assert!(records(&database).expect("it can be read") == now && now.len() > expected.len());
    assert_intact(&database, "at the end");
}

#[test]
fn a_value_that_is_being_staged_keeps_the_previous_key() {
    let (storage, database) = filled(20);
    let long = value(3, (2 << 20) + 77);
    let mut kept = database.stage_value(NAME).expect("it is there");
    let mut dropped = database.stage_value(NAME).expect("it is there");
    kept.append(&long[..3 << 19]).expect("memory works");
    dropped.append(&long).expect("memory works");
    assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Staged));
    // One that began later is under the new key.
    let mut later = database.stage_value(NAME).expect("it is there");
    later.append(&long).expect("memory works");
    kept.append(&long[3 << 19..]).expect("memory works");
    assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Staged));
    assert!(database.is_reencrypting());
    let mut transaction = database.begin().expect("it can be written");
    transaction.put_staged(NAME, b"kept", kept, None).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Staged));
    drop(dropped);
    let (_, from) = renewal(&storage.files()["data"]);
    assert_eq!(database.reencrypt(CONTINUE, &mut go_on), Ok(ReencryptEnd::Done));
    let mut transaction = database.begin().expect("it can be written");
    transaction
        .put_staged(NAME, b"later", later, None)
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    drop(database);
    let database = open(&storage, 1).expect("it is the key");
    let snapshot = database.snapshot();
    let tree = snapshot.collection(NAME).expect("it is there");
    for key in [&b"kept"[..], b"later"] {
        assert_eq!(tree.get(key).expect("it can be read").as_ref(), Some(&long));
    }
    assert_intact(&database, "at the end");
    assert!(oldest_generation(&database, &storage.files()["data"]) >= from);
}

#[test]
fn damage_keeps_the_previous_key() {
    let (storage, database) = filled(60);
    database.close().expect("memory works");
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let leaves: Vec<usize> = (8192..data.len())
        .step_by(UNIT_BYTES)
        .filter(|at| &data[*at..*at + 5] == b"MGBK\x01")
        .collect();
    data[leaves[leaves.len() / 2] + 90] ^= 1;
    let storage = MemoryStorage::from_files(files);
    let database = open(&storage, 1).expect("the rest is intact");
    let damaged = database.reencrypt(SMALL, &mut go_on).map_err(|error| error.code());
    // The block may be one that nothing reaches any more.
    if database.verify().expect("it can be read").is_ok() {
        assert_eq!(damaged, Ok(ReencryptEnd::Done));
        return;
    }
    assert_eq!(damaged, Err("KV_CORRUPT"));
    assert!(database.is_reencrypting());
    drop(database);
    let database = open(&storage, 1).expect("the rest is intact");
    assert_eq!(database.verify().expect("it can be read").problems.len(), 1);
    drop(database);
    let target = MemoryStorage::new();
    let report = recover(Arc::new(storage), Arc::new(target.clone()), options(1), &mut |_| {
        ControlFlow::Continue(())
    })
    .expect("something is left");
    assert_ne!(report.completeness, Completeness::Exact);
    let found = records(&open(&target, 1).expect("it is the key")).expect("it can be read");
    assert!(found.len() > 80, "{}", found.len());
}

#[test]
fn only_encrypted_databases_that_can_be_written_are_re_encrypted() {
    let plain = Database::open(Arc::new(MemoryStorage::new()), Options::default()).expect("memory works");
    assert_eq!(plain.reencrypt(SMALL, &mut go_on), Err(Error::NotEncrypted));
    assert!(!plain.is_reencrypting());
    let (storage, database) = filled(2);
    database.close().expect("memory works");
    let read_only = Options {
        read_only: true,
        feed_commits: 0,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage), read_only).expect("it is the key");
    assert_eq!(database.reencrypt(SMALL, &mut go_on), Err(Error::ReadOnly));
}

/// The first generation under the new key, of a re-encryption that is under way.
fn begun_from(storage: &MemoryStorage) -> u64 {
    let (kind, from) = renewal(&storage.files()["data"]);
    assert_eq!(kind, 2, "the previous key is there");
    from
}

/// Opens what a re-encryption that began with generation `from` has left, and needs the new key only.
fn assert_done(storage: &MemoryStorage, options: Options, from: u64) -> Database {
    let files = storage.files();
    assert!(is_over(&files));
    let copy = MemoryStorage::from_files(files.clone());
    let database = Database::open(Arc::new(copy), options).expect("it is the key");
    assert_intact(&database, "done");
    assert!(oldest_generation(&database, &files["data"]) >= from);
    database
}

/// Empty collections have no tree that could move, and so nothing that rewrites their entries.
#[test]
fn the_catalog_of_empty_collections_gets_another_data_key() {
    let storage = MemoryStorage::new();
    let unfed = Options {
        feed_commits: 0,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage.clone()), unfed.clone()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..300_u32 {
        let name = format!("{NAME} {number}");
        transaction.set(&name, b"key", b"value").expect("memory works");
        transaction.delete(&name, b"key").expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    let mut from = 0;
    let end = database.reencrypt(SMALL, &mut |_| {
        from = begun_from(&storage);
        ControlFlow::Continue(())
    });
    assert_eq!(end, Ok(ReencryptEnd::Done));
    assert_eq!(assert_done(&storage, unfed, from).collections().len(), 300);
}

/// A pass goes from name to name. It has passed by a collection that gets an earlier one meanwhile.
#[test]
fn a_collection_that_is_renamed_to_behind_a_pass_gets_another_data_key() {
    let storage = MemoryStorage::new();
    let unfed = Options {
        feed_commits: 0,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage.clone()), unfed.clone()).expect("memory works");
    for name in ["in the middle", "late"] {
        for number in 0..20 {
            let key = key_of(number);
            database
                .set(name, &key, &value(number, 2000), Durability::Relaxed)
                .expect("memory works");
        }
    }
    let mut from = 0;
    let end = database.reencrypt(SMALL, &mut |_| {
        if from == 0 {
            let mut transaction = database.begin().expect("it can be written");
            assert_eq!(transaction.rename_collection("late", "early"), Ok(true));
            transaction.commit(Durability::Strict).expect("memory works");
        }
        from = begun_from(&storage);
        ControlFlow::Continue(())
    });
    assert_eq!(end, Ok(ReencryptEnd::Done));
    let database = assert_done(&storage, unfed, from);
    let early = database.snapshot().collection("early").expect("it has that name");
    for number in 0..20 {
        let found = early.get(&key_of(number)).expect("it is under the new key");
        assert_eq!(found, Some(value(number, 2000)));
    }
}

/// No block is moved, so none of the slices makes a checkpoint.
#[test]
fn a_database_without_blocks_gets_another_data_key() {
    let storage = MemoryStorage::new();
    let empty = Options {
        feed_commits: 0,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage.clone()), empty.clone()).expect("memory works");
    for round in 0..3 {
        assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Done));
        let files = storage.files();
        assert!(is_over(&files));
        let copy = Database::open(Arc::new(MemoryStorage::from_files(files)), empty.clone()).expect("it opens");
        assert_intact(&copy, &format!("round {round}"));
        // The next round has free space, and so a free map.
        fill(&database, 0, 20).expect("memory works");
        let mut transaction = database.begin().expect("it can be written");
        transaction.drop_collection(NAME).expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
        assert_eq!(database.collections(), []);
    }
}

/// Every byte of the superblocks, in the middle of a re-encryption.
#[test]
fn every_flipped_byte_of_both_keys_is_refused() {
    let (storage, database) = filled(20);
    let expected = records(&database).expect("it can be read");
    let broken = database.reencrypt(SMALL, &mut |_| ControlFlow::Break(()));
    assert_eq!(broken, Ok(ReencryptEnd::Cancelled));
    database.close().expect("memory works");
    let files = storage.files();
    let newest = newest_slot(&files["data"]);
    for at in 0..508 {
        let mut damaged = files.clone();
        let data = damaged.get_mut("data").expect("it is there");
        for copy in [newest, newest + 2048] {
            data[copy + at] ^= 1;
            let crc = crc32fast::hash(&data[copy..copy + 508]);
            data[copy + 508..copy + 512].copy_from_slice(&crc.to_le_bytes());
        }
        match open(&MemoryStorage::from_files(damaged), 1).and_then(|database| records(&database)) {
            // Either the record is not ours any more, so that the other slot counts, or these bytes are
            // not used.
            Ok(found) => assert!(
                found == expected && !(168..240).contains(&at) && !(368..488).contains(&at),
                "byte {at}"
            ),
            Err(error) => assert!(
                [
                    "KV_CORRUPT",
                    "KV_WRONG_KEY",
                    "KV_NOT_ENCRYPTED",
                    "KV_VERSION_UNSUPPORTED",
                    "KV_KEY_ORDER_UNSUPPORTED"
                ]
                .contains(&error.code()),
                "byte {at}: {error}"
            ),
        }
    }
}

#[test]
fn failing_writes_leave_a_database_that_goes_on() {
    let (original, database) = filled(30);
    let expected = records(&database).expect("it can be read");
    drop(database);
    let run = |storage: &SimStorage| {
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        let database = Database::open(shared, options(1))?;
        let result = database.reencrypt(SMALL, &mut go_on);
        // Whether it failed or not, what it left can be read, and goes on unless it is poisoned.
        assert!(records(&database)? == expected, "{result:?}");
        assert_intact(&database, &format!("{result:?}"));
        if result.is_err() {
            let again = database.reencrypt(CONTINUE, &mut go_on);
            assert!(
                matches!(again, Ok(ReencryptEnd::Done) | Err(Error::Poisoned { .. })),
                "{again:?} after {result:?}"
            );
            assert_intact(&database, "after the second call");
        }
        result
    };
    let whole = SimStorage::from_files(original.files());
    run(&whole).expect("nothing fails");
    let operations = whole.counters().operations;
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        let mut failed = 0;
        for at in 0..operations {
            let storage = SimStorage::from_files(original.files());
            storage.set_fault(Some(Fault::once(at, kind)));
            failed += u32::from(run(&storage).is_err());
            storage.set_fault(None);
            let again = MemoryStorage::from_files(storage.files());
            let database = open(&again, 1).unwrap_or_else(|error| panic!("{kind:?} at {at}: {error}"));
            assert!(
                records(&database).expect("it can be read") == expected,
                "{kind:?} at {at}"
            );
            assert_eq!(
                database.reencrypt(CONTINUE, &mut go_on),
                Ok(ReencryptEnd::Done),
                "{kind:?} at {at}"
            );
            assert_intact(&database, &format!("{kind:?} at {at}"));
            database.close().expect("memory works");
            assert!(is_over(&again.files()), "{kind:?} at {at}");
        }
        println!("{kind:?}: {failed} of {operations} failed");
        assert!(failed > 5);
    }
}

/// Ends the other threads, even if this one panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn threads_write_and_read_beside_it() {
    let storage = MemoryStorage::new();
    let with_room = Options {
        cache_bytes: 256 << 10,
        ..options(1)
    };
    let database = Arc::new(Database::open(Arc::new(storage.clone()), with_room).expect("memory works"));
    fill(&database, 0, 200).expect("memory works");
    let background = Background::start(Arc::clone(&database), Duration::from_millis(1));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3_u32 {
            let (database, is_done) = (&database, &is_done);
            scope.spawn(move || {
                let mut number = 10_000 * (writer + 1);
                while !is_done.load(Ordering::Relaxed) {
                    fill(database, number, 1).expect("memory works");
                    let snapshot = database.snapshot();
                    let tree = snapshot.collection(NAME).expect("it is there");
                    let found = tree.get(&key_of(number)).expect("it can be read");
                    assert_eq!(found, Some(value(number, 20)));
                    number += 1;
                }
            });
        }
        let _stop = Stop(&is_done);
        for _ in 0..3 {
            assert_eq!(database.reencrypt(SMALL, &mut go_on), Ok(ReencryptEnd::Done));
        }
    });
    drop(background);
    let expected = records(&database).expect("it can be read");
    assert_intact(&database, "after threads");
    drop(database);
    let database = open(&storage, 1).expect("it is the key");
    assert!(records(&database).expect("it can be read") == expected);
    assert!(expected.keys().all(|key| key.starts_with(MARKER)));
    assert!(is_over(&storage.files()));
}

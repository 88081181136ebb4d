//! Declaring, building and dropping indexes.

use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{
    CompactOptions, Database, Durability, Error, IndexBy, IndexKeys, IndexProgress, KeyRange, WriteBatch,
};

use super::{
    NAME, Time, build, by_bytes, by_first, by_value, bytes, definition, expected, first_byte, open, options,
    read_index, records, verify,
};

fn filled(storage: &Arc<dyn Storage>, time: &Time, count: u32) -> Database {
    let database = open(storage, time, 1);
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..count {
        let value = [(number * 7) as u8, (number >> 3) as u8];
        transaction
            .set(NAME, &number.to_be_bytes(), &value)
            .expect("it is small");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    database
}

#[test]
fn a_full_collection_is_indexed_beside_writers() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 4500);
    let notes = database
        .indexed_collection(NAME, vec![by_first(1), by_bytes()])
        .expect("they are new");
    let early = database.snapshot().index(NAME, "first").err();
    assert!(matches!(early, Some(Error::IndexIncomplete(_))), "{early:?}");
    let mut calls = 0;
    // Between the slices there are writes, before and after the position of the build.
    notes
        .build(&mut |done, total| {
            calls += 1;
            let mut transaction = database.begin().expect("it can be written");
            for number in [5, 2600, 4400, 9000 + calls] {
                let value = [calls as u8, 1, 2];
                notes
                    .set(&mut transaction, &u32::to_be_bytes(number), &value, None)
                    .expect("it states the keys");
            }
            transaction
                .delete(NAME, &(calls * 37).to_be_bytes())
                .expect("it is there");
            transaction.commit(Durability::Strict).expect("there is room");
            assert!(done <= total);
            verify(&database, "while it is built");
            ControlFlow::Continue(())
        })
        .expect("nothing fails");
    assert!(calls >= 10, "two indexes of {calls} slices");
    let snapshot = database.snapshot();
    let records = records(&snapshot);
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records, |value| first_byte(1, value))
    );
    assert_eq!(read_index(&snapshot, "bytes"), expected(&records, bytes));
    verify(&database, "built");
}

#[test]
fn a_build_continues_where_it_was_interrupted() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 3500);
    let notes = database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new");
    let mut calls = 0;
    let whole = notes.build(&mut |_, _| {
        calls += 1;
        if calls > 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(!whole.expect("nothing fails"));
    drop(database);
    let database = open(&storage, &time, 2);
    let progress = database.snapshot().indexes(NAME).remove(0).progress;
    assert_eq!(progress, IndexProgress::Building(Some(1999_u32.to_be_bytes().to_vec())));
    let notes = database
        .indexed_collection(NAME, vec![by_first(1)])
        .expect("it is there");
    let mut seen = Vec::new();
    notes
        .build(&mut |done, _| {
            seen.push(done);
            ControlFlow::Continue(())
        })
        .expect("nothing fails");
    assert_eq!(seen, [1999, 2999]);
    let snapshot = database.snapshot();
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records(&snapshot), |value| first_byte(1, value))
    );
}

#[test]
fn two_builders_of_one_index_do_not_interfere() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 3500);
    let one = database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new");
    let other = database
        .indexed_collection(NAME, vec![by_first(1)])
        .expect("it is there");
    one.build(&mut |_, _| {
        let mut calls = 0;
        let built = other.build(&mut |_, _| {
            calls += 1;
            if calls > 1 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        built.expect("nothing fails");
        ControlFlow::Continue(())
    })
    .expect("nothing fails");
    let snapshot = database.snapshot();
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records(&snapshot), |value| first_byte(1, value))
    );
    verify(&database, "built by two");
}

#[test]
fn a_newer_version_replaces_an_older_one() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 100);
    let old = database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new");
    build(&old);
    let new = database
        .indexed_collection(NAME, vec![by_first(2)])
        .expect("it is newer");
    let mut transaction = database.begin().expect("it can be written");
    let refused = old.set(&mut transaction, b"key", b"value", None);
    assert!(matches!(refused, Err(Error::IndexMismatch(_))), "{refused:?}");
    transaction.commit(Durability::Strict).expect("nothing changed");
    build(&new);
    let snapshot = database.snapshot();
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records(&snapshot), |value| first_byte(2, value))
    );
    let refused = database.indexed_collection(NAME, vec![by_first(1)]).err();
    assert!(matches!(refused, Some(Error::IndexMismatch(_))), "{refused:?}");
    // Records keep the keys of the old version until they are written again.
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..100_u32 {
        assert!(transaction.delete(NAME, &number.to_be_bytes()).expect("it is there"));
    }
    transaction.commit(Durability::Strict).expect("there is room");
    assert!(
        database
            .snapshot()
            .index(NAME, "first")
            .expect("it is complete")
            .is_empty()
    );
    verify(&database, "replaced");
}

#[test]
fn a_write_without_the_keys_of_every_index_is_refused() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let notes = database
        .indexed_collection(NAME, vec![by_first(1), by_bytes()])
        .expect("they are new");
    build(&notes);
    let is_mismatch = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::IndexMismatch(_))), "{result:?}");
        assert_eq!(result.expect_err("it was just checked").code(), "KV_INDEX_MISMATCH");
    };
    let partly = |ids: &[u32]| {
        let mut keys = IndexKeys::new();
        for id in ids {
            keys.set(*id, [b"x".to_vec()]);
        }
        keys
    };
    let ids: Vec<u32> = database.snapshot().indexes(NAME).iter().map(|index| index.id).collect();
    let mut transaction = database.begin().expect("it can be written");
    is_mismatch(transaction.set(NAME, b"k", b"v").map(drop));
    is_mismatch(transaction.put(NAME, b"k", b"v"));
    is_mismatch(transaction.put_until(NAME, b"k", b"v", Some(9)));
    is_mismatch(
        transaction
            .apply(WriteBatch::new().set("other", b"k", b"v").set(NAME, b"k", b"v"))
            .map(drop),
    );
    for keys in [
        partly(&[]),
        partly(&ids[..1]),
        partly(&[ids[0], ids[1], 999]),
        partly(&[ids[0], 999]),
    ] {
        is_mismatch(transaction.set_indexed(NAME, b"k", b"v", None, &keys).map(drop));
    }
    is_mismatch(
        transaction
            .set_indexed("other", b"k", b"v", None, &partly(&[1]))
            .map(drop),
    );
    transaction.commit(Durability::Strict).expect("nothing changed");
    let mut transaction = database
        .transaction(mangrove_engine::Isolation::Serializable)
        .expect("it can begin");
    is_mismatch(transaction.set(NAME, b"k", b"v").map(drop));
    is_mismatch(transaction.put(NAME, b"k", b"v"));
    is_mismatch(
        transaction
            .set_indexed(NAME, b"k", b"v", None, &partly(&ids[..1]))
            .map(drop),
    );
    transaction.commit(Durability::Strict).expect("nothing changed");
    let snapshot = database.snapshot();
    assert!(
        snapshot.collection("other").is_none(),
        "a refused batch changes nothing"
    );
    assert!(records(&snapshot).is_empty());
}

#[test]
fn dropped_indexes_are_not_missed() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 300);
    build(
        &database
            .indexed_collection(NAME, vec![by_first(1), by_bytes()])
            .expect("they are new"),
    );
    let mut transaction = database.begin().expect("it can be written");
    assert!(!transaction.drop_index(NAME, "other").expect("nothing fails"));
    assert!(transaction.drop_index(NAME, "first").expect("nothing fails"));
    transaction.commit(Durability::Strict).expect("there is room");
    let gone = database.snapshot().index(NAME, "first").err();
    assert!(matches!(gone, Some(Error::NotFound { .. })), "{gone:?}");
    verify(&database, "one is left");
    let mut transaction = database.begin().expect("it can be written");
    assert!(transaction.drop_index(NAME, "bytes").expect("nothing fails"));
    transaction.set(NAME, b"key", b"value").expect("it has no indexes");
    transaction.commit(Durability::Strict).expect("there is room");
    drop(database);
    let database = open(&storage, &time, 2);
    assert!(database.snapshot().indexes(NAME).is_empty());
    verify(&database, "none is left");
    // The default names of the next declaration are new indexes.
    build(&database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new"));
    let snapshot = database.snapshot();
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records(&snapshot), |value| first_byte(1, value))
    );
}

#[test]
fn collections_take_their_indexes_along_when_they_are_renamed_or_dropped() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 300);
    build(&database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new"));
    let before = read_index(&database.snapshot(), "first");
    let mut transaction = database.begin().expect("it can be written");
    transaction.rename_collection(NAME, "away").expect("the name is free");
    transaction.commit(Durability::Strict).expect("there is room");
    assert_eq!(
        database.snapshot().index("away", "first").expect("it moved").len(),
        before.len() as u64
    );
    let mut transaction = database.begin().expect("it can be written");
    transaction.rename_collection("away", NAME).expect("the name is free");
    transaction.commit(Durability::Strict).expect("there is room");
    assert_eq!(read_index(&database.snapshot(), "first"), before);
    let all = CompactOptions {
        threshold_bytes: 0,
        ..CompactOptions::default()
    };
    database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("it can be compacted");
    assert_eq!(read_index(&database.snapshot(), "first"), before);
    let mut transaction = database.begin().expect("it can be written");
    transaction.drop_collection(NAME).expect("it is there");
    transaction
        .set(NAME, b"key", b"value")
        .expect("a new one has no indexes");
    transaction.commit(Durability::Strict).expect("there is room");
    verify(&database, "dropped");
    drop(database);
    let database = open(&storage, &time, 2);
    assert!(database.snapshot().indexes(NAME).is_empty());
    verify(&database, "dropped and opened again");
}

#[test]
fn a_unique_index_cannot_be_built_over_repeated_keys() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 300);
    let notes = database
        .indexed_collection(NAME, vec![by_value(true)])
        .expect("it is new");
    build(&notes);
    let mut transaction = database.begin().expect("it can be written");
    transaction.drop_index(NAME, "value").expect("it is there");
    transaction
        .set(NAME, &1_u32.to_be_bytes(), b"same")
        .expect("it has no index");
    transaction
        .set(NAME, &290_u32.to_be_bytes(), b"same")
        .expect("it has no index");
    transaction.commit(Durability::Strict).expect("there is room");
    let notes = database
        .indexed_collection(NAME, vec![by_value(true)])
        .expect("it is new");
    let failed = notes.build(&mut |_, _| ControlFlow::Continue(()));
    let Err(Error::NotUnique(records)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!((&*records.index_key, &*records.index), (&b"same"[..], "value"));
    assert_eq!(
        records.keys.clone().map(Vec::from),
        [1_u32, 290].map(|number| number.to_be_bytes().to_vec())
    );
    verify(&database, "it is not complete");
    let mut transaction = database.begin().expect("it can be written");
    transaction.delete(NAME, &1_u32.to_be_bytes()).expect("it is there");
    transaction.commit(Durability::Strict).expect("there is room");
    build(&notes);
    verify(&database, "it is complete");
}

#[test]
fn declarations_that_contradict_each_other_are_refused() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let mut transaction = database.begin().expect("it can be written");
    let twice = transaction.declare_indexes(NAME, &[definition("a", 1, false), definition("a", 2, false)]);
    assert!(matches!(twice, Err(Error::InvalidArgument { .. })), "{twice:?}");
    let long = transaction.declare_indexes(NAME, &[definition(&"n".repeat(256), 1, false)]);
    assert!(matches!(long, Err(Error::InvalidArgument { .. })), "{long:?}");
    transaction
        .declare_indexes(NAME, &[definition("a", 1, false)])
        .expect("it is new");
    let unique = transaction.declare_indexes(NAME, &[definition("a", 1, true)]);
    assert!(matches!(unique, Err(Error::IndexMismatch(_))), "{unique:?}");
    let newer = transaction
        .declare_indexes(NAME, &[definition("a", 2, true)])
        .expect("it is newer");
    assert_eq!(newer.len(), 1);
    transaction.commit(Durability::Strict).expect("there is room");
}

#[test]
fn backups_and_recovery_leave_indexes_out_and_records_in() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 700);
    build(
        &database
            .indexed_collection(NAME, vec![by_first(1), by_value(false)])
            .expect("they are new"),
    );
    let before = records(&database.snapshot());
    let mut bytes = Vec::new();
    database
        .snapshot()
        .backup(&mut bytes, &mut |_| ControlFlow::Continue(()))
        .expect("memory has room");
    let target: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut progress = |_| ControlFlow::Continue(());
    mangrove_engine::restore(
        &mut bytes.as_slice(),
        Arc::clone(&target),
        options(&time, 5),
        &mut progress,
    )
    .expect("it can be restored");
    drop(database);
    let salvaged: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut progress = |_| ControlFlow::Continue(());
    mangrove_engine::recover(storage, Arc::clone(&salvaged), options(&time, 6), &mut progress)
        .expect("it can be recovered");
    for copy in [target, salvaged] {
        let database = open(&copy, &time, 7);
        assert_eq!(records(&database.snapshot()), before);
        assert!(database.snapshot().indexes(NAME).is_empty());
        let names: Vec<String> = database
            .snapshot()
            .collections()
            .into_iter()
            .map(|info| info.name)
            .collect();
        assert_eq!(names, [NAME]);
        build(&database.indexed_collection(NAME, vec![by_first(1)]).expect("it is new"));
        assert_eq!(
            read_index(&database.snapshot(), "first"),
            expected(&before, |value| first_byte(1, value))
        );
        verify(&database, "copied");
    }
}

#[test]
fn verification_finds_missing_and_extra_index_entries() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = filled(&storage, &time, 50);
    build(
        &database
            .indexed_collection(NAME, vec![by_value(false)])
            .expect("it is new"),
    );
    for damage in mangrove_engine::testing::IndexDamage::ALL {
        let mut transaction = database.begin().expect("it can be written");
        mangrove_engine::testing::damage_index(&mut transaction, NAME, damage).expect("there is an entry");
        transaction.commit(Durability::None).expect("memory has room");
        let report = database.verify().expect("it can be read");
        assert!(!report.is_ok(), "{damage:?}");
        assert!(
            report.problems.iter().all(|problem| problem.code() == "KV_CORRUPT"),
            "{:?}",
            report.problems
        );
        let mut transaction = database.begin().expect("it can be written");
        transaction.clear(NAME, KeyRange::all()).expect("it can be cleared");
        transaction.commit(Durability::Strict).expect("there is room");
        verify(&database, "cleared");
        let notes = database
            .indexed_collection(NAME, vec![by_value(false)])
            .expect("it is there");
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..50_u8 {
            notes
                .set(&mut transaction, &[number], &[number / 2], None)
                .expect("it is small");
        }
        transaction.commit(Durability::Strict).expect("there is room");
        verify(&database, "filled again");
    }
}

/// The hint of an expiring record takes eight bytes more than its key.
#[test]
fn a_build_refuses_an_expiring_record_whose_keys_are_too_long_together() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let (key, value) = ([7; 60], [1; 52]);
    let mut transaction = database.begin().expect("it can be written");
    transaction
        .put_until(NAME, &key, &value, Some(1000))
        .expect("the key alone is short enough");
    transaction.commit(Durability::Strict).expect("there is room");
    let notes = database
        .indexed_collection(NAME, [IndexBy::new("all", |_, value| Some(value.to_vec()))])
        .expect("it is new");
    let failed = notes.build(&mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(failed, Err(Error::KeyTooLarge(_))), "{failed:?}");
    let mut transaction = database.begin().expect("it can be written");
    let refused = notes.set(&mut transaction, &key, &value, Some(1000));
    assert!(matches!(refused, Err(Error::KeyTooLarge(_))), "{refused:?}");
    notes
        .set(&mut transaction, &key, &value, None)
        .expect("it does not expire any more");
    transaction.commit(Durability::Strict).expect("there is room");
    build(&notes);
    verify(&database, "built");
}

/// Builders may be late. What they bring goes on from where the index is, or not at all.
#[test]
fn a_slice_that_does_not_go_on_is_not_indexed() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let database = open(&storage, &Time::default(), 1);
    database
        .set(NAME, b"a", b"1", Durability::Strict)
        .expect("there is room");
    let mut transaction = database.begin().expect("it can be written");
    let declared = transaction.declare_indexes(NAME, &[definition("first", 1, false)]);
    let id = declared.expect("it is new")[0].id;
    assert_eq!(transaction.index_slice(NAME, id, Some(b"a"), &[], None), Ok(false));
    assert!(!transaction.indexes(NAME)[0].is_complete());
    assert_eq!(transaction.index_slice(NAME, id, None, &[], Some(b"a")), Ok(true));
    assert_eq!(transaction.index_slice(NAME, id, None, &[], None), Ok(false));
    assert_eq!(transaction.index_slice(NAME, id, Some(b"a"), &[], None), Ok(true));
    assert!(transaction.indexes(NAME)[0].is_complete());
}

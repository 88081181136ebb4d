//! What else is done to databases with indexes: expiry, compaction, renaming, incremental backups.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{CompactOptions, Database, Durability, IndexProgress, KeyRange, Options, restore};

use super::{
    NAME, Time, build, by_bytes, by_first, bytes, expected, first_byte, open, options, read_index, records, verify,
};

fn check(database: &Database, context: &str) {
    let snapshot = database.snapshot();
    let records = records(&snapshot);
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&records, |value| first_byte(1, value)),
        "{context}"
    );
    assert_eq!(read_index(&snapshot, "bytes"), expected(&records, bytes), "{context}");
    verify(database, context);
}

fn value_of(number: u32) -> [u8; 3] {
    [(number * 7) as u8, (number >> 3) as u8, (number % 5) as u8]
}

fn compact(database: &Database) {
    let all = CompactOptions {
        threshold_bytes: 0,
        ..CompactOptions::default()
    };
    database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("it can be compacted");
}

#[test]
fn expiry_and_compaction_leave_indexes_right() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let notes = database
        .indexed_collection(NAME, [by_first(1), by_bytes()])
        .expect("they are new");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..2000_u32 {
        let expires_at = (number % 3 == 0).then(|| u64::from(1000 + number));
        notes
            .set(&mut transaction, &number.to_be_bytes(), &value_of(number), expires_at)
            .expect("it is small");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    check(&database, "written");
    compact(&database);
    check(&database, "compacted");
    time.set(2000);
    assert_eq!(records(&database.snapshot()).len(), 2000 - 334);
    check(&database, "some have expired");
    compact(&database);
    assert_eq!(database.purge_expired(200).expect("there is room"), 200);
    check(&database, "some of them are purged");
    // Those that are expired and not purged are overwritten, too.
    let mut transaction = database.begin().expect("it can be written");
    for number in 600..1200_u32 {
        notes
            .set(&mut transaction, &number.to_be_bytes(), &value_of(number + 1), None)
            .expect("it is small");
    }
    transaction
        .clear(
            NAME,
            KeyRange {
                lower: Bound::Included(&100_u32.to_be_bytes()),
                upper: Bound::Excluded(&300_u32.to_be_bytes()),
            },
        )
        .expect("it can be read");
    transaction.commit(Durability::Strict).expect("there is room");
    while database.purge_expired(100).expect("there is room") == 100 {}
    compact(&database);
    check(&database, "all of them are purged");
    drop(database);
    check(&open(&storage, &time, 2), "opened again");
}

#[test]
fn a_collection_that_is_renamed_while_it_is_indexed_is_indexed_on() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..3000_u32 {
        transaction
            .set("before", &number.to_be_bytes(), &value_of(number))
            .expect("it is small");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    let before = database
        .indexed_collection("before", [by_first(1), by_bytes()])
        .expect("they are new");
    let mut slices = 0;
    let is_whole = before.build(&mut |_, _| {
        slices += 1;
        if slices > 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(!is_whole.expect("nothing fails"));
    let infos = database.snapshot().index_infos().expect("it can be read");
    let figures = infos.iter().map(|info| {
        let name = info.index.definition.name.as_str();
        (
            info.collection.as_str(),
            name,
            info.index.is_complete(),
            info.count,
            info.covered,
            info.records,
        )
    });
    assert_eq!(
        figures.collect::<Vec<_>>(),
        [
            ("before", "first", false, 2000, 2000, 3000),
            ("before", "bytes", false, 0, 0, 3000),
        ]
    );
    let mut transaction = database.begin().expect("it can be written");
    transaction.rename_collection("before", NAME).expect("the name is free");
    transaction.commit(Durability::Strict).expect("there is room");
    verify(&database, "renamed");
    // Who builds under the old name finds nothing left to do.
    build(&before);
    let notes = database
        .indexed_collection(NAME, [by_first(1), by_bytes()])
        .expect("they are there");
    let first = &database.snapshot().indexes(NAME)[0];
    assert_eq!(
        first.progress,
        IndexProgress::Building(Some(1999_u32.to_be_bytes().to_vec()))
    );
    compact(&database);
    build(&notes);
    check(&database, "built");
    let infos = database.snapshot().index_infos().expect("it can be read");
    assert!(
        infos
            .iter()
            .all(|info| info.index.is_complete() && info.covered == 3000)
    );
    assert_eq!(infos[0].count, 3000);
}

#[test]
fn incremental_backups_have_the_records_of_indexed_collections() {
    let with_feed = |storage: &Arc<dyn Storage>, time: &Time| {
        let options = Options {
            feed_commits: 100,
            ..options(time, 1)
        };
        Database::open(Arc::clone(storage), options).expect("it can be opened")
    };
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = with_feed(&storage, &time);
    let mut go_on = |_| ControlFlow::Continue(());
    let notes = database.indexed_collection(NAME, [by_first(1)]).expect("it is new");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..100_u32 {
        notes
            .set(&mut transaction, &number.to_be_bytes(), &value_of(number), None)
            .expect("it is small");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    let (mut full, base) = (Vec::new(), database.version());
    database
        .snapshot()
        .backup(&mut full, &mut go_on)
        .expect("memory has room");
    // Another index is declared between the two, built, and kept.
    let notes = database
        .indexed_collection(NAME, [by_first(1), by_bytes()])
        .expect("it is new");
    build(&notes);
    let mut transaction = database.begin().expect("it can be written");
    for number in 50..150_u32 {
        notes
            .set(&mut transaction, &number.to_be_bytes(), &value_of(number + 3), Some(9))
            .expect("it is small");
    }
    transaction.delete(NAME, &7_u32.to_be_bytes()).expect("it is there");
    transaction.commit(Durability::Strict).expect("there is room");
    check(&database, "the original");
    let mut later = Vec::new();
    database
        .backup_since(base, &mut later, &mut go_on)
        .expect("the feed reaches back");
    let target: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    restore(&mut full.as_slice(), Arc::clone(&target), options(&time, 5), &mut go_on).expect("it can be restored");
    let copy = open(&target, &time, 6);
    copy.restore_commits(&mut later.as_slice(), &mut go_on)
        .expect("it follows the full one");
    assert_eq!(copy.version(), database.version());
    assert_eq!(records(&copy.snapshot()), records(&database.snapshot()));
    assert!(copy.snapshot().indexes(NAME).is_empty());
    let notes = copy
        .indexed_collection(NAME, [by_first(1), by_bytes()])
        .expect("they are new");
    build(&notes);
    check(&copy, "the copy");
    time.set(10);
    assert_eq!(records(&copy.snapshot()).len(), 49);
    check(&copy, "most have expired");
}

//! Indexes in transactions: what they see, and what makes them fail.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{
    Database, Direction, Durability, Error, IndexKeys, IndexedCollection, Isolation, KeyRange, OptimisticTransaction,
};

use super::{
    Entries, NAME, Time, build, by_bytes, by_first, by_value, bytes, expected, first_byte, open, read_index, records,
    verify,
};

fn new(unique: bool) -> Database {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let database = open(&storage, &Time::default(), 1);
    let notes = database
        .indexed_collection(NAME, vec![by_first(1), by_value(unique)])
        .expect("they are new");
    build(&notes);
    database
}

fn notes(database: &Database, unique: bool) -> IndexedCollection<'_> {
    let found = database.indexed_collection(NAME, vec![by_first(1), by_value(unique)]);
    found.expect("they are there")
}

fn set(database: &Database, unique: bool, key: &[u8], value: &[u8]) {
    let notes = notes(database, unique);
    let mut transaction = database.begin().expect("it can be written");
    notes.set(&mut transaction, key, value, None).expect("it is unique");
    transaction.commit(Durability::Strict).expect("there is room");
}

fn begin(database: &Database) -> OptimisticTransaction {
    database.transaction(Isolation::Serializable).expect("it can begin")
}

fn scan(transaction: &OptimisticTransaction, index: &str, range: KeyRange<'_>, direction: Direction) -> Entries {
    let mut entries = Entries::new();
    let mut scan = transaction
        .index_scan(NAME, index, range, direction)
        .expect("it is complete");
    while scan.advance(transaction).expect("it can be read") {
        let value = scan.value(transaction).expect("it can be read");
        assert_eq!(value, transaction.get(NAME, scan.key()).expect("it can be read"));
        assert!(value.is_some());
        entries.push((scan.index_key().to_vec(), scan.key().to_vec()));
    }
    entries
}

#[test]
fn a_transaction_sees_its_own_writes_through_an_index() {
    let database = new(false);
    let notes = notes(&database, false);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for number in 0..60_u8 {
        set(&database, false, &[number], &[number % 7, number]);
        model.insert(vec![number], vec![number % 7, number]);
    }
    let mut transaction = begin(&database);
    for number in (0..60_u8).step_by(3) {
        notes
            .set(&mut transaction, &[number], &[number % 5, 1], None)
            .expect("it is small");
        model.insert(vec![number], vec![number % 5, 1]);
    }
    let savepoint = transaction.savepoint();
    for number in 0..10_u8 {
        transaction.delete(NAME, &[number]).expect("it can be read");
    }
    transaction.rollback_to(&savepoint);
    for number in 20..30_u8 {
        assert!(transaction.delete(NAME, &[number]).expect("it can be read"));
        model.remove(&vec![number]);
    }
    let range = KeyRange {
        lower: Bound::Excluded(&[40]),
        upper: Bound::Included(&[50]),
    };
    transaction.clear(NAME, range).expect("it can be read");
    model.retain(|key, _| !(41..=50).contains(&key[0]));
    let wanted = expected(&model, |value| first_byte(1, value));
    assert_eq!(scan(&transaction, "first", KeyRange::all(), Direction::Forward), wanted);
    let mut reverse = scan(&transaction, "first", KeyRange::all(), Direction::Reverse);
    reverse.reverse();
    assert_eq!(reverse, wanted);
    let three = KeyRange {
        lower: Bound::Included(&[3, 1]),
        upper: Bound::Excluded(&[4, 1]),
    };
    let in_three = wanted.iter().filter(|(index_key, _)| index_key[0] == 3).count() as u64;
    assert_eq!(
        transaction.index_count(NAME, "first", three).expect("it can be read"),
        in_three
    );
    transaction.commit(Durability::Strict).expect("nobody else writes");
    let snapshot = database.snapshot();
    assert_eq!(records(&snapshot), model);
    assert_eq!(read_index(&snapshot, "first"), wanted);
    verify(&database, "committed");
    let mut transaction = begin(&database);
    transaction.clear(NAME, KeyRange::all()).expect("nothing fails");
    assert!(scan(&transaction, "first", KeyRange::all(), Direction::Forward).is_empty());
    notes.set(&mut transaction, b"k", b"v", None).expect("it is small");
    transaction.commit(Durability::Strict).expect("nobody else writes");
    assert_eq!(
        read_index(&database.snapshot(), "value"),
        [(b"v".to_vec(), b"k".to_vec())]
    );
    verify(&database, "cleared");
}

type Read = fn(&OptimisticTransaction, KeyRange<'_>);

#[test]
fn a_record_that_enters_a_range_of_an_index_conflicts_with_its_readers() {
    let database = new(false);
    set(&database, false, b"a", &[1]);
    set(&database, false, b"z", &[9]);
    let low = KeyRange {
        lower: Bound::Unbounded,
        upper: Bound::Excluded(&[5, 1]),
    };
    let by_scan: Read = |transaction, range| drop(scan(transaction, "first", range, Direction::Forward));
    let by_count: Read = |transaction, range| {
        transaction.index_count(NAME, "first", range).expect("it can be read");
    };
    for (name, read) in [(b's', by_scan), (b'c', by_count)] {
        for (value, conflicts) in [(2_u8, true), (7, false)] {
            let mut transaction = begin(&database);
            read(&transaction, low);
            transaction.set("log", b"k", b"v").expect("it is small");
            set(&database, false, &[name, value], &[value]);
            let committed = transaction.commit(Durability::Strict);
            assert_eq!(matches!(committed, Err(Error::Conflict(_))), conflicts, "{committed:?}");
        }
    }
    // The message names no hidden collection.
    let mut transaction = begin(&database);
    by_scan(&transaction, low);
    transaction.set("log", b"k", b"v").expect("it is small");
    set(&database, false, b"q", &[3]);
    let message = transaction
        .commit(Durability::Strict)
        .expect_err("it conflicts")
        .to_string();
    assert!(!message.contains('\0') && !message.contains("index"), "{message}");
}

/// Once an index is gone, records enter the range that its readers saw, and no entry shows it.
#[test]
fn an_index_that_is_dropped_conflicts_with_its_readers() {
    for (dropped, conflicts) in [("first", true), ("value", false)] {
        let database = new(false);
        set(&database, false, b"a", &[1]);
        let mut reader = begin(&database);
        let seen = reader
            .index_count(NAME, "first", KeyRange::all())
            .expect("it can be read");
        reader.set("log", b"seen", &seen.to_be_bytes()).expect("it is small");
        let mut transaction = database.begin().expect("it can be written");
        assert!(transaction.drop_index(NAME, dropped).expect("it is there"));
        transaction.commit(Durability::Strict).expect("there is room");
        let committed = reader.commit(Durability::Strict);
        assert_eq!(
            matches!(committed, Err(Error::Conflict(_))),
            conflicts,
            "{dropped}: {committed:?}"
        );
    }
}

#[test]
fn a_unique_index_keeps_two_records_from_having_one_key() {
    let database = new(true);
    set(&database, true, b"a", b"one");
    set(&database, true, b"b", b"two");
    set(&database, true, b"a", b"one");
    let notes = notes(&database, true);
    let mut transaction = database.begin().expect("it can be written");
    let Err(error @ Error::NotUnique(_)) = notes.set(&mut transaction, b"c", b"one", None) else {
        panic!("it is not unique")
    };
    assert_eq!((error.code(), error.is_retryable()), ("KV_UNIQUE", false));
    let Error::NotUnique(found) = error else { unreachable!() };
    assert_eq!(
        (&*found.collection, &*found.index, &*found.index_key),
        (NAME, "value", &b"one"[..])
    );
    assert_eq!(found.keys.map(Vec::from), [b"a".to_vec(), b"c".to_vec()]);
    notes
        .set(&mut transaction, b"c", b"three", None)
        .expect("the transaction is as it was");
    transaction.delete(NAME, b"a").expect("it is there");
    notes
        .set(&mut transaction, b"d", b"one", None)
        .expect("it is free again");
    transaction.commit(Durability::Strict).expect("there is room");
    // Optimistic ones check at the commit, so records can exchange their keys.
    let mut transaction = begin(&database);
    notes
        .set(&mut transaction, b"b", b"three", None)
        .expect("it is checked at the commit");
    notes
        .set(&mut transaction, b"c", b"two", None)
        .expect("it is checked at the commit");
    transaction.commit(Durability::Strict).expect("both are unique");
    let mut transaction = begin(&database);
    notes
        .set(&mut transaction, b"e", b"two", None)
        .expect("it is checked at the commit");
    let failed = transaction.commit(Durability::Strict);
    assert!(matches!(failed, Err(Error::NotUnique(_))), "{failed:?}");
    let expected = expected(&records(&database.snapshot()), |value| vec![value.to_vec()]);
    assert_eq!(read_index(&database.snapshot(), "value"), expected);
    assert_eq!(expected.len(), 3);
    // Two that are unique each by themselves.
    let (mut one, mut other) = (begin(&database), begin(&database));
    notes
        .set(&mut one, b"x", b"new", None)
        .expect("it is checked at the commit");
    notes
        .set(&mut other, b"y", b"new", None)
        .expect("it is checked at the commit");
    one.commit(Durability::Strict).expect("it is the first");
    let failed = other.commit(Durability::Strict);
    assert!(matches!(failed, Err(Error::NotUnique(_))), "{failed:?}");
    verify(&database, "unique");
}

#[test]
fn a_transaction_that_began_before_an_index_was_declared_conflicts() {
    let database = new(false);
    set(&database, false, b"a", b"one");
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let old = notes(&database, false);
        let mut transaction = database.transaction(isolation).expect("it can begin");
        old.set(&mut transaction, b"b", b"two", None)
            .expect("it states all keys");
        let mut later = database.begin().expect("it can be written");
        if !later.drop_index(NAME, "bytes").expect("nothing fails") {
            later
                .declare_indexes(NAME, &[by_bytes().definition().clone()])
                .expect("it is new");
        }
        later.commit(Durability::Strict).expect("there is room");
        let failed = transaction.commit(Durability::Strict);
        assert!(matches!(failed, Err(Error::Conflict(_))), "{failed:?}");
        let mut later = database.begin().expect("it can be written");
        later.drop_index(NAME, "bytes").expect("nothing fails");
        later.commit(Durability::Strict).expect("there is room");
    }
}

/// Regression: the commit removed the entries that a build had given a cleared record, also where the
/// transaction had stored the record again and needed them.
#[test]
fn a_record_that_is_cleared_and_stored_again_keeps_the_entries_of_a_build() {
    let database = new(false);
    set(&database, false, b"a", b"one");
    set(&database, false, b"b", b"two");
    let notes = || {
        let found = database.indexed_collection(NAME, vec![by_first(2), by_value(false)]);
        found.expect("it is newer")
    };
    build(&notes());
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let before = read_index(&database.snapshot(), "first");
        let mut transaction = database.transaction(isolation).expect("it can begin");
        let range = KeyRange {
            lower: Bound::Included(b"a".as_slice()),
            upper: Bound::Excluded(b"b".as_slice()),
        };
        transaction.clear(NAME, range).expect("it can be read");
        notes()
            .set(&mut transaction, b"a", b"one", None)
            .expect("it states all keys");
        transaction.commit(Durability::Strict).expect("nobody else writes");
        assert_eq!(read_index(&database.snapshot(), "first"), before);
        verify(&database, "stored again");
    }
}

#[test]
fn an_error_in_the_middle_of_a_write_undoes_all_of_it() {
    let database = new(false);
    set(&database, false, b"a", b"one");
    let before = read_index(&database.snapshot(), "value");
    let notes = notes(&database, false);
    let mut transaction = database.begin().expect("it can be written");
    let long = vec![0; 300];
    let refused = notes.set(&mut transaction, &[7; 60], &long, None);
    assert!(matches!(refused, Err(Error::KeyTooLarge(_))), "{refused:?}");
    transaction.commit(Durability::Strict).expect("nothing changed");
    assert_eq!(read_index(&database.snapshot(), "value"), before);
    let mut transaction = database.begin().expect("it can be written");
    notes.set(&mut transaction, b"b", b"two", None).expect("it is small");
    transaction.delete(NAME, b"a").expect("it is there");
    drop(transaction);
    assert_eq!(read_index(&database.snapshot(), "value"), before);
    verify(&database, "undone");
}

#[test]
fn a_collection_that_a_transaction_drops_gets_its_indexes_again_in_it() {
    let database = new(true);
    for number in 0..50_u8 {
        set(&database, true, &[number], &[number, 1]);
    }
    let definitions = [by_value(true).definition().clone(), by_bytes().definition().clone()];
    let mut transaction = begin(&database);
    let refused = transaction.declare_indexes(NAME, &definitions);
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    assert!(transaction.drop_collection(NAME).expect("it is there"));
    let savepoint = transaction.savepoint();
    transaction.declare_indexes(NAME, &definitions).expect("it is dropped");
    let again = transaction.declare_indexes(NAME, &definitions);
    assert!(matches!(again, Err(Error::InvalidArgument { .. })), "{again:?}");
    transaction.rollback_to(&savepoint);
    transaction.declare_indexes(NAME, &definitions).expect("it is dropped");
    let ids: Vec<u32> = transaction.indexes(NAME).iter().map(|index| index.id).collect();
    let store = |transaction: &mut OptimisticTransaction, key: u8, value: &[u8], expires_at| {
        let mut keys = IndexKeys::new();
        keys.set(ids[0], [value.to_vec()]);
        keys.set(ids[1], bytes(value));
        transaction
            .set_indexed(NAME, &[key], value, expires_at, &keys)
            .expect("it states the keys")
    };
    for key in 10..20 {
        assert!(!store(&mut transaction, key, &[key, key / 2], None));
    }
    assert!(store(&mut transaction, 12, b"changed", Some(1000)));
    assert!(transaction.delete(NAME, &[13]).expect("it is there"));
    let range = KeyRange {
        lower: Bound::Included(&[15]),
        upper: Bound::Excluded(&[17]),
    };
    transaction.clear(NAME, range).expect("it can be read");
    let wanted: Entries = [10_u8, 11, 14, 17, 18, 19]
        .map(|key| (vec![key, key / 2], vec![key]))
        .into_iter()
        .chain([(b"changed".to_vec(), vec![12])])
        .collect();
    assert_eq!(scan(&transaction, "value", KeyRange::all(), Direction::Forward), wanted);
    transaction.commit(Durability::Strict).expect("nobody else writes");
    let snapshot = database.snapshot();
    assert_eq!(read_index(&snapshot, "value"), wanted);
    assert_eq!(read_index(&snapshot, "bytes"), expected(&records(&snapshot), bytes));
    let indexes = snapshot.indexes(NAME);
    assert!(indexes.iter().all(|index| index.is_complete() && index.id < 1 << 31));
    assert_eq!(indexes.len(), 2);
    verify(&database, "written again");
    // A later transaction finds the indexes as usual.
    let notes = database
        .indexed_collection(NAME, [by_value(true), by_bytes()])
        .expect("they are there");
    let mut transaction = begin(&database);
    notes.set(&mut transaction, &[12], b"later", None).expect("it is small");
    transaction.commit(Durability::Strict).expect("nobody else writes");
    verify(&database, "written later");
}

#[test]
fn a_collection_that_is_created_again_is_as_unique_as_its_index_and_conflicts_as_before() {
    let database = new(true);
    set(&database, true, b"a", b"one");
    let definitions = [by_value(true).definition().clone()];
    let refill = |transaction: &mut OptimisticTransaction, records: &[(&[u8], &[u8])]| {
        transaction.drop_collection(NAME).expect("it is there");
        transaction.declare_indexes(NAME, &definitions).expect("it is dropped");
        let id = transaction.indexes(NAME)[0].id;
        for (key, value) in records {
            let mut keys = IndexKeys::new();
            keys.set(id, [value.to_vec()]);
            let stored = transaction.set_indexed(NAME, key, value, None, &keys);
            stored.expect("it is checked at the commit");
        }
    };
    let mut transaction = begin(&database);
    refill(&mut transaction, &[(b"x", b"same"), (b"y", b"same")]);
    let failed = transaction.commit(Durability::Strict);
    assert!(matches!(failed, Err(Error::NotUnique(_))), "{failed:?}");
    assert_eq!(records(&database.snapshot()).len(), 1);
    // Two that exchange their keys, under another name in the end.
    let mut transaction = begin(&database);
    refill(
        &mut transaction,
        &[(b"x", b"1"), (b"y", b"2"), (b"x", b"2"), (b"y", b"1")],
    );
    transaction.rename_collection(NAME, "moved").expect("the name is free");
    transaction.commit(Durability::Strict).expect("they are unique");
    let moved = database.snapshot().index("moved", "value").expect("it is complete");
    assert_eq!(
        moved.at(0).expect("it can be read"),
        Some((b"1".to_vec(), b"y".to_vec()))
    );
    verify(&database, "renamed");
    // Dropped and declared, dropped again and not declared.
    let mut transaction = begin(&database);
    transaction.rename_collection("moved", NAME).expect("the name is free");
    transaction.drop_collection(NAME).expect("it is there");
    transaction.set(NAME, b"plain", b"1").expect("it has no indexes");
    assert!(!transaction.may_declare_indexes(NAME));
    transaction.commit(Durability::Strict).expect("nobody else writes");
    assert!(database.snapshot().indexes(NAME).is_empty());
    verify(&database, "without indexes");
}

/// A record that has expired is gone, though it is removed only later.
#[test]
fn an_expired_record_does_not_hold_its_unique_key() {
    let (storage, time): (Arc<dyn Storage>, _) = (Arc::new(MemoryStorage::new()), Time::default());
    let database = open(&storage, &time, 1);
    let notes = database
        .indexed_collection(NAME, vec![by_value(true)])
        .expect("they are new");
    let set = |key: &[u8], expires_at: Option<u64>| {
        let mut transaction = database.begin().expect("it can be written");
        notes.set(&mut transaction, key, b"same", expires_at)?;
        transaction.commit(Durability::Strict)
    };
    set(b"a", Some(1000)).expect("it is the first");
    assert!(matches!(set(b"b", None), Err(Error::NotUnique(_))));
    time.set(1000);
    set(b"b", None).expect("the other has expired");
    database.purge_expired(100).expect("there is room");
    let expected = vec![(b"same".to_vec(), b"b".to_vec())];
    assert_eq!(read_index(&database.snapshot(), "value"), expected);
    verify(&database, "purged");
}

#[test]
fn the_bounds_of_a_range_of_an_index_are_index_keys() {
    let database = new(false);
    for (key, value) in [(b"1", b"a"), (b"2", b"b"), (b"3", b"b"), (b"4", b"c")] {
        set(&database, false, key, value);
    }
    let index = database.snapshot().index(NAME, "value").expect("it is complete");
    let (a, b, c): (&[u8], &[u8], &[u8]) = (b"a", b"b", b"c");
    for (lower, upper, count) in [
        (Bound::Included(b), Bound::Unbounded, 3),
        (Bound::Excluded(b), Bound::Unbounded, 1),
        (Bound::Unbounded, Bound::Included(b), 3),
        (Bound::Unbounded, Bound::Excluded(b), 1),
        (Bound::Excluded(a), Bound::Excluded(c), 2),
        (Bound::Excluded(a), Bound::Included(c), 3),
    ] {
        let range = KeyRange { lower, upper };
        let mut cursor = index.cursor(range, Direction::Forward);
        let mut found = 0;
        while cursor.advance().expect("it can be read") {
            found += 1;
        }
        assert_eq!((found, index.count(range)), (count, Ok(count)), "{range:?}");
    }
}

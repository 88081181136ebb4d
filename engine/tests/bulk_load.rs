//! Proves that a bulk load leaves what the same records, stored one by one, would leave: whatever their order, with and without former content,
//! in bounded memory, and all or nothing when it fails or the power goes.

#[path = "bulk_load/failures.rs"]
mod failures;
#[path = "bulk_load/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{
    BulkLoad, BulkPhase, BulkReport, Compression, Database, Direction, Duplicates, Durability, Error, KeyRange, Options,
};

type Record = (Vec<u8>, Vec<u8>);
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(node_bytes: u32) -> Options {
    Options {
        unit_bytes: 512,
        node_bytes,
        cache_bytes: 64 << 10,
        log_bytes: 16 << 10,
        compression: Compression::None,
        database_id: Some(1),
        session: Some(1),
        ..Options::default()
    }
}

fn open(storage: &SimStorage, node_bytes: u32) -> Database {
    Database::open(Arc::new(storage.clone()), options(node_bytes)).expect("the storage works")
}

fn record(number: u64) -> Record {
    (number.to_be_bytes().to_vec(), vec![number as u8; number as usize % 30])
}

fn shuffled(mut records: Vec<Record>, seed: u64) -> Vec<Record> {
    let mut rng = SimRng::new(seed);
    for index in (1..records.len()).rev() {
        records.swap(index, rng.below(index as u64 + 1) as usize);
    }
    records
}

fn load(database: &Database, records: &[Record], options: BulkLoad<'_>) -> Result<BulkReport, Error> {
    let mut transaction = database.begin()?;
    let report = transaction.bulk_load("c", records.iter().cloned().map(Ok), options)?;
    transaction.commit(Durability::Strict)?;
    Ok(report)
}

fn verify(database: &Database) {
    let report = database.verify().expect("the storage works");
    assert!(report.is_ok(), "{:?}", report.problems);
}

fn content(database: &Database) -> Records {
    let mut records = Records::new();
    if let Some(tree) = database.snapshot().collection("c") {
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance().expect("the storage works") {
            let value = cursor.value().expect("the storage works");
            records.insert(cursor.key().to_vec(), value);
        }
        assert_eq!(records.len() as u64, tree.len());
    }
    records
}

fn check(database: &Database, expected: &Records) {
    verify(database);
    assert!(content(database) == *expected);
}

fn small() -> BulkLoad<'static> {
    BulkLoad {
        memory_bytes: Some(8 << 10),
        ..BulkLoad::default()
    }
}

#[test]
fn any_order_makes_the_same_packed_tree() {
    let sorted: Vec<Record> = (0..20_000).map(record).collect();
    let expected: Records = sorted.iter().cloned().collect();
    let reverse = sorted.iter().rev().cloned().collect();
    let mut late = sorted.clone();
    late.rotate_left(100);
    let mut nodes = Vec::new();
    for (records, has_runs) in [
        (sorted.clone(), false),
        (reverse, true),
        (shuffled(sorted.clone(), 1), true),
        (late, false),
    ] {
        let database = open(&SimStorage::new(), 512);
        let report = load(&database, &records, small()).expect("the storage works");
        assert_eq!((report.records, report.written), (20_000, 20_000));
        assert_eq!(report.runs > 0, has_runs, "{report:?}");
        check(&database, &expected);
        nodes.push(database.verify().expect("the storage works").nodes);
    }
    let bytes: usize = expected.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(nodes[0] as usize * 512 < bytes * 8 / 5, "{nodes:?} for {bytes} bytes");
    assert!(
        nodes.iter().all(|count| count.abs_diff(nodes[0]) <= nodes[0] / 50),
        "{nodes:?}"
    );
}

#[test]
fn nothing_and_one_record() {
    let database = open(&SimStorage::new(), 512);
    assert_eq!(load(&database, &[], small()).expect("the storage works").records, 0);
    check(&database, &Records::new());
    load(&database, &[record(7)], small()).expect("the storage works");
    check(&database, &Records::from([record(7)]));
    let replace = BulkLoad {
        replace: true,
        ..small()
    };
    load(&database, &[], replace).expect("the storage works");
    check(&database, &Records::new());
}

#[test]
fn duplicates_are_treated_as_asked() {
    let values = |number: u64, value: u8| {
        (
            number.to_be_bytes().to_vec(),
            vec![value; 5 + 400 * usize::from(number.is_multiple_of(50))],
        )
    };
    let mut sorted = Vec::new();
    for number in 0..3000 {
        sorted.extend((0..=(number % 3) as u8).map(|value| values(number, value)));
    }
    let mut restarted: Vec<Record> = (0..3000).map(|number| values(number, 0)).collect();
    restarted.extend((1000..1010).map(|number| values(number, 1)));
    for records in [sorted.clone(), shuffled(sorted, 5), restarted] {
        let mut first = Records::new();
        for (key, value) in &records {
            first.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let last: Records = records.iter().cloned().collect();
        for (duplicates, expected) in [(Duplicates::First, first), (Duplicates::Last, last)] {
            let database = open(&SimStorage::new(), 512);
            let options = BulkLoad { duplicates, ..small() };
            let report = load(&database, &records, options).expect("the storage works");
            assert_eq!((report.written, report.replaced), (3000, 0));
            assert_eq!(report.duplicates, records.len() as u64 - 3000);
            check(&database, &expected);
        }
        let database = open(&SimStorage::new(), 512);
        let error = load(&database, &records, small()).expect_err("there are duplicates");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        check(&database, &Records::new());
    }
}

#[test]
fn large_values_are_written_once() {
    let storage = SimStorage::new();
    let database = open(&storage, 512);
    let value = |number: u64| vec![number as u8; if number.is_multiple_of(10) { 20_000 } else { 10 }];
    let records: Vec<Record> = (0..300)
        .map(|number: u64| (number.to_be_bytes().to_vec(), value(number)))
        .collect();
    load(&database, &shuffled(records.clone(), 2), small()).expect("the storage works");
    check(&database, &records.iter().cloned().collect());
    assert!(storage.counters().bytes_written < 900_000, "{:?}", storage.counters());
    // Values of several chunks.
    let records = [(vec![2], vec![3; 3 << 20]), (vec![1], vec![4; (1 << 20) - 31])];
    let replace = BulkLoad {
        replace: true,
        ..small()
    };
    load(&database, &records, replace).expect("the storage works");
    check(&database, &records.into());
}

/// Behind, between and over what is there; once with more new than old records, once with few; and in place of it.
#[test]
fn former_content_stays_unless_it_is_replaced() {
    let former: Vec<Record> = (0..4000).map(|number| record(number * 2)).collect();
    let append: Vec<Record> = (8000..12_000).map(record).collect();
    let few: Vec<Record> = (0..200).map(|number| record(number * 37 + 1)).collect();
    let over: Vec<Record> = (0..6000).map(|number| (record(number).0, vec![9; 3])).collect();
    let mut broken = append.clone();
    broken.extend(few.iter().cloned());
    for (name, records) in [
        ("append", append.clone()),
        ("shuffled append", shuffled(append, 3)),
        ("few", shuffled(few, 4)),
        ("over", over.clone()),
        ("shuffled over", shuffled(over, 6)),
        ("broken", broken),
    ] {
        for replace in [false, true] {
            for checkpoint in [false, true] {
                let database = open(&SimStorage::new(), 512);
                let mut transaction = database.begin().expect("it opens");
                for (key, value) in &former {
                    transaction.set("c", key, value).expect("the storage works");
                }
                transaction.commit(Durability::Relaxed).expect("the storage works");
                if checkpoint {
                    database.checkpoint().expect("the storage works");
                }
                let snapshot = database.snapshot();
                let report = load(&database, &records, BulkLoad { replace, ..small() }).expect("the storage works");
                assert_eq!(report.written, records.len() as u64, "{name}");
                let mut expected: Records = if replace {
                    Records::new()
                } else {
                    former.iter().cloned().collect()
                };
                let replaced = records.iter().filter(|(key, _)| expected.contains_key(key)).count();
                assert_eq!(report.replaced, replaced as u64, "{name}");
                expected.extend(records.iter().cloned());
                check(&database, &expected);
                assert_eq!(snapshot.collection("c").expect("it was there").len(), 4000);
            }
        }
    }
}

#[test]
fn a_load_can_be_followed_by_other_changes() {
    for clear in [false, true] {
        let storage = SimStorage::new();
        let database = open(&storage, 256);
        let records: Vec<Record> = shuffled((0..3000).map(record).collect(), 8);
        let mut expected: Records = records.iter().cloned().collect();
        let mut transaction = database.begin().expect("it opens");
        let all = || records.iter().cloned().map(Ok);
        transaction.bulk_load("c", all(), small()).expect("the storage works");
        for number in (0..3000).step_by(3) {
            let (key, _) = record(number);
            assert_eq!(
                transaction.get("c", &key).expect("the storage works"),
                expected.remove(&key)
            );
            assert!(transaction.delete("c", &key).expect("the storage works"));
        }
        transaction.set("c", b"new", b"value").expect("the storage works");
        expected.insert(b"new".to_vec(), b"value".to_vec());
        if clear {
            transaction.clear("c", KeyRange::all()).expect("the storage works");
            expected.clear();
        }
        transaction.commit(Durability::None).expect("the storage works");
        check(&database, &expected);
        database.close().expect("the storage works");
        check(&open(&storage, 256), &expected);
    }
}

#[test]
fn a_cancelled_or_dropped_load_leaves_nothing() {
    let storage = SimStorage::new();
    let database = open(&storage, 512);
    load(&database, &[record(1)], small()).expect("the storage works");
    let before = Records::from([record(1)]);
    for records in [
        (2..9000).map(record).collect(),
        shuffled((2..9000).map(record).collect(), 3),
    ] {
        for (stop, phase) in [
            (1024, BulkPhase::Reading),
            (8192, BulkPhase::Reading),
            (4096, BulkPhase::Sorting),
            (4096, BulkPhase::Writing),
        ] {
            let mut transaction = database.begin().expect("it opens");
            let mut progress = |progress: mangrove_engine::BulkProgress| {
                if progress.records >= stop && progress.phase == phase {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let options = BulkLoad {
                progress: Some(&mut progress),
                ..small()
            };
            let report = transaction
                .bulk_load("c", records.iter().cloned().map(Ok), options)
                .expect("the storage works");
            if report.cancelled {
                assert!(transaction.commit(Durability::Strict).is_err());
            } else {
                assert!(phase != BulkPhase::Reading && report.runs == 0);
                drop(transaction);
            }
            check(&database, &before);
        }
    }
    // An input that fails.
    let mut transaction = database.begin().expect("it opens");
    let failing = (2..9000).rev().map(|number| {
        if number == 100 {
            Err(Error::Closed)
        } else {
            Ok(record(number))
        }
    });
    assert_eq!(transaction.bulk_load("c", failing, small()), Err(Error::Closed));
    assert_eq!(transaction.set("c", b"k", b"v"), Err(Error::Closed));
    drop(transaction);
    check(&database, &before);
    let long = [(vec![1; 4000], Vec::new())];
    assert!(matches!(
        load(&database, &long, small()),
        Err(Error::KeyTooLarge { .. })
    ));
    check(&database, &before);
}

/// The file holds the runs once, then the tree takes their place.
#[test]
fn memory_and_space_are_bounded() {
    let storage = SimStorage::new();
    let database = open(&storage, 512);
    let records: Vec<Record> = shuffled((0..60_000).map(record).collect(), 9);
    let bytes: u64 = records
        .iter()
        .map(|(key, value)| (key.len() + value.len()) as u64)
        .sum();
    let mut calls = 0;
    let mut progress = |_| {
        calls += 1;
        ControlFlow::Continue(())
    };
    let options = BulkLoad {
        progress: Some(&mut progress),
        ..BulkLoad::default()
    };
    let report = load(&database, &records, options).expect("the storage works");
    assert_eq!(calls, 3 * (60_000 / 1024), "reading, sorting once, writing");
    assert!(report.runs > 50, "{report:?}");
    let stats = database.stats();
    assert!(stats.cache_bytes + stats.dirty_bytes <= 64 << 10, "{stats:?}");
    assert!(stats.file_bytes < 3 * bytes, "{stats:?} for {bytes} bytes");
    check(&database, &records.into_iter().collect());
}

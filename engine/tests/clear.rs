//! Proves that clearing a range leaves a sound tree with the right records, and that its cost does
//! not grow with the range.

use std::collections::BTreeMap;
use std::sync::Arc;

use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{
    AdvancedOptions, Compression, Database, Direction, Durability, Error, ExclusiveTransaction, KeyRange, Options,
};
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(node_bytes: u32) -> Options {
    Options {
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn check(database: &Database, records: &Records) {
    let report = database.verify().expect("the storage works");
    assert!(report.is_ok(), "{:?}", report.problems);
    let tree = database.snapshot().collection("c").expect("it was created");
    assert_eq!(tree.len(), records.len() as u64);
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    for (key, value) in records {
        assert!(cursor.advance().expect("the storage works"));
        assert_eq!(cursor.key(), key);
        assert_eq!(&cursor.value().expect("the storage works"), value);
    }
    assert!(!cursor.advance().expect("the storage works"));
}

/// Generates keys with long common prefixes. A node that takes over its neighbour's range then
/// loses most of its prefix.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0_u16..1500).prop_map(|number| number.to_be_bytes().to_vec()),
        (0_u8..3, 0_usize..24, any::<u8>()).prop_map(|(group, zeros, last)| {
            let mut key = vec![group];
            key.resize(1 + zeros, 0);
            key.push(last);
            key
        }),
        prop::collection::vec(0_u8..2, 0..32),
    ]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0_usize..40, 1 => 0_usize..1200]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cleared_ranges_leave_sound_trees(
        records in prop::collection::vec((key(), len()), 1..400),
        rounds in prop::collection::vec(
            (prop::collection::vec((key(), key(), any::<bool>(), any::<bool>()), 1..3), prop::collection::vec((key(), len()), 0..40), any::<bool>()),
            1..6,
        ),
    ) {
        let database = Database::open(Arc::new(SimStorage::new()), options(256)).expect("the storage works");
        let mut model = Records::new();
        let set = |model: &mut Records, records: &[(Vec<u8>, usize)], clears: &[(Vec<u8>, Vec<u8>, bool, bool)], checkpoint: bool| {
            let mut transaction = database.begin().expect("the storage works");
            for (a, b, with_lower, with_upper) in clears {
                let (lower, upper) = if a <= b { (a, b) } else { (b, a) };
                let range = KeyRange {
                    lower: if *with_lower { Bound::Included(lower.as_slice()) } else { Bound::Excluded(lower) },
                    upper: if *with_upper { Bound::Included(upper.as_slice()) } else { Bound::Excluded(upper) },
                };
                let before = model.len();
                let inside = |key: &Vec<u8>| {
                    (key > lower || *with_lower && key == lower) && (key < upper || *with_upper && key == upper)
                };
                model.retain(|key, _| !inside(key));
                let removed = transaction.clear("c", range).expect("the storage works");
                assert_eq!(removed, (before - model.len()) as u64);
            }
            for (key, len) in records {
                let value = vec![*len as u8; *len];
                transaction.set("c", key, &value).expect("the storage works");
                model.insert(key.clone(), value);
            }
            transaction.commit(Durability::Relaxed).expect("the storage works");
            if checkpoint {
                database.checkpoint().expect("the storage works");
            }
        };
        set(&mut model, &records, &[], true);
        for (clears, records, checkpoint) in rounds {
            set(&mut model, &records, &clears, checkpoint);
            check(&database, &model);
        }
        for key in model.keys().cloned().collect::<Vec<_>>() {
            let mut transaction = database.begin().expect("the storage works");
            transaction.delete("c", &key).expect("the storage works");
            transaction.commit(Durability::None).expect("the storage works");
        }
        check(&database, &Records::new());
        database.checkpoint().expect("the storage works");
        prop_assert_eq!(database.stats().depth, 0);
    }
}

/// Clearing 99 % of 100,000 records writes a handful of pages and frees the space. The cleared
/// range leaves records at the end, at both ends, or at the front.
#[test]
fn clearing_most_of_a_large_tree_writes_few_pages() {
    for (from, to) in [(0_u32, 99_000_u32), (500, 99_500), (1000, 100_000)] {
        let storage = SimStorage::new();
        let database = Database::open(Arc::new(storage.clone()), options(512)).expect("the storage works");
        let mut model = Records::new();
        let mut transaction = database.begin().expect("the storage works");
        for number in 0..100_000_u32 {
            let (key, value) = (number.to_be_bytes(), number.to_le_bytes());
            transaction.set("c", &key, &value).expect("the storage works");
            if !(from..to).contains(&number) {
                model.insert(key.to_vec(), value.to_vec());
            }
        }
        transaction.commit(Durability::Strict).expect("the storage works");
        database.checkpoint().expect("the storage works");
        let (depth, file_bytes) = (u64::from(database.stats().depth), database.stats().file_bytes);
        let mut transaction = database.begin().expect("the storage works");
        let range = KeyRange {
            lower: Bound::Included(&from.to_be_bytes()),
            upper: Bound::Excluded(&to.to_be_bytes()),
        };
        assert_eq!(transaction.clear("c", range).expect("the storage works"), 99_000);
        transaction.commit(Durability::None).expect("the storage works");
        let pages = database.stats().dirty_bytes / 512;
        assert!(pages <= 3 * depth, "{pages} pages for a depth of {depth}");
        database.checkpoint().expect("the storage works");
        check(&database, &model);
        for number in 0..3_u8 {
            let mut transaction = database.begin().expect("the storage works");
            transaction.set("d", b"key", &[number]).expect("the storage works");
            transaction.commit(Durability::Strict).expect("the storage works");
            database.checkpoint().expect("the storage works");
        }
        let stats = database.stats();
        assert!(stats.file_bytes - stats.free_bytes < file_bytes / 20, "{stats:?}");
    }
}

fn filled(storage: &SimStorage, cache_bytes: usize) -> Database {
    let options = Options {
        cache_bytes,
        ..options(512)
    };
    Database::open(Arc::new(storage.clone()), options).expect("the storage works")
}

fn clear_numbers(transaction: &mut ExclusiveTransaction<'_>, lower: u32, upper: u32) -> Result<u64, Error> {
    let range = KeyRange {
        lower: Bound::Included(&lower.to_be_bytes()[..]),
        upper: Bound::Excluded(&upper.to_be_bytes()[..]),
    };
    transaction.clear("c", range)
}

/// A long range is cut out of the tree. What memory holds of it has to be there by then.
#[test]
fn a_long_range_is_cleared_in_memory_too() {
    let storage = SimStorage::new();
    let database = filled(&storage, 4 << 20);
    let mut records = Records::new();
    for part in 0..2_u32 {
        let mut transaction = database.begin().expect("it is open");
        for number in (part..3000).step_by(2) {
            let key = number.to_be_bytes();
            transaction
                .set("c", &key, &[part as u8; 20])
                .expect("the storage works");
            records.insert(key.to_vec(), vec![part as u8; 20]);
        }
        transaction.commit(Durability::Relaxed).expect("the storage works");
        if part == 0 {
            database.checkpoint().expect("the storage works");
        }
    }
    let mut transaction = database.begin().expect("it is open");
    assert_eq!(clear_numbers(&mut transaction, 100, 2900), Ok(2800));
    transaction.commit(Durability::Strict).expect("the storage works");
    let (lower, upper) = (100_u32.to_be_bytes(), 2900_u32.to_be_bytes());
    records.retain(|key, _| key.as_slice() < &lower || key.as_slice() >= &upper);
    check(&database, &records);
}

/// Nodes that a transaction wrote and then cut away are free once it ends, whether it is committed
/// or dropped.
#[test]
fn nodes_that_a_transaction_wrote_and_cleared_are_free() {
    for is_committed in [true, false] {
        let storage = SimStorage::new();
        let database = filled(&storage, 64 << 10);
        let mut transaction = database.begin().expect("it is open");
        for number in 0..4000_u32 {
            transaction
                .set("c", &number.to_be_bytes(), &[3; 30])
                .expect("the storage works");
        }
        assert_eq!(clear_numbers(&mut transaction, 500, 3900), Ok(3400));
        if is_committed {
            transaction.commit(Durability::Strict).expect("the storage works");
        } else {
            drop(transaction);
        }
        let report = database.verify().expect("the storage works");
        assert!(report.is_ok(), "committed {is_committed}: {:?}", report.problems);
    }
}

/// Whether a bound is included matters where a leaf begins with its key.
#[test]
fn long_ranges_end_at_every_place_in_a_leaf() {
    let storage = SimStorage::new();
    let database = filled(&storage, 4 << 20);
    let mut all = Records::new();
    let mut transaction = database.begin().expect("it is open");
    for number in 0..3000_u32 {
        let (key, value) = (
            number.to_be_bytes(),
            vec![number as u8; if number % 5 == 0 { 300 } else { 20 }],
        );
        transaction.set("c", &key, &value).expect("the storage works");
        all.insert(key.to_vec(), value);
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    database.close().expect("the storage works");
    for number in 1500..1530_u32 {
        let key = number.to_be_bytes();
        let (included, excluded): (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&key), Bound::Excluded(&key));
        let starts = [1200, 1205, 1210].map(|before| (number - before).to_be_bytes());
        let to_the_ends = [included, excluded].into_iter().flat_map(|bound| {
            let [from, to] = [(bound, Bound::Unbounded), (Bound::Unbounded, bound)];
            [from, to].map(|(lower, upper)| KeyRange { lower, upper })
        });
        let between = starts.iter().map(|start| KeyRange {
            lower: Bound::Excluded(start.as_slice()),
            upper: included,
        });
        for range in to_the_ends.chain(between) {
            let database = filled(&SimStorage::from_files(storage.files()), 4 << 20);
            let mut records = all.clone();
            records.retain(|key, _| !(range.lower, range.upper).contains(key.as_slice()));
            let mut transaction = database.begin().expect("it is open");
            let removed = (all.len() - records.len()) as u64;
            assert_eq!(transaction.clear("c", range), Ok(removed));
            transaction.commit(Durability::Strict).expect("the storage works");
            check(&database, &records);
        }
    }
}

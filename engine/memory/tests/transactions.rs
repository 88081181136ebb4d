//! Proves the isolation guarantees of transactions on the in-memory database.

use std::ops::Bound;

use mangrove_engine::{Direction, Error, Isolation, KeyRange, WriteBatch};
use mangrove_memory::CritBit;
use mangrove_memory::index::{BTree, OrderedIndex};
use mangrove_memory::{MemoryDatabase, Record};

fn with_numbers(count: u8) -> MemoryDatabase {
    let database = <MemoryDatabase>::new();
    let mut transaction = database.begin();
    for number in 0..count {
        transaction.set("n", &[number], &[number]).expect("it can be written");
    }
    transaction.commit();
    database
}

fn put(database: &MemoryDatabase, key: u8) {
    let mut transaction = database.begin();
    transaction.set("n", &[key], b"other").expect("it can be written");
    transaction.commit();
}

#[test]
fn reads_determine_conflicts() {
    let from = |key: &'static [u8]| KeyRange {
        lower: Bound::Included(key),
        upper: Bound::Unbounded,
    };
    for (written, conflicts) in [
        (3, true),
        (60, true),
        (20, true),
        (22, false),
        (40, true),
        (38, false),
        (90, false),
    ] {
        let database = with_numbers(50);
        let mut transaction = database.transaction(Isolation::Serializable);
        assert_eq!(transaction.get("n", &[3]), Some(&[3][..]));
        assert_eq!(transaction.get("n", &[60]), None);
        let mut cursor = transaction.cursor("n", from(&[20]), Direction::Forward);
        assert!(cursor.advance() && cursor.advance());
        drop(cursor);
        let mut cursor = transaction.cursor(
            "n",
            KeyRange {
                lower: Bound::Unbounded,
                upper: Bound::Included(&[40]),
            },
            Direction::Reverse,
        );
        assert!(cursor.advance() && cursor.advance());
        assert_eq!(cursor.key(), [39]);
        drop(cursor);
        drop(transaction.cursor("n", from(&[80]), Direction::Reverse));
        transaction.put("n", &[7], b"mine").unwrap();
        put(&database, written);
        let result = transaction.commit();
        assert_eq!(matches!(result, Err(Error::Conflict { .. })), conflicts, "{written}");
        let value = database.snapshot().collection("n").unwrap().get(&[7]).unwrap().to_vec();
        assert_eq!(value == b"mine", !conflicts);
    }
}

#[test]
fn snapshot_isolation_looks_at_writes_alone() {
    let database = with_numbers(10);
    let mut transaction = database.transaction(Isolation::Snapshot);
    assert_eq!(transaction.count("n", KeyRange::all()), 10);
    transaction.set("n", &[1], b"mine").unwrap();
    put(&database, 2);
    assert_eq!(transaction.commit().unwrap().version, 3);
    let mut transaction = database.transaction(Isolation::Snapshot);
    transaction.rename_collection("n", "m").unwrap();
    transaction.put("m", &[5], b"mine").unwrap();
    put(&database, 5);
    assert!(matches!(transaction.commit(), Err(Error::Conflict { .. })));
}

#[test]
fn transactions_undo_in_parts_and_see_their_own_writes() {
    let database = with_numbers(3);
    let mut transaction = database.transaction(Isolation::Serializable);
    assert!(transaction.set("n", &[0], b"new").unwrap());
    assert_eq!(transaction.entry("n", &[0]).unwrap().version, 0);
    let savepoint = transaction.savepoint();
    transaction.clear("n", KeyRange::all());
    transaction.rename_collection("n", "m").unwrap();
    assert_eq!(
        (transaction.has_collection("n"), transaction.has_collection("m")),
        (false, true)
    );
    transaction.rollback_to(&savepoint);
    assert!(transaction.delete("n", &[1]));
    let info = transaction.commit().unwrap();
    let tree = database.snapshot().collection("n").unwrap();
    assert_eq!((tree.len(), tree.entry(&[0]).unwrap().version), (2, info.version));

    let mut one = database.transaction(Isolation::Serializable);
    one.set("x", b"k", b"1").unwrap();
    let mut other = database.transaction(Isolation::Serializable);
    other.set_codecs("x", "any", "json").unwrap();
    one.commit().unwrap();
    assert!(matches!(other.commit(), Err(Error::Conflict { .. })));
}

#[test]
fn bad_arguments_change_nothing() {
    let database = <MemoryDatabase>::new();
    let mut transaction = database.begin();
    let long = vec![0; database.max_key_bytes() + 1];
    assert!(matches!(transaction.set("a", &long, b""), Err(Error::KeyTooLarge(_))));
    assert!(matches!(
        transaction.set("\0", b"", b""),
        Err(Error::InvalidArgument { .. })
    ));
    assert!(matches!(
        transaction.set(&"n".repeat(256), b"", b""),
        Err(Error::InvalidArgument { .. })
    ));
    let mut batch = WriteBatch::new();
    batch.set("a", b"k", b"v").delete("\0", b"k");
    assert!(transaction.apply(&batch).is_err());
    transaction.set_codecs("c", "any", "json").unwrap();
    assert!(matches!(
        transaction.set_codecs("c", "any", "raw"),
        Err(Error::CodecMismatch(_))
    ));
    assert_eq!(transaction.commit().version, 1);
    assert_eq!(database.collections().len(), 1);
    assert_eq!(database.begin().commit().version, 1);
}

fn threads<I: OrderedIndex<Record> + Send + Sync + 'static>() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 300;
    let database = MemoryDatabase::<I>::new();
    let number =
        |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = database.clone();
            scope.spawn(move || {
                for round in 0..EACH {
                    let step = |transaction: &mut mangrove_memory::MemoryTransaction<I>| {
                        let count = number(transaction.get("", b"count")) + 1;
                        transaction.set("", b"count", &count.to_be_bytes())?;
                        transaction.set("log", &count.to_be_bytes(), &[writer as u8])
                    };
                    if round % 2 == 0 {
                        database.transact(usize::MAX, step).expect("it is tried for ever");
                    } else {
                        let mut transaction = database.begin();
                        let count = number(transaction.get("", b"count")) + 1;
                        transaction
                            .set("", b"count", &count.to_be_bytes())
                            .expect("it can be written");
                        transaction
                            .set("log", &count.to_be_bytes(), &[writer as u8])
                            .expect("it can be written");
                        transaction.commit();
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut newest = 0;
            while newest < WRITERS * EACH {
                let snapshot = database.snapshot();
                let count = snapshot.collection("").map_or(0, |tree| number(tree.get(b"count")));
                assert_eq!(snapshot.collection("log").map_or(0, |tree| tree.len()), count);
                assert!(count >= newest && snapshot.version() == count);
                newest = count;
            }
        });
    });
    assert_eq!(database.version(), WRITERS * EACH);
}

#[test]
fn threads_count_together() {
    threads::<BTree<Record>>();
    threads::<CritBit<Record>>();
}

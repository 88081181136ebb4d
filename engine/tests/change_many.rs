//! Proves that records that are stored together are stored as one by one would have, however they come, and that they cost far less.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::{Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::{Clock, Compression, Database, Direction, Durability, Error, KeyRange, Options, ReadWrite as _};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        unit_bytes: 512,
        node_bytes: 1024,
        cache_bytes: 256 << 10,
        log_bytes: 64 << 10,
        compression: Compression::None,
        database_id: Some(1),
        session: Some(1),
        ..Options::default()
    }
}

fn open(storage: &SimStorage, options: Options) -> Database {
    Database::open(Arc::new(storage.clone()), options).expect("the storage works")
}

fn content(database: &Database) -> Records {
    let report = database.verify().expect("the storage works");
    assert!(report.is_ok(), "{:?}", report.problems);
    let mut records = Records::new();
    if let Some(tree) = database.snapshot().collection("c") {
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance().expect("the storage works") {
            records.insert(cursor.key().to_vec(), cursor.value().expect("the storage works"));
        }
        assert_eq!(records.len() as u64, tree.len());
    }
    records
}

fn record(rng: &mut SimRng, keys: u64) -> (Vec<u8>, Vec<u8>) {
    let key = match rng.below(3) {
        0 => rng.below(keys).to_be_bytes().to_vec(),
        1 => [
            &b"a long prefix that many keys share "[..],
            rng.below(keys).to_string().as_bytes(),
        ]
        .concat(),
        _ => vec![rng.below(256) as u8; rng.below(12) as usize],
    };
    let len = match rng.below(50) {
        0 => rng.below(3000),
        _ => rng.below(40),
    };
    (key, vec![rng.below(256) as u8; len as usize])
}

#[test]
fn any_order_any_size_and_repeated_keys() {
    for seed in 0..40 {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let options = Options {
            feed_commits: rng.below(2) * 100,
            ..options()
        };
        let database = open(&storage, options.clone());
        let mut expected = Records::new();
        for _ in 0..=rng.below(4) {
            let count = [3, 100, 4000][rng.below(3) as usize];
            let mut transaction = database.begin().expect("the storage works");
            for _ in 0..=rng.below(3) {
                let mut many = transaction.change_many("c").expect("the storage works");
                let mut known = expected.clone();
                for _ in 0..count {
                    let (key, value) = record(&mut rng, count * 2);
                    if rng.below(3) == 0 {
                        many.delete(&key).expect("the storage works");
                        expected.remove(&key);
                    } else {
                        many.set(&key, &value).expect("the storage works");
                        expected.insert(key, value);
                    }
                }
                if rng.below(4) == 0 {
                    drop(many);
                } else {
                    let removed = many.finish().expect("the storage works");
                    known.retain(|key, _| !expected.contains_key(key));
                    assert!(removed >= known.len() as u64);
                }
                let (key, value) = record(&mut rng, count * 2);
                let existed = transaction.set("c", &key, &value).expect("the storage works");
                assert_eq!(existed, expected.insert(key, value).is_some());
                let removed = expected
                    .keys()
                    .nth(expected.len() / 2)
                    .expect("it is not empty")
                    .clone();
                assert!(transaction.delete("c", &removed).expect("the storage works"));
                expected.remove(&removed);
                assert_eq!(transaction.get("c", &removed).expect("the storage works"), None);
            }
            let info = transaction.commit(Durability::Strict).expect("the storage works");
            let snapshot = database.snapshot();
            let tree = snapshot.collection("c").expect("it has records");
            let entry = tree
                .entry(expected.keys().next().expect("it is not empty"))
                .expect("the storage works");
            assert!(entry.expect("it is there").version <= info.version);
        }
        assert!(content(&database) == expected, "seed {seed}");
        drop(database);
        assert!(
            content(&open(&storage, options)) == expected,
            "seed {seed}, opened again"
        );
    }
}

#[test]
fn what_is_refused_leaves_the_rest() {
    let storage = SimStorage::new();
    let database = open(&storage, options());
    let mut transaction = database.begin().expect("the storage works");
    let mut many = transaction.change_many("c").expect("the storage works");
    many.set(b"1", b"one").expect("the storage works");
    assert!(matches!(many.set(&[0; 1000], b""), Err(Error::KeyTooLarge { .. })));
    many.set(b"2", b"two").expect("the storage works");
    many.finish().expect("the storage works");
    assert!(matches!(
        transaction.change_many("\0x").err(),
        Some(Error::InvalidArgument { .. })
    ));
    let info = transaction.commit(Durability::Strict).expect("the storage works");
    let tree = database.snapshot().collection("c").expect("it has records");
    let entry = tree.entry(b"2").expect("the storage works").expect("it is there");
    assert_eq!((entry.value.as_slice(), entry.version), (&b"two"[..], info.version));
    assert_eq!(tree.len(), 2);
}

#[test]
fn failures_and_rollbacks_undo_everything() {
    let mut failed = 0;
    for at in 0..60 {
        let storage = SimStorage::new();
        let database = open(&storage, options());
        database
            .set("c", b"before", b"1", Durability::Strict)
            .expect("the storage works");
        let free = database.stats().file_bytes;
        storage.set_fault((at > 0).then(|| Fault::once(at, FaultKind::StorageFull)));
        let store = || -> Result<(), Error> {
            let mut transaction = database.begin()?;
            let mut many = transaction.change_many("c")?;
            let mut rng = SimRng::new(at);
            for _ in 0..6000 {
                let (key, value) = record(&mut rng, 5000);
                many.set(&key, &value)?;
            }
            // A failure while it is dropped shows at the commit.
            drop(many);
            if at == 0 {
                Ok(())
            } else {
                transaction.commit(Durability::Strict).map(|_| ())
            }
        };
        let result = store();
        storage.set_fault(None);
        if at == 0 || result.is_err() {
            failed += u32::from(at > 0);
            assert_eq!(content(&database).len(), 1, "fault {at}");
            assert!(
                database.stats().free_bytes + free >= database.stats().file_bytes,
                "fault {at}"
            );
        } else {
            assert!(content(&database).len() > 1000);
        }
    }
    assert!(failed > 20, "{failed} faults hit");
}

#[test]
fn random_records_beyond_memory_are_written_a_few_times() {
    let written = |together: bool| {
        let options = Options {
            node_bytes: 16 << 10,
            cache_bytes: 512 << 10,
            ..options()
        };
        let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
        let mut transaction = database.begin().expect("memory works");
        let mut rng = SimRng::new(1);
        let records = (0..20_000).map(|_| rng.next_u64().to_be_bytes());
        if together {
            let mut many = transaction.change_many("c").expect("the storage works");
            records.for_each(|key| many.set(&key, &[7; 40]).expect("the storage works"));
            many.finish().expect("the storage works");
        } else {
            records.for_each(|key| assert!(!transaction.set("c", &key, &[7; 40]).expect("the storage works")));
        }
        transaction.commit(Durability::Strict).expect("the storage works");
        assert_eq!(content(&database).len(), 20_000);
        database.stats().bytes_written
    };
    let (together, singly) = (written(true), written(false));
    assert!(together * 4 < singly, "{together} bytes against {singly}");
}

#[test]
fn removals_in_any_order_leave_a_sound_tree() {
    for seed in 0..30 {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let database = open(&storage, options());
        let mut expected = Records::new();
        let mut transaction = database.begin().expect("the storage works");
        let mut many = transaction.change_many("c").expect("the storage works");
        for number in 0..5000_u64 {
            let value = vec![number as u8; rng.below(30) as usize];
            many.set(&number.to_be_bytes(), &value).expect("the storage works");
            expected.insert(number.to_be_bytes().to_vec(), value);
        }
        assert_eq!(many.finish().expect("the storage works"), 0);
        transaction.commit(Durability::Relaxed).expect("the storage works");
        // Thinned out, emptied but for a little, and emptied.
        for keep in [4, 100, u64::MAX] {
            let mut transaction = database.begin().expect("the storage works");
            let mut many = transaction.change_many("c").expect("the storage works");
            let mut removed = 0;
            for number in 0..6000_u64 {
                // In an order that is neither ascending nor random.
                let number = number * 7919 % 6000;
                if rng.below(keep) > 0 {
                    many.delete(&number.to_be_bytes()).expect("the storage works");
                    removed += u64::from(expected.remove(&number.to_be_bytes()[..]).is_some());
                }
            }
            assert_eq!(many.finish().expect("the storage works"), removed);
            transaction.commit(Durability::Strict).expect("the storage works");
            assert!(content(&database) == expected, "seed {seed}");
        }
        assert!(database.stats().depth <= 1, "{:?}", database.stats());
    }
}

#[test]
fn removing_nothing_is_no_commit_and_expired_records_do_not_count() {
    let storage = SimStorage::new();
    let now = Arc::new(AtomicU64::new(1000));
    let clock = Arc::clone(&now);
    let options = Options {
        clock: Clock::new(move || clock.load(Ordering::Relaxed)),
        ..options()
    };
    let database = open(&storage, options);
    let store = |keys: &[&[u8]]| {
        let mut transaction = database.begin().expect("the storage works");
        for key in keys {
            transaction
                .set_until("c", key, b"v", Some(2000))
                .expect("the storage works");
        }
        transaction
            .commit(Durability::Strict)
            .expect("the storage works")
            .version
    };
    let remove = |keys: &[&[u8]]| {
        let mut transaction = database.begin().expect("the storage works");
        let mut many = transaction.change_many("c").expect("the storage works");
        for key in keys {
            many.delete(key).expect("the storage works");
        }
        let removed = many.finish().expect("the storage works");
        (
            removed,
            transaction
                .commit(Durability::Strict)
                .expect("the storage works")
                .version,
        )
    };
    let before = store(&[b"a", b"b", b"c"]);
    assert_eq!(remove(&[b"x", b"a\0"]), (0, before));
    assert_eq!(remove(&[b"a", b"x"]), (1, before + 1));
    now.store(3000, Ordering::Relaxed);
    assert_eq!(remove(&[b"b"]).0, 0);
}

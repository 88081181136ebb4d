//! Single records stored in place: nothing that a snapshot sees changes, nothing is lost, and the log has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{Database, Direction, Durability, KeyRange, Options, Snapshot};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(storage: &SimStorage) -> Database {
    let options = Options {
        unit_bytes: 512,
        node_bytes: 512,
        log_bytes: 64 << 10,
        ..Options::default()
    };
    Database::open(Arc::new(storage.clone()), options).expect("the storage works")
}

fn content(snapshot: &Snapshot) -> Model {
    let mut model = Model::new();
    let Some(tree) = snapshot.collection("c") else {
        return model;
    };
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    while cursor.advance().expect("the storage works") {
        assert!(cursor.version() > 0 && cursor.version() <= snapshot.version());
        model.insert(cursor.key().to_vec(), cursor.value().expect("the storage works"));
    }
    assert_eq!(tree.len(), model.len() as u64);
    model
}

#[test]
fn single_records_match_a_model() {
    for seed in 0..30 {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let mut database = open(&storage);
        let mut model = Model::new();
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        for _ in 0..600 {
            let key = vec![rng.below(30) as u8; rng.below(6) as usize];
            let value = vec![rng.below(256) as u8; rng.below(60) as usize];
            match rng.below(60) {
                0 => snapshots.push((database.snapshot(), model.clone())),
                1..=4 => snapshots.clear(),
                5 => {
                    let mut transaction = database.begin().expect("it is open");
                    transaction.delete("c", &key).expect("the storage works");
                    transaction.commit(Durability::Relaxed).expect("the storage works");
                    model.remove(&key);
                }
                6 => database.checkpoint().expect("the storage works"),
                7 => {
                    snapshots.clear();
                    database.flush().expect("the storage works");
                    drop(database);
                    database = open(&storage);
                    assert_eq!(content(&database.snapshot()), model, "seed {seed}");
                }
                _ => {
                    let durability = [
                        Durability::Relaxed,
                        Durability::None,
                        Durability::Relaxed,
                        Durability::Strict,
                    ];
                    let before = database.version();
                    let info = database
                        .set("c", &key, &value, durability[rng.below(4) as usize])
                        .expect("the storage works");
                    assert_eq!((info.version, database.version()), (before + 1, before + 1));
                    model.insert(key, value);
                }
            }
            for (snapshot, model) in &snapshots {
                assert_eq!(&content(snapshot), model, "seed {seed}: a snapshot changed");
            }
        }
        drop(snapshots);
        assert_eq!(content(&database.snapshot()), model, "seed {seed}");
        assert!(database.verify().expect("the storage works").is_ok());
    }
}

#[test]
fn readers_beside_single_writes_see_snapshots() {
    let database = Arc::new(open(&SimStorage::new()));
    for key in 0..100_u8 {
        database
            .set("c", &[key], &[0; 8], Durability::None)
            .expect("the storage works");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let snapshot = database.snapshot();
                    let first = content(&snapshot);
                    assert_eq!(first.len(), 100);
                    assert_eq!(content(&snapshot), first);
                    // The writer goes through the keys in turn, so two neighbours are at most one round apart.
                    let rounds: Vec<u64> = first
                        .values()
                        .map(|value| u64::from_le_bytes(value.as_slice().try_into().expect("8 bytes")))
                        .collect();
                    assert!(rounds.windows(2).all(|pair| pair[0] >= pair[1]) && rounds[0] - rounds[99] <= 1);
                }
            });
        }
        for round in 1..200_u64 {
            for key in 0..100_u8 {
                let durability = [Durability::Relaxed, Durability::None][usize::from(round % 20 == 0)];
                database
                    .set("c", &[key], &round.to_le_bytes(), durability)
                    .expect("the storage works");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(database.verify().expect("the storage works").is_ok());
}

/// Between two checkpoints, pages that are written ahead and changed again do not take new space each time.
#[test]
fn random_changes_do_not_make_the_file_grow() {
    for durability in [Durability::None, Durability::Relaxed, Durability::Strict] {
        let options = Options {
            node_bytes: 4096,
            cache_bytes: 512 << 10,
            log_bytes: 8 << 20,
            ..Options::default()
        };
        let storage = MemoryStorage::new();
        let database = Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
        let mut rng = SimRng::new(1);
        for _ in 0..40_000 {
            let key = rng.below(20_000).to_be_bytes();
            database.set("c", &key, &[7; 40], durability).expect("memory works");
        }
        // The records, once for the newest state and once for the checkpoint before it, and the log.
        let file_bytes = database.stats().file_bytes;
        assert!(file_bytes < 12 << 20, "{durability:?}: {file_bytes}");
        let model = content(&database.snapshot());
        let report = database.verify().expect("memory works");
        assert!(report.is_ok(), "{:?}", report.problems);
        drop(database);
        let reopened = Database::open(Arc::new(storage), options).expect("memory works");
        if durability != Durability::None {
            assert!(content(&reopened.snapshot()) == model);
        }
    }
}

//! What an opening after the death of a process shows is durable: a power cut right after it takes
//! nothing of that away, although the process that wrote it had flushed less.

use std::sync::Arc;

use crate::common::read_state;
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::{Database, Durability, Options};

fn options(log_bytes: Option<u32>, session: u64) -> Options {
    Options {
        unit_bytes: 512,
        node_bytes: 512,
        cache_bytes: 64 << 10,
        log_bytes,
        database_id: Some(7),
        session: Some(session),
        ..Options::default()
    }
}

/// Commits records, some of them out of line, of which nothing is flushed but by accident.
fn write(database: &Database, rng: &mut SimRng, commits: u64) {
    for _ in 0..commits {
        let key = rng.below(500).to_be_bytes();
        let value = vec![rng.below(256) as u8; 10 + rng.below(900) as usize];
        let mut transaction = database.begin().expect("the storage works");
        transaction.put("c", &key, &value).expect("the storage works");
        transaction.commit(Durability::Relaxed).expect("the storage works");
    }
}

/// Opens what the dead process left on a machine that goes on, and cuts the power at once.
fn opens_for_good(storage: &SimStorage, log_bytes: Option<u32>, seed: u64, context: &str) {
    let database = Database::open(Arc::new(storage.clone()), options(log_bytes, 2)).expect("it opens");
    let shown = read_state(&database.snapshot()).expect("it is intact");
    for policy in CrashPolicy::ALL {
        let image = SimStorage::from_files(storage.crash(policy, seed));
        let later = Database::open(Arc::new(image), options(log_bytes, 3)).expect("it opens again");
        let found = read_state(&later.snapshot()).expect("it is intact");
        assert!(found == shown, "{context}, {policy:?}");
        assert!(later.verify().expect("it can be read").is_ok(), "{context}, {policy:?}");
    }
}

#[test]
fn what_an_opening_shows_outlives_a_power_cut() {
    for seed in 0..12 {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let database = Database::open(Arc::new(storage.clone()), options(None, 1)).expect("it is new");
        write(&database, &mut rng, 20 + seed * 60);
        drop(database);
        opens_for_good(&storage, None, seed, &format!("seed {seed}"));
    }
}

/// The process dies at any operation of a checkpoint, as behind its superblock and before the flush.
#[test]
fn a_checkpoint_that_an_opening_shows_outlives_a_power_cut() {
    for log_bytes in [None, Some(0)] {
        let mut images = 0;
        for at in 0.. {
            let mut rng = SimRng::new(at);
            let storage = SimStorage::new();
            let database = Database::open(Arc::new(storage.clone()), options(log_bytes, 1)).expect("it is new");
            write(&database, &mut rng, 30);
            let mut transaction = database.begin().expect("the storage works");
            transaction
                .put("c", b"in memory", &[1; 700])
                .expect("the storage works");
            transaction.commit(Durability::None).expect("it is in memory");
            storage.set_fault(Some(Fault {
                times: u64::MAX,
                ..Fault::once(storage.counters().operations + at, FaultKind::Io)
            }));
            let made = database.checkpoint();
            drop(database);
            storage.set_fault(None);
            opens_for_good(&storage, log_bytes, at, &format!("dies at {at}, log {log_bytes:?}"));
            images += 1;
            if made.is_ok() {
                break;
            }
        }
        assert!(images > 5, "{images}");
    }
}

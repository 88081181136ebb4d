//! What an opening after the death of a process shows is durable: a power cut right after it takes
//! nothing of that away, although the process that wrote it had flushed less.

use std::sync::Arc;

use crate::common::read_state;
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Scope, SimOperation, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Options};

fn options(log_bytes: Option<u32>, session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes,
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
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

fn generation_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"))
}

/// Generation of the newest superblock, and the highest of any block.
fn generations(data: &[u8]) -> (u64, u64) {
    let blocks = (8192..data.len()).step_by(512);
    let blocks = blocks.filter(|at| data[*at..].starts_with(b"MGBK"));
    let highest = blocks.map(|at| generation_at(data, at + 16)).max();
    (
        generation_at(data, 32).max(generation_at(data, 4128)),
        highest.unwrap_or(0),
    )
}

/// What an unfinished checkpoint wrote is older than all that follows.
#[test]
fn no_checkpoint_has_the_generation_of_an_unfinished_one() {
    let mut unfinished = 0;
    for at in 0..60 {
        let mut rng = SimRng::new(at);
        let storage = SimStorage::new();
        let database = Database::open(Arc::new(storage.clone()), options(None, 1)).expect("it is new");
        write(&database, &mut rng, 30);
        storage.cut_at(storage.counters().operations + at);
        if database.checkpoint().is_ok() {
            break;
        }
        drop(database);
        let files = storage.files();
        let (newest, highest) = generations(&files["data"]);
        if highest <= newest {
            continue;
        }
        unfinished += 1;
        let storage = SimStorage::from_files(files);
        let database = Database::open(Arc::new(storage.clone()), options(None, 2)).expect("it opens");
        write(&database, &mut rng, 1);
        database.checkpoint().expect("the storage works");
        let (after, _) = generations(&storage.files()["data"]);
        assert!(after > highest, "dies at {at}: {after} follows blocks of {highest}");
    }
    assert!(unfinished > 1, "{unfinished}");
}

/// A header that is there leads to records: where a power cut could tear it, it is not written again.
#[test]
fn the_header_of_a_half_is_written_once() {
    let mut seen = 0;
    for cut in 0..40 {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let begun = Database::open(Arc::new(storage.clone()), options(None, 1));
        let Ok(database) = begun else { continue };
        let committed = database.set("c", b"key", b"value", Durability::Strict);
        drop(database);
        let files = storage.files();
        let log = files.get("log").cloned().unwrap_or_default();
        let has_header = log.len() >= 1024 && log[..8] == *b"MANGRLOG" && log[512..520] == *b"MANGRLOG";
        if has_header && log[1024..].iter().all(|byte| *byte == 0) {
            let storage = SimStorage::from_files(files);
            let database = Database::open(Arc::new(storage.clone()), options(None, 2)).expect("it opens");
            storage.set_fault(Some(Fault {
                scope: Scope::WritesOf("log"),
                ..Fault::once(0, FaultKind::Io)
            }));
            assert!(database.set("c", b"key", b"value", Durability::Strict).is_err());
            let Some(SimOperation::Write(offset)) = storage.first_failed() else {
                panic!("the commit is written to the log");
            };
            assert!(offset >= 1024, "cut at {cut}: {offset}");
            seen += 1;
        }
        if committed.is_ok() {
            break;
        }
    }
    assert!(seen > 0, "no cut fell between the header and the first record");
}

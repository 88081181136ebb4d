//! Proves that a log whose end is damaged never parts what one commit stored, however far a merge has
//! come: the trees of a partial checkpoint hold parts of commits whose records the log still has.

use std::sync::Arc;

use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, Options};

const PAIRS: u32 = 3000;
/// Records begin here in the first half of the log, which holds all of them.
const FIRST_RECORD: usize = 1024;

fn options(session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

/// Both keys of a pair, which are far apart.
fn keys(pair: u32) -> [[u8; 4]; 2] {
    [pair.to_be_bytes(), (pair + 1_000_000).to_be_bytes()]
}

fn store(database: &Database, pairs: impl Iterator<Item = (u32, u64)>) {
    let mut transaction = database.begin().expect("the storage works");
    for (pair, value) in pairs {
        for key in keys(pair) {
            let value = value.to_le_bytes().repeat(5);
            transaction.put("", &key, &value).expect("the storage works");
        }
    }
    transaction.commit(Durability::Strict).expect("the storage works");
}

/// A database whose merge has made this many partial checkpoints and goes on.
fn merged_in_part(seed: u64, checkpoints: u64) -> SimStorage {
    let mut rng = SimRng::new(seed);
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options(1)).expect("it is new");
    for first in (0..PAIRS).step_by(100) {
        store(&database, (first..first + 100).map(|pair| (pair, 0)));
    }
    database.close().expect("the storage works");
    let database = Database::open(Arc::new(storage.clone()), options(2)).expect("it opens");
    // All of these are frozen together: parts of the last ones get into partial checkpoints, too.
    for value in 1..=100 {
        store(&database, [(rng.below(u64::from(PAIRS)) as u32, value)].into_iter());
    }
    assert_eq!(database.stats().checkpoints, 0);
    while database.stats().checkpoints < checkpoints {
        assert!(database.merge_slice().expect("the storage works"), "the merge goes on");
    }
    storage
}

/// Offsets and lengths of the records of the log.
fn records(log: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().expect("4 bytes"));
    let mut found = Vec::new();
    let mut at = FIRST_RECORD;
    while at + 40 <= log.len() && word(at) == word(FIRST_RECORD) {
        let len = (40 + word(at + 4) as usize).next_multiple_of(8);
        found.push((at, len));
        at += len;
    }
    found
}

#[test]
fn a_damaged_end_of_the_log_never_parts_a_commit() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..4 {
        for checkpoints in 1..=4 {
            let storage = merged_in_part(seed, checkpoints);
            let files = storage.files();
            let records = records(&files["log"]);
            assert!(records.len() >= 100, "{} records", records.len());
            for damaged in 1..=2 {
                let mut image = files.clone();
                let log = image.get_mut("log").expect("it is there");
                for (at, len) in &records[records.len() - damaged..] {
                    log[at + len / 2] ^= 1;
                }
                let context = format!("seed {seed}, {checkpoints} checkpoints, {damaged} records damaged");
                let storage = SimStorage::from_files(image).without_shadow();
                let database = match Database::open(Arc::new(storage), options(3)) {
                    Ok(database) => database,
                    Err(Error::Corrupt(_)) => {
                        refused += 1;
                        continue;
                    }
                    Err(error) => panic!("{context}: {error}"),
                };
                opened += 1;
                let tree = database.snapshot().collection("").expect("it was filled");
                for pair in 0..PAIRS {
                    let [first, second] = keys(pair).map(|key| tree.get(&key).expect("it is intact"));
                    assert!(
                        first == second,
                        "{context}: only half of a commit to pair {pair} is there"
                    );
                }
            }
        }
    }
    println!("{opened} opened, {refused} refused");
    assert_eq!(opened + refused, 32);
}

/// The newest superblock states how far the log has to lead. Where a block of its checkpoint is damaged,
/// and the end of the log, the older superblock leads to less.
#[test]
fn a_damaged_part_of_a_merge_and_a_damaged_end_of_the_log_are_refused() {
    let storage = merged_in_part(5, 1);
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let word = |data: &[u8], at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    let newest = word(data, 32).max(word(data, 4128));
    for at in (8192..data.len()).step_by(512) {
        if data[at..].starts_with(b"MGBK\x02") && word(data, at + 16) == newest {
            data[at + 40] ^= 1;
        }
    }
    let open = |files| Database::open(Arc::new(SimStorage::from_files(files).without_shadow()), options(3));
    let database = open(files.clone()).expect("the older superblock and the log lead there");
    assert!(database.stats().recovered_from_older);
    let log = files.get_mut("log").expect("it is there");
    let (at, len) = *records(log).last().expect("it has records");
    log[at + len / 2] ^= 1;
    assert!(matches!(open(files), Err(Error::Corrupt(_))));
}

//! An opening whose log expands to more than its memory merges while it reads. What it merges is in
//! blocks behind the end of the file, and what it replaces a later record may name again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::read_state;
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options};

const RECORDS: u64 = 4000;
/// The first records of the tree have values out of line: a merge begins with them.
const HEAD: u64 = 40;

fn options(cache_bytes: usize, session: u64) -> Options {
    Options {
        cache_bytes,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(8 << 20),
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage, cache_bytes: usize, session: u64) -> Database {
    Database::open(Arc::new(storage.clone()), options(cache_bytes, session)).expect("it opens")
}

fn noise(rng: &mut SimRng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Sets records in commits of a hundred.
fn set_all(database: &Database, model: &mut Model, rng: &mut SimRng, numbers: std::ops::Range<u64>, len: u64) {
    for first in numbers.clone().step_by(100) {
        let mut transaction = database.begin().expect("it is open");
        for number in first..numbers.end.min(first + 100) {
            let (key, value) = (number.to_be_bytes().to_vec(), noise(rng, len));
            transaction.put("c", &key, &value).expect("the storage works");
            model.insert(key, value);
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
}

fn check(database: &Database, model: &Model) {
    let mut state = read_state(&database.snapshot()).expect("it is intact");
    assert!(state.remove("c").unwrap_or_default() == *model);
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
}

/// A database whose process died with a log of several times a small cache.
fn died(rng: &mut SimRng) -> (SimStorage, Model) {
    let (storage, mut model) = (SimStorage::new(), Model::new());
    let database = open(&storage, 4 << 20, 1);
    set_all(&database, &mut model, rng, 0..RECORDS, 100);
    database.close().expect("the storage works");
    let database = open(&storage, 4 << 20, 2);
    set_all(&database, &mut model, rng, 0..RECORDS / 2, 60);
    (storage, model)
}

/// A storage that has no room for what is merged lets the log be read without merging.
#[test]
fn a_full_storage_opens_however_long_its_log_is() {
    let mut rng = SimRng::new(1);
    let (storage, model) = died(&mut rng);
    let bytes = storage.files().values().map(|file| file.len() as u64).sum();
    storage.set_capacity(Some(bytes));
    check(&open(&storage, 64 << 10, 3), &model);
}

/// Once the log is read, the free space in front of what was merged serves again.
#[test]
fn the_space_in_front_of_what_replay_merged_is_used_again() {
    let mut rng = SimRng::new(2);
    let (storage, mut model) = died(&mut rng);
    let len = storage.files()["data"].len() as u64;
    let database = open(&storage, 64 << 10, 3);
    assert!(database.stats().file_bytes > len, "it had to merge");
    // Most of what the file has is not needed any more.
    let mut transaction = database.begin().expect("it is open");
    for number in 200..RECORDS {
        transaction
            .discard("c", &number.to_be_bytes())
            .expect("the storage works");
        model.remove(number.to_be_bytes().as_slice());
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    for _ in 0..6 {
        set_all(&database, &mut model, &mut rng, 0..200, 100);
        database.checkpoint().expect("the storage works");
    }
    check(&database, &model);
    let stats = database.stats();
    assert!(stats.file_bytes < len / 2, "{stats:?}, {len} bytes before");
}

/// A partial checkpoint holds the last value of a key; the log still has the one before. A merge of the
/// older change retires the newer value, and its record, read later, takes it back.
#[test]
fn a_value_that_replay_replaces_and_then_finds_again_stays() {
    let mut rng = SimRng::new(3);
    let (storage, mut model) = (SimStorage::new(), Model::new());
    let database = open(&storage, 4 << 20, 1);
    set_all(&database, &mut model, &mut rng, 0..RECORDS, 100);
    database.close().expect("the storage works");
    let database = open(&storage, 1 << 20, 2);
    set_all(&database, &mut model, &mut rng, 0..HEAD, 700);
    // Enough for a merge of several rounds.
    for first in (HEAD..RECORDS).step_by(10) {
        set_all(&database, &mut model, &mut rng, first..first + 3, 100);
    }
    set_all(&database, &mut model, &mut rng, 0..HEAD, 701);
    assert_eq!(database.stats().checkpoints, 0);
    while database.merge_events().partial < 1 {
        assert!(database.merge_slice().expect("the storage works"), "the merge goes on");
    }
    assert!(database.merge_events().ends_partial);
    drop(database);
    let database = open(&storage, 64 << 10, 3);
    for _ in 0..4 {
        check(&database, &model);
        set_all(&database, &mut model, &mut rng, RECORDS..RECORDS + 20, 900);
        database.checkpoint().expect("the storage works");
    }
    check(&database, &model);
}

/// What replay merged is in no checkpoint, and until one has it all, none may hold a part. From then on
/// merges go in parts again.
#[test]
fn merges_go_in_parts_again_once_what_replay_merged_is_checkpointed() {
    let mut rng = SimRng::new(4);
    let (storage, mut model) = died(&mut rng);
    let database = open(&storage, 64 << 10, 3);
    let scatter = |database: &Database, model: &mut Model, rng: &mut SimRng| {
        for first in (0..RECORDS).step_by(10) {
            set_all(database, model, rng, first..first + 1, 100);
        }
    };
    database.checkpoint().expect("the storage works");
    assert_eq!(database.merge_events().partial, 0, "the first checkpoint is whole");
    scatter(&database, &mut model, &mut rng);
    assert!(database.merge_events().partial > 0);
    check(&database, &model);
}

/// Where a merge cannot go in parts, a commit is admitted only with room for all that it writes.
#[test]
fn what_is_admitted_beside_what_replay_merged_can_be_checkpointed() {
    let mut admitted = 0;
    for slack in [150, 160, 170, 180] {
        let mut rng = SimRng::new(slack);
        let (storage, mut model) = died(&mut rng);
        let options = Options {
            advanced: AdvancedOptions {
                reserve_bytes: 16 << 10,
                ..options(240 << 10, 3).advanced
            },
            ..options(240 << 10, 3)
        };
        // No zeros behind the log give room.
        let mut files = storage.files();
        let log = files.get_mut("log").expect("it is there");
        log.truncate(log.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        let storage = SimStorage::from_files(files);
        let database = Database::open(Arc::new(storage.clone()), options).expect("it opens");
        let before = database.version();
        let bytes: usize = storage.files().values().map(Vec::len).sum();
        storage.set_capacity(Some(bytes as u64 + (slack << 10)));
        for number in (0..RECORDS).step_by(13) {
            let (key, value) = (number.to_be_bytes().to_vec(), noise(&mut rng, 60));
            match database.set("c", &key, &value, Durability::Strict) {
                Ok(_) => model.insert(key, value),
                Err(Error::StorageFull { .. }) => break,
                Err(error) => panic!("{slack} KiB: {error}"),
            };
        }
        if database.version() == before {
            continue;
        }
        admitted += 1;
        let made = database.checkpoint();
        made.unwrap_or_else(|error| panic!("{slack} KiB: {error}"));
        check(&database, &model);
    }
    assert!(admitted > 0);
}

/// A life ends with one half of the log full and the other one needed. The next makes room with its
/// first commit, so that the log takes a record of maximum length again.
#[test]
fn a_log_that_is_full_when_it_is_read_takes_every_record() {
    let options = |session| Options {
        advanced: AdvancedOptions {
            log_bytes: Some(16 << 10),
            ..options(1 << 20, session).advanced
        },
        ..options(1 << 20, session)
    };
    let mut rng = SimRng::new(5);
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options(1)).expect("it is new");
    let (mut left, mut commits) = (storage.files(), 0);
    let first_header = |log: &[u8]| log.get(..512).map(<[u8]>::to_vec);
    loop {
        let set = database.set(
            "c",
            &rng.next_u64().to_be_bytes(),
            &noise(&mut rng, 100),
            Durability::Strict,
        );
        set.expect("the storage works");
        let mut files = storage.files();
        if commits > 1 && first_header(&files["log"]) != first_header(&left["log"]) {
            break;
        }
        commits += 1;
        if database.stats().checkpoints > 0 {
            // No later checkpoint has reached the disk.
            files.insert("data".to_owned(), left["data"].clone());
        }
        left = files;
    }
    let storage = SimStorage::from_files(left).without_shadow();
    let database = Database::open(Arc::new(storage), options(2)).expect("the log leads to all");
    assert_eq!(database.version(), commits);
    let set = database.set("c", b"short", &noise(&mut rng, 100), Durability::Strict);
    set.expect("the storage works");
    let before = database.stats();
    let mut transaction = database.begin().expect("it is open");
    for number in 0..17_u64 {
        let put = transaction.put("c", &number.to_be_bytes(), &noise(&mut rng, 100));
        put.expect("the storage works");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    let after = database.stats();
    assert_eq!(
        (after.log_records, after.checkpoints),
        (before.log_records + 1, before.checkpoints)
    );
}

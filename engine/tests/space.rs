//! Space comes back: overwriting and removing values out of line makes the files neither grow
//! without bound nor fill a storage that has room for ten times the data.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Scope, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options};

const MIB: u64 = 1 << 20;

/// Bytes that do not compress.
fn noise(rng: &mut SimRng, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn file_bytes(storage: &SimStorage) -> u64 {
    storage.files().values().map(|bytes| bytes.len() as u64).sum()
}

/// What is done with values of one size.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// The same few are set again and again.
    Overwrite,
    /// The same, in chunks that are written before the transaction.
    Staged,
    /// Each is removed some time after it was set.
    Queue,
}

/// What differs from a log, no reserve, and ten times the room of the data.
#[derive(Clone, Copy, Debug)]
struct Setting {
    durability: Durability,
    is_logged: bool,
    reserve_bytes: u32,
    times: u64,
}

const STRICT: Setting = setting(Durability::Strict);

const fn setting(durability: Durability) -> Setting {
    Setting {
        durability,
        is_logged: true,
        reserve_bytes: 0,
        times: 10,
    }
}

const ALL: [Setting; 3] = [STRICT, setting(Durability::Relaxed), setting(Durability::None)];

/// Writes about `total` bytes in values of `len` bytes, `live` bytes of which stay.
fn churn(usage: Use, len: usize, live: u64, total: u64, setting: Setting) {
    let context = format!("{usage:?} of {len} bytes, {setting:?}");
    let storage = SimStorage::new();
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: if setting.is_logged { None } else { Some(0) },
            reserve_bytes: setting.reserve_bytes,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let open = || Database::open(Arc::new(storage.clone()), options.clone()).expect("there is room");
    let mut rng = SimRng::new(len as u64);
    let mut value = noise(&mut rng, len);
    let count = (live / len as u64).max(1);
    let live = count * len as u64;
    storage.set_capacity(Some(setting.times * live));
    let mut database = open();
    let saves = (total / len as u64).clamp(6, 4000);
    for save in 0..saves {
        let at = rng.below(len as u64 - 8) as usize;
        value[at..at + 8].copy_from_slice(&rng.next_u64().to_le_bytes());
        let staged = match usage {
            Use::Staged if save >= count => {
                let mut staged = database.stage_value("c").expect("it is there");
                staged
                    .append(&value)
                    .unwrap_or_else(|error| panic!("{context}, chunk of save {save}: {error}"));
                Some(staged)
            }
            _ => None,
        };
        let mut transaction = database.begin().expect("it is open");
        let key = match usage {
            Use::Overwrite | Use::Staged => save % count,
            Use::Queue => save,
        };
        let set = match staged {
            Some(staged) => transaction.put_staged("c", &key.to_be_bytes(), staged, None),
            None => transaction.put("c", &key.to_be_bytes(), &value),
        };
        set.unwrap_or_else(|error| panic!("{context}, save {save}: {error}"));
        if let (Use::Queue, Some(done)) = (usage, save.checked_sub(count)) {
            transaction.delete("c", &done.to_be_bytes()).expect("it can be read");
        }
        transaction
            .commit(setting.durability)
            .unwrap_or_else(|error| panic!("{context}, save {save}: {error}"));
        if save % 16 == 0 || len > 1_000_000 {
            let bytes = file_bytes(&storage);
            assert!(bytes < 4 * live + 34 * MIB, "{context}, save {save}: {bytes} bytes");
        }
        if save == saves / 2 {
            // What a life has left behind does not add up.
            database.flush().unwrap_or_else(|error| panic!("{context}: {error}"));
            drop(database);
            database = open();
        }
    }
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
    database.close().unwrap_or_else(|error| panic!("{context}: {error}"));
}

#[test]
fn values_that_are_replaced_give_their_space_back() {
    for setting in ALL {
        churn(Use::Overwrite, 3000, 300_000, 8 * MIB, setting);
        churn(Use::Overwrite, 3000, MIB, 8 * MIB, setting);
        churn(Use::Overwrite, 20_000, 300_000, 60 * MIB, setting);
        churn(Use::Overwrite, 20_000, 2 * MIB, 60 * MIB, setting);
        churn(Use::Overwrite, 100_000, 600_000, 60 * MIB, setting);
        churn(Use::Overwrite, 300_000, 300_000, 60 * MIB, setting);
        churn(Use::Overwrite, 2_000_000, 6 * MIB, 60 * MIB, setting);
        churn(Use::Staged, 2_000_000, 6 * MIB, 60 * MIB, setting);
    }
    churn(Use::Overwrite, 50_000_000, 50_000_000, 500 * MIB, STRICT);
}

#[test]
fn values_that_are_replaced_without_a_log_or_with_a_reserve_give_their_space_back() {
    let no_log = Setting {
        is_logged: false,
        ..STRICT
    };
    churn(Use::Overwrite, 300_000, 300_000, 30 * MIB, no_log);
    for setting in ALL {
        let setting = Setting {
            reserve_bytes: 512 << 10,
            ..setting
        };
        churn(Use::Overwrite, 1000, 300_000, 8 * MIB, setting);
        churn(Use::Overwrite, 20_000, 300_000, 60 * MIB, setting);
        churn(Use::Staged, 2_000_000, 6 * MIB, 60 * MIB, setting);
    }
}

#[test]
fn values_that_are_replaced_in_little_room_give_their_space_back() {
    for setting in ALL {
        let setting = Setting { times: 6, ..setting };
        churn(Use::Overwrite, 3000, 300_000, 8 * MIB, setting);
        churn(Use::Overwrite, 20_000, 300_000, 60 * MIB, setting);
        churn(Use::Overwrite, 300_000, 300_000, 60 * MIB, setting);
        churn(Use::Staged, 2_000_000, 6 * MIB, 60 * MIB, setting);
    }
}

#[test]
fn values_that_are_removed_give_their_space_back() {
    for setting in ALL {
        churn(Use::Queue, 3000, 300_000, 8 * MIB, setting);
        churn(Use::Queue, 20_000, 300_000, 60 * MIB, setting);
        churn(Use::Queue, 20_000, 2 * MIB, 60 * MIB, setting);
        churn(Use::Queue, 300_000, 6 * MIB, 60 * MIB, setting);
        churn(Use::Queue, 5_000_000, 10 * MIB, 100 * MIB, setting);
    }
}

/// What was written of a value that found no room takes none from others.
#[test]
fn a_refused_value_leaves_its_room() {
    for (reserve_bytes, is_staged) in [(0, false), (0, true), (512 << 10, false), (512 << 10, true)] {
        let context = format!("reserve {reserve_bytes}, staged {is_staged}");
        let storage = SimStorage::new();
        let options = Options {
            advanced: AdvancedOptions {
                reserve_bytes,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        storage.set_capacity(Some(3_000_000));
        let database = Database::open(Arc::new(storage.clone()), options).expect("there is room");
        let mut rng = SimRng::new(1);
        let first = noise(&mut rng, 100);
        database
            .set("c", b"first", &first, Durability::Strict)
            .expect("there is room");
        let large = noise(&mut rng, 5_000_000);
        for _ in 0..3 {
            let stored = if is_staged {
                database.stage_value("c").and_then(|mut staged| staged.append(&large))
            } else {
                database.set("c", b"large", &large, Durability::Strict).map(|_| ())
            };
            assert!(
                matches!(stored, Err(Error::StorageFull { .. })),
                "{context}: {stored:?}"
            );
            for len in [500, 20_000, 200_000] {
                let small = noise(&mut rng, len);
                database
                    .set("c", &len.to_be_bytes(), &small, Durability::Strict)
                    .unwrap_or_else(|error| panic!("{context}, {len} bytes: {error}"));
            }
        }
        database.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    }
}

/// Once it is full, everything can be removed, and then something else stored.
#[test]
fn a_full_storage_can_be_emptied_and_filled_again() {
    for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
        for len in [100, 3000, 40_000] {
            let context = format!("{durability:?}, values of {len} bytes");
            let storage = SimStorage::new();
            storage.set_capacity(Some(2_000_000));
            let open = || Database::open(Arc::new(storage.clone()), Options::default()).expect("there is room");
            let database = open();
            let mut rng = SimRng::new(len as u64);
            for round in 0..3 {
                let mut count = 0_u64;
                while database
                    .set("c", &key(count), &noise(&mut rng, len), durability)
                    .is_ok()
                {
                    count += 1;
                }
                assert!(
                    count * len as u64 > 400_000,
                    "{context}, round {round}: {count} values had room"
                );
                for number in 0..count {
                    let removed = database.begin().and_then(|mut transaction| {
                        assert!(transaction.delete("c", &key(number))?, "{context}: {number} was there");
                        transaction.commit(durability)
                    });
                    removed.unwrap_or_else(|error| panic!("{context}, round {round}, {number} of {count}: {error}"));
                }
            }
            database.close().unwrap_or_else(|error| panic!("{context}: {error}"));
            let report = open().verify().expect("it can be read");
            assert!(report.is_ok(), "{context}: {:?}", report.problems);
        }
    }
}

/// The storage has room for all but the last bytes of a record, whatever these are.
#[test]
fn every_length_of_a_full_log_opens_again() {
    let options = |session| Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(64 << 10),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let begun = SimStorage::new();
    let database = Database::open(Arc::new(begun.clone()), options(1)).expect("it is new");
    for number in 0..4 {
        database
            .set("c", &key(number), b"value", Durability::Strict)
            .expect("there is room");
    }
    drop(database);
    let files = begun.files();
    let begin: u64 = files.values().map(|bytes| bytes.len() as u64).sum();
    let mut accepted = 0;
    for more in 0..1200 {
        let storage = SimStorage::from_files(files.clone());
        storage.set_capacity(Some(begin + more));
        let database = Database::open(Arc::new(storage.clone()), options(2)).expect("there is room");
        let mut last = 3;
        for number in 4..30_u64 {
            if database
                .set("c", &key(number), b"another value", Durability::Strict)
                .is_ok()
            {
                last = number;
                accepted += 1;
            }
        }
        let _ = database.checkpoint();
        drop(database);
        for policy in CrashPolicy::ALL {
            let image = SimStorage::from_files(storage.crash(policy, more));
            let database = Database::open(Arc::new(image), options(3));
            let database = database.unwrap_or_else(|error| panic!("{more} bytes of room, {policy:?}: {error}"));
            assert!(
                database
                    .snapshot()
                    .collection("c")
                    .is_some_and(|all| { all.get(&key(last)).expect("it can be read").is_some() })
            );
        }
    }
    assert!(accepted > 1000, "{accepted}");
}

/// Values that an earlier checkpoint holds are removed without anything else being written.
#[test]
fn removing_old_values_frees_them_without_a_full_log() {
    let storage = SimStorage::new();
    let open = || Database::open(Arc::new(storage.clone()), Options::default()).expect("there is room");
    let mut rng = SimRng::new(1);
    let database = open();
    for number in 0..40_u64 {
        let value = noise(&mut rng, 1_000_000);
        database
            .set("c", &number.to_be_bytes(), &value, Durability::Strict)
            .expect("there is room");
    }
    database.close().expect("there is room");
    let database = open();
    let mut removed = 0;
    for number in 0..36_u64 {
        let mut transaction = database.begin().expect("it is open");
        removed += u64::from(transaction.delete("c", &number.to_be_bytes()).expect("it can be read"));
        transaction.commit(Durability::Strict).expect("there is room");
    }
    assert_eq!(removed, 36);
    let stats = database.stats();
    assert!(stats.checkpoints > 0, "{stats:?}");
    let used = stats.file_bytes - stats.free_bytes;
    assert!(used < 26 * MIB, "{used} bytes are in use, for 4 MB of data");
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Length of a file without the zeros at its end.
fn content_bytes(file: &[u8]) -> usize {
    file.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Sets all values of a collection in one commit; returns them.
fn set_all(database: &Database, collection: &str, rng: &mut SimRng, count: u64, len: usize) -> Vec<Vec<u8>> {
    let values: Vec<_> = (0..count).map(|_| noise(rng, len)).collect();
    let mut transaction = database.begin().expect("it is open");
    for (number, value) in (0..).zip(&values) {
        transaction.put(collection, &key(number), value).expect("there is room");
    }
    transaction.commit(Durability::Strict).expect("there is room");
    values
}

/// Opens what a death left, writes on, and checks that it shows these values.
fn goes_on(files: BTreeMap<String, Vec<u8>>, rng: &mut SimRng, values: &[Vec<u8>]) {
    let storage = SimStorage::from_files(files).without_shadow();
    let database = Database::open(Arc::new(storage), Options::default()).expect("it opens");
    for _ in 0..4 {
        set_all(&database, "other", rng, values.len() as u64, values[0].len());
        database.checkpoint().expect("there is room");
        let report = database.verify().expect("it can be read");
        assert!(report.is_ok(), "{:?}", report.problems);
        let snapshot = database.snapshot();
        let collection = snapshot.collection("c").expect("it is there");
        for (number, value) in (0..).zip(values) {
            let found = collection.get(&key(number)).expect("it can be read");
            assert!(found.as_ref() == Some(value), "value {number}");
        }
    }
}

/// A copy of the newest superblock over the older one frees what that kept for the one before, and the next commits write
/// there. The free map, which both share, still lists it as kept.
#[test]
fn values_in_what_a_copied_superblock_freed_stay() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), Options::default()).expect("it is new");
    let mut rng = SimRng::new(1);
    for _ in 0..2 {
        set_all(&database, "c", &mut rng, 40, 100_000);
        database.checkpoint().expect("there is room");
    }
    let before = content_bytes(&storage.files()["data"]);
    let values = set_all(&database, "c", &mut rng, 40, 100_000);
    let files = storage.files();
    assert!(
        content_bytes(&files["data"]) < before + 1_000_000,
        "the values are where others were"
    );
    goes_on(files, &mut rng, &values);
}

/// What a checkpoint kept for the one before is free after the next, and commits write there. If that
/// next one is damaged, recovery from the older one finds their records.
#[test]
fn values_in_what_a_damaged_checkpoint_freed_stay() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), Options::default()).expect("it is new");
    let mut rng = SimRng::new(2);
    for collection in ["c", "c", "d"] {
        set_all(&database, collection, &mut rng, 8, 100_000);
        database.checkpoint().expect("there is room");
    }
    let before = content_bytes(&storage.files()["data"]);
    let values = set_all(&database, "c", &mut rng, 8, 100_000);
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    assert!(
        content_bytes(data) < before + 400_000,
        "the values are where others were"
    );
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    let newest = if word(32) > word(4128) { 0 } else { 4096 };
    let free_map = ((word(newest + 72) & ((1 << 48) - 1)) << data[newest + 10]) as usize;
    data[free_map + 20] ^= 1;
    goes_on(files, &mut rng, &values);
}

fn without_log() -> Options {
    Options {
        advanced: AdvancedOptions {
            log_bytes: Some(0),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

/// A database with default options, and a value of 1 MB for its records.
fn with_large_value(storage: SimStorage) -> (Database, Vec<u8>) {
    let database = Database::open(Arc::new(storage), Options::default()).expect("there is room");
    (database, noise(&mut SimRng::new(1), 1_000_000))
}

fn set_large(database: &Database, number: u64, value: &[u8]) {
    let set = database.set("c", &key(number), value, Durability::Relaxed);
    set.expect("there is room");
}

/// Half of the data may wait for a checkpoint, of the data as it is by now.
#[test]
fn a_database_that_has_grown_lets_more_wait() {
    let (database, value) = with_large_value(SimStorage::new().without_shadow());
    let set = |number| set_large(&database, number, &value);
    (0..40).for_each(set);
    database.checkpoint().expect("there is room");
    let before = database.stats().checkpoints;
    (0..14).for_each(set);
    assert_eq!(database.stats().checkpoints, before, "14 MB of 40 were replaced");
    (14..40).for_each(set);
    assert!(database.stats().checkpoints > before, "all were replaced");
}

/// Idle time frees what waits once it is a quarter of what may, however few bytes are in memory.
#[test]
fn idle_time_frees_replaced_values() {
    let (database, value) = with_large_value(SimStorage::new());
    let set = |number| set_large(&database, number, &value);
    (0..4).for_each(set);
    database.checkpoint().expect("there is room");
    set(0);
    assert_eq!(database.merge_slice(), Ok(false), "one value is not worth it");
    (1..3).for_each(set);
    while database.merge_slice().expect("there is room") {}
    let stats = database.stats();
    let used = stats.file_bytes - stats.free_bytes;
    assert!(used < 5 * MIB, "{used} bytes are in use, for 4 MB of data");
}

/// A chunk that is staged waits for the space of values that were removed, and that no checkpoint has
/// freed yet.
#[test]
fn a_staged_chunk_finds_the_room_of_removed_values() {
    let storage = SimStorage::new();
    let (database, value) = with_large_value(storage.clone());
    for number in 0..6 {
        set_large(&database, number, &value);
    }
    database.close().expect("there is room");
    let (database, _) = with_large_value(storage.clone());
    for number in 0..2 {
        let mut transaction = database.begin().expect("it is open");
        assert_eq!(transaction.delete("c", &key(number)), Ok(true));
        transaction.commit(Durability::Relaxed).expect("there is room");
    }
    assert_eq!(database.stats().checkpoints, 0, "the values still wait");
    storage.set_capacity(Some(file_bytes(&storage) + 100_000));
    let chunk = noise(&mut SimRng::new(2), MIB as usize);
    let mut staged = database.stage_value("c").expect("it is there");
    staged.append(&chunk).expect("2 MB were removed");
    let mut transaction = database.begin().expect("it is open");
    transaction
        .put_staged("c", &key(9), staged, None)
        .expect("there is room");
    transaction.commit(Durability::Strict).expect("there is room");
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(&key(9)), Ok(Some(chunk)));
}

/// A merge that found no room is taken up again once too much waits for it.
#[test]
fn a_merge_that_failed_once_frees_replaced_values_later() {
    let storage = SimStorage::new();
    let (database, value) = with_large_value(storage.clone());
    let set = |number: u64| set_large(&database, number % 4, &value);
    (0..4).for_each(set);
    database.checkpoint().expect("there is room");
    (0..4).for_each(set);
    assert_eq!(database.merge_slice(), Ok(true), "a merge begins");
    storage.set_fault(Some(Fault {
        scope: Scope::WritesOf("data"),
        ..Fault::once(storage.counters().operations, FaultKind::StorageFull)
    }));
    let merged = database.merge_slice();
    assert!(matches!(merged, Err(Error::StorageFull { .. })), "{merged:?}");
    storage.set_fault(None);
    (0..60).for_each(set);
    let bytes = file_bytes(&storage);
    assert!(bytes < 30 * MIB, "{bytes} bytes for 4 MB of data");
}

/// What only the older superblock reaches is room for the next value.
#[test]
fn a_value_takes_the_room_that_only_the_older_superblock_keeps() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), without_log()).expect("there is room");
    let mut rng = SimRng::new(1);
    let mut set = || {
        let value = noise(&mut rng, 1_000_000);
        database.set("c", b"key", &value, Durability::Strict).map(|_| value)
    };
    for _ in 0..2 {
        set().expect("there is room");
    }
    storage.set_capacity(Some(file_bytes(&storage).max(2_000_000) + 400_000));
    for round in 0..3 {
        let value = set().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let tree = database.snapshot().collection("c").expect("it is there");
        assert!(
            tree.get(b"key").expect("it can be read") == Some(value),
            "round {round}"
        );
    }
}

/// A value that is written in parts takes the room of one whose removal is in no checkpoint yet.
#[test]
fn a_staged_value_takes_the_room_of_one_that_was_just_removed() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), without_log()).expect("there is room");
    let mut rng = SimRng::new(1);
    let value = noise(&mut rng, 1_500_000);
    database
        .set("c", b"first", &value, Durability::Strict)
        .expect("there is room");
    storage.set_capacity(Some(file_bytes(&storage) + 400_000));
    let mut transaction = database.begin().expect("it is open");
    assert!(transaction.delete("c", b"first").expect("it can be read"));
    transaction.commit(Durability::None).expect("memory takes it");
    let mut staged = database.stage_value("c").expect("it is there");
    staged.append(&noise(&mut rng, 1_500_000)).expect("there is room again");
}

/// The trees that the two superblocks of a data file reach are the same.
fn has_equal_superblocks(data: &[u8]) -> bool {
    let free_maps = [72, 4096 + 72].map(|at| data[at..at + 8].to_vec());
    free_maps[0] == free_maps[1]
}

/// On a storage that refused room a merge writes little between its checkpoints, and where even that
/// is more than there is, each frees at once what the one before reached.
#[test]
fn a_merge_on_a_full_storage_goes_in_short_parts() {
    let options = Options {
        cache_bytes: 2 << 20,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(256 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let mut copies = 0;
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options).expect("there is room");
    let mut rng = SimRng::new(1);
    let mut values: Vec<_> = (0..50)
        .flat_map(|part| set_some(&database, &mut rng, part * 100..part * 100 + 100))
        .collect();
    database.checkpoint().expect("there is room");
    for number in (0..5000).step_by(7) {
        values[number as usize] = set_some(&database, &mut rng, number..number + 1).remove(0);
    }
    let before = database.merge_events();
    storage.set_capacity(Some(file_bytes(&storage) + (8 << 10)));
    let mut transaction = database.begin().expect("it is open");
    for number in 0..500 {
        transaction
            .put("d", &key(number), &noise(&mut rng, 60))
            .expect("memory takes it");
    }
    let put = transaction.put("d", b"large", &noise(&mut rng, 2_000_000));
    assert!(matches!(put, Err(Error::StorageFull { .. })), "{put:?}");
    drop(transaction);
    assert_eq!(database.merge_events(), before, "nothing was merged yet");
    let mut partial = before.partial;
    while database
        .merge_slice()
        .unwrap_or_else(|error| panic!("{:?}: {error}", database.merge_events()))
    {
        if database.merge_events().partial > partial {
            partial = database.merge_events().partial;
            copies += u32::from(has_equal_superblocks(&storage.files()["data"]));
        }
    }
    assert!(partial > before.partial + 4, "{partial}");
    let tree = database.snapshot().collection("c").expect("it is there");
    for (number, value) in (0..).zip(&values) {
        assert!(tree.get(&key(number)).expect("it can be read").as_ref() == Some(value));
    }
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    assert!(copies > 0);
}

/// Sets short values in one commit; returns them.
fn set_some(database: &Database, rng: &mut SimRng, numbers: Range<u64>) -> Vec<Vec<u8>> {
    let mut transaction = database.begin().expect("it is open");
    let mut values = Vec::new();
    for number in numbers {
        let value = noise(rng, 60);
        transaction.put("c", &key(number), &value).expect("there is room");
        values.push(value);
    }
    transaction.commit(Durability::Relaxed).expect("there is room");
    values
}

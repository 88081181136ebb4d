//! Proves that an encrypted database opens with its key only, gives away nothing it holds, and
//! refuses everything that was not encrypted at its place.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, SimStorage};
use mangrove_engine::{
    AdvancedOptions, CompactOptions, Completeness, Database, Direction, Durability, Error, IndexBy, Key, KeyRange,
    Options, PassphraseCost, SealedKey, recover, restore,
};

pub(crate) type Files = BTreeMap<String, Vec<u8>>;
pub(crate) type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Stands in keys, values, names and index keys; compression leaves it as it is.
pub(crate) const MARKER: &[u8] = b"c0nfid3nt1al";
pub(crate) const UNIT_BYTES: usize = 512;

pub(crate) fn options(key: u8) -> Options {
    Options {
        cache_bytes: 64 << 10,
        feed_commits: 100,
        key: Some(Key::new([key; 32])),
        advanced: AdvancedOptions {
            unit_bytes: UNIT_BYTES as u32,
            node_bytes: 512,
            log_bytes: Some(64 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

/// A database with key 1, filled with `count` commits.
pub(crate) fn filled(count: u32) -> (MemoryStorage, Database) {
    let storage = MemoryStorage::new();
    let database = open(&storage, 1).expect("memory works");
    fill(&database, 0, count).expect("memory works");
    (storage, database)
}

/// The same without a key.
fn filled_plain(count: u32) -> (MemoryStorage, Database) {
    let storage = MemoryStorage::new();
    let plain = Options {
        key: None,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage.clone()), plain).expect("memory works");
    fill(&database, 0, count).expect("memory works");
    (storage, database)
}

pub(crate) fn open(storage: &MemoryStorage, key: u8) -> Result<Database, Error> {
    Database::open(Arc::new(storage.clone()), options(key))
}

/// A value of `len` bytes that begins with the marker and does not compress.
pub(crate) fn value(number: u32, len: usize) -> Vec<u8> {
    let mut word = u64::from(number) + 1;
    let mut bytes = MARKER.to_vec();
    while bytes.len() < len.max(MARKER.len()) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.push((word >> 56) as u8);
    }
    bytes
}

pub(crate) fn key_of(number: u32) -> Vec<u8> {
    [MARKER, &number.to_be_bytes()].concat()
}

pub(crate) const NAME: &str = "c0nfid3nt1al names";

/// Commits records of all sizes, in memtables, trees and the log.
pub(crate) fn fill(database: &Database, from: u32, count: u32) -> Result<(), Error> {
    for number in from..from + count {
        let mut transaction = database.begin()?;
        transaction.set(NAME, &key_of(number), &value(number, 20))?;
        let len = [40, 300, 5000][number as usize % 3];
        transaction.set(NAME, &key_of(number + 1000), &value(number, len))?;
        transaction.commit(if number % 4 == 0 {
            Durability::Relaxed
        } else {
            Durability::Strict
        })?;
        if number % 16 == 15 {
            database.checkpoint()?;
        }
    }
    Ok(())
}

pub(crate) fn records(database: &Database) -> Result<Records, Error> {
    let mut records = Records::new();
    for info in database.collections() {
        let tree = database.snapshot().collection(&info.name).expect("it is listed");
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance()? {
            records.insert(cursor.key().to_vec(), cursor.value()?);
        }
    }
    Ok(records)
}

pub(crate) fn backup_of(database: &Database) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut go_on = |_| ControlFlow::Continue(());
    database
        .snapshot()
        .backup(&mut stream, &mut go_on)
        .expect("memory works");
    stream
}

pub(crate) fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Where the newer of the two superblock slots begins.
pub(crate) fn newest_slot(data: &[u8]) -> usize {
    if number(data, 32) > number(data, 4096 + 32) {
        0
    } else {
        4096
    }
}

fn is_marked(bytes: &[u8]) -> bool {
    bytes.windows(MARKER.len()).any(|window| window == MARKER)
}

pub(crate) fn assert_unreadable(files: &Files, context: &str) {
    for (name, bytes) in files {
        assert!(!is_marked(bytes), "{context}: the file {name} shows the marker");
    }
}

#[test]
fn only_the_right_key_opens_and_a_refusal_changes_nothing() {
    let (storage, database) = filled(40);
    let expected = records(&database).expect("it was written");
    drop(database);
    let files = storage.files();
    assert_eq!(open(&storage, 2).map(drop), Err(Error::WrongKey { is_missing: false }));
    let plain = Options::default();
    let missing = Database::open(Arc::new(storage.clone()), plain.clone()).map(drop);
    assert_eq!(missing, Err(Error::WrongKey { is_missing: true }));
    assert_eq!(missing.map_err(|error| error.code()), Err("KV_WRONG_KEY"));
    assert!(storage.files() == files, "a refusal wrote something");
    let database = open(&storage, 1).expect("it is the key");
    assert!(records(&database).expect("it can be read") == expected);
    assert!(database.verify().expect("it can be read").is_ok());

    let storage = MemoryStorage::new();
    drop(Database::open(Arc::new(storage.clone()), plain).expect("memory works"));
    let files = storage.files();
    assert_eq!(open(&storage, 1).map(drop), Err(Error::NotEncrypted));
    assert!(storage.files() == files, "a refusal wrote something");
}

/// The same workload is readable without a key, so the marker would be found.
#[test]
fn the_marker_is_found_where_nothing_is_encrypted() {
    let (storage, database) = filled_plain(40);
    drop(database);
    for name in ["data", "log"] {
        assert!(is_marked(&storage.files()[name]), "{name}");
    }
}

/// Blocks, values out of line, log, catalog, feed, indexes, staged values, compaction and backups.
#[test]
fn nothing_that_is_written_can_be_read() {
    let (storage, database) = filled(60);
    let by_value = IndexBy::new("c0nfid3nt1al index", |_, value| Some(value.to_vec()));
    let indexed = database
        .indexed_collection("c0nfid3nt1al others", [by_value])
        .expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    indexed
        .set(&mut transaction, b"key", &value(1, 30), None)
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let mut staged = database.stage_value(NAME).expect("it is there");
    staged.append(&MARKER.repeat(200_000)).expect("memory works");
    assert_unreadable(&storage.files(), "with a staged value");
    drop(staged);
    let mut removal = database.begin().expect("it can be written");
    for number in 0..40 {
        removal.delete(NAME, &key_of(number + 1000)).expect("memory works");
    }
    removal.commit(Durability::Strict).expect("memory works");
    let compacted = database.compact(CompactOptions::default(), &mut |_| ControlFlow::Continue(()));
    assert!(compacted.is_ok());
    let expected = records(&database).expect("it was written");
    assert_unreadable(&storage.files(), "after a compaction");

    let mut go_on = |_| ControlFlow::Continue(());
    let mut full = Vec::new();
    let base = database
        .snapshot()
        .backup(&mut full, &mut go_on)
        .expect("memory works")
        .version;
    assert!(!is_marked(&full), "a backup shows the marker");
    fill(&database, 100, 5).expect("memory works");
    let mut later = Vec::new();
    database
        .backup_since(base, &mut later, &mut go_on)
        .expect("memory works");
    assert!(!is_marked(&later), "an incremental backup shows the marker");

    let target = MemoryStorage::new();
    let restored = |key: Option<u8>, bytes: &[u8]| {
        let options = Options {
            key: key.map(|key| Key::new([key; 32])),
            ..options(1)
        };
        let target = MemoryStorage::new();
        restore(&mut &*bytes, Arc::new(target.clone()), options, &mut |_| {
            ControlFlow::Continue(())
        })
        .map(|_| target)
        .map_err(|error| error.code())
    };
    assert_eq!(restored(None, &full).err(), Some("KV_WRONG_KEY"));
    assert_eq!(restored(Some(2), &full).err(), Some("KV_WRONG_KEY"));
    restore(&mut &full[..], Arc::new(target.clone()), options(1), &mut go_on).expect("it is the key");
    // A feed would begin with a commit of its own.
    let without_feed = Options {
        feed_commits: 0,
        ..options(1)
    };
    let copy = Database::open(Arc::new(target.clone()), without_feed).expect("it was restored");
    assert!(records(&copy).expect("it can be read") == expected);
    copy.restore_commits(&mut &later[..], &mut go_on).expect("it follows");
    assert!(records(&copy).expect("it can be read") == records(&database).expect("it can be read"));
    drop(copy);
    assert_unreadable(&target.files(), "restored");
    // No frame of a backup can be changed, even with a new checksum.
    for at in (300..full.len()).step_by(97) {
        let mut damaged = full.clone();
        damaged[at] ^= 0x40;
        assert!(
            matches!(restored(Some(1), &damaged).err(), Some("KV_CORRUPT")),
            "byte {at}"
        );
    }
}

#[test]
fn a_plain_backup_becomes_an_encrypted_database() {
    let (_, database) = filled_plain(20);
    let stream = backup_of(&database);
    let mut go_on = |_| ControlFlow::Continue(());
    let target = MemoryStorage::new();
    restore(&mut &stream[..], Arc::new(target.clone()), options(1), &mut go_on).expect("memory works");
    assert_unreadable(&target.files(), "restored");
    let copy = open(&target, 1).expect("it is the key");
    assert!(records(&copy).expect("it can be read") == records(&database).expect("it can be read"));
}

/// Opens an image and reads everything.
fn read_image(files: &Files) -> Result<Records, Error> {
    let database = open(&MemoryStorage::from_files(files.clone()), 1)?;
    let found = records(&database)?;
    match database.verify()?.problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(found),
    }
}

/// A closed database of two generations, and its files as of the first.
fn two_generations() -> (Files, Files, Records) {
    let (storage, database) = filled(12);
    database.close().expect("memory works");
    let first = storage.files();
    let database = open(&storage, 1).expect("memory works");
    for round in 0..4 {
        fill(&database, 4 * round, 16).expect("memory works");
    }
    let expected = records(&database).expect("it can be read");
    database.close().expect("memory works");
    (first, storage.files(), expected)
}

#[test]
fn every_flipped_byte_is_refused_or_says_nothing() {
    let (storage, database) = filled(6);
    let expected = records(&database).expect("it can be read");
    database.close().expect("memory works");
    let files = storage.files();
    let mut refused = 0;
    for at in 0..files["data"].len() {
        let mut damaged = files.clone();
        damaged.get_mut("data").expect("it is there")[at] ^= 0x10;
        match read_image(&damaged) {
            Ok(found) => assert!(found == expected, "byte {at}: wrong records without an error"),
            Err(error) => {
                assert_eq!(error.code(), "KV_CORRUPT", "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > files["data"].len() / 4, "{refused} bytes mattered");
}

/// Blocks of the same database and owner in each other's places, and blocks as they once were.
#[test]
fn swapped_and_rolled_back_blocks_are_refused() {
    let (first, files, expected) = two_generations();
    let data = &files["data"];
    let units: Vec<usize> = (8192..data.len())
        .step_by(UNIT_BYTES)
        .filter(|at| &data[*at..*at + 4] == b"MGBK")
        .collect();
    let (mut swapped, mut rolled_back) = (0, 0);
    for (index, a) in units.iter().enumerate().step_by(2) {
        for b in units[..index].iter().step_by(3) {
            let mut damaged = files.clone();
            let bytes = damaged.get_mut("data").expect("it is there");
            let (front, back) = bytes.split_at_mut(*a);
            front[*b..*b + UNIT_BYTES].swap_with_slice(&mut back[..UNIT_BYTES]);
            match read_image(&damaged) {
                Ok(found) => assert!(found == expected, "{a} and {b}"),
                Err(error) => {
                    assert_eq!(error.code(), "KV_CORRUPT", "{a} and {b}: {error}");
                    swapped += 1;
                }
            }
        }
    }
    for at in (8192..data.len().min(first["data"].len())).step_by(UNIT_BYTES) {
        let old = &first["data"][at..at + UNIT_BYTES];
        if old == &data[at..at + UNIT_BYTES] {
            continue;
        }
        let mut damaged = files.clone();
        damaged.get_mut("data").expect("it is there")[at..at + UNIT_BYTES].copy_from_slice(old);
        match read_image(&damaged) {
            Ok(found) => assert!(found == expected, "unit at {at}"),
            Err(error) => {
                assert_eq!(error.code(), "KV_CORRUPT", "unit at {at}: {error}");
                rolled_back += 1;
            }
        }
    }
    assert!(
        swapped > 50 && rolled_back > 5,
        "{swapped} swapped, {rolled_back} rolled back"
    );
}

/// The place, owner and key of a block do not tell which version of a value it holds; its stamp does.
#[test]
fn an_older_value_at_the_place_of_its_successor_is_refused() {
    let storage = MemoryStorage::new();
    let without_feed = || Options {
        feed_commits: 0,
        ..options(1)
    };
    let database = Database::open(Arc::new(storage.clone()), without_feed()).expect("memory works");
    let mut images = Vec::new();
    for round in 0..6 {
        let done = database.set(NAME, MARKER, &value(round, 2000), Durability::Strict);
        done.expect("memory works");
        database.checkpoint().expect("memory works");
        images.push(storage.files()["data"].clone());
    }
    database.close().expect("memory works");
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let is_value = |data: &[u8], at: usize| data.get(at..at + 5) == Some(b"MGBK\x03");
    let values = (8192..data.len()).step_by(UNIT_BYTES).filter(|at| is_value(data, *at));
    let newest = values
        .max_by_key(|at| number(data, at + 16))
        .expect("it is out of line");
    let place = newest..newest + 5 * UNIT_BYTES;
    let mut older = images.iter().rev();
    let older = older.find(|older| is_value(older, newest) && older[place.clone()] != data[place.clone()]);
    let older = older.expect("the places of the values alternate");
    data[place.clone()].copy_from_slice(&older[place]);
    let database =
        Database::open(Arc::new(MemoryStorage::from_files(files)), without_feed()).expect("its root is whole");
    let tree = database.snapshot().collection(NAME).expect("it is there");
    assert_eq!(tree.get(MARKER).map_err(|error| error.code()), Err("KV_CORRUPT"));
}

/// A block or superblock without encryption must not stand in for an encrypted one.
#[test]
fn plain_bytes_are_refused() {
    let (_, files, _) = two_generations();
    let (storage, database) = filled_plain(12);
    database.close().expect("memory works");
    let foreign = storage.files();
    assert_eq!(read_image(&foreign).err(), Some(Error::NotEncrypted));
    let mut mixed = files.clone();
    mixed.get_mut("data").expect("it is there")[8192..].fill(0);
    let len = mixed["data"].len().min(foreign["data"].len());
    mixed.get_mut("data").expect("it is there")[8192..len].copy_from_slice(&foreign["data"][8192..len]);
    assert_eq!(read_image(&mixed).map_err(|error| error.code()), Err("KV_CORRUPT"));
    let mut unsealed = files.clone();
    let data = unsealed.get_mut("data").expect("it is there");
    for at in (8192..data.len()).step_by(UNIT_BYTES) {
        if &data[at..at + 4] == b"MGBK" {
            data[at + 5] &= 1;
        }
    }
    let error = read_image(&unsealed).expect_err("no block is sealed").to_string();
    assert!(error.contains("is not encrypted"), "{error}");
    // A superblock whose fields were changed, with a checksum that fits again.
    for slot in [0, 2048, 4096, 6144] {
        let mut changed = files.clone();
        let data = changed.get_mut("data").expect("it is there");
        data[slot + 40] ^= 1;
        let crc = crc32fast::hash(&data[slot..slot + 508]);
        data[slot + 508..slot + 512].copy_from_slice(&crc.to_le_bytes());
        match read_image(&changed) {
            Ok(found) => assert!(found == read_image(&files).expect("it is whole")),
            Err(error) => assert_eq!(error.code(), "KV_CORRUPT", "{error}"),
        }
    }
}

/// Nonces of all blocks in all images of crashes and of what comes after them: the same nonce always
/// has the same bytes behind it.
#[test]
fn no_nonce_is_used_twice_whatever_crashes() {
    let mut seen: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut blocks = 0;
    let mut look = |files: &Files| {
        let data = &files["data"];
        for at in (8192..data.len()).step_by(UNIT_BYTES) {
            if data[at..].starts_with(b"MGBK") && at + UNIT_BYTES <= data.len() {
                let nonce = data[at + 32..at + 56].to_vec();
                let rest = data[at..at + UNIT_BYTES].to_vec();
                let known = seen.entry(nonce).or_insert_with(|| rest.clone());
                assert!(*known == rest, "a nonce came back for other bytes, at {at}");
                blocks += 1;
            }
        }
    };
    let run = |storage: &SimStorage, from: u32| {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        Database::open(storage, options(1)).and_then(|database| fill(&database, from, 20))
    };
    let whole = SimStorage::new();
    run(&whole, 0).expect("nothing fails");
    for cut in (0..whole.counters().operations).step_by(3) {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let _ = run(&storage, 0);
        // Whole writes only: a torn block is not one that was ever encrypted.
        let image = storage.crash(CrashPolicy::Everything, cut);
        assert_unreadable(&image, &format!("cut {cut}"));
        look(&image);
        // The same state goes on twice: a copy beside its original.
        for _ in 0..2 {
            let again = SimStorage::from_files(image.clone());
            run(&again, 0).expect("nothing fails");
            look(&again.files());
        }
    }
    assert!(blocks > 1000, "{blocks}");
}

#[test]
fn a_change_of_key_takes_effect_as_a_whole_wherever_it_is_cut() {
    let (original, database) = filled(20);
    let expected = records(&database).expect("it can be read");
    drop(database);
    let change = |storage: &SimStorage| {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        Database::open(storage, options(1)).and_then(|database| database.change_key(&Key::new([2; 32])))
    };
    let whole = SimStorage::from_files(original.files());
    change(&whole).expect("nothing fails");
    let (mut before, mut after) = (0, 0);
    for cut in 0..=whole.counters().operations {
        let storage = SimStorage::from_files(original.files());
        storage.cut_at(cut);
        let changed = change(&storage);
        for policy in CrashPolicy::ALL {
            for seed in 0..4 {
                let image = storage.crash(policy, seed);
                let with = |key| open(&MemoryStorage::from_files(image.clone()), key);
                let (old, new) = (with(1), with(2));
                assert!(old.is_ok() != new.is_ok(), "cut {cut} {policy:?}: one key opens");
                assert!(
                    changed.is_err() || new.is_ok(),
                    "cut {cut}: an acknowledged change is lost"
                );
                if new.is_ok() {
                    after += 1;
                } else {
                    before += 1;
                }
                let (opened, refused) = if new.is_ok() { (new, old) } else { (old, new) };
                assert_eq!(refused.map(drop), Err(Error::WrongKey { is_missing: false }));
                let database = opened.expect("one of them opens");
                assert!(records(&database).expect("it can be read") == expected);
                fill(&database, 40, 1).expect("it can be written");
            }
        }
    }
    assert!(before > 0 && after > 0);
}

const CHEAP: PassphraseCost = PassphraseCost {
    memory_kib: 32,
    passes: 1,
};

fn with_passphrase(text: &str) -> Options {
    Options {
        key: Some(Key::passphrase(text.as_bytes(), CHEAP).expect("it is valid")),
        ..options(0)
    }
}

#[test]
fn a_passphrase_opens_the_database_and_its_backups() {
    let storage = MemoryStorage::new();
    let open = |options| Database::open(Arc::new(storage.clone()), options);
    let database = open(with_passphrase("correct horse")).expect("memory works");
    fill(&database, 0, 5).expect("memory works");
    let expected = records(&database).expect("it can be read");
    let stream = backup_of(&database);
    drop(database);
    let wrong = Err(Error::WrongKey { is_missing: false });
    assert_eq!(open(with_passphrase("correct horsf")).map(drop), wrong);
    assert_eq!(open(options(1)).map(drop), wrong);
    // The stored cost counts, not the one that is given.
    let key = Key::passphrase(b"correct horse", PassphraseCost::default()).expect("it is valid");
    let database = open(Options {
        key: Some(key),
        ..options(0)
    });
    let database = database.expect("it is the passphrase");
    assert!(records(&database).expect("it can be read") == expected);
    let target = MemoryStorage::new();
    let restored = |key: Options| {
        restore(&mut &stream[..], Arc::new(target.clone()), key, &mut |_| {
            ControlFlow::Continue(())
        })
    };
    assert_eq!(restored(options(1)).map(drop), wrong);
    restored(with_passphrase("correct horse")).expect("it is the passphrase");
    let restored = Database::open(Arc::new(target.clone()), with_passphrase("correct horse"));
    assert!(records(&restored.expect("it is the passphrase")).expect("it can be read") == expected);
    database.change_key(&Key::new([3; 32])).expect("memory works");
    drop(database);
    assert_eq!(open(with_passphrase("correct horse")).map(drop), wrong);
    assert!(records(&open(options(3)).expect("it is the key")).expect("it can be read") == expected);
}

#[test]
fn a_sealed_key_tells_the_right_key_from_others() {
    let (_, database) = filled(1);
    let sealed = database.sealed_key().expect("it is encrypted");
    let again = SealedKey::from_bytes(sealed.as_bytes());
    assert_eq!(again.check(&Key::new([1; 32])), Ok(()));
    let wrong = Err(Error::WrongKey { is_missing: false });
    assert_eq!(again.check(&Key::new([2; 32])), wrong);
    for len in 0..sealed.as_bytes().len() {
        let short = SealedKey::from_bytes(&sealed.as_bytes()[..len]);
        assert_eq!(short.check(&Key::new([1; 32])), wrong);
    }
    database.change_key(&Key::new([2; 32])).expect("memory works");
    let changed = database.sealed_key().expect("it is encrypted");
    assert_eq!(changed.check(&Key::new([2; 32])), Ok(()));
    assert_eq!(changed.check(&Key::new([1; 32])), wrong);
    let plain = Database::open(Arc::new(MemoryStorage::new()), Options::default()).expect("memory works");
    assert_eq!(plain.sealed_key(), None);
}

#[test]
fn after_a_change_of_key_backups_need_the_new_one() {
    let (storage, database) = filled(5);
    database.change_key(&Key::new([2; 32])).expect("memory works");
    fill(&database, 5, 5).expect("memory works");
    let expected = records(&database).expect("it can be read");
    let stream = backup_of(&database);
    let mut go_on = |_| ControlFlow::Continue(());
    database.close().expect("memory works");
    let target = MemoryStorage::new();
    let refused = restore(&mut &stream[..], Arc::new(target.clone()), options(1), &mut go_on);
    assert_eq!(refused.map(drop), Err(Error::WrongKey { is_missing: false }));
    restore(&mut &stream[..], Arc::new(target.clone()), options(2), &mut go_on).expect("it is the key");
    assert!(records(&open(&target, 2).expect("it is the key")).expect("it can be read") == expected);
    assert!(records(&open(&storage, 2).expect("it is the key")).expect("it can be read") == expected);
    let plain = Database::open(Arc::new(MemoryStorage::new()), Options::default()).expect("memory works");
    assert_eq!(plain.change_key(&Key::new([2; 32])), Err(Error::NotEncrypted));
}

#[test]
fn damaged_databases_are_recovered_with_their_key_into_encrypted_ones() {
    let (storage, database) = filled(40);
    let expected = records(&database).expect("it can be read");
    drop(database);
    let recovered = |files: &Files, key: Option<u8>| {
        let target = MemoryStorage::new();
        let options = Options {
            key: key.map(|key| Key::new([key; 32])),
            ..options(1)
        };
        let source = MemoryStorage::from_files(files.clone());
        let mut go_on = |_| ControlFlow::Continue(());
        recover(Arc::new(source), Arc::new(target.clone()), options, &mut go_on).map(|report| (report, target))
    };
    for key in [None, Some(2)] {
        let refused = recovered(&storage.files(), key).map(drop);
        assert_eq!(
            refused,
            Err(Error::WrongKey {
                is_missing: key.is_none()
            })
        );
    }
    let (report, target) = recovered(&storage.files(), Some(1)).expect("it is the key");
    assert_eq!(report.completeness, Completeness::Exact);
    assert_unreadable(&target.files(), "recovered");
    assert!(records(&open(&target, 1).expect("it is the key")).expect("it can be read") == expected);
    // The newest slot and some leaves are damaged: salvage reads what is left, and the log.
    let mut damaged = storage.files();
    let data = damaged.get_mut("data").expect("it is there");
    let newest = newest_slot(data);
    data[newest..newest + 4096].fill(0xEE);
    let leaves: Vec<usize> = (8192..data.len())
        .step_by(UNIT_BYTES)
        .filter(|at| &data[*at..*at + 5] == b"MGBK\x01")
        .collect();
    for at in leaves.iter().step_by(5) {
        data[at + 100] ^= 0xFF;
    }
    let (report, target) = recovered(&damaged, Some(1)).expect("something is left");
    assert_ne!(report.completeness, Completeness::Exact);
    assert_unreadable(&target.files(), "salvaged");
    let found = records(&open(&target, 1).expect("it is the key")).expect("it can be read");
    assert!(
        found.len() > expected.len() / 2,
        "{} of {}",
        found.len(),
        expected.len()
    );
    for (key, value) in &found {
        assert_eq!(expected.get(key), Some(value));
    }
}

/// A key that could not be changed is the one that later checkpoints state.
#[test]
fn a_key_that_could_not_be_changed_stays() {
    let storage = SimStorage::new();
    let open = |key| Database::open(Arc::new(storage.clone()), options(key));
    let database = open(1).expect("the storage works");
    fill(&database, 0, 3).expect("the storage works");
    let at = storage.counters().operations;
    storage.set_fault(Some(Fault::from(at, FaultKind::StorageFull)));
    let refused = database.change_key(&Key::new([2; 32]));
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    storage.set_fault(None);
    fill(&database, 3, 1).expect("the storage works");
    database.close().expect("the storage works");
    assert!(matches!(open(2), Err(Error::WrongKey { .. })));
    let database = open(1).expect("it has its old key");
    assert!(database.verify().expect("the storage works").is_ok());
}

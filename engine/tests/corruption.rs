//! Proves that damage is found and named, and that looking at a damaged or foreign file never
//! changes it.
//!
//! The tests damage a small database in many ways; opening it and reading everything must give the
//! right records or a typed error. A failed open leaves the file's bytes unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{AdvancedOptions, Compression, Database, Direction, Durability, Error, KeyRange, Options};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn sample(compression: Compression) -> (Vec<u8>, Records) {
    let storage = MemoryStorage::new();
    let options = Options {
        compression,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options).expect("memory works");
    let mut records = Records::new();
    for number in 0..3_u32 {
        let mut transaction = database.begin().expect("it can be written");
        for part in 0..60_u32 {
            let key = format!("key {:04}", part * 7 % 60 + number * 13).into_bytes();
            let value = vec![part as u8; if part == 5 { 2000 } else { 30 }];
            transaction.set("c", &key, &value).expect("memory works");
            records.insert(key, value);
        }
        transaction.commit(Durability::Strict).expect("memory works");
    }
    database.close().expect("memory works");
    (storage.files()["data"].clone(), records)
}

fn storage_of(data: &[u8]) -> MemoryStorage {
    MemoryStorage::from_files(BTreeMap::from([("data".to_owned(), data.to_vec())]))
}

/// Opens the database and reads everything in both directions.
fn read_all(storage: &MemoryStorage) -> Result<Records, Error> {
    let database = Database::open(Arc::new(storage.clone()), Options::default())?;
    let snapshot = database.snapshot();
    let Some(tree) = snapshot.collection("c") else {
        return Ok(Records::new());
    };
    let mut records = Records::new();
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    while cursor.advance()? {
        records.insert(cursor.key().to_vec(), cursor.value()?);
    }
    let mut backwards = tree.cursor(KeyRange::all(), Direction::Reverse);
    while backwards.advance()? {}
    for (key, value) in &records {
        assert_eq!(tree.get(key)?.as_ref(), Some(value));
    }
    let report = database.verify()?;
    match report.problems.first() {
        Some(problem) => Err(problem.clone()),
        None => Ok(records),
    }
}

/// Checks that damage is harmless or reported as corruption; returns whether it was reported. The
/// file must be unchanged.
fn check_damaged(data: &[u8], records: &Records, context: &str) -> bool {
    let storage = storage_of(data);
    let result = read_all(&storage);
    assert!(storage.files()["data"] == data, "{context}: the file was changed");
    match result {
        Ok(found) => {
            assert!(found == *records, "{context}: wrong records without an error");
            false
        }
        Err(error) => {
            assert_eq!(error.code(), "KV_CORRUPT", "{context}: {error}");
            true
        }
    }
}

#[test]
fn every_flipped_byte_is_harmless_or_found() {
    for compression in [Compression::None, Compression::Lz4] {
        let (data, records) = sample(compression);
        assert!(!check_damaged(&data, &records, "undamaged"));
        let mut found = 0;
        for at in 0..data.len() {
            let mut damaged = data.clone();
            damaged[at] ^= 1 << (at % 8);
            found += u32::from(check_damaged(&damaged, &records, &format!("byte {at}")));
        }
        assert!(found > 2000);
    }
}

#[test]
fn a_damaged_sector_of_the_superblocks_loses_nothing() {
    let (data, records) = sample(Compression::Lz4);
    for sector in 0..8192 / 512 {
        let mut damaged = data.clone();
        damaged[sector * 512..(sector + 1) * 512].fill(0xA5);
        assert!(!check_damaged(&damaged, &records, &format!("sector {sector}")));
    }
}

#[test]
fn damaged_pages_name_their_place() {
    let (data, _) = sample(Compression::None);
    let mut damaged = data.clone();
    // Leaves begin with the block magic and kind 1.
    let leaves: Vec<usize> = (8192..data.len())
        .step_by(512)
        .filter(|at| &data[*at..*at + 5] == b"MGBK\x01")
        .collect();
    for at in leaves {
        damaged[at + 100] ^= 0xFF;
    }
    match read_all(&storage_of(&damaged)) {
        Err(Error::Corrupt(corruption)) => {
            assert_eq!(corruption.collection.as_deref(), Some("c"));
            assert!(corruption.unit.is_some());
            assert!(corruption.key_range.is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn truncation_is_found_at_every_unit() {
    let (data, records) = sample(Compression::Lz4);
    for len in (8192..data.len()).step_by(512) {
        let storage = storage_of(&data[..len]);
        match read_all(&storage) {
            // Only free units were cut off.
            Ok(found) => assert!(found == records, "{len}"),
            Err(error) => assert_eq!(error.code(), "KV_CORRUPT", "{len}: {error}"),
        }
        assert_eq!(storage.files()["data"], data[..len]);
    }
    assert!(matches!(
        read_all(&storage_of(&data[..data.len() / 2])),
        Err(Error::Corrupt(_))
    ));
}

#[test]
fn foreign_files_are_refused_and_kept() {
    let mut rng = SimRng::new(5);
    let random = |rng: &mut SimRng, len: usize| (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let files = [
        b"SQLite format 3\0".repeat(1000),
        b"hello".to_vec(),
        random(&mut rng, 100),
        random(&mut rng, 8192),
        random(&mut rng, 100_000),
        vec![0; 100_000],
        b"MANGROVE".repeat(2000),
    ];
    for file in files {
        let storage = storage_of(&file);
        let error = read_all(&storage).expect_err("it is not a database");
        assert_eq!(error.code(), "KV_CORRUPT", "{error}");
        assert_eq!(storage.files()["data"], file);
    }
    let storage = storage_of(&b"hello".repeat(5000));
    assert!(matches!(read_all(&storage), Err(Error::NotADatabase { .. })));
}

#[test]
fn a_newer_format_is_refused_and_kept() {
    let (mut data, _) = sample(Compression::Lz4);
    for at in [0, 2048, 4096, 6144] {
        data[at + 8] = 6;
        let crc = crc32fast::hash(&data[at..at + 508]);
        data[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }
    let storage = storage_of(&data);
    let error = read_all(&storage).expect_err("this build is too old");
    assert_eq!(error, Error::VersionUnsupported { found: 6, supported: 5 });
    assert!(storage.files()["data"] == data);
}

#[test]
fn options_decide_between_creating_and_refusing() {
    let open = |storage: &MemoryStorage, options: Options| Database::open(Arc::new(storage.clone()), options).map(drop);
    let absent = Options {
        create: false,
        ..Options::default()
    };
    let exclusive = Options {
        exclusive: true,
        ..Options::default()
    };
    let read_only = Options {
        read_only: true,
        ..Options::default()
    };
    let storage = MemoryStorage::new();
    assert!(matches!(open(&storage, absent.clone()), Err(Error::NotFound { .. })));
    assert!(matches!(open(&storage, read_only.clone()), Err(Error::NotFound { .. })));
    assert!(storage.files().is_empty());
    open(&storage, exclusive.clone()).expect("it is new");
    assert!(matches!(open(&storage, exclusive), Err(Error::AlreadyExists { .. })));
    open(&storage, absent).expect("it is there");
    let database = Database::open(Arc::new(storage.clone()), read_only).expect("it is there");
    assert!(matches!(database.begin(), Err(Error::ReadOnly)));
    for bad in [
        Options {
            advanced: AdvancedOptions {
                unit_bytes: 1000,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        },
        Options {
            advanced: AdvancedOptions {
                unit_bytes: 256,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        },
        Options {
            advanced: AdvancedOptions {
                node_bytes: 100,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        },
        Options {
            cache_bytes: 1,
            ..Options::default()
        },
    ] {
        assert!(matches!(
            open(&MemoryStorage::new(), bad),
            Err(Error::InvalidArgument { .. })
        ));
    }
}

/// Regression: records longer than the node size allows were read. The first split of their leaf
/// panicked.
#[test]
fn records_beyond_the_limits_of_the_node_size_are_damage() {
    let storage = MemoryStorage::new();
    let options = Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 2048,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("c", b"key", &[1; 400]).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    database.close().expect("memory works");
    let mut data = storage.files()["data"].clone();
    for at in [0, 2048, 4096, 6144] {
        data[at + 12..at + 16].copy_from_slice(&256_u32.to_le_bytes());
        let crc = crc32fast::hash(&data[at..at + 508]);
        data[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }
    let error = read_all(&storage_of(&data)).expect_err("the record does not fit a node");
    assert_eq!(error.code(), "KV_CORRUPT", "{error}");
}

/// The second copy of a half's header covers damage to the first.
#[test]
fn a_damaged_header_of_the_log_loses_nothing() {
    const HALF_BYTES: usize = 8 << 10;
    let storage = MemoryStorage::new();
    let open = |storage: &MemoryStorage| {
        let options = Options {
            cache_bytes: 64 << 10,
            advanced: AdvancedOptions {
                unit_bytes: 512,
                node_bytes: 512,
                log_bytes: Some(2 * HALF_BYTES as u32),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        Database::open(Arc::new(storage.clone()), options)
    };
    let database = open(&storage).expect("memory works");
    let mut count = 0_u32;
    let has_second_half = || {
        let log = &storage.files()["log"];
        log.get(HALF_BYTES..).is_some_and(|half| half.starts_with(b"MANGRLOG"))
    };
    while !has_second_half() {
        let value = [count as u8; 100];
        database
            .set("c", &count.to_be_bytes(), &value, Durability::Strict)
            .expect("memory works");
        count += 1;
    }
    drop(database);
    for copy in [0, 512] {
        let mut files = storage.files();
        let log = files.get_mut("log").expect("it is there");
        log[HALF_BYTES + copy..][..512].fill(0xEE);
        let database = open(&MemoryStorage::from_files(files)).expect("the other copy is whole");
        let tree = database.snapshot().collection("c").expect("it was created");
        assert_eq!(tree.len(), u64::from(count), "copy at {copy}");
    }
}

/// What is missing may be a value that only its own record leads to.
#[test]
fn a_file_that_ends_too_early_is_not_opened() {
    let storage = MemoryStorage::new();
    let options = Options {
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    let fill = |collection: &str| {
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..300_u32 {
            transaction
                .set(collection, &number.to_be_bytes(), &[7; 60])
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
        database.checkpoint().expect("memory works");
    };
    fill("a");
    fill("b");
    // Leaves free space for all nodes to come, too short for the value.
    let mut transaction = database.begin().expect("it can be written");
    transaction.drop_collection("a").expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    for number in 0..3_u32 {
        database
            .set("b", &number.to_be_bytes(), b"1", Durability::Strict)
            .expect("memory works");
        database.checkpoint().expect("memory works");
    }
    database
        .set("b", b"long", &vec![9; 100_000], Durability::Strict)
        .expect("memory works");
    database.close().expect("memory works");
    let data = storage.files()["data"].clone();
    assert_eq!(data[data.len() - 1000..data.len() - 600], [9; 400], "the value is last");
    for missing in [1, 512, 50_000] {
        let storage = storage_of(&data[..data.len() - missing]);
        let opened = Database::open(Arc::new(storage), options.clone());
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{missing} bytes fewer");
    }
}

/// Opening reads the root of each collection: where the newest checkpoint has lost one, the checkpoint
/// before and the log have everything.
#[test]
fn a_damaged_root_of_the_newest_checkpoint_loses_nothing() {
    let storage = MemoryStorage::new();
    let options = Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    for number in 0..6_u8 {
        let done = database.set("c", &[number], &[number; 30], Durability::Strict);
        done.expect("memory works");
        if number % 2 == 1 {
            database.checkpoint().expect("memory works");
        }
    }
    let mut files = storage.files();
    let data = files.get_mut("data").expect("it is there");
    let word = |data: &[u8], at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    let newest = word(data, 32).max(word(data, 4128));
    let mut damaged = 0;
    for at in (8192..data.len()).step_by(512) {
        let is_leaf = data[at..].starts_with(b"MGBK\x01");
        if is_leaf && word(data, at + 16) == newest && data[at + 24..at + 28] != [0; 4] {
            data[at + 40] ^= 1;
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "the root of the collection");
    let database = Database::open(Arc::new(MemoryStorage::from_files(files)), options).expect("it opens");
    assert!(database.stats().recovered_from_older);
    let tree = database.snapshot().collection("c").expect("it is there");
    for number in 0..6_u8 {
        assert_eq!(tree.get(&[number]).expect("it is intact"), Some(vec![number; 30]));
    }
}

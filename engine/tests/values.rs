//! Values in parts. Reading: a part is what the whole value has at its place, and only the blocks
//! that overlap it are read. Writing: a staged value is a record like any other once it is stored,
//! and nothing before.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Change, CompactOptions, Compression, Database, Durability, Error, Isolation, Options, StagedValue,
    ValuePart,
};

/// Bytes of a chunk's content: with its header it fills 1 MiB.
pub(crate) const CHUNK_BYTES: usize = (1 << 20) - 32;

/// Bytes that differ from place to place, and that compress to almost nothing.
pub(crate) fn content(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let run = SimRng::new(u64::from(seed) << 32 | (bytes.len() / 4096) as u64).next_u64() as u8;
        bytes.resize((bytes.len() + 4096).min(len), run);
    }
    bytes
}

fn options() -> Options {
    Options {
        compression: Compression::None,
        cache_bytes: 1 << 20,
        ..Options::default()
    }
}

fn slice(value: &[u8], range: &Range<u64>) -> Vec<u8> {
    let len = value.len() as u64;
    let end = range.end.min(len);
    value[range.start.min(end) as usize..end as usize].to_vec()
}

fn check(part: Option<ValuePart>, value: &[u8], version: u64, range: &Range<u64>) {
    let part = part.expect("the record exists");
    assert!(part.bytes == slice(value, range), "{range:?} of {}", value.len());
    assert_eq!(part.value_len, value.len() as u64);
    assert_eq!(part.version, version, "{range:?}");
}

#[test]
fn a_part_is_what_the_value_has_there() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    let lengths = [
        0,
        1,
        100,
        5000,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        3 * CHUNK_BYTES,
        3 * CHUNK_BYTES + 77,
    ];
    for merged in [false, true] {
        let mut rng = SimRng::new(5);
        for (seed, &len) in lengths.iter().enumerate() {
            let value = content(seed as u8, len);
            let info = database
                .set("c", b"key", &value, Durability::None)
                .expect("memory works");
            if merged {
                database.checkpoint().expect("memory works");
            }
            let tree = database.snapshot().collection("c").expect("it exists");
            let mut open = database.transaction(Isolation::Serializable).expect("memory works");
            let size = len as u64;
            let edge = CHUNK_BYTES as u64;
            let mut ranges = vec![
                0..0,
                0..u64::MAX,
                0..size,
                size..u64::MAX,
                u64::MAX..u64::MAX,
                edge - 1..edge + 1,
                edge..edge,
                edge..2 * edge,
                size.saturating_sub(1)..size,
            ];
            ranges.extend((0..20).map(|_| {
                let start = rng.below(size + 10);
                start..start + rng.below(size + 10)
            }));
            // A range whose start is after its end is empty.
            ranges.push(Range { start: size, end: 0 });
            for range in &ranges {
                let part = tree.get_range(b"key", range.clone()).expect("memory works");
                check(part, &value, info.version, range);
                let part = open.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, info.version, range);
            }
            open.set("c", b"key", &value).expect("memory works");
            for range in &ranges {
                let part = open.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, 0, range);
            }
            let mut writing = database.begin().expect("memory works");
            writing.set("c", b"key", &value).expect("memory works");
            for range in &ranges {
                let part = writing.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, info.version + 1, range);
            }
        }
    }
}

#[test]
fn records_that_are_not_there_have_no_parts() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    database.set("c", b"a", b"1", Durability::None).expect("memory works");
    let tree = database.snapshot().collection("c").expect("it exists");
    assert_eq!(tree.get_range(b"b", 0..9).expect("memory works"), None);
    let mut open = database.transaction(Isolation::Serializable).expect("memory works");
    assert_eq!(open.get_range("none", b"a", 0..9).expect("memory works"), None);
    open.delete("c", b"a").expect("memory works");
    assert_eq!(open.get_range("c", b"a", 0..9).expect("memory works"), None);
    let mut writing = database.begin().expect("memory works");
    writing.put_until("c", b"late", b"2", Some(1)).expect("memory works");
    assert_eq!(writing.get_range("c", b"late", 0..9).expect("memory works"), None);
    assert_eq!(writing.get_range("none", b"a", 0..9).expect("memory works"), None);
}

/// A part counts as a read of its record: a transaction that read one conflicts with a later write.
#[test]
fn a_part_is_a_read_of_its_record() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    database.set("c", b"a", b"123", Durability::None).expect("memory works");
    let mut open = database.transaction(Isolation::Serializable).expect("memory works");
    open.get_range("c", b"a", 0..1).expect("memory works");
    open.set("c", b"b", b"").expect("memory works");
    database.set("c", b"a", b"124", Durability::None).expect("memory works");
    let refused = open.commit(Durability::None);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

/// Damage in a block of a value matters only to parts that overlap it.
#[test]
fn only_the_blocks_of_a_part_are_read() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("it works");
    let value = content(1, 4 * CHUNK_BYTES);
    database.set("c", b"key", &value, Durability::None).expect("it works");
    database.close().expect("it works");
    let chunk = |index: usize| (index * CHUNK_BYTES) as u64..((index + 1) * CHUNK_BYTES) as u64;
    let mut image = storage.files();
    let data = image.get_mut("data").expect("it is there");
    // The third chunk holds this run of bytes.
    let wanted = &value[2 * CHUNK_BYTES + 5000..2 * CHUNK_BYTES + 13_000];
    let at = data.windows(wanted.len()).position(|window| window == wanted);
    data[at.expect("it is stored as it is") + 100] ^= 1;
    let damaged: Arc<dyn Storage> = Arc::new(SimStorage::from_files(image));
    let database = Database::open(damaged, options()).expect("the trees are intact");
    let tree = database.snapshot().collection("c").expect("it exists");
    for index in [0, 1, 3] {
        let part = tree.get_range(b"key", chunk(index)).expect("these are intact");
        check(part, &value, 1, &chunk(index));
    }
    for range in [chunk(2), 0..u64::MAX, chunk(2).end - 1..chunk(2).end] {
        let refused = tree.get_range(b"key", range);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    let part = tree.get_range(b"key", 7..7).expect("nothing of the value is read");
    assert_eq!(part.map(|part| part.value_len), Some(value.len() as u64));
    let report = database.verify().expect("it can look");
    assert!(
        matches!(&report.problems[..], [Error::Corrupt(found)] if found.collection.as_deref() == Some("c")),
        "{:?}",
        report.problems
    );
}

/// A commit of which nothing tells that it was flushed counts only with all blocks of its values.
#[test]
fn a_commit_that_lacks_a_chunk_of_its_value_never_happened() {
    let storage = MemoryStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("memory works");
    for value in [&b"before"[..], &content(1, 3 * CHUNK_BYTES)] {
        let done = database.set("c", b"key", value, Durability::Relaxed);
        done.expect("memory works");
    }
    let whole = storage.files();
    drop(database);
    let data = &whole["data"];
    let chunks = (8192..data.len())
        .step_by(4096)
        .filter(|at| data[*at..].starts_with(b"MGBK\x03"));
    let chunks: Vec<usize> = chunks.collect();
    assert_eq!(chunks.len(), 3);
    for missing in chunks.into_iter().map(Some).chain([None]) {
        let mut image = whole.clone();
        let data = image.get_mut("data").expect("it is there");
        if let Some(at) = missing {
            data[at + 70_000..at + 70_512].fill(0xEE);
        }
        let storage = MemoryStorage::from_files(image);
        let database = Database::open(Arc::new(storage), options()).expect("such a cut is no damage");
        assert_eq!(database.version(), if missing.is_some() { 1 } else { 2 }, "{missing:?}");
        let value = value_of(&database, b"key").expect("it was stored");
        assert_eq!(value == b"before", missing.is_some());
    }
}

fn stage(database: &Database, value: &[u8], step: usize) -> StagedValue {
    let mut staged = database.stage_value("c").expect("the collection exists");
    for part in value.chunks(step.max(1)) {
        staged.append(part).expect("there is room");
    }
    assert_eq!(staged.len(), value.len() as u64);
    staged
}

fn put(database: &Database, key: &[u8], staged: StagedValue, durability: Durability) {
    let mut transaction = database.begin().expect("it works");
    transaction.put_staged("c", key, staged, None).expect("it works");
    transaction.commit(durability).expect("it works");
}

fn verify(database: &Database) {
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
}

fn value_of(database: &Database, key: &[u8]) -> Option<Vec<u8>> {
    let tree = database.snapshot().collection("c").expect("it exists");
    tree.get(key).expect("it can be read")
}

#[test]
fn a_staged_value_is_stored_like_any_other() {
    for compression in [Compression::None, Compression::Lz4] {
        let storage = SimStorage::new();
        let open = || {
            let options = Options {
                compression,
                ..options()
            };
            Database::open(Arc::new(storage.clone()), options).expect("it works")
        };
        let mut database = open();
        database.set("c", b"", b"", Durability::Strict).expect("it works");
        let lengths = [
            0,
            1,
            5000,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
            CHUNK_BYTES + 1,
            2 * CHUNK_BYTES,
            3 * CHUNK_BYTES + 5,
        ];
        for (number, &len) in lengths.iter().enumerate() {
            let value = content(number as u8, len);
            let durability = [Durability::Strict, Durability::Relaxed, Durability::None][number % 3];
            let staged = stage(&database, &value, [7919, 1 << 20, 3 << 20][number % 3]);
            verify(&database);
            assert_eq!(
                value_of(&database, b"key").map(|value| value.len()),
                number.checked_sub(1).map(|before| lengths[before])
            );
            put(&database, b"key", staged, durability);
            assert!(value_of(&database, b"key").is_some_and(|found| found == value));
            verify(&database);
            // From the log, from the trees, and after a checkpoint of both.
            match number % 4 {
                0 => database.flush().expect("it works"),
                1 => database.checkpoint().expect("it works"),
                2 => {
                    database.close().expect("it works");
                    database = open();
                    verify(&database);
                    continue;
                }
                _ => continue,
            }
            drop(database);
            database = open();
            assert!(value_of(&database, b"key").is_some_and(|found| found == value));
            verify(&database);
        }
    }
}

/// Staged values survive whatever happens to the file meanwhile, and what is dropped is free.
#[test]
fn checkpoints_and_compactions_leave_staged_values_alone() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("it works");
    let other = content(9, 5 * CHUNK_BYTES);
    database
        .set("c", b"other", &other, Durability::Strict)
        .expect("it works");
    let value = content(1, 3 * CHUNK_BYTES + 9);
    let staged = stage(&database, &value, 1 << 20);
    let dropped = stage(&database, &content(2, 4 * CHUNK_BYTES), 1 << 20);
    database.checkpoint().expect("it works");
    database
        .begin()
        .and_then(|mut transaction| {
            transaction.delete("c", b"other")?;
            transaction.commit(Durability::Strict)
        })
        .expect("it works");
    drop(dropped);
    let all = CompactOptions {
        threshold_bytes: 0,
        ..CompactOptions::default()
    };
    database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("it works");
    verify(&database);
    database
        .set("c", b"more", &other, Durability::Strict)
        .expect("it works");
    database.checkpoint().expect("it works");
    put(&database, b"key", staged, Durability::Strict);
    verify(&database);
    assert!(value_of(&database, b"key").is_some_and(|found| found == value));
    assert!(value_of(&database, b"more").is_some_and(|found| found == other));
    let used = value.len() + other.len();
    let report = database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("it works");
    assert!(report.file_bytes_after < (used + (used >> 2)) as u64, "{report:?}");
    database.close().expect("it works");
    let database = Database::open(Arc::new(storage.clone()), options()).expect("it works");
    assert!(value_of(&database, b"key").is_some_and(|found| found == value));
    verify(&database);
}

/// A crash or a close gives back what was staged, and closing makes the file short again.
#[test]
fn what_is_staged_ends_with_the_opening() {
    let storage = SimStorage::new();
    let open = |storage: &SimStorage| Database::open(Arc::new(storage.clone()), options()).expect("it works");
    let len = || storage.files()["data"].len();
    let database = open(&storage);
    database.set("c", b"a", b"1", Durability::Strict).expect("it works");
    database.close().expect("it works");
    let before = len();
    // Nothing was committed since the database was opened.
    let database = open(&storage);
    let mut staged = stage(&database, &content(1, 3 * CHUNK_BYTES), 1 << 20);
    assert!(len() > before + 3 * CHUNK_BYTES);
    database.close().expect("it works");
    assert_eq!(len(), before);
    let refused = staged.append(&content(1, CHUNK_BYTES));
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert!(matches!(staged.append(b"1"), Err(Error::Closed)));
    drop(staged);
    assert_eq!(len(), before);
    // Something was.
    let database = open(&storage);
    let staged = stage(&database, &content(1, 3 * CHUNK_BYTES), 1 << 20);
    database.set("c", b"a", b"2", Durability::Strict).expect("it works");
    database.checkpoint().expect("it works");
    // The checkpoint's free map has the staged extents, as a crash now would leave them.
    let image = SimStorage::from_files(storage.files());
    let crashed = open(&image);
    verify(&crashed);
    crashed
        .set("c", b"b", &content(2, 3 * CHUNK_BYTES), Durability::Strict)
        .expect("it works");
    verify(&crashed);
    assert!(image.files()["data"].len() < before + 4 * CHUNK_BYTES);
    database.close().expect("it works");
    drop(staged);
    // The checkpoint wrote behind what was staged then, so closing could not truncate the file.
    let database = open(&storage);
    verify(&database);
    let all = CompactOptions {
        threshold_bytes: 0,
        ..CompactOptions::default()
    };
    database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("it works");
    assert!(len() < before + CHUNK_BYTES / 4);
}

#[test]
fn refusals_leave_no_trace() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("it works");
    assert!(matches!(database.stage_value("c"), Err(Error::NotFound { .. })));
    assert!(matches!(database.stage_value("\0ttl1"), Err(Error::NotFound { .. })));
    for name in ["c", "d"] {
        database.set(name, b"a", b"1", Durability::Strict).expect("it works");
    }
    let value = content(1, 2 * CHUNK_BYTES + 1);
    let refuse = |name: &str, key: &[u8], staged: StagedValue| {
        let mut transaction = database.begin().expect("it works");
        let refused = transaction
            .put_staged(name, key, staged, None)
            .expect_err("it is refused");
        // The transaction goes on.
        transaction.set("c", b"a", b"2").expect("it works");
        transaction.commit(Durability::Strict).expect("it works");
        refused
    };
    let refused = refuse("d", b"key", stage(&database, &value, 1 << 20));
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
    let refused = refuse("c", &[0; 9000], stage(&database, &value, 1 << 20));
    assert!(matches!(refused, Error::KeyTooLarge(_)), "{refused:?}");
    // The collection was dropped and created again.
    let staged = stage(&database, &value, 1 << 20);
    let mut transaction = database.begin().expect("it works");
    transaction.drop_collection("c").expect("it works");
    transaction.set("c", b"a", b"3").expect("it works");
    transaction.commit(Durability::Strict).expect("it works");
    let refused = refuse("c", b"key", staged);
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
    // A rolled back transaction uses it up.
    let staged = stage(&database, &value, 1 << 20);
    let mut transaction = database.begin().expect("it works");
    transaction.put_staged("c", b"key", staged, None).expect("it works");
    drop(transaction);
    assert_eq!(value_of(&database, b"key"), None);
    verify(&database);
    for _ in 0..2 {
        database.set("c", b"a", b"4", Durability::Strict).expect("it works");
        database.checkpoint().expect("it works");
    }
    assert!(storage.files()["data"].len() < CHUNK_BYTES);
}

/// Expiry, feeds and conflicts treat a staged value like any other.
#[test]
fn a_staged_value_is_a_record_in_all_respects() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    database.set("c", b"a", b"1", Durability::None).expect("memory works");
    let value = content(3, CHUNK_BYTES + 7);
    let mut changes = database.changes(None).expect("memory works");
    let mut open = database.transaction(Isolation::Serializable).expect("memory works");
    assert_eq!(open.get("c", b"key").expect("memory works"), None);
    open.set("c", b"b", b"").expect("memory works");
    let staged = stage(&database, &value, 1 << 20);
    let mut transaction = database.begin().expect("memory works");
    transaction
        .put_staged("c", b"key", staged, Some(1))
        .expect("memory works");
    transaction.commit(Durability::None).expect("memory works");
    assert!(matches!(open.commit(Durability::None), Err(Error::Conflict { .. })));
    assert_eq!(value_of(&database, b"key"), None, "it has expired");
    assert_eq!(database.purge_expired(10).expect("memory works"), 1);
    let commit = changes
        .next_commit()
        .expect("memory works")
        .expect("there was a commit");
    let found =
        matches!(&commit.changes[..], [Change::Set { value: found, expires_at: Some(1), .. }] if *found == value);
    assert!(found, "{} changes", commit.changes.len());
    verify(&database);
}

/// Full storage refuses a chunk before it takes the reserve, so that removals go on.
#[test]
fn a_full_storage_refuses_the_chunk_and_keeps_the_reserve() {
    for capacity in (5 << 20..9 << 20).step_by(300_000) {
        let storage = SimStorage::new();
        let options = Options {
            advanced: AdvancedOptions {
                reserve_bytes: 256 << 10,
                log_bytes: Some(256 << 10),
                ..options().advanced
            },
            ..options()
        };
        let database = Database::open(Arc::new(storage.clone()), options.clone()).expect("it works");
        for key in 0_u8..200 {
            database
                .set("c", &[key], &[key; 3000], Durability::Strict)
                .expect("it works");
        }
        storage.set_capacity(Some(capacity));
        let mut staged = database.stage_value("c").expect("it exists");
        let part = content(1, CHUNK_BYTES);
        let refused = loop {
            if let Err(error) = staged.append(&part) {
                break error;
            }
        };
        assert!(matches!(refused, Error::StorageFull { .. }), "{capacity}: {refused:?}");
        let mut transaction = database.begin().expect("it works");
        for key in 0_u8..200 {
            transaction.delete("c", &[key]).expect("it works");
        }
        transaction
            .commit(Durability::Strict)
            .unwrap_or_else(|error| panic!("{capacity}: {error}"));
        verify(&database);
        let mut transaction = database.begin().expect("it works");
        assert!(transaction.put_staged("c", b"key", staged, None).is_err());
        drop(transaction);
        // What was staged is free again.
        let staged = stage(&database, &part, 1 << 20);
        put(&database, b"key", staged, Durability::Strict);
        verify(&database);
        drop(database);
        let database = Database::open(Arc::new(storage.clone()), options).expect("it works");
        assert!(
            value_of(&database, b"key").is_some_and(|found| found == part),
            "{capacity}"
        );
        verify(&database);
    }
}

/// Many blind writes in a row are sorted later; what they replace is freed all the same.
#[test]
fn blind_writes_free_the_values_that_they_replace() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    let mut transaction = database.begin().expect("it is open");
    for number in 0..20_u8 {
        transaction
            .put("c", &[0xFF, number], &content(number, 50_000))
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    let mut transaction = database.begin().expect("it is open");
    for number in 0..200_u8 {
        transaction.put("c", &[number], b"small").expect("memory works");
    }
    for number in 0..20_u8 {
        transaction.put("c", &[0xFF, number], b"small").expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    let report = database.verify().expect("memory works");
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(report.entries, 220);
}

/// A chunk that the storage refuses takes no space.
#[test]
fn a_chunk_that_could_not_be_written_is_free() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("the storage works");
    database
        .set("c", b"1", b"first", Durability::Strict)
        .expect("the storage works");
    let mut staged = database.stage_value("c").expect("it was created");
    let (at, before) = (storage.counters().operations, database.stats());
    storage.set_fault(Some(Fault::from(at, FaultKind::StorageFull)));
    let refused = staged.append(&content(1, CHUNK_BYTES + 1));
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    storage.set_fault(None);
    let report = database.verify().expect("the storage works");
    assert!(report.is_ok(), "{:?}", report.problems);
    drop(staged);
    let after = database.stats();
    assert_eq!(
        (after.file_bytes, after.free_bytes),
        (before.file_bytes, before.free_bytes)
    );
}

//! Verification in slices, with commits between them.

use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{AdvancedOptions, CompactOptions, Database, Durability, Options, ReadWrite, VerifyReport};

fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            node_bytes: 512,
            unit_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn write(database: &Database, collection: &str, keys: std::ops::Range<u32>, len: usize, expires_at: Option<u64>) {
    let mut transaction = database.begin().expect("it is open");
    for key in keys {
        transaction
            .set_until(collection, &key.to_be_bytes(), &vec![key as u8; len], expires_at)
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

/// Returns a database with leaves, out-of-line values, and records that expire.
fn filled(storage: &MemoryStorage) -> Database {
    let database = Database::open(Arc::new(storage.clone()), options()).expect("memory works");
    write(&database, "a", 0..2000, 40, None);
    write(&database, "b", 0..20, 5000, None);
    write(&database, "c", 0..300, 20, Some(u64::MAX - 1));
    database
}

/// Verifies in slices of `bytes`; calls `between` between two of them.
fn verify(database: &Database, bytes: u64, mut between: impl FnMut(u32)) -> (u32, VerifyReport) {
    let mut verification = database.snapshot().verification();
    let mut before = 0;
    for slice in 0.. {
        if let Some(report) = verification.advance(bytes).expect("nobody writes beside it") {
            return (slice, report);
        }
        let progress = verification.progress();
        assert!(progress.entries >= before && progress.entries <= progress.total_entries);
        before = progress.entries;
        between(slice);
    }
    unreachable!("there is an end");
}

#[test]
fn slices_find_what_one_verification_finds() {
    let storage = MemoryStorage::new();
    let database = filled(&storage);
    database.checkpoint().expect("memory works");
    let whole = database.verify().expect("it is open");
    assert!(whole.is_ok() && whole.entries == 2320);
    for bytes in [0, 1, 5000, u64::MAX] {
        let (_, report) = verify(&database, bytes, |_| {});
        assert_eq!(report, whole);
    }
}

#[test]
fn commits_between_slices_are_neither_missed_nor_taken_for_damage() {
    let storage = MemoryStorage::new();
    let database = filled(&storage);
    let (slices, report) = verify(&database, 6000, |slice| {
        write(&database, "a", slice * 7..slice * 7 + 30, 60, None);
        write(&database, "b", slice..slice + 3, 9000, None);
        match slice % 4 {
            0 => database.checkpoint().expect("memory works"),
            1 => {
                let mut transaction = database.begin().expect("it is open");
                transaction
                    .delete("a", &(1000 + slice).to_be_bytes())
                    .expect("memory works");
                transaction.commit(Durability::None).expect("memory works");
            }
            2 => {
                let mut once = |_| ControlFlow::Break(());
                database
                    .compact(CompactOptions::default(), &mut once)
                    .expect("memory works");
            }
            _ => {}
        }
    });
    assert!(slices > 20, "{slices}");
    assert_eq!(report.problems, []);
    assert_eq!(report.entries, 2320);
    assert!(database.verify().expect("it is open").is_ok());
}

/// What a merge has written belongs to no version before its checkpoint, and is not lost.
#[test]
fn blocks_of_a_merge_under_way_are_not_taken_for_lost_ones() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    write(&database, "a", 0..2000, 40, None);
    database.checkpoint().expect("memory works");
    write(&database, "a", 0..300, 60, None);
    let mut slices = 0;
    while database.merge_slice().expect("memory works") {
        let report = database.verify().expect("it is open");
        assert_eq!(report.problems, [], "slice {slices}");
        let (_, report) = verify(&database, 6000, |_| {});
        assert_eq!(report.problems, [], "slice {slices}");
        slices += 1;
    }
    assert!(slices > 1, "{slices}");
}

#[test]
fn slices_find_damage_wherever_it_is() {
    let storage = MemoryStorage::new();
    filled(&storage).close().expect("memory works");
    let flip = |offset: u64| {
        let file = storage.open("data", false).expect("nobody else has it");
        let mut byte = [0];
        file.read_at(offset, &mut byte).expect("it is in the file");
        file.write_at(offset, &[!byte[0]]).expect("memory works");
        file.len().expect("memory works")
    };
    flip(8192);
    let len = flip(8192);
    let mut found = 0;
    for offset in (8192..len).step_by(999) {
        flip(offset);
        if let Ok(database) = Database::open(Arc::new(storage.clone()), options()) {
            let whole = database.verify().expect("it is open");
            let (_, report) = verify(&database, 3000, |_| {});
            assert_eq!(report.is_ok(), whole.is_ok(), "at {offset}");
            if !whole.is_ok() {
                found += 1;
                assert_eq!(report.problems.len(), whole.problems.len(), "at {offset}");
            }
        }
        flip(offset);
    }
    assert!(found > 10, "{found}");
}

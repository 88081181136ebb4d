//! Bounds the memory of a database on files while it writes and reads data several times the size
//! of its cache, and of the opening after a death.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mangrove_engine::storage::FsStorage;
use mangrove_engine::{AdvancedOptions, Background, Database, Durability, Options};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const CACHE_BYTES: usize = 8 << 20;
/// Memory beyond the cache. It holds buffers of the log and of blocks, a transaction's record, and
/// the maps of pages and free extents.
const MORE_BYTES: usize = 16 << 20;
const RECORDS: u64 = 200_000;
const BATCH: u64 = 1000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&(word ^ word >> 29).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64) -> Vec<u8> {
    let words = (0..20_u64).map(|index| (number + index).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_le_bytes());
    words.flatten().take(158).collect()
}

/// The allocator counts for all tests of the process: one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `work` and returns the peak of memory beyond what was allocated before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    work();
    ALLOCATOR.peak_usage() - before
}

fn write(database: &Database, durability: Durability) {
    for batch in 0..RECORDS / BATCH {
        let mut transaction = database.begin().expect("it can be written");
        for number in batch * BATCH..(batch + 1) * BATCH {
            transaction
                .put("c", &key(number), &value(number))
                .expect("the disk takes it");
        }
        transaction.commit(durability).expect("the disk takes it");
    }
}

#[test]
fn memory_is_bounded_by_the_cache() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for has_background in [false, true] {
        for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
            let directory = tempfile::tempdir().expect("there is room");
            let options = Options {
                cache_bytes: CACHE_BYTES,
                ..Options::default()
            };
            let peak = peak_of(|| {
                let storage = Arc::new(FsStorage::new(directory.path()));
                let database = Arc::new(Database::open(storage, options).expect("it is new"));
                let interval = Duration::from_millis(20);
                let background = has_background.then(|| Background::start(Arc::clone(&database), interval));
                write(&database, durability);
                write(&database, durability);
                let snapshot = database.snapshot();
                let tree = snapshot.collection("c").expect("it has records");
                for number in (0..RECORDS).step_by(7) {
                    assert_eq!(tree.get(&key(number)).expect("the disk works"), Some(value(number)));
                }
                drop(background);
            });
            assert!(
                peak <= CACHE_BYTES + MORE_BYTES,
                "{} MiB with {durability:?}, a thread that merges: {has_background}",
                peak >> 20
            );
        }
    }
}

/// A value that compresses to little.
fn long_value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(500)
}

/// Writes values that compress well, and stops as a process that dies does. The log then expands to
/// many times its length.
fn die_writing(directory: &Path, keys: u64, commits: u64, cache_bytes: usize) {
    let options = Options {
        cache_bytes,
        advanced: AdvancedOptions {
            log_bytes: Some(8 << 20),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(FsStorage::new(directory)), options).expect("it is new");
    for commit in 0..commits {
        let mut transaction = database.begin().expect("it can be written");
        for number in commit * 20..(commit + 1) * 20 {
            let key = (number % keys).to_be_bytes();
            transaction
                .put("c", &key, &long_value(number))
                .expect("the disk takes it");
        }
        transaction.commit(Durability::Relaxed).expect("the disk takes it");
    }
    database.flush().expect("the disk works");
}

/// Whether the values are those set again and again, or ever more, opening takes the cache and half
/// of the log, whatever the cache.
#[test]
fn an_opening_after_a_death_takes_no_more_than_the_cache() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (keys, commits) in [(480, 3000), (u64::MAX, 1000)] {
        for cache_bytes in [64 << 10, 1 << 20, 8 << 20, 128 << 20] {
            let directory = tempfile::tempdir().expect("there is room");
            die_writing(directory.path(), keys, commits, 128 << 20);
            let options = Options {
                cache_bytes,
                ..Options::default()
            };
            let open = || {
                let storage = Arc::new(FsStorage::new(directory.path()));
                Database::open(storage, options.clone()).expect("writing worked")
            };
            let mut opened = None;
            let peak = peak_of(|| opened = Some(open()));
            assert!(
                peak <= cache_bytes + (4 << 20) + MORE_BYTES,
                "{} MiB with a cache of {} KiB and {keys} keys",
                peak >> 20,
                cache_bytes >> 10
            );
            for life in 0..3 {
                let database = opened.take().unwrap_or_else(open);
                let tree = database.snapshot().collection("c").expect("it has records");
                let last = commits * 20;
                for number in last - keys.min(last)..last {
                    let found = tree.get(&(number % keys).to_be_bytes()).expect("the disk works");
                    assert_eq!(found, Some(long_value(number)), "{number} in life {life}");
                }
                assert_eq!(tree.len(), keys.min(last));
                assert!(database.verify().expect("the disk works").is_ok());
                if life == 1 {
                    database.checkpoint().expect("the disk works");
                }
            }
        }
    }
}

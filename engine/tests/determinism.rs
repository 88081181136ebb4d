//! Proves that the same operations with the same database id write the same bytes, and bounds what
//! a commit writes. Neither depends on time or chance, so a change here is a change of the engine.

use std::sync::Arc;

use crate::common::{Flavour, History, run};
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Options};

/// Number of small commits measured.
const COMMITS: u64 = 100;

#[test]
fn same_operations_same_bytes() {
    for flavour in [Flavour::Batches, Flavour::Large, Flavour::Mixed] {
        let files = || {
            let storage = SimStorage::new();
            let shared: Arc<dyn Storage> = Arc::new(storage.clone());
            run(&shared, flavour, 21, 50, &mut History::default()).expect("the storage works");
            storage.files()
        };
        assert!(files() == files(), "{flavour:?}");
    }
}

#[test]
fn a_small_durable_commit_costs_one_flush_and_its_record() {
    let (bytes, flushes) = cost_of_commits(Options::default());
    assert_eq!(flushes, COMMITS);
    // Header, operation and 104 bytes of key and value.
    assert!(bytes <= 170, "{bytes} bytes a commit");
}

#[test]
fn without_a_log_a_small_durable_commit_costs_two_flushes_and_its_path() {
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(0),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let (bytes, flushes) = cost_of_commits(options);
    assert_eq!(flushes, 2 * COMMITS);
    // A leaf, an inner node, the catalog and the free map, of one unit or four each, plus the
    // superblock.
    assert!(bytes <= 11 * 4096, "{bytes} bytes a commit");
}

/// Returns a key; consecutive numbers give scattered keys.
fn key(number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    for (part, bytes) in key.chunks_mut(8).enumerate() {
        let word = (number * 3 + part as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bytes.copy_from_slice(&(word ^ word >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes());
    }
    key
}

/// Returns bytes that do not compress, or text that does.
fn value(rng: &mut SimRng, is_text: bool) -> Vec<u8> {
    if is_text {
        let words = [
            "name",
            "street",
            "number",
            "active",
            "true",
            "false",
            "description",
            "email",
        ];
        let pairs = (0..20).map(|_| format!("\"{}\":{},", words[rng.below(8) as usize], rng.below(1000)));
        return pairs.collect::<String>().into_bytes()[..150].to_vec();
    }
    (0..150).map(|_| rng.next_u64() as u8).collect()
}

/// Measures commits of 1,000 random overwrites each in a tree eight times the size of the cache.
/// Returns the bytes written per 174-byte record, log included, and the final size of the trees in
/// percent of the records' length.
fn cost_of_overwrites(is_text: bool) -> (u64, u64) {
    const RECORDS: u64 = 48_000;
    const BATCHES: u64 = 50;
    let storage = SimStorage::new();
    let options = Options {
        cache_bytes: 1 << 20,
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options).expect("the storage works");
    let mut rng = SimRng::new(3);
    let mut put = |count: u64, next: &mut dyn FnMut(&mut SimRng) -> u64| {
        let mut transaction = database.begin().expect("it can be written");
        for _ in 0..count {
            let number = next(&mut rng);
            let value = value(&mut rng, is_text);
            transaction.put("c", &key(number), &value).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    };
    let mut number = 0;
    for _ in 0..RECORDS / 1000 {
        put(1000, &mut |_| {
            number += 1;
            number
        });
    }
    let before = storage.counters().bytes_written;
    for _ in 0..BATCHES {
        put(1000, &mut |rng| rng.below(RECORDS));
    }
    let written = storage.counters().bytes_written - before;
    database.checkpoint().expect("the storage works");
    let stats = database.stats();
    let used = stats.file_bytes - stats.free_bytes - stats.kept_bytes;
    (written / (BATCHES * 1000), used * 100 / (stats.entries * 174))
}

#[test]
fn random_overwrites_write_so_much_for_each_record() {
    for (is_text, most_written, most_percent) in [(false, 5600, 112), (true, 3100, 70)] {
        let (written, percent) = cost_of_overwrites(is_text);
        assert!(
            written <= most_written && percent <= most_percent,
            "text: {is_text}, {written} bytes written for a record, {percent} % of the records' length"
        );
    }
}

/// Every round of a merge packs the leaves that it splits, the last one too.
#[test]
fn trees_are_packed_after_random_inserts_of_many_times_the_memtables() {
    const RECORDS: u64 = 60_000;
    let options = Options {
        cache_bytes: 512 << 10,
        advanced: AdvancedOptions {
            log_bytes: Some(512 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(SimStorage::new()), options).expect("the storage works");
    let mut rng = SimRng::new(5);
    for _ in 0..RECORDS / 200 {
        let mut transaction = database.begin().expect("it can be written");
        for _ in 0..200 {
            let key: Vec<u8> = (0..24).map(|_| rng.next_u64() as u8).collect();
            let value = value(&mut rng, false);
            transaction.put("c", &key, &value).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    database.checkpoint().expect("the storage works");
    let stats = database.stats();
    let used = stats.file_bytes - stats.free_bytes - stats.kept_bytes;
    let percent = used * 100 / (RECORDS * 174);
    assert!(percent <= 120, "the trees take {percent} % of the records' length");
}

/// The file holds the last checkpoint's trees and those being written. Space of trees from before
/// the last checkpoint is reused.
#[test]
fn large_transactions_leave_room_for_two_copies_of_the_trees() {
    const RECORDS: u64 = 10_000;
    let storage = SimStorage::new();
    let options = Options {
        cache_bytes: 4 << 20,
        advanced: AdvancedOptions {
            log_bytes: Some(64 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options).expect("the storage works");
    let mut rng = SimRng::new(5);
    for _ in 0..6 {
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..RECORDS {
            let value = value(&mut rng, false);
            transaction.put("c", &key(number), &value).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    let stats = database.stats();
    let used = stats.file_bytes - stats.free_bytes - stats.kept_bytes;
    let percent = stats.file_bytes * 100 / used;
    assert!(percent <= 240, "the file has {percent} % of its trees");
}

/// Returns the bytes written per one-record commit, and the flushes of all such commits.
fn cost_of_commits(options: Options) -> (u64, u64) {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options).expect("the storage works");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..20_000_u64 {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        transaction.set("c", &key, &[7; 100]).expect("memory takes it");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
    // Room for their merge is taken with the next commit.
    database
        .set("c", &[0; 8], &[7; 96], Durability::Strict)
        .expect("the storage works");
    let before = storage.counters();
    for number in 0..COMMITS {
        let mut transaction = database.begin().expect("it can be written");
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        transaction
            .set("c", &key, &number.to_be_bytes().repeat(12))
            .expect("memory takes it");
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    let after = storage.counters();
    assert_eq!(after.bytes_read, before.bytes_read, "everything was in the cache");
    // Freed space is reused: the file does not grow with the number of commits.
    let len = database.stats().file_bytes;
    assert!(len < 4 << 20, "{len} bytes");
    (
        (after.bytes_written - before.bytes_written) / COMMITS,
        after.flushes - before.flushes,
    )
}

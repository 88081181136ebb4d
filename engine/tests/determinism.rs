//! Proves that the same operations with the same database id write the same bytes, and bounds what a commit writes. Both are
//! free of time and chance, so a change here is a change of the engine.

mod common;

use std::sync::Arc;

use common::{Flavour, History, run};
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{Database, Durability, Options};

/// Small commits that are measured.
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
        log_bytes: 0,
        ..Options::default()
    };
    let (bytes, flushes) = cost_of_commits(options);
    assert_eq!(flushes, 2 * COMMITS);
    // A leaf, an inner node, the catalog and the free map of one unit or four each, and the superblock.
    assert!(bytes <= 11 * 4096, "{bytes} bytes a commit");
}

/// Bytes written for a commit of one record, and flushes for all of them.
fn cost_of_commits(options: Options) -> (u64, u64) {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options).expect("the storage works");
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..20_000_u64 {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        transaction.set("c", &key, &[7; 100]).expect("memory takes it");
    }
    transaction.commit(Durability::Strict).expect("the storage works");
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
    // What was given up is used again: the file does not grow with the number of commits.
    let len = storage.files()["data"].len();
    assert!(len < 4 << 20, "{len} bytes");
    (
        (after.bytes_written - before.bytes_written) / COMMITS,
        after.flushes - before.flushes,
    )
}

//! Records that expire, and the engine's own collections.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{
    AdvancedOptions, Clock, Completeness, Database, Direction, Durability, Error, KeyRange, Options, ReadWrite, recover,
};

use super::{Files, blocks};
use crate::common::{Flavour, options};

/// Value and expiry by collection and key.
type Expiring = BTreeMap<(String, Vec<u8>), (Vec<u8>, Option<u64>)>;

fn at(now: u64) -> Options {
    Options {
        clock: Clock::new(move || now),
        ..options(Flavour::Tiny, 1)
    }
}

/// Returns a database that keeps a feed and in which every third record expires. Some have expired.
/// The last `in_log` commits are in the log alone.
fn expiring(in_log: u32) -> (MemoryStorage, Expiring) {
    let memory = MemoryStorage::new();
    let with_feed = Options {
        feed_commits: 10,
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..at(100).advanced
        },
        ..at(100)
    };
    let database = Database::open(Arc::new(memory.clone()), with_feed).expect("memory works");
    let mut expected = Expiring::new();
    for number in 0..60_u32 {
        if number + in_log == 60 {
            database.checkpoint().expect("memory works");
        }
        let name = ["a", "b"][number as usize % 2];
        let expires_at = (number % 3 == 0).then_some(u64::from(number) * 10 + 1);
        // The longest key that a record with an expiry may have, and an out-of-line value.
        let mut key = number.to_be_bytes().to_vec();
        if number % 10 == 3 {
            key.resize(database.max_key_bytes() - 8, 7);
        }
        let value = vec![number as u8; if number % 10 == 6 { 2000 } else { 12 }];
        let mut transaction = database.begin().expect("it can be written");
        transaction
            .set_until(name, &key, &value, expires_at)
            .expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
        expected.insert((name.to_owned(), key), (value, expires_at));
    }
    if in_log == 0 {
        database.close().expect("memory works");
    }
    (memory, expected)
}

/// Returns the content at a time. A database can have only one opener at a time.
fn content(storage: &MemoryStorage, now: u64) -> Expiring {
    let database = Database::open(Arc::new(storage.clone()), at(now)).expect("it was made just now");
    let snapshot = database.snapshot();
    let mut found = Expiring::new();
    for info in snapshot.collections() {
        let tree = snapshot.collection(&info.name).expect("it is listed");
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance().expect("it is intact") {
            let value = cursor.value().expect("it is intact");
            let key = (info.name.clone(), cursor.key().to_vec());
            found.insert(key, (value, cursor.expires_at()));
        }
    }
    found
}

fn check(files: &Files, expected: &Expiring, completeness: Completeness, context: &str) {
    let (source, target) = (MemoryStorage::from_files(files.clone()), MemoryStorage::new());
    let with_feed = Options {
        feed_commits: 10,
        ..at(100)
    };
    let report = recover(Arc::new(source), Arc::new(target.clone()), with_feed, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(report.completeness, completeness, "{context}: {report:?}");
    let names: Vec<&str> = report.collections.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "{context}");
    let counted: u64 = report.collections.iter().map(|found| found.count).sum();
    assert_eq!(counted, expected.len() as u64, "{context}");
    assert!(content(&target, 0) == *expected, "{context}");
    let due = |(_, expires_at): &(Vec<u8>, Option<u64>)| expires_at.is_some_and(|expires_at| expires_at <= 100);
    let mut left = expected.clone();
    left.retain(|_, record| !due(record));
    assert!(left.len() < expected.len());
    assert!(content(&target, 100) == left, "{context}");
    let database = Database::open(Arc::new(target.clone()), at(100)).expect("it was made just now");
    assert!(matches!(database.changes(Some(0)), Err(Error::TruncatedFeed { .. })));
    // The hints lead to the due records.
    assert_eq!(
        database.purge_expired(100).expect("memory works"),
        expected.len() - left.len(),
        "{context}"
    );
    assert!(database.verify().expect("it can look").is_ok());
    database.close().expect("memory works");
    assert!(content(&target, 0) == left, "{context}");
}

#[test]
fn records_keep_their_expiry_and_hidden_collections_are_made_anew() {
    for in_log in [0, 25, 60] {
        let (memory, expected) = expiring(in_log);
        let mut files = memory.files();
        check(&files, &expected, Completeness::Exact, &format!("undamaged {in_log}"));
        let data = files.get_mut("data").expect("it was created");
        data[..8192].fill(0);
        check(
            &files,
            &expected,
            Completeness::Reconstructed,
            &format!("no superblocks {in_log}"),
        );
    }
}

/// Damaged hints and feed cost nothing: a lost block affects only its own collection.
#[test]
fn damaged_hidden_collections_cost_nothing() {
    let (memory, expected) = expiring(0);
    let files = memory.files();
    let owner = |data: &[u8], start: usize| {
        let bytes = data[start + 24..].first_chunk().expect("in bounds");
        u32::from_le_bytes(*bytes)
    };
    // In order of creation: the feed, "a", its hints, "b", its hints.
    let hidden = |owner: u32| !matches!(owner, 0 | 2 | 4);
    let mut damaged = 0;
    let mut all = files.clone();
    let bytes = all.get_mut("data").expect("it was created");
    for block in blocks(&files["data"]) {
        if hidden(owner(&files["data"], block.start)) {
            bytes[block.start + 33] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 5, "{damaged}");
    check(&all, &expected, Completeness::Exact, "no hidden collections");
}

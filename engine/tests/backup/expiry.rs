//! Records that expire, and the engine's own collections.

use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{Clock, Database, Durability, Options, ReadWrite};

use super::{backed_up, check_round_trip, content_of, noise, restored, small};

fn at(now: u64) -> Options {
    Options {
        clock: Clock::new(move || now),
        ..small()
    }
}

#[test]
fn records_keep_their_expiry_and_expired_ones_come_along() {
    let with_feed = Options {
        feed_commits: 100,
        ..at(50)
    };
    let database = Database::open(Arc::new(MemoryStorage::new()), with_feed).expect("memory works");
    let longest = database.max_key_bytes() - 8;
    for number in 0..100_u64 {
        let mut transaction = database.begin().expect("it can be written");
        let key = if number == 30 {
            noise(0, longest)
        } else {
            number.to_be_bytes().to_vec()
        };
        let len = [0, 10, 600, (1 << 20) + number as usize][if number % 20 == 0 { 3 } else { number as usize % 3 }];
        let value = noise(number as usize, len);
        let expires_at = (number % 2 == 0).then_some(number + 1);
        let stored = transaction.set_until("c", &key, &value, expires_at);
        stored.expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
    }
    let snapshot = database.snapshot();
    let tree = snapshot.collection("c").expect("it is there");
    assert_eq!(tree.len(), 75);
    let stream = backed_up(&snapshot);
    let (report, target) = restored(&stream, at(50));
    assert_eq!(report.records, 100);
    let copy = Database::open(Arc::new(target.clone()), at(50)).expect("it was restored");
    assert!(content_of(&copy.snapshot()) == content_of(&snapshot));
    let again = copy.snapshot().collection("c").expect("it is there");
    for number in 0..100_u64 {
        let key = number.to_be_bytes();
        let entry = tree.entry(&key).expect("it is intact");
        let copied = again.entry(&key).expect("it is intact");
        let expiry = |entry: &Option<mangrove_engine::Entry>| entry.as_ref().map(|entry| entry.expires_at);
        assert_eq!(expiry(&entry), expiry(&copied));
        // A restore is one commit, so every record has its version.
        assert!(copied.is_none_or(|entry| entry.version == snapshot.version()));
    }
    assert!(backed_up(&copy.snapshot()) == stream);
    drop(again);
    assert_eq!(copy.purge_expired(1000).expect("memory works"), 25);
    assert!(copy.verify().expect("it can look").is_ok());
    copy.close().expect("memory works");
    let copy = Database::open(Arc::new(target), at(0)).expect("it was restored");
    assert_eq!(copy.snapshot().collection("c").expect("it is there").len(), 75);
    check_round_trip(&copy.snapshot(), &at(0));
}

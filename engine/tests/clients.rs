//! Shows what the client table promises: an entry belongs to the commit it was stored with, makes
//! no separate commit, and is visible neither as a record nor in the feed.

use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{AdvancedOptions, Change, Database, Durability, Error, Isolation, Options};

fn open(storage: &MemoryStorage, feed_commits: u64) -> Database {
    let options = Options {
        feed_commits,
        advanced: AdvancedOptions {
            database_id: Some(1),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(storage.clone()), options).expect("the storage works")
}

fn set(database: &Database, key: &[u8], client: &[u8], what: &[u8]) -> u64 {
    let mut transaction = database.begin().expect("nobody writes");
    transaction.set("c", key, b"value").expect("the storage works");
    transaction.remember_client(client, what).expect("the storage works");
    transaction
        .commit(Durability::Strict)
        .expect("the storage works")
        .version
}

#[test]
fn client_rows_are_stored_with_a_commit_and_survive() {
    for checkpointed in [false, true] {
        let storage = MemoryStorage::new();
        let database = open(&storage, 0);
        assert_eq!(set(&database, b"1", b"a", b"first"), 1);
        assert_eq!(set(&database, b"2", b"b", &vec![7; 100_000]), 2);
        assert_eq!(set(&database, b"3", b"a", b"second"), 3, "no version is spent on it");
        if checkpointed {
            database.close().expect("the storage works");
        } else {
            drop(database);
        }
        let database = open(&storage, 0);
        let snapshot = database.snapshot();
        assert_eq!(snapshot.version(), 3);
        assert_eq!(
            snapshot.client(b"a").expect("readable").as_deref(),
            Some(&b"second"[..])
        );
        assert_eq!(snapshot.client(b"b").expect("readable"), Some(vec![7; 100_000]));
        assert_eq!(snapshot.client(b"c").expect("readable"), None);
        assert_eq!(snapshot.clients().expect("readable"), [b"a".to_vec(), b"b".to_vec()]);
        assert!(database.verify().expect("readable").problems.is_empty());
    }
}

#[test]
fn clients_are_invisible() {
    for feed_commits in [0, 100] {
        let database = open(&MemoryStorage::new(), feed_commits);
        let mut changes = database.changes(None).expect("there is a feed");
        set(&database, b"1", b"a", b"what");
        assert_eq!(database.collections().len(), 1);
        assert!(database.snapshot().collection("\0clients").is_none());
        assert_eq!(database.stats().entries, 1);
        let commit = changes.next_commit().expect("readable").expect("there is one");
        assert!(
            commit.changes.iter().all(|change| match change {
                Change::Set { collection, .. } | Change::Create { collection } => collection == "c",
                _ => false,
            }),
            "{commit:?}"
        );
        assert_eq!(changes.next_commit().expect("readable"), None);
    }
}

/// A reader may keep a snapshot for as long as no record in it can expire.
#[test]
fn records_may_expire_only_where_one_has_a_time() {
    let database = open(&MemoryStorage::new(), 100);
    set(&database, b"1", b"a", b"what");
    assert!(!database.snapshot().may_expire());
    let mut transaction = database.begin().expect("nobody writes");
    let put = transaction.put_until("c", b"2", b"value", Some(u64::MAX / 2));
    put.expect("the storage works");
    transaction.commit(Durability::Strict).expect("the storage works");
    assert!(database.snapshot().may_expire());
}

#[test]
fn without_a_commit_it_is_not_stored_and_none_is_made() {
    let database = open(&MemoryStorage::new(), 0);
    set(&database, b"1", b"a", b"what");
    let mut transaction = database.begin().expect("nobody writes");
    transaction.remember_client(b"a", b"other").expect("the storage works");
    transaction.forget_client(b"a").expect("the storage works");
    assert_eq!(transaction.commit(Durability::Strict).expect("nothing").version, 1);
    assert_eq!(
        database.snapshot().client(b"a").expect("readable").as_deref(),
        Some(&b"what"[..])
    );
    let mut transaction = database.begin().expect("nobody writes");
    transaction.set("c", b"2", b"").expect("the storage works");
    transaction.remember_client(b"a", b"other").expect("the storage works");
    drop(transaction);
    assert_eq!(
        database.snapshot().client(b"a").expect("readable").as_deref(),
        Some(&b"what"[..])
    );
}

#[test]
fn a_client_is_forgotten_with_a_commit() {
    let storage = MemoryStorage::new();
    let database = open(&storage, 0);
    set(&database, b"1", b"a", b"what");
    let mut transaction = database.begin().expect("nobody writes");
    transaction.set("c", b"2", b"").expect("the storage works");
    transaction.forget_client(b"a").expect("the storage works");
    transaction.forget_client(b"nobody").expect("the storage works");
    assert_eq!(
        transaction
            .commit(Durability::Strict)
            .expect("the storage works")
            .version,
        2
    );
    drop(database);
    let database = open(&storage, 0);
    assert_eq!(database.snapshot().client(b"a").expect("readable"), None);
    assert!(database.snapshot().clients().expect("readable").is_empty());
}

#[test]
fn it_conflicts_with_no_transaction() {
    let database = open(&MemoryStorage::new(), 0);
    set(&database, b"1", b"a", b"what");
    let mut one = database.transaction(Isolation::Serializable).expect("writable");
    let mut two = database.transaction(Isolation::Serializable).expect("writable");
    one.put("c", b"2", b"").expect("readable");
    two.put("c", b"3", b"").expect("readable");
    for (transaction, version) in [(one, 2), (two, 3)] {
        let committed = transaction.commit_by(|mut write| {
            let sealed = write.seal().version;
            write.remember_client(b"a", &sealed.to_le_bytes())?;
            write.submit(Durability::Relaxed)
        });
        assert_eq!(committed.expect("no conflict").info.version, version);
        assert_eq!(
            database.snapshot().client(b"a").expect("readable"),
            Some(version.to_le_bytes().to_vec())
        );
    }
    let reading = database.transaction(Isolation::Serializable).expect("writable");
    let committed = reading.commit_by(|_| panic!("it wrote nothing"));
    assert_eq!(committed.expect("nothing to fail").info.version, 3);
}

#[test]
fn a_name_that_is_too_long_leaves_the_transaction_as_it_was() {
    let database = open(&MemoryStorage::new(), 0);
    let mut transaction = database.begin().expect("nobody writes");
    transaction.set("c", b"1", b"").expect("the storage works");
    let refused = transaction.remember_client(&vec![1; database.max_key_bytes() + 1], b"");
    assert!(matches!(refused, Err(Error::KeyTooLarge(_))), "{refused:?}");
    assert_eq!(
        transaction
            .commit(Durability::Strict)
            .expect("the storage works")
            .version,
        1
    );
}

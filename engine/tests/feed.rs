//! Proves that following the feed from the start rebuilds the database: in memory and, where the
//! feed is kept, across openings, crashes and recovery. Reading what is no longer kept is a typed
//! error.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Change, Changes, Database, Direction, Durability, Error, ExclusiveTransaction, KeyRange, Options,
    ReadWrite,
};

type Copy = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn open(storage: &SimStorage, feed_commits: u64, session: u64) -> Database {
    let options = Options {
        feed_commits,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(32 << 10),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(storage.clone()), options).expect("the storage works")
}

fn set(database: &Database, key: &[u8], value: &[u8]) -> u64 {
    let mut transaction = database.begin().expect("it is open");
    transaction.set("c", key, value).expect("the storage works");
    transaction
        .commit(Durability::Strict)
        .expect("the storage works")
        .version
}

fn apply(copy: &mut Copy, change: Change) {
    match change {
        Change::Set {
            collection, key, value, ..
        } => {
            copy.get_mut(&collection).expect("it was created").insert(key, value);
        }
        Change::Delete { collection, key, .. } => {
            copy.get_mut(&collection).expect("it was created").remove(&key);
        }
        Change::Clear {
            collection,
            lower,
            upper,
        } => {
            let range = (lower, upper);
            copy.get_mut(&collection)
                .expect("it was created")
                .retain(|key, _| !range.contains(key));
        }
        Change::Create { collection } => {
            copy.insert(collection, BTreeMap::new());
        }
        Change::Codecs { .. } => {}
        Change::Drop { collection } => {
            copy.remove(&collection);
        }
        Change::Rename { from, to } => {
            let records = copy.remove(&from).expect("it was created");
            copy.insert(to, records);
        }
        other => panic!("an unknown change: {other:?}"),
    }
}

#[test]
fn private_collections_are_in_no_feed() {
    for feed_commits in [0, 100] {
        let database = open(&SimStorage::new(), feed_commits, 1);
        let mut changes = database.changes(None).expect("nothing was dropped");
        let mut transaction = database.begin().expect("it is open");
        transaction
            .set("mangrove:private/books", b"k", b"v")
            .expect("the storage works");
        transaction
            .set("mangrove:privateer", b"k", b"v")
            .expect("the storage works");
        transaction.commit(Durability::Strict).expect("the storage works");
        let seen = changes.next_commit().expect("the storage works").expect("there is one");
        let names = |change: &Change| match change {
            Change::Create { collection } | Change::Set { collection, .. } => collection.clone(),
            other => panic!("an unexpected change: {other:?}"),
        };
        assert_eq!(
            seen.changes.iter().map(names).collect::<Vec<_>>(),
            ["mangrove:privateer"; 2]
        );
        let mut transaction = database.begin().expect("it is open");
        transaction
            .drop_collection("mangrove:private/books")
            .expect("the storage works");
        transaction.commit(Durability::Strict).expect("the storage works");
        let seen = changes.next_commit().expect("the storage works");
        assert!(seen.is_none_or(|commit| commit.changes.is_empty()));
    }
}

fn follow(changes: &mut Changes, copy: &mut Copy) {
    while let Some(commit) = changes.next_commit().expect("the storage works") {
        assert_eq!(commit.version, changes.version());
        for change in commit.changes {
            apply(copy, change);
        }
    }
}

fn content(database: &Database) -> Copy {
    let snapshot = database.snapshot();
    let mut copy = Copy::new();
    for info in snapshot.collections() {
        let tree = snapshot.collection(&info.name).expect("it is listed");
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        let records = copy.entry(info.name).or_default();
        while cursor.advance().expect("the storage works") {
            records.insert(cursor.key().to_vec(), cursor.value().expect("the storage works"));
        }
    }
    copy
}

fn change(transaction: &mut ExclusiveTransaction<'_>, rng: &mut SimRng) {
    let name = ["a", "b", "c"][rng.below(3) as usize];
    let key = vec![rng.below(30) as u8; 1 + rng.below(2) as usize];
    let result = match rng.below(16) {
        0..=8 => {
            let len = [10, 100, 3000][rng.below(3) as usize];
            transaction.set(name, &key, &vec![rng.below(256) as u8; rng.below(len) as usize])
        }
        9..=12 => transaction.delete(name, &key),
        13 => {
            let range = KeyRange {
                lower: Bound::Included(&key),
                upper: Bound::Unbounded,
            };
            transaction.clear(name, range).map(|removed| removed > 0)
        }
        14 => transaction.drop_collection(name),
        _ => transaction
            .rename_collection(name, ["d", "e"][rng.below(2) as usize])
            .or(Ok(false)),
    };
    result.expect("the storage works");
}

#[test]
fn following_rebuilds_the_database() {
    for (seed, kept) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1000)]) {
        let mut rng = SimRng::new(seed);
        let storage = SimStorage::new();
        let mut database = open(&storage, kept, 0);
        let mut changes = database.changes(None).expect("from now on");
        let mut copy = Copy::new();
        for step in 1..40 {
            let mut transaction = database.begin().expect("it is open");
            for _ in 0..rng.below(8) {
                change(&mut transaction, &mut rng);
                if rng.below(5) == 0 {
                    transaction.seal();
                }
            }
            let durability = [Durability::Strict, Durability::Relaxed, Durability::None][rng.below(3) as usize];
            transaction.commit(durability).expect("the storage works");
            if rng.below(3) == 0 {
                follow(&mut changes, &mut copy);
                assert_eq!(copy, content(&database), "seed {seed} step {step}");
            }
            if kept > 0 && rng.below(6) == 0 {
                database.flush().expect("the storage works");
                let version = changes.version();
                drop(changes);
                drop(database);
                database = open(&storage, kept, step);
                changes = database.changes(Some(version)).expect("it is kept");
            }
        }
        follow(&mut changes, &mut copy);
        assert_eq!(copy, content(&database), "seed {seed}, kept {kept}");
        assert!(database.verify().expect("the storage works").is_ok());
    }
}

#[test]
fn a_kept_feed_survives_every_cut() {
    let run = |storage: &SimStorage| -> Result<(), Error> {
        let options = Options {
            feed_commits: 1000,
            advanced: AdvancedOptions {
                unit_bytes: 512,
                node_bytes: 512,
                log_bytes: Some(16 << 10),
                session: Some(1),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let database = Database::open(Arc::new(storage.clone()), options)?;
        for number in 0..30_u32 {
            let mut transaction = database.begin()?;
            transaction.set("c", &number.to_be_bytes(), &vec![1; (number * 97 % 1500) as usize])?;
            transaction.commit(Durability::Strict)?;
            if number % 7 == 6 {
                database.checkpoint()?;
            }
        }
        Ok(())
    };
    let whole = SimStorage::new();
    run(&whole).expect("nothing fails without a cut");
    for cut in 0..whole.counters().operations {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let _ = run(&storage);
        for policy in CrashPolicy::ALL {
            let image = SimStorage::from_files(storage.crash(policy, cut));
            let database = open(&image, 1000, 2);
            let mut copy = Copy::new();
            // The feed includes the commit that began it, so it begins after version 0.
            let mut changes = database.changes(Some(0)).expect("it is kept");
            follow(&mut changes, &mut copy);
            assert_eq!(copy, content(&database), "cut {cut} {policy:?}");
        }
    }
}

#[test]
fn changes_that_are_no_longer_kept_are_refused() {
    let storage = SimStorage::new();
    let database = open(&storage, 10, 0);
    for number in 0..50_u8 {
        set(&database, &[number], b"");
    }
    let newest = database.version();
    let Err(Error::TruncatedFeed { horizon }) = database.changes(Some(newest - 11)).map(drop) else {
        panic!("it is too far back");
    };
    assert_eq!(*horizon, newest - 10);
    let mut changes = database.changes(Some(*horizon)).expect("it is kept");
    for number in 0..20_u8 {
        set(&database, &[number], b"");
    }
    let late = changes.next_commit();
    assert!(matches!(late, Err(Error::TruncatedFeed { .. })), "{late:?}");
    assert_eq!(database.collections().len(), 1, "the feed is hidden");

    let database = open(&SimStorage::new(), 0, 0);
    set(&database, b"k", b"");
    assert!(matches!(
        database.changes(Some(0)),
        Err(Error::TruncatedFeed { horizon }) if *horizon == 1
    ));
}

#[test]
fn a_follower_in_step_is_not_cut_off_by_what_is_dropped_behind_it() {
    let database = open(&SimStorage::new(), 10, 0);
    let mut changes = database.changes(None).expect("from now on");
    for number in 0..200_u8 {
        let version = set(&database, &[number], b"");
        if number % 9 == 0 {
            let before = changes.clone();
            let found = std::iter::from_fn(|| changes.next_commit().expect("it is kept")).last();
            assert_eq!(found.map(|commit| commit.version), Some(version));
            assert!(before.version() < version);
        }
    }
    while changes.next_commit().expect("it is kept").is_some() {}
    let mut behind = changes.clone();
    for number in 0..11_u8 {
        set(&database, &[number], b"");
    }
    let Err(Error::TruncatedFeed { horizon }) = behind.next_commit() else {
        panic!("one commit too many");
    };
    assert_eq!(*horizon, database.version() - 10);
    let mut again = database.changes(Some(*horizon)).expect("it is kept");
    assert_eq!(
        std::iter::from_fn(|| again.next_commit().expect("it is kept")).count(),
        10
    );
}

#[test]
fn followers_in_memory_that_fall_behind_get_an_error() {
    let database = open(&SimStorage::new(), 0, 0);
    let mut behind = database.changes(None).expect("from now on");
    let mut quick = database.changes(None).expect("from now on");
    for number in 0..40_u8 {
        let mut transaction = database.begin().expect("it is open");
        transaction
            .set("c", &[number], &vec![number; 1 << 20])
            .expect("the storage works");
        transaction.commit(Durability::None).expect("the storage works");
        let commit = quick.next_commit().expect("it is here").expect("there is one");
        assert_eq!(commit.changes.len(), if number == 0 { 2 } else { 1 });
        assert_eq!(quick.next_commit(), Ok(None));
    }
    assert!(matches!(behind.next_commit(), Err(Error::TruncatedFeed { .. })));
}

#[test]
fn a_copy_continues_from_the_same_commit() {
    for kept in [0, 1000] {
        let database = open(&SimStorage::new(), kept, 0);
        let mut first = database.changes(None).expect("from now on");
        set(&database, b"a", b"1");
        let before = first.clone();
        let versions: Vec<u64> = (0..3).map(|_| set(&database, b"b", b"2")).collect();
        first.next_commit().expect("it works").expect("there is one");
        let middle = first.clone();
        let rest = |mut changes: Changes| {
            std::iter::from_fn(move || changes.next_commit().expect("it works").map(|commit| commit.version))
                .collect::<Vec<_>>()
        };
        assert_eq!(rest(first), versions);
        assert_eq!(rest(middle), versions, "what it has not taken stays when others have");
        assert_eq!(rest(before.clone()).len(), 4);
        drop(before);
        let newest = database.changes(None).expect("from now on");
        set(&database, b"c", b"3");
        assert_eq!(rest(newest).len(), 1);
    }
}

#[test]
fn waiting_ends_with_the_next_commit() {
    let database = Arc::new(open(&SimStorage::new(), 0, 0));
    let mut changes = database.changes(None).expect("from now on");
    assert_eq!(changes.wait(Duration::from_millis(1)), Ok(None));
    let writer = Arc::clone(&database);
    let thread = std::thread::spawn(move || set(&writer, b"k", b"v"));
    let commit = changes
        .wait(Duration::from_mins(1))
        .expect("it works")
        .expect("there is one");
    assert_eq!(commit.version, thread.join().expect("it sets"));
    let expired = Change::Set {
        collection: "c".to_owned(),
        key: b"t".to_vec(),
        value: b"x".to_vec(),
        expires_at: Some(7),
    };
    let mut transaction = database.begin().expect("it is open");
    transaction
        .set_until("c", b"t", b"x", Some(7))
        .expect("the storage works");
    transaction.commit(Durability::Strict).expect("the storage works");
    assert_eq!(
        changes.next_commit().expect("it works").expect("there is one").changes,
        [expired]
    );
}

/// A transaction that began before anybody listened has captured nothing.
#[test]
fn a_commit_that_was_not_captured_is_a_gap() {
    let database = open(&SimStorage::new(), 0, 1);
    set(&database, b"a", b"1");
    let mut transaction = database.begin().expect("it is open");
    let mut changes = database.changes(None).expect("it is open");
    transaction.set("c", b"b", b"2").expect("the storage works");
    let version = transaction
        .commit(Durability::Strict)
        .expect("the storage works")
        .version;
    let next = changes.next_commit();
    assert!(matches!(next, Err(Error::TruncatedFeed { .. })), "{next:?}");
    let mut later = database
        .changes(Some(version))
        .expect("nothing is missing from there on");
    set(&database, b"c", b"3");
    let next = later.next_commit().expect("it is kept").expect("there is one");
    assert_eq!(next.version, version + 1);
}

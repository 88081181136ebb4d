//! Proves that a full backup and the incremental ones after it reproduce the database, commit by
//! commit.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, BackupOutcome, BackupProgress, Clock, Database, Direction, Durability, Error, KeyRange, Options,
    ReadWrite, restore,
};

use super::{backed_up, content_of, go_on, noise, restored, small};

fn at(now: u64) -> Options {
    Options {
        clock: Clock::new(move || now),
        advanced: AdvancedOptions {
            database_id: Some(3),
            ..small().advanced
        },
        ..small()
    }
}

fn with_feed(commits: u64) -> Database {
    let options = Options {
        feed_commits: commits,
        ..at(0)
    };
    Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works")
}

/// Makes one commit with changes of any kind, occasionally without any visible change.
fn commit(database: &Database, rng: &mut SimRng) {
    let mut transaction = database.begin().expect("it can be written");
    for _ in 0..rng.below(30) {
        let name = ["a", "b", ""][rng.below(3) as usize];
        let key = noise(rng.below(300) as usize, 6);
        match rng.below(24) {
            0..=14 => {
                let len = [3, 40, 900, 9000][rng.below(4) as usize];
                let value = noise(rng.below(1000) as usize, len);
                let expires_at = (rng.below(4) == 0).then(|| 1 + rng.below(1000));
                let stored = transaction.set_until(name, &key, &value, expires_at);
                stored.expect("memory works");
            }
            15..=18 => drop(transaction.delete(name, &key).expect("memory works")),
            19 => {
                let range = KeyRange {
                    lower: Bound::Excluded(&key),
                    upper: Bound::Included(&[key[0].saturating_add(9)]),
                };
                transaction.clear(name, range).expect("memory works");
            }
            20 => drop(transaction.drop_collection(name).expect("memory works")),
            // The new name may be taken, or the collection may not exist.
            21 => drop(transaction.rename_collection(name, "renamed")),
            22 => drop(transaction.set_codecs("renamed", "any", "json")),
            _ => drop(transaction.drop_collection("renamed").expect("memory works")),
        }
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

fn since(database: &Database, version: u64) -> Vec<u8> {
    let mut stream = Vec::new();
    let report = database
        .backup_since(version, &mut stream, &mut go_on)
        .expect("the feed reaches back");
    assert_eq!(report.outcome, BackupOutcome::Complete);
    assert_eq!((report.base, report.version), (version, database.version()));
    assert_eq!(report.commits, database.version() - version);
    assert_eq!(report.bytes, stream.len() as u64);
    stream
}

fn assert_same(database: &Database, copy: &Database) {
    assert_eq!(copy.version(), database.version());
    assert!(content_of(&copy.snapshot()) == content_of(&database.snapshot()));
    assert!(copy.verify().expect("it can look").is_ok());
    assert!(
        backed_up(&copy.snapshot()) == backed_up(&database.snapshot()),
        "expiries"
    );
}

#[test]
fn a_full_backup_and_incremental_ones_are_the_database() {
    for seed in 0..12 {
        let mut rng = SimRng::new(seed);
        let database = with_feed(1000);
        for _ in 0..rng.below(5) {
            commit(&database, &mut rng);
        }
        let (_, target) = restored(&backed_up(&database.snapshot()), at(0));
        for round in 0..6 {
            let base = database.version();
            while database.version() == base || rng.below(6) > 0 {
                commit(&database, &mut rng);
                if round == 3 {
                    database.purge_expired(3).expect("memory works");
                }
            }
            let stream = since(&database, base);
            let copy = Database::open(Arc::new(target.clone()), at(0)).expect("it was restored");
            let mut changes = copy.changes(None).expect("from now on");
            let report = copy.restore_commits(&mut &stream[..], &mut go_on).expect("it fits");
            assert_eq!(report.outcome, BackupOutcome::Complete);
            assert_eq!(
                (report.version, report.bytes),
                (database.version(), stream.len() as u64)
            );
            assert_same(&database, &copy);
            // Followers of the copy's feed see each commit.
            let mut original = database.changes(Some(base)).expect("the feed reaches back");
            while let Some(commit) = original.next_commit().expect("memory works") {
                let again = changes.next_commit().expect("memory works").expect("one each");
                assert_eq!(again, commit);
            }
            assert_eq!(changes.next_commit().expect("memory works"), None);
            // Records have the versions of their commits, whether they are in the log or the data
            // file.
            drop(changes);
            let newest = database.snapshot();
            for info in newest.collections() {
                let tree = newest.collection(&info.name).expect("it is listed");
                let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
                let found = copy.snapshot().collection(&info.name).expect("it is the same");
                while cursor.advance().expect("it is intact") {
                    let entry = found
                        .entry(cursor.key())
                        .expect("it is intact")
                        .expect("it is the same");
                    assert!(cursor.version() <= base || entry.version == cursor.version());
                }
            }
            drop(copy);
            let copy = Database::open(Arc::new(target.clone()), at(0)).expect("it was restored");
            assert_same(&database, &copy);
        }
    }
}

#[test]
fn commits_larger_than_memory_and_without_changes_are_restored() {
    let database = with_feed(1000);
    let (_, target) = restored(&backed_up(&database.snapshot()), at(0));
    let base = database.version();
    let mut transaction = database.begin().expect("it can be written");
    for number in 0..3000_u32 {
        let stored = transaction.set("c", &number.to_be_bytes(), &noise(number as usize, 100));
        stored.expect("memory works");
    }
    transaction
        .set("c", b"large", &noise(1, 3 << 20))
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    database
        .set("c", b"expires", b"", Durability::Strict)
        .expect("memory works");
    let stream = since(&database, base);
    let copy = Database::open(Arc::new(target), at(0)).expect("it was restored");
    copy.restore_commits(&mut &stream[..], &mut go_on).expect("it fits");
    assert_same(&database, &copy);
}

#[test]
fn mismatched_backups_are_refused_and_change_nothing() {
    let mut rng = SimRng::new(5);
    let database = with_feed(4);
    commit(&database, &mut rng);
    let base = database.version();
    let full = backed_up(&database.snapshot());
    let (_, target) = restored(&full, at(0));
    for _ in 0..3 {
        commit(&database, &mut rng);
    }
    let stream = since(&database, base);
    let copy = Database::open(Arc::new(target), at(0)).expect("it was restored");
    let before = content_of(&copy.snapshot());
    let refused = |stream: &[u8]| {
        let error = copy.restore_commits(&mut &stream[..], &mut go_on);
        assert_eq!(copy.version(), base);
        assert!(content_of(&copy.snapshot()) == before);
        error.expect_err("it does not fit")
    };
    assert!(matches!(refused(&full), Error::InvalidArgument { .. }));
    assert!(matches!(refused(b"what is this"), Error::NotADatabase { .. }));
    let later = since(&database, base + 1);
    assert!(matches!(refused(&later), Error::WrongBase(wrong) if (wrong.base, wrong.version) == (base + 1, base)));
    for at in (0..stream.len()).step_by(stream.len() / 60) {
        let mut damaged = stream.clone();
        damaged[at] ^= 1 << (at % 8);
        refused(&damaged);
        refused(&stream[..at]);
    }
    assert!(matches!(
        refused(&[&stream[..], b"x"].concat()),
        Error::CorruptBackup(_)
    ));
    // A cancellation changes nothing either.
    let mut calls = 0;
    let mut cancel = |_: BackupProgress| {
        calls += 1;
        ControlFlow::Break(())
    };
    let report = copy.restore_commits(&mut &stream[..], &mut cancel).expect("no failure");
    assert_eq!((report.outcome, calls), (BackupOutcome::Cancelled, 1));
    assert_eq!(copy.version(), base);
    // Another database at the same version is no valid base.
    let other_options = Options {
        advanced: AdvancedOptions {
            database_id: Some(4),
            ..at(0).advanced
        },
        ..at(0)
    };
    let (_, other) = restored(&full, other_options.clone());
    let other = Database::open(Arc::new(other), other_options).expect("it was restored");
    let error = other
        .restore_commits(&mut &stream[..], &mut go_on)
        .expect_err("another id");
    assert!(matches!(error, Error::InvalidArgument { .. }));
    // The same commits cannot be applied twice.
    copy.restore_commits(&mut &stream[..], &mut go_on).expect("it fits");
    let error = copy
        .restore_commits(&mut &stream[..], &mut go_on)
        .expect_err("they are there");
    assert!(matches!(error, Error::WrongBase(_)));
    // An incremental backup cannot create a database.
    let target = Arc::new(MemoryStorage::new());
    let error = restore(&mut &stream[..], target, at(0), &mut go_on).expect_err("it needs a base");
    assert!(matches!(error, Error::InvalidArgument { .. }));
}

/// A power cut leaves all of the commits or none, in a database that remains usable.
#[test]
fn a_cut_leaves_all_commits_or_none() {
    for (seed, commits) in [(7, 4), (8, 40)] {
        let mut rng = SimRng::new(seed);
        let database = with_feed(1000);
        commit(&database, &mut rng);
        let base = database.version();
        let (_, target) = restored(&backed_up(&database.snapshot()), at(0));
        for _ in 0..commits {
            commit(&database, &mut rng);
        }
        let stream = since(&database, base);
        let open = |storage: &SimStorage| Database::open(Arc::new(storage.clone()), at(0));
        let whole = SimStorage::from_files(target.files());
        let copy = open(&whole).expect("nothing fails");
        copy.restore_commits(&mut &stream[..], &mut go_on).expect("it fits");
        drop(copy);
        let operations = whole.counters().operations;
        let (mut with, mut without) = (0, 0);
        for cut in 0..operations {
            let storage = SimStorage::from_files(target.files());
            storage.cut_at(cut);
            let done = open(&storage).and_then(|copy| copy.restore_commits(&mut &stream[..], &mut go_on));
            for policy in CrashPolicy::ALL {
                let survived = SimStorage::from_files(storage.crash(policy, cut));
                let copy = open(&survived).expect("a cut does no harm");
                if copy.version() == base {
                    without += 1;
                    assert!(done.is_err(), "{policy:?} cut {cut}: it was acknowledged");
                    copy.restore_commits(&mut &stream[..], &mut go_on).expect("it fits");
                } else {
                    with += 1;
                }
                assert_same(&database, &copy);
            }
        }
        assert!(with > 0 && without > 0, "{with} {without} of {operations}");
    }
}

#[test]
fn versions_that_the_feed_lacks_cannot_be_backed_up() {
    let mut rng = SimRng::new(6);
    let database = with_feed(3);
    let refused = |version: u64| {
        let error = database.backup_since(version, &mut Vec::new(), &mut go_on);
        error.expect_err("the feed does not tell")
    };
    for _ in 0..10 {
        commit(&database, &mut rng);
    }
    let newest = database.version();
    assert!(matches!(refused(newest), Error::InvalidArgument { .. }));
    assert!(matches!(refused(newest + 1), Error::InvalidArgument { .. }));
    assert!(matches!(refused(newest - 4), Error::TruncatedFeed { horizon } if *horizon == newest - 3));
    since(&database, newest - 3);
    let mut cancel = |_: BackupProgress| ControlFlow::Break(());
    let report = database.backup_since(newest - 1, &mut Vec::new(), &mut cancel);
    assert_eq!(report.expect("no failure").outcome, BackupOutcome::Cancelled);
    let without = Database::open(Arc::new(MemoryStorage::new()), at(0)).expect("memory works");
    for _ in 0..3 {
        without.set("c", b"k", b"v", Durability::Strict).expect("memory works");
    }
    let error = without
        .backup_since(1, &mut Vec::new(), &mut go_on)
        .expect_err("no feed");
    assert!(matches!(error, Error::TruncatedFeed { horizon } if *horizon == 3));
}

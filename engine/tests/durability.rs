//! Shows, line by line, what docs/DURABILITY.md says about commit modes.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Scope, SimStorage};
use mangrove_engine::{AdvancedOptions, CompactOptions, Compression, Database, Durability, Error, KeyRange, Options};

use Durability::{None, Relaxed, Strict};

type Files = BTreeMap<String, Vec<u8>>;

fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(32 << 10),
            database_id: Some(7),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage, options: Options) -> Result<Database, Error> {
    Database::open(Arc::new(storage.clone()), options)
}

/// Returns a new database with one strict commit.
fn begun(options: Options) -> (SimStorage, Database) {
    let storage = SimStorage::new();
    let database = open(&storage, options).expect("the storage works");
    commit(&database, Strict);
    (storage, database)
}

fn commit(database: &Database, durability: Durability) {
    set(database, 20, durability);
}

fn set(database: &Database, value_len: usize, durability: Durability) {
    let mut transaction = database.begin().expect("the storage works");
    let key = database.version().to_be_bytes();
    let value: Vec<u8> = (0..value_len).map(|at| ((at * at) >> 3) as u8).collect();
    transaction.set("c", &key, &value).expect("the storage works");
    transaction.commit(durability).expect("the storage works");
}

fn assert_refused(files: Files) {
    assert!(matches!(
        open(&SimStorage::from_files(files), options()),
        Err(Error::Corrupt(_))
    ));
}

/// Returns the version of the database in `files`, which equals its number of records.
fn version_in(files: Files) -> u64 {
    let database = open(&SimStorage::from_files(files), options()).expect("every image opens");
    let records = database.snapshot().collection("c").map_or(0, |tree| tree.len());
    assert_eq!(records, database.version());
    assert!(database.verify().expect("it can be read").is_ok());
    records
}

/// Returns the versions that survive process death, and a power cut that loses all it may.
fn survivors(storage: &SimStorage) -> (u64, u64) {
    let process = version_in(storage.files());
    (process, version_in(storage.crash(CrashPolicy::Nothing, 0)))
}

#[test]
fn each_mode_survives_what_it_promises() {
    for (durability, survives) in [(Strict, (2, 2)), (Relaxed, (2, 1)), (None, (1, 1))] {
        let (storage, database) = begun(options());
        commit(&database, durability);
        assert_eq!(database.version(), 2, "all are visible at once");
        assert_eq!(survivors(&storage), survives, "{durability:?}");
    }
}

#[test]
fn without_a_log_relaxed_is_strict() {
    for (durability, survives) in [(Strict, (2, 2)), (Relaxed, (2, 2)), (None, (1, 1))] {
        let (storage, database) = begun(Options {
            advanced: AdvancedOptions {
                log_bytes: Some(0),
                ..options().advanced
            },
            ..options()
        });
        commit(&database, durability);
        assert_eq!(survivors(&storage), survives, "{durability:?}");
    }
}

#[test]
fn later_calls_make_earlier_commits_durable() {
    type Call = (&'static str, fn(&Database), (u64, u64));
    let calls: [Call; 6] = [
        ("flush", |database| database.flush().expect("the storage works"), (2, 2)),
        (
            "checkpoint",
            |database| database.checkpoint().expect("the storage works"),
            (2, 2),
        ),
        ("strict", |database| commit(database, Strict), (3, 3)),
        (
            "empty strict",
            |database| {
                let transaction = database.begin().expect("the storage works");
                transaction.commit(Strict).expect("the storage works");
            },
            (2, 2),
        ),
        // Only hands its record over; earlier commits with `None` get a checkpoint first.
        ("relaxed", |database| commit(database, Relaxed), (3, 1)),
        ("none", |database| commit(database, None), (2, 1)),
    ];
    for durability in [Relaxed, None] {
        for (name, call, survives) in calls {
            let (storage, database) = begun(options());
            commit(&database, durability);
            call(&database);
            let survives = match (durability, name) {
                (None, "relaxed") => (3, 2),
                (None, "none") => (1, 1),
                _ => survives,
            };
            assert_eq!(survivors(&storage), survives, "{durability:?}, {name}");
        }
        let (storage, database) = begun(options());
        commit(&database, durability);
        database.close().expect("the storage works");
        assert_eq!(survivors(&storage), (2, 2), "{durability:?}, close");
    }
}

#[test]
fn sealed_commits_are_durable_together() {
    let (storage, database) = begun(options());
    let mut transaction = database.begin().expect("the storage works");
    for key in [b"a", b"b", b"c"] {
        transaction.set("c", key, b"1").expect("the storage works");
        transaction.seal();
    }
    assert_eq!(survivors(&storage), (1, 1));
    transaction.commit(Strict).expect("the storage works");
    assert_eq!(survivors(&storage), (4, 4));
}

/// A transaction that does not fit into a log record goes to the data file, whatever its mode. With
/// `None` that happens only if it does not fit in memory.
#[test]
fn large_transactions_are_checkpoints() {
    for (durability, bytes, survives) in [
        (Relaxed, 10_000, (2, 2)),
        (None, 10_000, (1, 1)),
        (None, 60_000, (2, 2)),
    ] {
        let (storage, database) = begun(options());
        let mut transaction = database.begin().expect("the storage works");
        transaction
            .delete("c", &0_u64.to_be_bytes())
            .expect("the storage works");
        for number in 0..bytes / 100_u64 {
            transaction
                .set("big", &number.to_be_bytes(), &[1; 100])
                .expect("the storage works");
        }
        transaction.set("c", b"1", b"").expect("the storage works");
        transaction.set("c", b"2", b"").expect("the storage works");
        transaction.commit(durability).expect("the storage works");
        assert_eq!(survivors(&storage), survives, "{durability:?} {bytes}");
    }
}

/// A log record and the value it refers to are in two files. If a power cut takes the value, the
/// commit was not durable.
#[test]
fn a_relaxed_commit_without_its_value_never_happened() {
    let (storage, database) = begun(options());
    set(&database, 5000, Relaxed);
    commit(&database, Relaxed);
    assert_eq!(survivors(&storage), (3, 1));
    let mut image = storage.files();
    let data = storage.crash(CrashPolicy::Nothing, 0).remove("data");
    image.insert("data".to_owned(), data.expect("it is there"));
    assert_eq!(version_in(image), 1);
    database.flush().expect("the storage works");
    assert_eq!(survivors(&storage), (3, 3));
}

/// Regression: such a record, left where a half of the log ended, looked like damage in front of the
/// other half.
#[test]
fn a_record_without_its_value_may_be_the_last_of_its_half() {
    let (storage, database) = begun(options());
    for _ in 0..110 {
        commit(&database, Strict);
    }
    set(&database, 5000, Relaxed);
    let mut image = storage.files();
    let data = storage.crash(CrashPolicy::Nothing, 0).remove("data");
    image.insert("data".to_owned(), data.expect("it is there"));
    drop(database);
    let storage = SimStorage::from_files(image);
    let database = open(&storage, options()).expect("every image opens");
    assert_eq!(database.version(), 111);
    database.checkpoint().expect("the storage works");
    commit(&database, Strict);
    drop(database);
    assert_eq!(survivors(&storage), (112, 112));
}

/// Regression: without its log, a database silently opened in an older state. The superblock of a
/// database that was created or closed, and then written to, still said that the log has no
/// records.
#[test]
fn a_log_may_be_missing_after_close_only() {
    let (storage, database) = begun(options());
    let new = storage.crash(CrashPolicy::Nothing, 0);
    database.close().expect("the storage works");
    let mut closed = storage.files();
    closed.remove("log");
    assert_eq!(version_in(closed), 1);
    let database = open(&storage, options()).expect("the storage works");
    commit(&database, Strict);
    let reopened = storage.crash(CrashPolicy::Nothing, 0);
    for mut files in [new, reopened] {
        files.remove("log");
        let storage = SimStorage::from_files(files.clone());
        assert!(matches!(open(&storage, options()), Err(Error::Corrupt(_))));
        assert!(storage.files() == files, "a refused opening changes nothing");
    }
}

/// A power cut may keep the first record behind a close, and lose the superblock that began its log.
/// Opening writes that again: the commit it shows is in the log only.
#[test]
fn a_log_that_was_replayed_behind_a_close_is_missed() {
    let (storage, database) = begun(options());
    database.close().expect("the storage works");
    let closed = storage.files();
    let database = open(&storage, options()).expect("the storage works");
    commit(&database, Strict);
    let mut cut = storage.files();
    drop(database);
    cut.insert("data".into(), closed["data"].clone());
    let storage = SimStorage::from_files(cut);
    let database = open(&storage, options()).expect("the storage works");
    assert_eq!(database.version(), 2);
    let mut files = storage.crash(CrashPolicy::Nothing, 0);
    drop(database);
    assert_eq!(version_in(files.clone()), 2);
    files.remove("log");
    assert_refused(files);
}

/// Opens, commits once and closes; returns the last version that was acknowledged, at least `known`.
fn short_life(storage: &SimStorage, known: u64) -> u64 {
    let Ok(database) = open(storage, options()) else {
        return known;
    };
    let value = database.version().to_be_bytes();
    match database.set("c", &value, &value, Strict) {
        Ok(info) => {
            let _ = database.close();
            info.version
        }
        Err(_) => known,
    }
}

/// Checks what a death has left, also with the newest superblock damaged: either of the two leads to all
/// that was acknowledged.
fn check_both_superblocks(files: &Files, known: u64, context: &str) {
    let superblocks =
        |data: &[u8]| [0, 4096].map(|slot| u64::from_le_bytes(data[slot + 32..slot + 40].try_into().expect("8 bytes")));
    let [one, other] = superblocks(&files["data"]);
    let mut damaged = files.clone();
    let newest = if one > other { 0 } else { 4096 };
    damaged.get_mut("data").expect("it is there")[newest..newest + 1024].fill(0);
    for files in [files.clone(), damaged] {
        let database = open(&SimStorage::from_files(files), options());
        let database = database.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(
            database.version() >= known,
            "{context}: {} of {known}",
            database.version()
        );
    }
}

/// Deaths within a close, and then within the life that begins the log again.
#[test]
fn two_deaths_around_a_close_lose_nothing() {
    let (storage, database) = begun(options());
    commit(&database, Strict);
    drop(database);
    let files = storage.files();
    let operations = |files: &Files, known| {
        let storage = SimStorage::from_files(files.clone());
        short_life(&storage, known);
        storage.counters().operations
    };
    let mut images = 0;
    for first in 0..=operations(&files, 2) {
        let storage = SimStorage::from_files(files.clone());
        storage.cut_at(first);
        let known = short_life(&storage, 2);
        for kept in [CrashPolicy::Nothing, CrashPolicy::Everything] {
            let left = storage.crash(kept, 0);
            check_both_superblocks(&left, known, &format!("{first}, {kept:?}"));
            for second in 0..operations(&left, known) {
                let storage = SimStorage::from_files(left.clone());
                storage.cut_at(second);
                let known = short_life(&storage, known);
                for policy in [CrashPolicy::Nothing, CrashPolicy::Everything] {
                    let context = format!("{first}, {kept:?}, {second}, {policy:?}");
                    check_both_superblocks(&storage.crash(policy, 0), known, &context);
                    images += 1;
                }
                let torn = SimStorage::from_files(storage.crash(CrashPolicy::Torn, first));
                let database =
                    open(&torn, options()).unwrap_or_else(|error| panic!("{first}, {kept:?}, {second}: {error}"));
                assert!(database.version() >= known, "{first}, {kept:?}, {second}");
            }
        }
    }
    assert!(images > 200, "{images}");
}

/// A torn tail is what a power cut leaves; damage in front of durable records is reported.
#[test]
fn damage_in_the_log_is_told_from_its_torn_end() {
    let (storage, database) = begun(options());
    let ends: Vec<usize> = (0..4)
        .map(|_| {
            commit(&database, Strict);
            // Zeros follow the records.
            let last = storage.files()["log"].iter().rposition(|byte| *byte != 0);
            last.expect("it has records") + 1
        })
        .collect();
    let mut torn = storage.files();
    torn.get_mut("log").expect("it is there")[ends[2] + 20] ^= 1;
    assert_eq!(version_in(torn), 4);
    let mut damaged = storage.files();
    damaged.get_mut("log").expect("it is there")[ends[0] + 20] ^= 1;
    let storage = SimStorage::from_files(damaged.clone());
    assert!(matches!(open(&storage, options()), Err(Error::Corrupt(_))));
    assert!(storage.files() == damaged);
}

#[test]
fn reading_only_shows_the_log_and_writes_nothing() {
    let (storage, database) = begun(options());
    set(&database, 5000, Relaxed);
    let files = storage.files();
    let storage = SimStorage::from_files(files.clone());
    let read_only = Options {
        read_only: true,
        ..options()
    };
    let database = open(&storage, read_only).expect("nothing has to be written");
    assert_eq!(database.version(), 2);
    assert!(matches!(database.begin(), Err(Error::ReadOnly)));
    assert!(matches!(database.flush(), Err(Error::ReadOnly)));
    database.close().expect("there is nothing to do");
    assert!(storage.files() == files && storage.counters().operations == 0);
}

/// A removal that does not look for the record is logged like any other.
#[test]
fn blind_removals_survive_a_power_cut() {
    let (storage, database) = begun(options());
    commit(&database, Strict);
    let mut transaction = database.begin().expect("the storage works");
    transaction
        .discard("c", &0_u64.to_be_bytes())
        .expect("the storage works");
    transaction.commit(Strict).expect("the storage works");
    let files = storage.crash(CrashPolicy::Nothing, 0);
    let database = open(&SimStorage::from_files(files), options()).expect("every image opens");
    let tree = database.snapshot().collection("c").expect("it was created");
    assert_eq!(tree.get(&0_u64.to_be_bytes()), Ok(Option::None));
    assert_eq!(tree.len(), 1);
}

/// So many keys are logged as a range.
#[test]
fn cleared_ranges_survive_a_power_cut() {
    let (storage, database) = begun(options());
    let key = |number: u8| vec![number; 40];
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..40 {
        transaction.set("c", &key(number), b"1").expect("the storage works");
    }
    transaction.commit(Strict).expect("the storage works");
    let mut transaction = database.begin().expect("the storage works");
    let (lower, upper) = (key(2), key(38));
    let range = KeyRange {
        lower: Bound::Included(lower.as_slice()),
        upper: Bound::Excluded(upper.as_slice()),
    };
    assert_eq!(transaction.clear("c", range), Ok(36));
    transaction.commit(Strict).expect("the storage works");
    let files = storage.crash(CrashPolicy::Nothing, 0);
    let database = open(&SimStorage::from_files(files), options()).expect("every image opens");
    let tree = database.snapshot().collection("c").expect("it was created");
    // With the first commit's record.
    assert_eq!((tree.len(), tree.count(range)), (5, Ok(0)));
}

/// A commit that was too large for the log is in a checkpoint; those after it go to the log again.
#[test]
fn commits_are_logged_again_after_a_checkpoint() {
    let (_, database) = begun(options());
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..300_u32 {
        transaction
            .set("c", &number.to_be_bytes(), &[1; 50])
            .expect("the storage works");
    }
    transaction.commit(Strict).expect("the storage works");
    assert!(database.stats().checkpoints > 0);
    let before = database.stats();
    commit(&database, Strict);
    let after = database.stats();
    assert_eq!(after.checkpoints, before.checkpoints);
    assert_eq!(after.log_records, before.log_records + 1);
}

/// The generations that the superblocks of a data file state.
fn generations(data: &[u8]) -> [u64; 2] {
    [0, 4096].map(|slot| u64::from_le_bytes(data[slot + 32..slot + 40].try_into().expect("8 bytes")))
}

fn destroy_newest_superblock(files: &mut Files) {
    let data = files.get_mut("data").expect("it is there");
    let [one, other] = generations(data);
    let newest = if one > other { 0 } else { 4096 };
    data[newest..newest + 4096].fill(0);
}

/// Damages every block that the newest checkpoint wrote.
fn damage_newest_blocks(files: &mut Files) {
    let data = files.get_mut("data").expect("it is there");
    let newest = generations(data).into_iter().max().expect("there are two");
    let mut damaged = 0;
    for at in (8192..data.len()).step_by(512) {
        if data[at..].starts_with(b"MGBK") && data[at + 16..at + 24] == newest.to_le_bytes() {
            data[at + 32] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 0, "generation {newest} has blocks");
}

/// A commit that is in a checkpoint only leaves a gap in the log that leads there from the checkpoint
/// before. Records behind the gap do not apply to the older state.
#[test]
fn a_commit_that_bypassed_the_log_is_missed_by_the_older_superblock() {
    let (storage, database) = begun(options());
    commit(&database, None);
    database.checkpoint().expect("the storage works");
    commit(&database, Strict);
    let mut files = storage.files();
    assert_eq!(version_in(files.clone()), 3);
    destroy_newest_superblock(&mut files);
    assert_refused(files);
}

/// The newest superblock tells the version that the older one has to lead to, where no record does.
#[test]
fn an_intact_superblock_shows_that_the_older_one_leads_to_less() {
    let (storage, database) = begun(options());
    commit(&database, None);
    database.checkpoint().expect("the storage works");
    // The marker behind the checkpoint is not flushed.
    let mut files = storage.crash(CrashPolicy::Nothing, 0);
    assert_eq!(version_in(files.clone()), 2);
    damage_newest_blocks(&mut files);
    assert_refused(files);
}

/// The log is flushed before the checkpoint that holds its commits, so that the older superblock leads
/// to them, too.
#[test]
fn either_superblock_leads_to_what_a_checkpoint_acknowledged() {
    let (storage, database) = begun(options());
    database.checkpoint().expect("the storage works");
    for _ in 0..3 {
        commit(&database, Relaxed);
    }
    database.checkpoint().expect("the storage works");
    let files = storage.crash(CrashPolicy::Nothing, 0);
    let mut one = files.clone();
    destroy_newest_superblock(&mut one);
    assert_eq!((version_in(files), version_in(one)), (4, 4));
}

/// Records of a life that ended in a power cut may follow those that count, intact and with the right
/// salt. A later record of the same length ends where they begin.
#[test]
fn remains_of_a_log_do_not_follow_the_records_of_a_later_life() {
    let (storage, database) = begun(options());
    let begin = storage.files()["log"].clone();
    for _ in 0..2 {
        commit(&database, Relaxed);
    }
    let mut cut = storage.files();
    drop(database);
    let log = cut.get_mut("log").expect("it is there");
    let content = |log: &[u8]| log.iter().rposition(|byte| *byte != 0).expect("it has records") + 1;
    let end = content(&begin).next_multiple_of(8);
    let len = (content(log).next_multiple_of(8) - end) / 2;
    // Of the two records, the power cut took the first.
    log[end..end + len].fill(0);
    let storage = SimStorage::from_files(cut);
    let life = |session| Options {
        advanced: AdvancedOptions {
            session: Some(session),
            ..options().advanced
        },
        ..options()
    };
    let database = open(&storage, life(8)).expect("every image opens");
    assert_eq!(database.version(), 1);
    commit(&database, Strict);
    drop(database);
    let log = &storage.files()["log"];
    assert!(content(log) > end + len + 40, "the remains are still there");
    let database = open(&storage, life(9)).expect("every image opens");
    assert_eq!(
        database.version(),
        2,
        "the commit that followed the cut is the last one"
    );
}

/// Blocks are on disk before the record that names them is.
#[test]
fn blocks_are_durable_before_the_log_that_names_them() {
    let prepare = || {
        let (storage, database) = begun(Options {
            compression: Compression::None,
            ..options()
        });
        (storage.counters().operations, storage, database)
    };
    let (begin, storage, database) = prepare();
    set(&database, 5000, Strict);
    let end = storage.counters().operations;
    let mut seen = 0;
    for cut in begin..end {
        let (_, storage, database) = prepare();
        let before = storage.crash(CrashPolicy::Nothing, 0);
        storage.cut_at(cut);
        let mut transaction = database.begin().expect("it is open");
        let value: Vec<u8> = (0..5000_usize).map(|at| ((at * at) >> 3) as u8).collect();
        let stored = transaction.set("c", b"long", &value);
        let _ = stored.and_then(|_| transaction.commit(Strict));
        let after = storage.crash(CrashPolicy::Nothing, 0);
        let has_block = after["data"].windows(64).any(|part| part == &value[1000..1064]);
        if after["log"] != before["log"] {
            assert!(has_block, "cut at {cut}");
        }
        seen += u32::from(has_block);
    }
    assert!(seen > 0, "no cut fell between the two flushes");
}

/// A database that was opened is there after a power cut.
#[test]
fn a_new_database_outlives_a_power_cut() {
    let storage = SimStorage::new();
    let _database = open(&storage, options()).expect("it is new");
    let image = SimStorage::from_files(storage.crash(CrashPolicy::Nothing, 0));
    let existing = Options {
        create: false,
        ..options()
    };
    open(&image, existing).expect("it was created");
}

/// A creation writes and flushes its superblock before there is a log: one that a power cut has
/// interrupted looks like nothing else.
#[test]
fn a_new_database_has_no_log_before_it_is_durable() {
    let whole = SimStorage::new();
    drop(open(&whole, options()).expect("it is new"));
    let mut begun = 0;
    for cut in 0..whole.counters().operations {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        assert!(open(&storage, options()).is_err(), "cut at {cut}");
        if storage.files().contains_key("log") {
            let image = SimStorage::from_files(storage.crash(CrashPolicy::Nothing, cut));
            let existing = Options {
                create: false,
                ..options()
            };
            open(&image, existing).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
            begun += 1;
        }
    }
    assert!(begun > 0, "no cut fell behind the creation of the log");
}

/// A power cut while the header of an emptied log is written may leave anything in its place. What is
/// left of the log before must not make that a foreign file.
#[test]
fn a_header_that_is_lost_over_the_remains_of_a_log_does_no_harm() {
    let (storage, database) = begun(options());
    for _ in 0..40 {
        commit(&database, Strict);
    }
    database.close().expect("the storage works");
    let files = storage.crash(CrashPolicy::Nothing, 0);
    assert!(
        files["log"].len() > 2048,
        "the power cut kept the log of the life before"
    );
    let mut lost = 0;
    for cut in 0..30 {
        let storage = SimStorage::from_files(files.clone());
        storage.cut_at(cut);
        short_life(&storage, 41);
        let (durable, mut image) = (storage.crash(CrashPolicy::Nothing, 0), storage.files());
        let front = |files: &Files| files["log"].iter().take(1024).copied().collect::<Vec<_>>();
        if front(&durable) == front(&image) || image["log"].is_empty() {
            continue;
        }
        image.insert("data".to_owned(), durable["data"].clone());
        // Whatever the power cut left where the header belongs, it may have lost the log's new length, too.
        for mut log in [image["log"].clone(), durable["log"].clone()] {
            let end = log.len().min(1024);
            log[..end].fill(0xA5);
            image.insert("log".to_owned(), log);
            assert_eq!(version_in(image.clone()), 41, "cut at {cut}");
        }
        lost += 1;
    }
    assert!(lost > 0, "no cut fell while the header was written");
}

/// A half is begun behind a checkpoint that has all records of the one before. If a value of these is
/// gone, it was damaged: what looks like a torn end is none, even if no record says so.
#[test]
fn a_lost_value_in_front_of_the_last_half_is_damage() {
    let (storage, database) = begun(options());
    for _ in 0..110 {
        commit(&database, Strict);
    }
    let before = storage.files().remove("data").expect("it is there");
    set(&database, 5000, Relaxed);
    let after = storage.files().remove("data").expect("it is there");
    let block = (8192..after.len()).find(|at| before.get(*at) != Some(&after[*at]));
    database.checkpoint().expect("the storage works");
    commit(&database, Strict);
    let mut files = storage.files();
    assert!(
        files["log"][16 << 10..].iter().any(|byte| *byte != 0),
        "it has two halves"
    );
    destroy_newest_superblock(&mut files);
    assert_eq!(version_in(files.clone()), 113, "the older one leads to all of it");
    files.get_mut("data").expect("it is there")[block.expect("the value has blocks") + 60] ^= 1;
    assert_refused(files);
}

/// A half that has its header does not get it again: a power cut could tear that.
#[test]
fn a_half_without_records_keeps_its_header() {
    const HALF_BYTES: usize = 16 << 10;
    const HEADER_BYTES: usize = 1024;
    let (storage, database) = begun(options());
    for _ in 0..110 {
        commit(&database, Strict);
    }
    database.checkpoint().expect("the storage works");
    commit(&database, Relaxed);
    drop(database);
    // A power cut took the only record of the second half.
    let mut files = storage.files();
    let log = files.get_mut("log").expect("it is there");
    assert!(log[HALF_BYTES..][..HEADER_BYTES].iter().any(|byte| *byte != 0));
    log[HALF_BYTES + HEADER_BYTES..].fill(0);
    // One copy of its header is damaged, and so is the first half, which nothing needs any more.
    log[HALF_BYTES..][..HEADER_BYTES / 2].fill(0);
    log[..HEADER_BYTES].fill(0);
    assert_eq!(version_in(files.clone()), 111);
    let begin = {
        let storage = SimStorage::from_files(files.clone());
        open(&storage, options()).expect("every image opens");
        storage.counters().operations
    };
    for cut in begin..begin + 4 {
        let storage = SimStorage::from_files(files.clone());
        let database = open(&storage, options()).expect("every image opens");
        storage.cut_at(cut);
        let _ = database.set("c", &111_u64.to_be_bytes(), b"value", Strict);
        for seed in 0..100 {
            assert!(version_in(storage.crash(CrashPolicy::Garbage, seed)) >= 111);
        }
    }
}

/// A checkpoint that replaces a damaged one gets a generation above those of all blocks that earlier lives wrote.
#[test]
fn behind_a_damaged_checkpoint_everything_is_newer() {
    let newest_block = |data: &[u8]| {
        let blocks = (8192..data.len())
            .step_by(512)
            .filter(|at| data[*at..].starts_with(b"MGBK"));
        blocks
            .map(|at| u64::from_le_bytes(data[at + 16..at + 24].try_into().expect("8 bytes")))
            .max()
    };
    let (storage, database) = begun(options());
    database.checkpoint().expect("the storage works");
    drop(database);
    let database = open(&storage, options()).expect("the storage works");
    set(&database, 5000, Strict);
    drop(database);
    let mut files = storage.files();
    let left = newest_block(&files["data"]).expect("there are blocks");
    assert!(left > *generations(&files["data"]).iter().max().expect("there are two"));
    damage_newest_blocks(&mut files);
    let storage = SimStorage::from_files(files);
    let database = open(&storage, options()).expect("the older one leads there");
    set(&database, 5000, Strict);
    let files = storage.files();
    assert!(newest_block(&files["data"]).expect("there are blocks") > left);
    assert!(*generations(&files["data"]).iter().max().expect("there are two") > left);
    drop(database);
    assert_eq!(survivors(&storage), (3, 3));
}

/// Compaction makes checkpoints of one version. If the newest one is damaged, the one before has the same
/// state, and no log is needed to show it.
#[test]
fn without_a_log_an_older_checkpoint_of_the_same_version_stands_for_a_damaged_one() {
    let unlogged = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(0),
            ..options().advanced
        },
        ..options()
    };
    let (storage, database) = begun(unlogged.clone());
    for _ in 0..200 {
        set(&database, 300, None);
    }
    database.checkpoint().expect("the storage works");
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..150_u64 {
        transaction.discard("c", &number.to_be_bytes()).expect("it is there");
    }
    transaction.commit(Strict).expect("the storage works");
    let slices = CompactOptions {
        slice_bytes: 4096,
        threshold_bytes: 0,
    };
    let end = database.compact(slices, &mut |_| ControlFlow::Break(()));
    assert_eq!(end.expect("the storage works").slices, 1);
    drop(database);
    let mut files = storage.files();
    damage_newest_blocks(&mut files);
    let storage = SimStorage::from_files(files);
    let database = open(&storage, unlogged).expect("the older one has the same version");
    assert_eq!(database.snapshot().collection("c").map(|tree| tree.len()), Some(51));
    commit(&database, Strict);
    assert!(database.verify().expect("it can be read").is_ok());
}

/// The first commit of a life may be a checkpoint that needs no log. The superblock says from then on
/// that there is one, so that the records behind it are missed if it is lost.
#[test]
fn a_log_that_begins_behind_a_checkpoint_is_missed() {
    let (storage, database) = begun(options());
    database.close().expect("the storage works");
    let database = open(&storage, options()).expect("it was closed");
    let mut transaction = database.begin().expect("the storage works");
    for number in 0..600_u64 {
        let set = transaction.set("large", &number.to_be_bytes(), &number.to_le_bytes());
        set.expect("the storage works");
    }
    transaction.commit(Strict).expect("the storage works");
    let stats = database.stats();
    assert_eq!(stats.checkpoints, 1, "it was no record");
    let is_refused_without_log = || {
        let mut files = storage.files();
        files.insert("log".to_owned(), Vec::new());
        assert_refused(files);
    };
    is_refused_without_log();
    commit(&database, Strict);
    assert_eq!(database.stats().checkpoints, 1, "it is a record");
    is_refused_without_log();
}

/// The nodes that a large transaction writes belong to the checkpoint after the newest superblock. So
/// none is written between them, whatever may be freed meanwhile.
#[test]
fn no_superblock_is_written_between_the_nodes_of_a_transaction() {
    let storage = SimStorage::new();
    let options = Options {
        cache_bytes: 512 << 10,
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..options().advanced
        },
        ..options()
    };
    let database = open(&storage, options).expect("it is new");
    let set_all = |fill: u8| {
        for first in (0..1000_u64).step_by(20) {
            let mut transaction = database.begin().expect("the storage works");
            for number in first..first + 20 {
                let set = transaction.set("c", &number.to_be_bytes(), &[fill; 30]);
                set.expect("the storage works");
            }
            transaction.commit(Relaxed).expect("the storage works");
        }
        database.checkpoint().expect("the storage works");
    };
    set_all(1);
    let snapshot = database.snapshot();
    set_all(2);
    let stats = database.stats();
    assert!(
        stats.kept_bytes * 4 > stats.file_bytes - stats.free_bytes,
        "the snapshot keeps what the last checkpoint replaced: {stats:?}"
    );
    let mut transaction = database.begin().expect("the storage works");
    let mut number = 0_u64;
    let mut spill = || {
        let writes = storage.counters().writes;
        while storage.counters().writes == writes {
            let set = transaction.set("d", &number.to_be_bytes(), &number.to_le_bytes());
            set.expect("the storage works");
            number += 1;
        }
        storage.files()["data"][..8192].to_vec()
    };
    let superblocks = spill();
    drop(snapshot);
    for _ in 0..3 {
        assert!(
            spill() == superblocks,
            "a superblock was written after {number} records"
        );
    }
}

/// A full storage takes back what is at the end of the log, but nothing that the older superblock leads
/// to. After an abandoned merge that may be the other half.
#[test]
fn a_log_that_is_cut_for_room_keeps_what_the_older_superblock_needs() {
    let options = || Options {
        compression: Compression::None,
        advanced: AdvancedOptions {
            log_bytes: Some(16 << 10),
            ..options().advanced
        },
        ..options()
    };
    let version_in = |files: Files| {
        let storage = SimStorage::from_files(files).without_shadow();
        let database = open(&storage, options()).expect("every image opens");
        assert!(database.verify().expect("it can be read").is_ok());
        database.version()
    };
    let storage = SimStorage::new();
    let database = open(&storage, options()).expect("it is new");
    for cycle in 0..8_u64 {
        for number in 0..12_u64 {
            let set = database.set("d", &number.to_be_bytes(), &[cycle as u8; 100], Strict);
            set.expect("the storage works");
            commit(&database, Strict);
        }
        assert_eq!(database.merge_slice(), Ok(true), "a merge begins in a new half");
        commit(&database, Strict);
        let mut transaction = database.begin().expect("the storage works");
        transaction.clear("d", KeyRange::all()).expect("the storage works");
        transaction.commit(Strict).expect("the storage works");
        assert_eq!(database.merge_events().abandoned, cycle + 1);
        database.checkpoint().expect("the storage works");
        commit(&database, Strict);
        let full = SimStorage::from_files(storage.files());
        let life = open(&full, options()).expect("every image opens");
        full.set_fault(Some(Fault {
            scope: Scope::Writes,
            ..Fault::from(full.counters().operations, FaultKind::StorageFull)
        }));
        let refused = life.set("c", b"refused", &[1; 100], Strict);
        assert!(refused.is_err(), "{refused:?}");
        drop(life);
        let mut files = full.files();
        assert_eq!(version_in(files.clone()), database.version(), "cycle {cycle}");
        destroy_newest_superblock(&mut files);
        assert_eq!(
            version_in(files),
            database.version(),
            "cycle {cycle}, the older superblock"
        );
    }
}

/// A database that was recovered from its older superblock makes the checkpoint that frees room, too.
#[test]
fn room_is_made_after_a_recovery_from_the_older_superblock() {
    let options = || Options {
        compression: Compression::None,
        ..options()
    };
    let (storage, database) = begun(options());
    let large = vec![7; 1_500_000];
    database.set("c", b"large", &large, Strict).expect("the storage works");
    database.checkpoint().expect("the storage works");
    let mut transaction = database.begin().expect("the storage works");
    assert!(transaction.delete("c", b"large").expect("the storage works"));
    transaction.commit(Strict).expect("the storage works");
    database.checkpoint().expect("the storage works");
    let mut files = storage.files();
    damage_newest_blocks(&mut files);
    let bytes: usize = files.values().map(Vec::len).sum();
    let storage = SimStorage::from_files(files).without_shadow();
    let database = open(&storage, options()).expect("the older superblock and the log lead to all");
    assert!(database.stats().recovered_from_older);
    storage.set_capacity(Some(bytes as u64 + 100_000));
    let mut staged = database.stage_value("c").expect("it is there");
    staged.append(&large).expect("a checkpoint makes room");
    let mut transaction = database.begin().expect("the storage works");
    transaction
        .put_staged("c", b"again", staged, Option::None)
        .expect("there is room");
    transaction.commit(Strict).expect("there is room");
    for database in [
        database,
        open(&SimStorage::from_files(storage.files()), options()).expect("it opens"),
    ] {
        let tree = database.snapshot().collection("c").expect("it is there");
        assert!(tree.get(b"again").expect("it can be read") == Some(large.clone()));
        assert!(database.verify().expect("it can be read").is_ok());
    }
}

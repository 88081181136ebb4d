//! Files that are missing, emptied, zeroed, cut, foreign, of another time or of another database: a
//! table of what opening does with each. A refused opening changes nothing, and recovery gives what
//! either file has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, Key, Options, recover};

type Files = BTreeMap<String, Vec<u8>>;

const COMMITS: u32 = 60;

fn options(database_id: u128, is_encrypted: bool) -> Options {
    Options {
        key: is_encrypted.then(|| Key::new([9; 32])),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(64 << 10),
            database_id: Some(database_id),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 30]
}

/// Adds commits, each of one record.
fn write(database: &Database, from: u32, to: u32) {
    for number in from..to {
        database
            .set("a", &key(number), &value(number), Durability::Strict)
            .expect("memory works");
    }
}

/// How a database was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    Closed,
    /// Its process died; most commits are in the log only.
    Killed,
}

/// Returns the files as they were halfway, closed, and as they are now.
fn made(left: Left, database_id: u128, is_encrypted: bool) -> (Files, Files) {
    let storage = MemoryStorage::new();
    let options = options(database_id, is_encrypted);
    let open = || Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    let database = open();
    write(&database, 0, COMMITS / 2);
    database.close().expect("memory works");
    let older = storage.files();
    let database = open();
    write(&database, COMMITS / 2, COMMITS);
    if left == Left::Closed {
        database.close().expect("memory works");
    }
    (older, storage.files())
}

/// What opening does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Opens {
    /// It shows all commits.
    Whole,
    /// It shows those up to a point, as after a power cut. The log does not tell the difference.
    Prefix,
    /// It shows those of the older copy, which is a database of its own.
    Older,
    /// It makes a new database: there was nothing.
    New,
    NotFound,
    Corrupt,
    NotADatabase,
}

fn number_of_records(database: &Database) -> u32 {
    let snapshot = database.snapshot();
    let Some(tree) = snapshot.collection("a") else { return 0 };
    let count = tree.len() as u32;
    for number in 0..count {
        assert_eq!(tree.get(&key(number)).expect("it can be read"), Some(value(number)));
    }
    count
}

fn opening(files: &Files, options: &Options, context: &str) -> Opens {
    let storage = MemoryStorage::from_files(files.clone());
    let outcome = match Database::open(Arc::new(storage.clone()), options.clone()) {
        Ok(database) => {
            let report = database.verify().expect("it can be read");
            assert!(report.is_ok(), "{context}: {:?}", report.problems);
            return match number_of_records(&database) {
                COMMITS => Opens::Whole,
                0 if files.values().all(|bytes| bytes.iter().all(|byte| *byte == 0)) => Opens::New,
                count if count == COMMITS / 2 => Opens::Older,
                _ => Opens::Prefix,
            };
        }
        Err(Error::Corrupt(_)) => Opens::Corrupt,
        Err(Error::NotADatabase { .. }) => Opens::NotADatabase,
        Err(Error::NotFound { .. }) => Opens::NotFound,
        Err(error) => panic!("{context}: {error}"),
    };
    assert_eq!(&storage.files(), files, "{context}: a failed open changed a file");
    outcome
}

/// Number of records that recovery finds, under whatever name of the collection.
fn recovered(files: &Files, options: &Options, context: &str) -> Option<u32> {
    let (source, target) = (MemoryStorage::from_files(files.clone()), MemoryStorage::new());
    let result = recover(
        Arc::new(source.clone()),
        Arc::new(target.clone()),
        options.clone(),
        &mut |_| ControlFlow::Continue(()),
    );
    assert_eq!(&source.files(), files, "{context}: recovery changed a file");
    match result {
        Ok(_) => {}
        Err(Error::NotFound { .. } | Error::NotADatabase { .. } | Error::WrongKey { .. } | Error::NotEncrypted) => {
            return None;
        }
        Err(error) => panic!("{context}: {error}"),
    }
    let database = Database::open(Arc::new(target), options.clone()).expect("it was just made");
    let mut found = BTreeSet::new();
    for info in database.collections() {
        let snapshot = database.snapshot();
        let tree = snapshot.collection(&info.name).expect("it is listed");
        for number in 0..COMMITS {
            if let Some(bytes) = tree.get(&key(number)).expect("it can be read") {
                assert_eq!(bytes, value(number), "{context}");
                found.insert(number);
            }
        }
    }
    Some(found.len() as u32)
}

/// One change to one file.
#[derive(Clone, Copy, Debug)]
enum Change {
    Missing,
    Empty,
    Zeroed,
    Foreign,
    Older,
    OfAnother,
}

fn changed(files: &Files, older: &Files, other: &Files, name: &str, change: Change) -> Files {
    let mut files = files.clone();
    let len = files.get(name).map_or(0, Vec::len);
    let bytes = match change {
        Change::Missing => {
            files.remove(name);
            return files;
        }
        Change::Empty => Vec::new(),
        Change::Zeroed => vec![0; len],
        Change::Foreign => b"Dear diary, ".repeat(1000),
        Change::Older => older[name].clone(),
        Change::OfAnother => other[name].clone(),
    };
    files.insert(name.to_owned(), bytes);
    files
}

#[test]
fn each_way_to_lose_a_file_has_its_outcome() {
    use Change::{Empty, Foreign, Missing, OfAnother, Older, Zeroed};
    use Left::{Closed, Killed};
    use Opens::{Corrupt, New, NotADatabase, Whole};
    let half = COMMITS / 2;
    // Who was left how, the file, what happened to it, what opening does, how many records recovery finds.
    let table = [
        (Closed, "data", Missing, New, None),
        (Closed, "data", Empty, New, None),
        (Closed, "data", Zeroed, NotADatabase, None),
        (Closed, "data", Foreign, NotADatabase, None),
        (Closed, "data", Older, Opens::Older, Some(half)),
        (Closed, "data", OfAnother, Whole, Some(COMMITS)),
        (Closed, "log", Missing, Whole, Some(COMMITS)),
        (Closed, "log", Empty, Whole, Some(COMMITS)),
        (Closed, "log", Foreign, NotADatabase, Some(COMMITS)),
        (Killed, "data", Missing, Corrupt, Some(COMMITS - half)),
        (Killed, "data", Empty, Corrupt, Some(COMMITS - half)),
        (Killed, "data", Zeroed, NotADatabase, Some(COMMITS - half)),
        (Killed, "data", Foreign, NotADatabase, Some(COMMITS - half)),
        (Killed, "data", OfAnother, Corrupt, Some(half)),
        (Killed, "log", Missing, Corrupt, Some(half)),
        (Killed, "log", Empty, Corrupt, Some(half)),
        (Killed, "log", Zeroed, Corrupt, Some(half)),
        (Killed, "log", Foreign, Corrupt, Some(half)),
        (Killed, "log", OfAnother, Corrupt, Some(half)),
        (Killed, "log", Older, Corrupt, Some(half)),
    ];
    for is_encrypted in [false, true] {
        for (left, name, change, opens, records) in table {
            let context = format!("{left:?}, {name} {change:?}, encrypted {is_encrypted}");
            let (older, files) = made(left, 7, is_encrypted);
            let (_, other) = made(left, 8, is_encrypted);
            let files = changed(&files, &older, &other, name, change);
            let options = options(7, is_encrypted);
            assert_eq!(opening(&files, &options, &context), opens, "{context}");
            let read_only = Options {
                read_only: true,
                ..options.clone()
            };
            let expected = if opens == New { Opens::NotFound } else { opens };
            assert_eq!(opening(&files, &read_only, &context), expected, "{context}, read-only");
            let found = recovered(&files, &options, &context);
            if is_encrypted && name == "data" && left == Killed && !matches!(change, OfAnother) {
                // The data key was in the file that is lost.
                assert_eq!(found, None, "{context}");
            } else {
                assert_eq!(found, records, "{context}: recovered");
            }
        }
    }
}

/// The data file of another day: the log has commits that it does not lead to. And the other way
/// round: the log is that of an earlier life.
#[test]
fn copies_from_another_time_do_not_pass_for_the_whole() {
    for is_encrypted in [false, true] {
        let options = options(7, is_encrypted);
        let storage = MemoryStorage::new();
        let open = || Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
        let mut lives = Vec::new();
        for life in 0..6 {
            let database = open();
            write(&database, life * 10, life * 10 + 5);
            lives.push(storage.files());
            write(&database, life * 10 + 5, life * 10 + 10);
            lives.push(storage.files());
            if life % 2 == 0 {
                database.close().expect("memory works");
                lives.push(storage.files());
            }
        }
        let mut refused = 0;
        for (of_data, data) in lives.iter().enumerate() {
            for (of_log, log) in lives.iter().enumerate() {
                let context = format!("data of {of_data}, log of {of_log}, encrypted {is_encrypted}");
                let files = Files::from([
                    ("data".to_owned(), data["data"].clone()),
                    ("log".to_owned(), log["log"].clone()),
                ]);
                let image = MemoryStorage::from_files(files.clone());
                match Database::open(Arc::new(image.clone()), options.clone()) {
                    Ok(database) => {
                        let shown = number_of_records(&database);
                        // The newest commit of a log is not known to have been durable.
                        let held = [data, log].map(|files| recovered(files, &options, &context).unwrap_or(0));
                        let is_torn = log["log"].len() > 1024 && of_log < of_data;
                        assert!(
                            shown + 1 >= held[0].min(held[1])
                                && (is_torn || shown + 1 >= held[1] || log["log"].is_empty()),
                            "{context}: {shown} of {held:?} are shown"
                        );
                    }
                    Err(Error::Corrupt(_)) => {
                        assert_eq!(image.files(), files, "{context}: a failed open changed a file");
                        refused += 1;
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
            }
        }
        assert!(refused > 20, "{refused} refused");
    }
}

/// A log that was cut opens with the commits before the cut, unless something shows that there was
/// more; a data file that was cut does not open.
#[test]
fn files_cut_at_any_length_open_with_a_prefix_or_not_at_all() {
    for left in [Left::Closed, Left::Killed] {
        for is_encrypted in [false, true] {
            let options = options(7, is_encrypted);
            let (_, files) = made(left, 7, is_encrypted);
            let mut outcomes = BTreeMap::<(&str, Opens), u32>::new();
            for name in ["data", "log"] {
                let len = files[name].len();
                for to in (0..len).step_by(if len > 20_000 { 40 } else { 8 }) {
                    let context = format!("{left:?}, {name} cut to {to} of {len}, encrypted {is_encrypted}");
                    let mut files = files.clone();
                    files.get_mut(name).expect("it is there").truncate(to);
                    let opens = opening(&files, &options, &context);
                    *outcomes.entry((name, opens)).or_default() += 1;
                    let found = recovered(&files, &options, &context);
                    match opens {
                        Opens::Corrupt if name == "log" => assert_eq!(found, Some(COMMITS / 2), "{context}"),
                        Opens::Prefix | Opens::Older => {
                            assert!(name == "log" && left == Left::Killed && to >= 1024, "{context}");
                            assert!(found.is_some_and(|found| found >= COMMITS / 2), "{context}");
                        }
                        Opens::New => assert!(left == Left::Closed && name == "data", "{context}"),
                        _ => {}
                    }
                }
            }
            if left == Left::Killed {
                assert!(
                    outcomes.contains_key(&("log", Opens::Corrupt)) && outcomes.contains_key(&("data", Opens::Corrupt))
                );
            }
        }
    }
}

/// The files of one life with the log of another.
fn with_log_of(files: &Files, other: &Files) -> Files {
    let mut files = files.clone();
    files.insert("log".to_owned(), other["log"].clone());
    files
}

/// A checkpoint states that its log was flushed, so whatever was cut off in front of it is missed.
#[test]
fn a_log_cut_in_front_of_a_checkpoint_is_missed() {
    let storage = MemoryStorage::new();
    let options = options(7, false);
    let database = Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    write(&database, 0, COMMITS / 2);
    database.checkpoint().expect("memory works");
    write(&database, COMMITS / 2, COMMITS);
    for to in [0, 512, 1024, 2000] {
        let mut files = storage.files();
        files.get_mut("log").expect("it is there").truncate(to);
        assert_eq!(opening(&files, &options, "cut"), Opens::Corrupt, "to {to}");
    }
}

#[test]
fn logs_of_earlier_lives_and_other_databases_are_missed() {
    let storage = MemoryStorage::new();
    let options = options(7, false);
    let open = || Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    let database = open();
    write(&database, 0, COMMITS / 2);
    let earlier = storage.files();
    database.close().expect("memory works");
    let database = open();
    write(&database, COMMITS / 2, COMMITS);
    let killed = storage.files();
    database.close().expect("memory works");
    let (_, other) = made(Left::Killed, 8, false);
    for (files, context) in [
        (with_log_of(&killed, &earlier), "of the life before"),
        (
            with_log_of(&storage.files(), &other),
            "of another database, beside a closed one",
        ),
    ] {
        assert_eq!(opening(&files, &options, context), Opens::Corrupt, "{context}");
    }
}

/// Two copies of a database went on apart. Each log has its records where the other has its own.
#[test]
fn a_log_that_went_another_way_is_missed() {
    let storage = MemoryStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options(7, false)).expect("memory works");
    write(&database, 0, 20);
    drop(database);
    let goes_on = |session: u64, commits: u32, is_checkpointed: bool| {
        let copy = MemoryStorage::from_files(storage.files());
        let options = Options {
            advanced: AdvancedOptions {
                session: Some(session),
                ..options(7, false).advanced
            },
            ..options(7, false)
        };
        let database = Database::open(Arc::new(copy.clone()), options).expect("memory works");
        write(&database, 20, 21);
        if is_checkpointed {
            database.checkpoint().expect("memory works");
        }
        write(&database, 21, 20 + commits);
        copy.files()
    };
    let one = goes_on(1, 10, true);
    for commits in [1, 2] {
        let files = with_log_of(&one, &goes_on(2, commits, false));
        assert_eq!(
            opening(&files, &options(7, false), "another way"),
            Opens::Corrupt,
            "{commits}"
        );
    }
}

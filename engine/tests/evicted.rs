//! Proves that files which are removed, renamed or replaced while a database is open are noticed:
//! no commit is acknowledged as durable that a later opening would not find.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use crate::turn;
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, Durability, Error, Options};

const CHILD: &str = "MANGROVE_TEST_EVICTED_DIRECTORY";
/// Longer than a check of the names counts for commits that are not durable.
const CHECK_AGE: Duration = Duration::from_millis(1100);

/// What is done to the files of an open database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taking {
    RemovesData,
    RemovesLog,
    RemovesDirectory,
    RenamesDirectory,
    RenamesParent,
    PutsFileInPlace,
    ReplacesData,
    ReplacesLog,
    CopiesDirectory,
}

const TAKINGS: [Taking; 9] = [
    Taking::RemovesData,
    Taking::RemovesLog,
    Taking::RemovesDirectory,
    Taking::RenamesDirectory,
    Taking::RenamesParent,
    Taking::PutsFileInPlace,
    Taking::ReplacesData,
    Taking::ReplacesLog,
    Taking::CopiesDirectory,
];

/// Another file with the same bytes.
fn replace(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).expect("it can be copied");
    fs::rename(&copy, path).expect("it can be renamed");
}

impl Taking {
    fn take(self, directory: &Path) {
        let away = directory.with_extension("away");
        match self {
            Self::RemovesData => fs::remove_file(directory.join("data")),
            Self::RemovesLog => fs::remove_file(directory.join("log")),
            Self::RemovesDirectory => fs::remove_dir_all(directory),
            Self::RenamesDirectory => fs::rename(directory, away),
            Self::RenamesParent => {
                let parent = directory.parent().expect("it has one");
                fs::rename(parent, parent.with_extension("away"))
            }
            Self::PutsFileInPlace => fs::rename(directory, away).and_then(|()| fs::write(directory, "a file")),
            Self::ReplacesData => {
                replace(&directory.join("data"));
                Ok(())
            }
            Self::ReplacesLog => {
                replace(&directory.join("log"));
                Ok(())
            }
            Self::CopiesDirectory => fs::rename(directory, &away).and_then(|()| {
                fs::create_dir(directory)?;
                for name in ["data", "log"] {
                    fs::copy(away.join(name), directory.join(name))?;
                }
                Ok(())
            }),
        }
        .expect("the files can be taken away");
    }
}

fn open(directory: &Path) -> Database {
    Database::open(Arc::new(FsStorage::new(directory)), Options::default()).expect("nobody else has it")
}

fn set(database: &Database, key: &[u8], durability: Durability) -> Result<(), Error> {
    database.set("", key, b"value", durability).map(|_| ())
}

fn is_evicted<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Evicted { .. }))
}

/// Checks that a database whose loss was noticed can be read and not written.
fn check_over(database: Database, taking: Taking) {
    for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
        assert!(
            is_evicted(&set(&database, b"later", durability)),
            "{taking:?}, {durability:?}"
        );
    }
    assert!(is_evicted(&database.flush()), "{taking:?}");
    let snapshot = database.snapshot();
    let collection = snapshot.collection("").expect("something was written");
    let get = |key: &[u8]| collection.get(key).expect("the open files can be read");
    assert_eq!(get(b"before").as_deref(), Some(&b"value"[..]), "{taking:?}");
    assert_eq!(get(b"later"), None, "{taking:?}");
    assert!(is_evicted(&database.close()), "{taking:?}");
}

/// Opens a database, writes to it, and takes its files away.
fn taken_after(taking: Taking, written: Durability, test: impl FnOnce(Database, PathBuf)) {
    let _turn = turn();
    let root = tempfile::tempdir().expect("there is a temporary directory");
    let directory = root.path().join("parent").join("database");
    let database = open(&directory);
    set(&database, b"before", written).expect("the files are there");
    taking.take(&directory);
    test(database, directory);
}

#[test]
fn a_strict_commit_is_not_acknowledged() {
    for taking in TAKINGS {
        taken_after(taking, Durability::Strict, |database, _| {
            assert!(is_evicted(&set(&database, b"later", Durability::Strict)), "{taking:?}");
            check_over(database, taking);
        });
    }
}

#[test]
fn a_flush_of_earlier_commits_is_not_acknowledged() {
    for taking in TAKINGS {
        for durability in [Durability::Relaxed, Durability::None] {
            taken_after(taking, durability, |database, _| {
                assert!(is_evicted(&database.flush()), "{taking:?}, {durability:?}");
                check_over(database, taking);
            });
        }
    }
}

#[test]
fn a_flush_by_the_host_is_not_acknowledged() {
    for taking in TAKINGS {
        taken_after(taking, Durability::Strict, |database, _| {
            set(&database, b"hidden", Durability::Relaxed).expect("a check still counts");
            let flush = database.begin_flush().expect("something waits for it");
            assert!(is_evicted(&flush.finish(Ok(()))), "{taking:?}");
            check_over(database, taking);
        });
    }
}

#[test]
fn commits_without_a_flush_are_refused_soon() {
    for durability in [Durability::Relaxed, Durability::None] {
        taken_after(Taking::RemovesDirectory, durability, |database, _| {
            sleep(CHECK_AGE);
            assert!(is_evicted(&set(&database, b"later", durability)), "{durability:?}");
            check_over(database, Taking::RemovesDirectory);
        });
    }
}

#[test]
fn closing_reports_it() {
    for taking in TAKINGS {
        for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
            taken_after(taking, durability, |database, _| {
                assert!(is_evicted(&database.close()), "{taking:?}, {durability:?}");
            });
        }
    }
}

#[test]
fn closing_reports_it_even_if_nothing_was_written() {
    for taking in TAKINGS {
        let _turn = turn();
        let root = tempfile::tempdir().expect("there is a temporary directory");
        let directory = root.path().join("parent").join("database");
        let database = open(&directory);
        set(&database, b"before", Durability::Strict).expect("the files are there");
        database.close().expect("the files are there");
        let database = open(&directory);
        taking.take(&directory);
        assert!(is_evicted(&database.close()), "{taking:?}");
    }
}

#[test]
fn what_took_their_place_stays_as_it_is() {
    for taking in [
        Taking::RemovesDirectory,
        Taking::RenamesDirectory,
        Taking::CopiesDirectory,
    ] {
        taken_after(taking, Durability::Strict, |database, directory| {
            let other = open(&directory);
            set(&other, b"other", Durability::Strict).expect("it has its own files");
            check_over(database, taking);
            set(&other, b"more", Durability::Strict).expect("it has its own files");
            other.close().expect("it has its own files");
            let other = open(&directory);
            let has = |key: &[u8]| other.snapshot().collection("").unwrap().get(key).unwrap().is_some();
            assert!(has(b"other") && has(b"more"), "{taking:?}");
            assert_eq!(has(b"before"), taking == Taking::CopiesDirectory, "{taking:?}");
        });
    }
}

#[test]
fn files_behind_symbolic_links_are_where_they_are_expected() {
    let _turn = turn();
    let root = tempfile::tempdir().expect("there is a temporary directory");
    let (elsewhere, directory) = (root.path().join("elsewhere"), root.path().join("database"));
    open(&elsewhere).close().expect("the files are there");
    std::os::unix::fs::symlink(&elsewhere, &directory).expect("there are links");
    let database = open(&directory);
    set(&database, b"before", Durability::Strict).expect("the link leads there");
    fs::remove_file(&directory).expect("the link can be removed");
    assert!(is_evicted(&set(&database, b"later", Durability::Strict)));
    std::os::unix::fs::symlink(&elsewhere, &directory).expect("there are links");
    check_over(database, Taking::RemovesDirectory);
}

#[test]
fn another_working_directory_changes_nothing() {
    let _turn = turn();
    let root = tempfile::tempdir().expect("there is a temporary directory");
    let status = Command::new(std::env::current_exe().expect("tests have a path"))
        .args(["--exact", "evicted::child_changes_its_directory", "--include-ignored"])
        .current_dir(root.path())
        .env(CHILD, root.path())
        .status();
    assert!(status.expect("the child starts").success());
    assert!(root.path().join("database").join("data").exists());
}

/// Runs in the child process; does nothing elsewhere.
#[test]
fn child_changes_its_directory() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let database = open(Path::new("database"));
    std::env::set_current_dir("/").expect("it exists");
    set(&database, b"key", Durability::Strict).expect("the files are where they were");
    database.close().expect("the files are where they were");
}

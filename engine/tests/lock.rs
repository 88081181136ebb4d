//! Proves that a database has one opener at a time, in this process or another, and that dropping
//! the handle releases the lock.

use std::process::Command;
use std::sync::Arc;

use crate::turn;
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, Error, Options};

const CHILD: &str = "MANGROVE_TEST_LOCK_DIRECTORY";

fn open(directory: &std::path::Path) -> Result<Database, Error> {
    Database::open(Arc::new(FsStorage::new(directory)), Options::default())
}

#[test]
fn a_second_opener_is_refused() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let first = open(directory.path()).expect("nobody else has it");
    assert!(matches!(open(directory.path()), Err(Error::Locked { .. })));
    first.close().expect("the disk works");
    open(directory.path()).expect("the lock went with the handle");
}

#[test]
fn another_process_is_refused() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let database = open(directory.path()).expect("nobody else has it");
    let child = |expected: &str| {
        let status = Command::new(std::env::current_exe().expect("tests have a path"))
            .args(["--exact", "lock::child_tries_to_open", "--include-ignored"])
            .env(CHILD, directory.path())
            .env("MANGROVE_TEST_LOCK_EXPECTED", expected)
            .status();
        assert!(status.expect("the child starts").success(), "expected: {expected}");
    };
    child("locked");
    drop(database);
    child("open");
}

/// Runs in the child process; does nothing elsewhere.
#[test]
fn child_tries_to_open() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let result = open(directory.as_ref());
    match std::env::var("MANGROVE_TEST_LOCK_EXPECTED").as_deref() {
        Ok("locked") => assert!(matches!(result, Err(Error::Locked { .. }))),
        _ => assert!(result.is_ok()),
    }
}

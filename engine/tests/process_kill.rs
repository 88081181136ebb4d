//! Proves that killing a real process (`kill -9`) loses no acknowledged commit and damages nothing.
//!
//! A child commits numbered batches to a database on disk and prints each number once it is
//! acknowledged. The parent kills it at some moment, opens the database and compares. The same
//! database lives through all rounds.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::turn;
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{AdvancedOptions, Database, Durability, Options};

const CHILD: &str = "MANGROVE_TEST_KILL_DIRECTORY";
const ROUNDS: u64 = 20;
const PER_COMMIT: u64 = 10;

fn open(directory: &Path) -> Database {
    let options = Options {
        advanced: AdvancedOptions {
            node_bytes: 1024,
            unit_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(FsStorage::new(directory)), options).expect("it opens after every kill")
}

/// Returns the number of whole commits in the database.
fn commits(database: &Database) -> u64 {
    let tree = database.snapshot().collection("log");
    let records = tree.map_or(0, |tree| tree.len());
    assert_eq!(records % PER_COMMIT, 0, "half a commit is there");
    records / PER_COMMIT
}

/// Writes commits for ever; runs in the child process and does nothing elsewhere.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let database = open(directory.as_ref());
    let mut output = std::io::stdout().lock();
    for number in commits(&database).. {
        let mut transaction = database.begin().expect("it can be written");
        for part in 0..PER_COMMIT {
            let key = (number * PER_COMMIT + part).to_be_bytes();
            let value = vec![part as u8; (number % 50) as usize * 40];
            transaction.set("log", &key, &value).expect("the disk works");
        }
        transaction.commit(Durability::Strict).expect("the disk works");
        writeln!(output, "acknowledged {number}").expect("the parent listens");
        output.flush().expect("the parent listens");
    }
}

#[test]
fn acknowledged_commits_survive_kill() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let mut newest = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("tests have a path"))
            .args([
                "--exact",
                "process_kill::child_writes_until_it_is_killed",
                "--nocapture",
            ])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut acknowledged = None;
        // Rounds end after different numbers of commits, so that the kill hits different moments.
        let mut left = 1 + round * 7 % 40;
        for line in output.lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged = number.parse::<u64>().ok().or(acknowledged);
                left -= 1;
                if left == 0 {
                    child.kill().expect("it runs");
                    break;
                }
            }
        }
        child.wait().expect("it was started");
        let database = open(directory.path());
        let found = commits(&database);
        let acknowledged = acknowledged.expect("the child committed something");
        assert!(
            found > acknowledged,
            "round {round}: {found} commits, {acknowledged} was acknowledged"
        );
        assert!(found >= newest);
        newest = found;
        let report = database.verify().expect("it can be read");
        assert!(report.is_ok(), "round {round}: {:?}", report.problems);
    }
}

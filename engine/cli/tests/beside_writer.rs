//! Verbs that read beside a writer in another process. On Windows no process can read what another
//! has locked.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use crate::common;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Place, command, key, numbered, reading, run};
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{AdvancedOptions, Database, Durability, Options};
use serde_json::Value;

fn write(db: &str) -> Database {
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(256 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(FsStorage::new(db)), options).unwrap()
}

/// Rewrites every key with values that compression makes little smaller.
fn commit(database: &Database, round: u32, count: u32) {
    let mut transaction = database.begin().unwrap();
    let mut state = u64::from(round) + 1;
    for key in 0..count {
        let mut value = round.to_be_bytes().to_vec();
        for _ in 0..30 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value.extend_from_slice(&(state >> 16).to_be_bytes());
        }
        transaction.set("", &key.to_be_bytes(), &value).unwrap();
    }
    transaction.commit(Durability::Strict).unwrap();
}

#[test]
fn an_open_writer_blocks_no_reader() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(1000));
    let writer = write(db);
    // Only in the log, and still visible.
    let mut transaction = writer.begin().unwrap();
    transaction.set("", b"00007", b"new").unwrap();
    transaction.commit(Durability::Strict).unwrap();
    assert_eq!(run(&["get", db, &key(7)]).ok(), "\"new\"\n");
    for arguments in reading(db) {
        let output = common::output(&mut command(&arguments));
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    }
    let (file, copy) = (&place.db("file"), &place.db("copy"));
    run(&["backup", db, file]).ok();
    run(&["restore", file, copy]).ok();
    assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
    run(&["set", db, &key(1), "\"2\""]).fails(1, "KV_LOCKED");
    writer.close().unwrap();
    assert_eq!(run(&["get", db, &key(7)]).ok(), "\"new\"\n");
}

#[test]
fn incremental_backups_beside_a_writer() {
    let place = Place::new();
    let db = &place.db("db");
    let options = Options {
        feed_commits: 100,
        ..Options::default()
    };
    let writer = Database::open(Arc::new(FsStorage::new(db)), options).unwrap();
    commit(&writer, 0, 10);
    let (full, later, copy) = (&place.db("full"), &place.db("later"), &place.db("copy"));
    let saved: Value = serde_json::from_str(&run(&["backup", db, full]).ok()).unwrap();
    commit(&writer, 1, 10);
    commit(&writer, 2, 10);
    let since = saved["version"].to_string();
    let saved: Value = serde_json::from_str(&run(&["backup", db, later, "--since", &since]).ok()).unwrap();
    assert_eq!(
        (&saved["commits"], &saved["version"]),
        (&2.into(), &writer.version().into())
    );
    run(&["restore", full, copy]).ok();
    run(&["restore", later, copy, "--incremental"]).ok();
    let raw = |db| run(&["dump", db, "--raw", "hex"]).ok();
    assert_eq!(raw(copy), raw(db));
    let early = run(&["backup", db, &place.db("early"), "--since", "0"]);
    assert_eq!(early.code, 1, "{}", early.err);
}

/// The output is one state, or the tool reports that it is not.
#[test]
fn a_busy_writer() {
    const KEYS: u32 = 300;
    let place = Place::new();
    let db = &place.db("db");
    let writer = write(db);
    commit(&writer, 0, KEYS);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                commit(&writer, round, KEYS);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut whole = 0;
        for attempt in 0..40 {
            let verb = ["scan", "verify", "count", "dump"][attempt % 4];
            let read = run(&[verb, db, "--raw", "hex"][..if verb == "verify" { 2 } else { 4 }]);
            if read.code != 0 {
                read.fails(1, "KV_STALE");
                continue;
            }
            whole += 1;
            let lines: Vec<Value> = read
                .out
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            match verb {
                "verify" => assert_eq!(lines[0]["ok"], true),
                "count" => assert_eq!(lines[0], KEYS),
                _ => {
                    let round = |line: &Value| line["value"].as_str().map(|value| value[..8].to_owned());
                    let rounds: Vec<_> = lines.iter().filter_map(round).collect();
                    assert_eq!(rounds.len(), KEYS as usize, "{verb}");
                    assert!(rounds.iter().all(|round| *round == rounds[0]), "{verb}: {rounds:?}");
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(whole > 10, "{whole}");
    });
}

/// Output that has begun cannot begin again.
#[test]
fn output_that_a_writer_overtakes() {
    const KEYS: u32 = 20_000;
    let place = Place::new();
    let db = &place.db("db");
    let writer = write(db);
    commit(&writer, 0, KEYS);
    for verb in ["scan", "dump"] {
        let mut child = common::spawn(&mut command(&[verb, db]));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        for round in 1..4 {
            commit(&writer, round, KEYS);
            writer.checkpoint().unwrap();
        }
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{verb}: {err}");
        assert!(
            err.starts_with("mangrove: KV_STALE: ") && err.contains("incomplete"),
            "{err}"
        );
        assert!(rest.ends_with('\n') && rest.lines().count() < KEYS as usize);
    }
}

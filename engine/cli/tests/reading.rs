//! Verbs that read change nothing, need no permission to write, and go on beside others.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::fs;
use std::sync::Arc;

use common::{Place, files, killed, numbered, reading, run};
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, Options};
use serde_json::Value;

fn read_everything(db: &str) {
    for arguments in reading(db) {
        let output = common::command(&arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn not_a_byte_is_changed() {
    let place = Place::new();
    let closed = place.loaded("closed", &numbered(3000));
    let log_alone = killed(&place, "log", 100);
    // A checkpoint, and records behind it.
    let both = place.loaded("both", &numbered(500));
    let storage = Arc::new(FsStorage::new(&both));
    let database = Database::open(storage, Options::default()).unwrap();
    let mut transaction = database.begin().unwrap();
    transaction.delete("", &[0x10, 0xc0, 0x08, 0, 0, 0, 0, 0, 0]).unwrap();
    transaction.commit(mangrove_engine::Durability::Strict).unwrap();
    drop(database);
    assert!(!files(&place.path("both"))["log"].0.is_empty());
    fs::create_dir(place.path("single")).unwrap();
    fs::copy(place.path("closed/data"), place.path("single/exported.mangrove")).unwrap();
    let single = place.db("single/exported.mangrove");
    fs::create_dir(place.path("unclosed")).unwrap();
    for (from, to) in [("data", "e.mangrove"), ("log", "e.mangrove.log")] {
        fs::copy(place.path("log").join(from), place.path("unclosed").join(to)).unwrap();
    }
    let unclosed = place.db("unclosed/e.mangrove");
    for (name, db) in [
        ("closed", closed),
        ("log", log_alone),
        ("both", both),
        ("single", single),
        ("unclosed", unclosed),
    ] {
        let before = files(&place.path(name));
        read_everything(&db);
        assert!(files(&place.path(name)) == before, "{name} was changed");
    }
    assert_eq!(run(&["count", &place.db("both")]).ok(), "499\n");
    assert_eq!(run(&["count", &place.db("unclosed/e.mangrove")]).ok(), "100\n");
}

#[test]
fn what_is_damaged_is_left_as_it_is() {
    let place = Place::new();
    killed(&place, "db", 100);
    let log = place.path("db/log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[1100] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let before = files(&place.path("db"));
    let db = place.db("db");
    for arguments in reading(&db) {
        run(&arguments).fails(2, "KV_CORRUPT");
    }
    assert!(files(&place.path("db")) == before);
}

#[test]
fn readers_share() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(100));
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let reader = Database::open(Arc::new(FsStorage::read_only(db)), options).unwrap();
    read_everything(db);
    run(&["set", db, "1", "1"]).fails(1, "KV_LOCKED");
    drop(reader);
    run(&["set", db, "1", "1"]).ok();
}

/// Each block is damaged, alone and with each other one. That is never taken for the work of a writer.
#[test]
fn a_damaged_checkpoint_is_reported_even_if_the_older_one_makes_up_for_it() {
    let place = Place::new();
    let options = Options {
        unit_bytes: 512,
        ..Options::default()
    };
    let db = &place.db("db");
    let database = Database::open(Arc::new(FsStorage::new(db)), options).unwrap();
    for round in 0..4_u8 {
        let mut transaction = database.begin().unwrap();
        for collection in ["a", "b"] {
            transaction.set(collection, &[round], &[round; 50]).unwrap();
        }
        transaction.commit(mangrove_engine::Durability::Strict).unwrap();
        database.checkpoint().unwrap();
    }
    drop(database);
    let data = place.path("db/data");
    let whole = fs::read(&data).unwrap();
    assert_eq!(run(&["verify", db]).code, 0);
    let first = 16;
    let mut older = 0;
    for one in first..whole.len() / 512 {
        for other in one..whole.len() / 512 {
            let mut bytes = whole.clone();
            bytes[one * 512 + 40] ^= 1;
            if other > one {
                bytes[other * 512 + 40] ^= 1;
            }
            fs::write(&data, &bytes).unwrap();
            let verified = run(&["verify", db]);
            assert!([0, 2].contains(&verified.code), "{one} {other}: {}", verified.err);
            let report: Value = serde_json::from_str(&verified.out).unwrap();
            assert_eq!(report["ok"], verified.code == 0, "{one} {other}");
            let stat = run(&["stat", db]);
            if stat.out.contains("\"recoveredFromOlder\":true") {
                assert_eq!(verified.code, 2, "{one} {other}");
                older += 1;
            }
        }
    }
    assert!(older > 0);
}

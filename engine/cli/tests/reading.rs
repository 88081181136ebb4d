//! Verbs that read change nothing, need no permission to write, and work beside other processes.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use crate::common;
use std::fs;
use std::sync::Arc;

use crate::common::{Place, files, killed, numbered, reading, run};
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{AdvancedOptions, Database, Durability, Options};
use serde_json::Value;

fn read_everything(db: &str) {
    for arguments in reading(db) {
        let output = common::output(&mut common::command(&arguments));
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
    // A checkpoint, followed by records.
    let both = place.loaded("both", &numbered(500));
    let storage = Arc::new(FsStorage::new(&both));
    let database = Database::open(storage, Options::default()).unwrap();
    let mut transaction = database.begin().unwrap();
    transaction.delete("", b"00003").unwrap();
    transaction.commit(Durability::Strict).unwrap();
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
fn damaged_files_stay_unchanged() {
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
    run(&["set", db, "\"1\"", "\"1\""]).fails(1, "KV_LOCKED");
    drop(reader);
    run(&["set", db, "\"1\"", "\"1\""]).ok();
}

/// Damage to another block as well is not mistaken for the work of a writer.
#[test]
fn a_damaged_checkpoint_is_reported_even_if_the_older_one_replaces_it() {
    let place = Place::new();
    let options = Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let db = &place.db("db");
    let database = Database::open(Arc::new(FsStorage::new(db)), options).unwrap();
    for round in 0..4_u8 {
        let mut transaction = database.begin().unwrap();
        transaction.set("changing", &[round], &[round; 50]).unwrap();
        if round == 0 {
            for key in 0..40_u8 {
                transaction.set("still", &[key], &[key; 50]).unwrap();
            }
        }
        transaction.commit(Durability::Strict).unwrap();
        database.checkpoint().unwrap();
    }
    drop(database);
    let data = place.path("db/data");
    let whole = fs::read(&data).unwrap();
    run(&["verify", db]).ok();
    let verify = |units: &[usize]| {
        let mut bytes = whole.clone();
        for unit in units {
            bytes[unit * 512 + 40] ^= 1;
        }
        fs::write(&data, &bytes).unwrap();
        let verified = run(&["verify", db]);
        assert!([0, 2].contains(&verified.code), "{units:?}: {}", verified.err);
        let report: Value = serde_json::from_str(&verified.out).unwrap();
        assert_eq!(report["ok"], verified.code == 0, "{units:?}");
        let is_older = run(&["stat", db]).out.contains("\"recoveredFromOlder\":true");
        assert!(!is_older || verified.code == 2, "{units:?}");
        (is_older, report["problems"].as_array().unwrap().len())
    };
    // The first 8 KiB are the superblocks.
    let units = 16..whole.len() / 512;
    let older: Vec<usize> = units.clone().filter(|unit| verify(&[*unit]) == (true, 1)).collect();
    let more = units.filter(|unit| {
        older
            .iter()
            .any(|older| older != unit && verify(&[*older, *unit]) == (true, 2))
    });
    assert!(!older.is_empty() && more.count() > 0, "{older:?}");
}

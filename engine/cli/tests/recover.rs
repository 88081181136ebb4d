//! `recover`, and the other verbs on databases that were not closed.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::fs;

use crate::common::{Place, Run, killed, numbered, run};
use serde_json::Value;

fn report(run: &Run) -> Value {
    assert_eq!(run.out.lines().count(), 1, "{}", run.out);
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn commits_only_in_the_log_are_read_verified_and_recovered() {
    let place = Place::new();
    let db = &killed(&place, "db", 100);
    assert!(fs::metadata(place.path("db/log")).unwrap().len() > 0);
    let verified: Value = serde_json::from_str(&run(&["verify", db]).ok()).unwrap();
    assert_eq!((&verified["ok"], &verified["entries"]), (&true.into(), &100.into()));
    let before = (fs::read(place.path("db/data")), fs::read(place.path("db/log")));
    let target = &place.db("new");
    let recovered = run(&["recover", db, target]);
    assert_eq!(recovered.code, 0, "{}", recovered.err);
    assert!(recovered.err.contains("copying") && recovered.err.contains("verifying"));
    let report = report(&recovered);
    assert_eq!(report["completeness"], "exact");
    assert_eq!(report["log"]["state"], "intact");
    assert_eq!(report["log"]["appliedRecords"], 10);
    assert_eq!(report["entries"], 100);
    assert_eq!(run(&["dump", target]).ok(), run(&["dump", db]).ok());
    assert!(!place.path("new/lock").exists());
    let after = (fs::read(place.path("db/data")), fs::read(place.path("db/log")));
    assert_eq!(
        (before.0.unwrap(), before.1.unwrap()),
        (after.0.unwrap(), after.1.unwrap())
    );
}

#[test]
fn losses_are_reported() {
    let place = Place::new();
    let db = &killed(&place, "db", 100);
    let log = place.path("db/log");
    let whole = fs::read(&log).unwrap();
    let mut bytes = whole.clone();
    // After the header of the half, in the first record.
    bytes[1100] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let failed = run(&["verify", db]).fails(2, "KV_CORRUPT");
    assert!(failed.err.contains(" recover\""), "{}", failed.err);
    let target = &place.db("new");
    let recovered = run(&["recover", db, target]);
    assert_eq!(recovered.code, 2, "{}", recovered.err);
    assert!(
        recovered
            .err
            .lines()
            .last()
            .unwrap()
            .starts_with("mangrove: KV_CORRUPT: ")
    );
    let report = report(&recovered);
    assert_eq!(report["completeness"], "salvage");
    assert_eq!(report["log"]["state"], "damaged");
    assert_eq!(report["log"]["lostCommits"], 1);
    assert_eq!(report["entries"], 90);
    run(&["verify", target]).ok();
    // An existing target is left alone.
    run(&["recover", db, target]).fails(1, "KV_EXISTS");
    run(&["recover", &place.db("none"), &place.db("other")]).fails(1, "KV_NOT_FOUND");
    let file = place.db("new/data");
    run(&["recover", db, &file]).fails(1, "KV_EXISTS");
    fs::create_dir(place.path("foreign")).unwrap();
    fs::write(place.path("foreign/data"), "something else").unwrap();
    let other = &place.db("other");
    assert_eq!(run(&["recover", &place.db("foreign"), other]).code, 2);
    assert!(!place.path("other/data").exists());
}

/// As a browser exports it: the data file alone.
#[test]
fn an_exported_file_that_was_not_closed() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(50));
    let exported = &place.db("exported.mangrove");
    fs::copy(place.path("db/data"), exported).unwrap();
    assert_eq!(run(&["count", exported]).ok(), "50\n");
    let mut data = fs::read(exported).unwrap();
    open_superblocks(&mut data);
    fs::write(exported, &data).unwrap();
    // Reading a closed export leaves no log beside it.
    assert!(!place.path("exported.mangrove.log").exists());
    for verb in ["verify", "count", "dump"] {
        let failed = run(&[verb, exported]).fails(2, "KV_CORRUPT");
        assert!(failed.err.contains("\"log\" is missing"), "{}", failed.err);
        assert!(failed.err.contains(" recover\""), "{}", failed.err);
    }
    let target = &place.db("new");
    let recovered = run(&["recover", exported, target]);
    assert_eq!(recovered.code, 2, "{}", recovered.err);
    let report = report(&recovered);
    assert_eq!(report["completeness"], "reconstructed");
    assert_eq!(report["log"]["state"], "missing");
    assert_eq!(run(&["dump", target]).ok(), run(&["dump", db]).ok());
}

/// Clears the flag by which a superblock says that the database was closed.
fn open_superblocks(data: &mut [u8]) {
    for at in [0, 2048, 4096, 6144] {
        let record = &mut data[at..at + 512];
        record[153] = 0;
        let crc = crc32(&record[..508]);
        record[508..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xEDB8_8320 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

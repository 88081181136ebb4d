//! `compact` frees space and changes nothing else.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::fs;

use crate::common::{Place, numbered, run, run_with};
use serde_json::Value;

/// Returns records whose values compression makes little smaller.
fn noise(count: usize) -> String {
    let mut state = 1_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:012x}", state >> 16)
    };
    let mut line = |key| {
        format!(
            "{{\"key\":\"{key:05}\",\"value\":\"{}\"}}\n",
            (0..20).map(|_| word()).collect::<String>()
        )
    };
    (0..count).map(&mut line).collect()
}

/// Creates a database in which every block was written twice, so that half of its file is free.
fn hollow(place: &Place) -> String {
    let db = place.loaded("db", &noise(10_000));
    run_with(numbered(10_000), &["load", &db]).ok();
    db
}

fn report(out: &str) -> Value {
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(out).unwrap()
}

#[test]
fn space_is_given_back() {
    let place = Place::new();
    let db = &hollow(&place);
    let before = (
        run(&["dump", db]).ok(),
        fs::metadata(place.path("db/data")).unwrap().len(),
    );
    let compacted = report(&run(&["compact", db]).ok());
    assert_eq!(compacted["end"], "done");
    assert_eq!(compacted["fileSizeBefore"], before.1);
    let after = fs::metadata(place.path("db/data")).unwrap().len();
    assert_eq!(compacted["fileSizeAfter"], after);
    assert!(after < before.1 * 6 / 10, "{after} of {}", before.1);
    assert!(compacted["movedSize"].as_u64().unwrap() > 0);
    assert_eq!(run(&["dump", db]).ok(), before.0);
    run(&["verify", db]).ok();
    let again = report(&run(&["compact", db]).ok());
    assert_eq!(
        (&again["fileSizeAfter"], &again["movedSize"]),
        (&after.into(), &0.into())
    );
}

#[test]
fn progress_is_shown_if_asked_for() {
    let place = Place::new();
    let db = &hollow(&place);
    let compacted = run(&["compact", db, "--progress"]);
    assert_eq!(compacted.code, 0);
    assert!(
        compacted.err.contains(" bytes moved, the file has "),
        "{}",
        compacted.err
    );
}

#[test]
fn a_single_file_stays_one() {
    let place = Place::new();
    hollow(&place);
    fs::create_dir(place.path("single")).unwrap();
    let file = &place.db("single/exported.mangrove");
    fs::rename(place.path("db/data"), file).unwrap();
    let compacted = report(&run(&["compact", file]).ok());
    assert_eq!(compacted["fileSizeAfter"], fs::metadata(file).unwrap().len());
    assert!(compacted["fileSizeAfter"].as_u64() < compacted["fileSizeBefore"].as_u64());
    assert_eq!(fs::read_dir(place.path("single")).unwrap().count(), 1);
    assert_eq!(run(&["count", file]).ok(), "10000\n");
}

#[test]
fn damage_is_reported() {
    let place = Place::new();
    let db = &hollow(&place);
    let data = place.path("db/data");
    let whole = fs::read(&data).unwrap();
    let mut bytes = whole.clone();
    bytes[whole.len() / 8..].fill(0x5a);
    fs::write(&data, &bytes).unwrap();
    run(&["compact", db]).fails(2, "KV_CORRUPT");
    fs::write(&data, "something else").unwrap();
    run(&["compact", db]).fails(2, "KV_CORRUPT");
    assert_eq!(fs::read(&data).unwrap(), b"something else");
}

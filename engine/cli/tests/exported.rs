//! A single data file, as a browser exports it, is a database.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::fs;

use crate::common::{Place, exported, run, run_with};
use serde_json::Value;

#[test]
fn a_single_exported_file_is_a_database() {
    let place = Place::new();
    let file = exported(&place, "from the browser.mangrove");
    let file = file.to_str().unwrap();
    run(&["verify", file]).ok();
    run(&["set", file, "\"new\"", "\"1\""]).ok();
    assert_eq!(run(&["get", file, "\"new\""]).ok(), "\"1\"\n");
    assert_eq!(
        fs::read_dir(place.path("")).unwrap().count(),
        1,
        "nothing lies beside it"
    );
    fs::create_dir(place.path("js")).unwrap();
    fs::copy(file, place.path("js/data")).unwrap();
    let db = place.db("js");
    assert_eq!(run(&["count", &format!("{db}/data")]).ok(), run(&["count", &db]).ok());
}

#[test]
fn every_verb_takes_an_exported_file() {
    let place = Place::new();
    let file = exported(&place, "exported.mangrove");
    let file = file.to_str().unwrap();
    let whole = fs::read(file).unwrap();
    let count: u64 = run(&["count", file]).ok().trim_end().parse().unwrap();
    assert!(count > 0);
    let lines = |verb: &str| run(&[verb, file]).ok().lines().count() as u64;
    assert_eq!(lines("scan"), count);
    assert_eq!(lines("dump"), count);
    let stat: Value = serde_json::from_str(&run(&["stat", file]).ok()).unwrap();
    assert_eq!(stat["fileSize"], whole.len());
    run(&["verify", file]).ok();
    let (backup, restored, recovered) = (&place.db("backup"), &place.db("restored"), &place.db("recovered"));
    run(&["backup", file, backup]).ok();
    run(&["restore", backup, restored]).ok();
    assert_eq!(run(&["recover", file, recovered]).code, 0);
    for copy in [restored, recovered] {
        assert_eq!(run(&["dump", copy]).ok(), run(&["dump", file]).ok());
    }
    assert!(fs::read(file).unwrap() == whole, "so far it was only read");
    run(&["set", file, "\"new\"", "\"1\"", "--collection", "another"]).ok();
    run(&["compact", file]).ok();
    let acks = run_with("{\"key\":\"new\",\"value\":\"2\"}", &["load", file, "--ack"]).ok();
    assert_eq!(acks, "\"new\"\n");
    assert_eq!(
        run(&["get", file, "\"new\"", "--collection", "another"]).ok(),
        "\"1\"\n"
    );
    assert_eq!(run(&["del", file, "\"new\""]).ok(), "true\n");
    assert_eq!(run(&["count", file]).ok(), format!("{count}\n"));
    run(&["restore", backup, file]).fails(1, "KV_EXISTS");
    run(&["bench", file]).fails(1, "KV_EXISTS");
    run(&["verify", file]).ok();
    assert!(!place.path("exported.mangrove.log").exists());
}

//! Reads a database of the JavaScript package value by value, and writes it as the package would.

#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::fs;
use std::sync::Arc;

use crate::common::{Place, fixture, run, run_with};
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, Direction, KeyRange, Options};
use serde_json::Value;

/// Compares two values; numbers are equal if their doubles are, however written.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().map(f64::to_bits) == right.as_f64().map(f64::to_bits)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pair = |((left, a), (right, b)): ((&String, &Value), (&String, &Value))| left == right && same(a, b);
            left.len() == right.len() && left.iter().zip(right).all(pair)
        }
        _ => left == right,
    }
}

fn assert_same_lines(shown: &str, expected: &str) {
    assert_eq!(shown.lines().count(), expected.lines().count());
    for (shown, expected) in shown.lines().zip(expected.lines()) {
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        assert!(
            shown == expected || same(&parse(shown), &parse(expected)),
            "{shown}\n{expected}"
        );
    }
}

/// Name, codecs and records of every collection, as the engine has them.
type Contents = Vec<(String, String, String, Vec<(Vec<u8>, Vec<u8>)>)>;

fn contents(directory: &std::path::Path) -> Contents {
    let database = Database::open(Arc::new(FsStorage::new(directory)), Options::default()).unwrap();
    let snapshot = database.snapshot();
    let collections = snapshot.collections().into_iter().map(|info| {
        let mut cursor = snapshot
            .collection(&info.name)
            .unwrap()
            .cursor(KeyRange::all(), Direction::Forward);
        let mut records = Vec::new();
        while cursor.advance().unwrap() {
            records.push((cursor.key().to_vec(), cursor.value().unwrap()));
        }
        (info.name, info.key_codec, info.value_codec, records)
    });
    collections.collect()
}

/// Copies the fixture into a directory, as Node has it.
fn unpacked(place: &Place) -> String {
    fs::create_dir(place.path("js")).unwrap();
    fs::copy(fixture("javascript.mangrove"), place.path("js/data")).unwrap();
    place.db("js")
}

#[test]
fn every_kind_of_key_and_value_is_shown() {
    let place = Place::new();
    let db = &unpacked(&place);
    let expected = fs::read_to_string(fixture("javascript.jsonl")).unwrap();
    assert_same_lines(&run(&["dump", db]).ok(), &expected);
    // The printed form of a key finds it.
    for line in expected
        .lines()
        .filter(|line| line.starts_with("{\"collection\":\"\","))
    {
        let line: Value = serde_json::from_str(line).unwrap();
        let found = run(&["get", db, &line["key"].to_string()]).ok();
        assert_eq!(found.trim_end(), line["value"].to_string(), "{line}");
    }
}

#[test]
fn a_single_exported_file_is_a_database() {
    let place = Place::new();
    let file = place.path("from the browser.mangrove");
    fs::copy(fixture("javascript.mangrove"), &file).unwrap();
    let file = file.to_str().unwrap();
    let expected = fs::read_to_string(fixture("javascript.jsonl")).unwrap();
    assert_same_lines(&run(&["dump", file]).ok(), &expected);
    run(&["verify", file]).ok();
    run(&["set", file, "\"new\"", "1"]).ok();
    assert_eq!(run(&["get", file, "\"new\""]).ok(), "1\n");
    assert_eq!(
        fs::read_dir(place.path("")).unwrap().count(),
        1,
        "nothing lies beside it"
    );
    let db = unpacked(&place);
    assert_eq!(run(&["count", &format!("{db}/data")]).ok(), run(&["count", &db]).ok());
}

#[test]
fn every_verb_takes_an_exported_file() {
    let place = Place::new();
    let file = &place.db("exported.mangrove");
    fs::copy(fixture("javascript.mangrove"), file).unwrap();
    let whole = fs::read(file).unwrap();
    let count: u64 = run(&["count", file]).ok().trim_end().parse().unwrap();
    assert!(count > 0);
    let lines = |verb: &str| run(&[verb, file]).ok().lines().count() as u64;
    assert_eq!(lines("scan"), count);
    assert!(lines("dump") > count);
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
    run(&["set", file, "\"new\"", "1", "--collection", "another"]).ok();
    run(&["compact", file]).ok();
    let acks = run_with("{\"key\":\"new\",\"value\":2}", &["load", file, "--ack"]).ok();
    assert_eq!(acks, "\"new\"\n");
    assert_eq!(run(&["get", file, "\"new\"", "--collection", "another"]).ok(), "1\n");
    assert_eq!(run(&["del", file, "\"new\""]).ok(), "true\n");
    assert_eq!(run(&["count", file]).ok(), format!("{count}\n"));
    run(&["restore", backup, file]).fails(1, "KV_EXISTS");
    run(&["bench", file]).fails(1, "KV_EXISTS");
    run(&["verify", file]).ok();
    assert!(!place.path("exported.mangrove.log").exists());
}

#[test]
fn dumps_are_loaded_byte_for_byte() {
    let place = Place::new();
    let db = &unpacked(&place);
    let copy = &place.db("copy");
    run_with(run(&["dump", db]).ok(), &["load", copy, "--batch", "7"]).ok();
    let (original, loaded) = (contents(&place.path("js")), contents(&place.path("copy")));
    assert!(original.iter().map(|(.., records)| records.len()).sum::<usize>() > 100);
    for (original, loaded) in original.iter().zip(&loaded) {
        assert_eq!(original, loaded);
    }
    assert_eq!(original.len(), loaded.len());
    assert_eq!(run(&["dump", db]).ok(), run(&["dump", copy]).ok());
    // Also a single collection, under another name.
    let lines = run(&["dump", db, "--collection", "json"]).ok();
    run_with(lines, &["load", copy, "--collection", "json 2"]).ok();
    let copied = contents(&place.path("copy"))
        .into_iter()
        .find(|(name, ..)| name == "json 2")
        .unwrap();
    let json = original.iter().find(|(name, ..)| name == "json").unwrap();
    assert_eq!((&copied.1, &copied.2, &copied.3), (&json.1, &json.2, &json.3));
}

#[test]
fn new_collections_have_the_codecs_of_the_package() {
    let place = Place::new();
    let db = &place.db("db");
    run(&["set", db, "\"a\"", "{\"b\":[1.5,-0.0]}"]).ok();
    run(&["set", db, "7", "\"x\"", "--collection", "c"]).ok();
    let defaults = |name: &str| (name.to_owned(), "any".to_owned(), "structured".to_owned());
    let found = contents(&place.path("db"));
    let [(name, key, value, first), (name2, key2, value2, second)] = &found[..] else {
        panic!("two collections")
    };
    assert_eq!((name.clone(), key.clone(), value.clone()), defaults(""));
    assert_eq!((name2.clone(), key2.clone(), value2.clone()), defaults("c"));
    assert_eq!(
        first[0],
        (b"0a".to_vec(), b"\xa1\x61b\x82\xfa\x3f\xc0\0\0\xfa\x80\0\0\0".to_vec())
    );
    assert_eq!(second[0], (b"\x10\xc0\x1c\0\0\0\0\0\0".to_vec(), b"\x61x".to_vec()));
}

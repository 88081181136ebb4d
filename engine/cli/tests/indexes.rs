//! Collections with indexes, which the tool reads and keeps right but cannot write to: it does not
//! know their functions.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, IndexBy, Options};
use serde_json::{Value, json};

use crate::common::{Place, numbered, run, run_with};

/// A database with 200 records and an index of them.
fn indexed(place: &Place) -> String {
    let db = place.db("db");
    run_with(numbered(200), &["load", &db, "--collection", "a"]).ok();
    declare(&db);
    db
}

/// Declares the index of the collection, and builds it.
fn declare(db: &str) {
    let database = Database::open(Arc::new(FsStorage::new(db)), Options::default()).unwrap();
    let by_key = IndexBy::new("by key", |key, _| Some([key, &[0]].concat()));
    let records = database.indexed_collection("a", [by_key]).unwrap();
    records.build(&mut |_, _| ControlFlow::Continue(())).unwrap();
    database.close().unwrap();
}

fn list(db: &str) -> Value {
    serde_json::from_str(run(&["list", db]).ok().lines().next().unwrap()).unwrap()
}

/// What `list` says of the index with this many entries.
fn listed(count: u64) -> Value {
    json!([{ "name": "by key", "version": 1, "unique": false, "complete": true, "count": count }])
}

#[test]
fn writes_are_refused_and_change_nothing() {
    let place = Place::new();
    let db = &indexed(&place);
    assert_eq!(list(db)["indexes"], listed(200));
    let before = run(&["dump", db]).ok();
    let refused = run(&["set", db, "\"00007\"", "\"1\"", "--collection", "a"]).fails(1, "KV_INDEX_MISMATCH");
    assert!(refused.err.contains("by key"), "{}", refused.err);
    // All lines or none up to the one that fails.
    run_with(&before, &["load", db, "--collection", "a"]).fails(1, "KV_INDEX_MISMATCH");
    run_with(
        "{\"key\":\"1000\",\"value\":\"1\"}\n",
        &["load", db, "--collection", "a"],
    )
    .fails(1, "KV_INDEX_MISMATCH");
    assert_eq!(run(&["dump", db]).ok(), before);
    run(&["verify", db]).ok();
    // Other collections can be written to.
    run(&["set", db, "\"00007\"", "\"1\"", "--collection", "other"]).ok();
    assert_eq!(run(&["get", db, "\"00007\"", "--collection", "other"]).ok(), "\"1\"\n");
}

#[test]
fn removing_compacting_and_renaming_leave_the_index_right() {
    let place = Place::new();
    let db = &indexed(&place);
    let first: Value =
        serde_json::from_str(run(&["scan", db, "--collection", "a", "--limit", "1"]).ok().trim()).unwrap();
    assert_eq!(
        run(&["del", db, &first["key"].to_string(), "--collection", "a"]).ok(),
        "true\n"
    );
    assert_eq!(list(db)["indexes"], listed(199));
    run(&["verify", db]).ok();
    run(&["compact", db]).ok();
    assert_eq!(list(db)["indexes"], listed(199));
    run(&["verify", db]).ok();
    run(&["rename", db, "a", "b"]).ok();
    assert_eq!((&list(db)["name"], &list(db)["indexes"]), (&json!("b"), &listed(199)));
    run(&["verify", db]).ok();
}

#[test]
fn copies_have_the_records_without_the_index() {
    let place = Place::new();
    let db = &indexed(&place);
    let (file, restored, salvaged) = (&place.db("file"), &place.db("restored"), &place.db("salvaged"));
    run(&["backup", db, file]).ok();
    run(&["restore", file, restored]).ok();
    // It says on the standard error what it is about.
    assert_eq!(run(&["recover", db, salvaged]).code, 0);
    for copy in [restored, salvaged] {
        assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
        assert_eq!(list(copy)["indexes"], Value::Null);
        run(&["verify", copy]).ok();
        // It takes writes until it is declared again.
        run(&["set", copy, "\"100000\"", "\"1\"", "--collection", "a"]).ok();
        declare(copy);
        assert_eq!(list(copy)["indexes"], listed(201));
        run(&["set", copy, "\"100000\"", "\"2\"", "--collection", "a"]).fails(1, "KV_INDEX_MISMATCH");
        run(&["verify", copy]).ok();
    }
}

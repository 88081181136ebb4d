//! `backup` and `restore`, through files and through pipes.
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use crate::common;
use std::fs;
use std::io::Write;

use crate::common::{Place, Run, command, key, numbered, run};
use serde_json::Value;

/// Runs the tool with bytes as input and output.
fn piped(input: &[u8], arguments: &[&str]) -> (i32, Vec<u8>, String) {
    let mut child = common::spawn(&mut command(arguments));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The tool may fail before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), output.stdout, err)
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn version_of(db: &str) -> Value {
    parse(&run(&["stat", db]).ok())["version"].clone()
}

#[test]
fn a_backup_to_a_file_is_restored() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(3000));
    run(&["set", db, "\"large\"", &format!("\"{}\"", "x".repeat(90_000))]).ok();
    run(&["set", db, "\"1\"", "\"2\"", "--collection", "other"]).ok();
    let (file, copy) = (&place.db("file"), &place.db("deep/er/copy"));
    let saved = parse(&run(&["backup", db, file]).ok());
    assert_eq!(saved["entries"], 3002);
    assert_eq!(saved["collections"], 2);
    assert_eq!(saved["version"], version_of(db));
    assert_eq!(saved["bytes"], fs::metadata(file).unwrap().len());
    assert_eq!(saved["databaseId"].as_str().unwrap().len(), 32);
    let mut restored = parse(&run(&["restore", file, copy]).ok());
    assert!(restored["pagesChecked"].as_u64().unwrap() > 0);
    restored.as_object_mut().unwrap().remove("pagesChecked");
    assert_eq!(restored, saved);
    assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
    assert_eq!(version_of(copy), version_of(db));
    run(&["verify", copy]).ok();
    let mut left: Vec<_> = fs::read_dir(copy)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.retain(|name| name != "data" && name != "log");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn pipes_work_too() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(500));
    let (code, stream, report) = piped(b"", &["backup", db, "-"]);
    assert_eq!((code, parse(&report)["bytes"].as_u64()), (0, Some(stream.len() as u64)));
    let copy = &place.db("copy");
    let (code, out, err) = piped(&stream, &["restore", "-", copy]);
    assert_eq!((code, &*err), (0, ""));
    assert_eq!(parse(&String::from_utf8(out).unwrap())["entries"], 500);
    assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
}

#[test]
fn progress_is_shown_if_asked_for() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let (file, copy) = (&place.db("file"), &place.db("copy"));
    for arguments in [["backup", db, file], ["restore", file, copy]] {
        let Run { code, out, err } = run(&[&arguments[..], &["--progress"]].concat());
        assert_eq!(code, 0);
        assert_eq!(parse(&out)["entries"], 10);
        let last = err.lines().last().unwrap();
        assert!(last.starts_with("100 %, 10 of 10 records, "), "{err}");
    }
}

#[test]
fn commits_since_a_backup_are_added_to_what_was_restored_from_it() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(100));
    let (full, copy) = (&place.db("full"), &place.db("copy"));
    run(&["set", db, &key(1), "\"changed\""]).ok();
    run(&["backup", db, full, "--since", "1"]).fails(1, "KV_TRUNCATED_FEED");
    assert!(!place.path("full").exists());
    // Once a program has begun a feed, it includes the tool's commits.
    let storage = std::sync::Arc::new(mangrove_engine::storage::FsStorage::new(db));
    let options = mangrove_engine::Options {
        feed_commits: 100,
        ..mangrove_engine::Options::default()
    };
    drop(mangrove_engine::Database::open(storage, options).unwrap());
    let base = parse(&run(&["backup", db, full]).ok())["version"].to_string();
    run(&["restore", full, copy]).ok();
    let mut version = base.clone();
    for round in 0..3 {
        run(&["set", db, &key(round), "\"new\""]).ok();
        run(&["del", db, &key(round + 10)]).ok();
        let file = &place.db(&format!("later{round}"));
        let saved = parse(&run(&["backup", db, file, "--since", &version]).ok());
        assert_eq!((&saved["base"].to_string(), &saved["commits"]), (&version, &2.into()));
        let restored = run(&["restore", file, copy, "--incremental", "--progress"]);
        assert!(
            restored
                .err
                .lines()
                .last()
                .unwrap()
                .starts_with("100 %, 2 of 2 commits, ")
        );
        let restored = parse(&restored.out);
        for field in ["databaseId", "version", "commits", "changes", "bytes"] {
            assert_eq!(restored[field], saved[field], "{field}");
        }
        version = saved["version"].to_string();
    }
    assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
    assert_eq!(version_of(copy), version_of(db));
    run(&["verify", copy]).ok();
    // Incremental backups apply only in order, and only if they are whole.
    let (first, last) = (&place.db("later0"), &place.db("later2"));
    run(&["restore", first, copy, "--incremental"]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["restore", full, copy, "--incremental"]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["restore", first, &place.db("new")]).fails(1, "KV_INVALID_ARGUMENT");
    let other = &place.db("other");
    run(&["restore", full, other]).ok();
    run(&["restore", last, other, "--incremental"]).fails(1, "KV_INVALID_ARGUMENT");
    let whole = fs::read(first).unwrap();
    fs::write(first, &whole[..whole.len() - 1]).unwrap();
    run(&["restore", first, other, "--incremental"]).fails(2, "KV_CORRUPT");
    assert_eq!(version_of(other).to_string(), base);
    let pipe = piped(&whole, &["restore", "-", other, "--incremental"]);
    assert_eq!((pipe.0, &*pipe.2), (0, ""));
}

#[test]
fn nothing_is_replaced() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let file = &place.db("file");
    run(&["backup", db, file]).ok();
    let before = fs::read(file).unwrap();
    run(&["backup", db, file]).fails(1, "KV_EXISTS");
    assert_eq!(fs::read(file).unwrap(), before);
    run(&["set", db, "\"new\"", "\"1\""]).ok();
    run(&["restore", file, db]).fails(1, "KV_EXISTS");
    assert_eq!(run(&["get", db, "\"new\""]).ok(), "\"1\"\n");
}

#[test]
fn damaged_foreign_and_missing_backups_are_reported_and_leave_nothing() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(1000));
    let (file, copy) = (&place.db("file"), &place.db("copy"));
    run(&["backup", db, file]).ok();
    let whole = fs::read(file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], b"something else", b""] {
        fs::write(file, damaged).unwrap();
        run(&["restore", file, copy]).fails(2, "KV_CORRUPT");
        assert!(!place.path("copy").exists());
    }
    fs::create_dir(copy).unwrap();
    run(&["restore", file, copy]).fails(2, "KV_CORRUPT");
    assert_eq!(fs::read_dir(copy).unwrap().count(), 0, "the directory was there before");
    run(&["restore", &place.db("no file"), copy]).fails(1, "KV_IO");
    run(&["backup", &place.db("no database"), file]).fails(1, "KV_NOT_FOUND");
    run(&["backup", db, &place.db("no directory/file")]).fails(1, "KV_IO");
}

#[test]
fn restore_replaces_a_database_on_request() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(300));
    let file = &place.db("file");
    let saved = parse(&run(&["backup", db, file]).ok());
    run(&["set", db, "\"later\"", "\"1\""]).ok();
    let failed = run(&["restore", file, db]).fails(1, "KV_EXISTS");
    assert!(failed.err.contains("--overwrite"), "{}", failed.err);
    run(&["get", db, "\"later\""]).ok();
    // Files that an interrupted restore left do not matter.
    for name in ["data.restoring", "log.restoring", "backup.restoring"] {
        fs::write(place.path("db").join(name), "half of it").unwrap();
    }
    fs::write(place.path("db").join("notes"), "mine").unwrap();
    let restored = parse(&run(&["restore", file, db, "--overwrite"]).ok());
    assert_eq!(restored["version"], saved["version"]);
    run(&["get", db, "\"later\""]).fails(1, "KV_NOT_FOUND");
    run(&["verify", db]).ok();
    let mut left: Vec<_> = fs::read_dir(db)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["data", "notes"]);
    // A damaged or truncated backup changes nothing.
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
    let before = fs::read(place.path("db").join("data")).unwrap();
    run(&["restore", file, db, "--overwrite"]).fails(2, "KV_CORRUPT");
    assert_eq!(fs::read(place.path("db").join("data")).unwrap(), before);
    assert!(!place.path("db").join("data.restoring").exists());
    let fresh = &place.db("fresh");
    run(&["restore", file, fresh, "--overwrite"]).fails(2, "KV_CORRUPT");
    assert!(!place.path("fresh").exists());
    fs::write(file, &bytes).unwrap();
    run(&["restore", file, fresh, "--overwrite"]).ok();
    assert_eq!(run(&["dump", fresh]).ok(), run(&["dump", db]).ok());
    run(&["restore", file, file, "--overwrite"]).fails(1, "KV_EXISTS");
}

#[test]
fn files_of_another_program_stay() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let (file, other) = (&place.db("file"), &place.db("other"));
    run(&["backup", db, file]).ok();
    for name in ["data", "log"] {
        fs::create_dir(other).unwrap();
        let path = place.path("other").join(name);
        fs::write(&path, "columns,of,another,program\n".repeat(1000)).unwrap();
        let before = common::files(&place.path("other"));
        let failed = run(&["restore", file, other, "--overwrite"]).fails(2, "KV_CORRUPT");
        assert!(failed.err.contains("--force"), "{}", failed.err);
        assert_eq!(common::files(&place.path("other")), before, "not even a lock is left");
        run(&["restore", file, other, "--overwrite", "--force"]).ok();
        assert_eq!(run(&["count", other]).ok(), "10\n");
        fs::remove_dir_all(other).unwrap();
    }
}

#[test]
fn a_backup_is_no_database_and_says_so() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let (file, out) = (&place.db("file"), &place.db("out"));
    run(&["backup", db, file]).ok();
    let before = fs::read(file).unwrap();
    let mut verbs = common::reading(file).to_vec();
    verbs.extend([
        vec!["set", file, "\"1\"", "\"2\""],
        vec!["del", file, "\"1\""],
        vec!["compact", file],
        vec!["list", file],
    ]);
    verbs.extend([vec!["load", file], vec!["recover", file, out]]);
    for verb in verbs {
        let failed = run(&verb).fails(1, "KV_INVALID_ARGUMENT");
        assert!(failed.err.contains("restore "), "{}", failed.err);
    }
    assert_eq!(fs::read(file).unwrap(), before);
    assert!(!place.path("out").exists());
}

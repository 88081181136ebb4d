//! A failure has a code and a stable exit code, and changes nothing.

use crate::common;
use std::fs;
use std::io::{BufRead, BufReader, Read};

use crate::common::{Place, command, exported, numbered, run, run_with};
use serde_json::Value;

#[test]
fn usage() {
    let place = Place::new();
    let db = &place.db("db");
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["get"],
        &["get", db],
        &["get", db, "\"1\"", "2"],
        &["scan", db, "--limit", "-1"],
        &["set", db, "\"1\"", "\"1\"", "--durability", "maybe"],
        &["load", db, "--batch", "0"],
        &["bench", db, "--count", "0"],
        &["get", db, "\"1\"", "--raw", "ebcdic"],
    ] {
        let failed = run(arguments);
        assert_eq!((failed.code, &*failed.out), (1, ""), "{arguments:?}");
        assert!(!failed.err.is_empty());
    }
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["verify", "--help"],
        &["help", "load"],
    ] {
        assert!(!run(arguments).ok().is_empty());
    }
    assert!(run(&["verify", "--help"]).ok().contains("2 damage was found"));
    run(&["load", db, "--ack", "--durability", "none"]).fails(1, "KV_INVALID_ARGUMENT");
    assert!(!place.path("db").exists());
}

/// The npm tool can: its tests are in bindings-js/test-sync.
#[test]
fn archives_need_the_other_tool() {
    let place = Place::new();
    let db = &place.db("db");
    for arguments in [
        &["archive", "notes", "--bucket", "b"][..],
        &["archive"],
        &["restore", db, "--at", "2026-11-25T12:00:00Z"],
        &["restore", db, "--at=2026-11-25T12:00:00Z", "--bucket", "b"],
        &["restore", "--at-position", "5", db],
    ] {
        let failed = run(arguments).fails(1, "KV_UNSUPPORTED");
        assert!(failed.err.contains("npx @mangrove-kv/cli"), "{}", failed.err);
    }
    assert!(!place.path("db").exists());
    assert!(run(&["--help"]).ok().contains("archive"));
    assert!(run(&["restore", "--help"]).ok().contains("--at"));
    run(&["restore", "--", "--at", db]).fails(1, "KV_IO");
}

#[test]
fn missing_databases_are_not_created() {
    let place = Place::new();
    let db = &place.db("db");
    for arguments in [
        &["get", db, "\"1\""][..],
        &["del", db, "\"1\""],
        &["scan", db],
        &["count", db],
        &["stat", db],
        &["verify", db],
        &["dump", db],
        &["compact", db],
        &["backup", db, &place.db("file")],
    ] {
        run(arguments).fails(1, "KV_NOT_FOUND");
    }
    run(&["set", db, "text", "\"1\""]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["set", db, "\"1\"", "text"]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["set", db, "{}", "\"1\""]).fails(1, "KV_INVALID_KEY");
    run(&["set", db, "\"1\"", "{\"$undefined\":true}"]).fails(1, "KV_INVALID_VALUE");
    assert!(!place.path("db").exists());
    place.loaded("db", "");
    assert_eq!(run(&["scan", db]).ok(), "");
    assert_eq!(run(&["count", db]).ok(), "0\n");
    run(&["scan", db, "--collection", "c"]).fails(1, "KV_NOT_FOUND");
    run(&["get", db, "\"1\"", "--collection", "c"]).fails(1, "KV_NOT_FOUND");
    assert_eq!(run(&["del", db, "\"1\"", "--collection", "c"]).ok(), "false\n");
    assert!(
        run(&["stat", db]).ok().contains("\"collections\":[]"),
        "asking creates no collection"
    );
}

/// A file whose creation was interrupted, and paths that are not database files at all.
#[test]
fn odd_paths() {
    let place = Place::new();
    fs::write(place.path("empty"), "").unwrap();
    fs::create_dir_all(place.path("directory/data")).unwrap();
    let empty = &place.db("empty");
    for verb in ["count", "verify", "dump", "compact"] {
        let failed = run(&[verb, empty]).fails(1, "KV_NOT_FOUND");
        assert!(failed.err.contains(empty), "{}", failed.err);
        run(&[verb, &place.db("directory")]).fails(1, "KV_IO");
        run(&[verb, &place.db("empty/deeper")]).fails(1, "KV_IO");
    }
    assert_eq!(fs::read(empty).unwrap(), b"");
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let path = place.path("").join(std::ffi::OsStr::from_bytes(b"\xff.mangrove"));
    fs::rename(exported(&place, "exported.mangrove"), &path).unwrap();
    let output = common::output(command(&["count"]).arg(&path));
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"mangrove: KV_INVALID_ARGUMENT: "));
}

#[test]
fn keys_and_values_that_cannot_be_stored() {
    let place = Place::new();
    let db = &place.db("db");
    let long = &format!("\"{}\"", "x".repeat(5000));
    for (key, code) in [
        ("{}", "KV_INVALID_KEY"),
        ("1", "KV_INVALID_KEY"),
        ("null", "KV_INVALID_KEY"),
        ("[\"a\"]", "KV_INVALID_KEY"),
        ("{\"$date\":0}", "KV_INVALID_KEY"),
        ("{\"$bytes\":\"?\"}", "KV_INVALID_KEY"),
        ("{\"$bytes\":\"\",\"b\":1}", "KV_INVALID_KEY"),
        ("[", "KV_INVALID_ARGUMENT"),
        ("\"\\ud800\"", "KV_INVALID_ARGUMENT"),
        (long, "KV_KEY_TOO_LARGE"),
        (&"[".repeat(100_000), "KV_INVALID_ARGUMENT"),
    ] {
        run(&["set", db, key, "\"1\""]).fails(1, code);
    }
    for (value, code) in [
        ("{}", "KV_INVALID_VALUE"),
        ("1", "KV_INVALID_VALUE"),
        ("{\"$bytes\":1}", "KV_INVALID_VALUE"),
        ("text", "KV_INVALID_ARGUMENT"),
    ] {
        run(&["set", db, "\"1\"", value]).fails(1, code);
    }
    assert_eq!(
        run(&["count", db]).ok(),
        "0\n",
        "only the long key was found out by the database"
    );
    run(&["set", db, "\"1\"", "\"2\"", "--collection", &"n".repeat(256)]).fails(1, "KV_INVALID_ARGUMENT");
}

#[test]
fn hostile_lines_undo_their_batch() {
    let place = Place::new();
    let db = &place.db("db");
    for line in [
        &b"{"[..],
        b"[]",
        b"null",
        b"{}",
        b"{\"key\":\"1\"}",
        b"{\"value\":\"1\"}",
        b"{\"key\":\"1\",\"value\":\"1\",\"more\":1}",
        b"{\"key\":\"1\",\"key\":\"2\",\"value\":\"1\"}",
        b"{\"key\":\"1\",\"value\":\"1\"} {}",
        b"{\"key\":\"1\",\"value\":\"1\",\"keyCodec\":\"any\"}",
        b"{\"collection\":5,\"key\":\"1\",\"value\":\"1\"}",
        b"{\"key\":\"1\",\"value\":\"\xff\"}",
        b"{\"key\":\"1\",\"value\":\"\0\"}",
        &[&b"{\"key\":\"1\",\"value\":"[..], &b"[".repeat(1 << 20)].concat(),
        &[
            &b"{\"key\":\"1\",\"value\":"[..],
            &b"[".repeat(5000),
            &b"]".repeat(5000),
            b"}",
        ]
        .concat(),
    ] {
        let input = [
            b"{\"key\":\"1\",\"value\":\"1\"}\n{\"key\":\"2\",\"value\":\"2\"}\n{\"key\":\"3\",\"value\":\"3\"}\n",
            line,
        ]
        .concat();
        let failed = run_with(input, &["load", db, "--batch", "2", "--ack"]).fails(1, "KV_INVALID_ARGUMENT");
        assert!(failed.err.contains(": line 4: "), "{}", failed.err);
        assert_eq!(failed.out, "\"1\"\n\"2\"\n", "only what is durable is echoed");
        assert_eq!(
            run(&["scan", db, "--keys-only"]).ok(),
            "{\"key\":\"1\"}\n{\"key\":\"2\"}\n"
        );
    }
    run_with("{\"keyCodec\":\"a\",\"valueCodec\":\"b\"}", &["load", db]).ok();
    let other = "{\"keyCodec\":\"utf8\",\"valueCodec\":\"json\"}";
    run_with(other, &["load", db]).fails(1, "KV_CODEC_MISMATCH");
    let large = format!("{{\"key\":\"{}\",\"value\":\"1\"}}", "k".repeat(5000));
    run_with(large, &["load", db]).fails(1, "KV_KEY_TOO_LARGE");
    run_with("{\"key\":{},\"value\":\"1\"}", &["load", db]).fails(1, "KV_INVALID_KEY");
    run_with("{\"key\":\"1\",\"value\":{\"$undefined\":true}}", &["load", db]).fails(1, "KV_INVALID_VALUE");
    assert_eq!(run(&["count", db]).ok(), "2\n");
}

#[test]
fn damage() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(20_000));
    let data = place.path("db/data");
    let whole = fs::read(&data).unwrap();
    let report = |db: &str| {
        let failed = run(&["verify", db]).fails(2, "KV_CORRUPT");
        let report: Value = serde_json::from_str(&failed.out).unwrap();
        assert_eq!(report["ok"], false);
        assert_eq!(report["problems"][0]["code"], "KV_CORRUPT");
        report
    };

    // With a damaged block in the middle, the rest can be read.
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0x5a);
    fs::write(&data, &bytes).unwrap();
    let found = report(db);
    assert!(found["pagesChecked"].as_u64().unwrap() > 0 && found["problems"][0]["page"].is_u64());
    run(&["scan", db]).fails(2, "KV_CORRUPT");
    run(&["dump", db]).fails(2, "KV_CORRUPT");

    fs::write(&data, &whole[..whole.len() / 2]).unwrap();
    report(db);
    fs::write(&data, [&[0x77; 16384][..], &whole[16384..]].concat()).unwrap();
    report(db);
    fs::write(&data, "something else").unwrap();
    report(db);
    run(&["set", db, "\"1\"", "\"1\""]).fails(2, "KV_CORRUPT");
    assert_eq!(fs::read(&data).unwrap(), b"something else", "it is left as it is");

    // Nothing panics, whatever the bytes.
    let mut bytes = fs::read(exported(&place, "exported.mangrove")).unwrap();
    for at in (0..bytes.len()).step_by(97) {
        bytes[at] ^= 0x10;
        fs::write(&data, &bytes).unwrap();
        let failed = run(&["verify", db]);
        assert!([0, 2].contains(&failed.code), "{at}: {}", failed.err);
        let dumped = run(&["dump", db]);
        assert!([0, 2].contains(&dumped.code), "{at}: {}", dumped.err);
        assert!(!failed.err.contains("panicked") && !dumped.err.contains("panicked"));
        bytes[at] ^= 0x10;
    }
}

#[cfg(target_os = "linux")]
#[test]
fn one_writes_at_a_time() {
    let place = Place::new();
    let db = &place.db("db");
    let mut holder = common::spawn(&mut command(&["load", db, "--ack", "--batch", "1"]));
    let mut stdin = holder.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"{\"key\":\"1\",\"value\":\"1\"}\n").unwrap();
    let mut acks = BufReader::new(holder.stdout.take().unwrap());
    acks.read_line(&mut String::new()).unwrap();
    let writing: [&[&str]; 4] = [
        &["set", db, "\"1\"", "\"2\""],
        &["del", db, "\"1\""],
        &["compact", db],
        &["recover", db, &place.db("new")],
    ];
    for arguments in writing {
        run(arguments).fails(1, "KV_LOCKED");
    }
    drop(stdin);
    assert!(holder.wait().unwrap().success());
    assert_eq!(run(&["get", db, "\"1\""]).ok(), "\"1\"\n");

    // Lock files of a running process without another lock, of a dead process, of one with the
    // engine's lock, and a truncated one.
    let lock = place.path("db/lock");
    let is_held_by = |pid: u32, directory: &str, system: bool| {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let content = serde_json::json!({
            "pid": pid, "started": "", "host": read("/proc/sys/kernel/hostname"), "boot": read("/proc/sys/kernel/random/boot_id"),
            "namespace": namespace.to_str(), "directory": directory, "system": system,
        });
        fs::write(&lock, content.to_string()).unwrap();
    };
    let own = std::os::unix::fs::MetadataExt::ino(&fs::metadata(place.path("db")).unwrap()).to_string();
    is_held_by(std::process::id(), &own, false);
    for arguments in writing {
        run(arguments).fails(1, "KV_LOCKED");
    }
    assert_eq!(run(&["get", db, "\"1\""]).ok(), "\"1\"\n");
    assert!(lock.exists());
    // Beside an operating-system lock it only informs.
    is_held_by(std::process::id(), &own, true);
    assert_eq!(run(&["del", db, "\"3\""]).ok(), "false\n");
    for (pid, directory) in [(holder.id(), &*own), (std::process::id(), "1")] {
        is_held_by(pid, directory, false);
        assert_eq!(run(&["get", db, "\"1\""]).ok(), "\"1\"\n");
        assert!(lock.exists(), "readers leave it");
        assert_eq!(run(&["del", db, "\"2\""]).ok(), "false\n");
        assert!(!lock.exists());
    }
    fs::write(&lock, "").unwrap();
    run(&["set", db, "\"1\"", "\"2\""]).fails(1, "KV_LOCKED");
}

#[test]
fn readers_of_the_output_may_stop_early() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(50_000));
    for arguments in [&["scan", db][..], &["dump", db]] {
        let mut child = common::spawn(&mut command(arguments));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("\"value 0\""));
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*error), (Some(0), ""));
    }
    // Loading succeeds whether or not anyone reads the keys.
    let copy = &place.db("copy");
    let mut child = common::spawn(&mut command(&["load", copy, "--ack", "--batch", "10"]));
    drop(child.stdout.take());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), numbered(100).as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(run(&["count", copy]).ok(), "100\n");
}

/// A full disk is not mistaken for a reader that left.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = common::output(command(&["scan", db]).stdout(full));
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"mangrove: KV_IO: "));
}

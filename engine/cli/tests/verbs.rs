//! Every verb does what it says.

use std::sync::Arc;
use std::time::Duration;

use crate::common;
use crate::common::{Place, key, numbered, run, run_with};
use mangrove_engine::storage::FsStorage;
use mangrove_engine::{Database, Durability, Error, IndexDefinition, IndexKeys, Options};
use serde_json::{Value, json};

#[test]
fn set_get_and_del() {
    let place = Place::new();
    let db = &place.db("deep/er");
    assert_eq!(run(&["set", db, "\"a\"", "\"[1]\""]).ok(), "");
    assert_eq!(run(&["get", db, "\"a\""]).ok(), "\"[1]\"\n");
    run_with(" {\"$bytes\": \"/w==\"}\n", &["set", db, "\"-5\""]).ok();
    assert_eq!(run(&["get", db, "\"-5\""]).ok(), "{\"$bytes\":\"/w==\"}\n");
    run(&["set", db, "\"-5\"", "\"-7.5\"", "--durability", "none"]).ok();
    assert_eq!(run(&["get", db, "\"-5\""]).ok(), "\"-7.5\"\n");
    run(&[
        "set",
        db,
        "\"a\"",
        "\"1\"",
        "--collection",
        "other",
        "--durability",
        "relaxed",
    ])
    .ok();
    assert_eq!(run(&["get", db, "\"a\"", "--collection", "other"]).ok(), "\"1\"\n");
    assert_eq!(run(&["del", db, "\"a\""]).ok(), "true\n");
    assert_eq!(run(&["del", db, "\"a\""]).ok(), "false\n");
    run(&["get", db, "\"a\""]).fails(1, "KV_NOT_FOUND");
    assert_eq!(run(&["get", db, "\"a\"", "--collection", "other"]).ok(), "\"1\"\n");
    let mut left: Vec<_> = std::fs::read_dir(db)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["data", "log"], "the lock is given back");
}

#[test]
fn byte_order_marks_are_read() {
    let place = Place::new();
    let db = &place.db("db");
    run_with("\u{feff}\"x\"\n", &["set", db, "\"1\""]).ok();
    run_with(
        "\u{feff}{\"key\":\"2\",\"value\":\"y\"}\r\n{\"key\":\"3\",\"value\":\"\"}\n",
        &["load", db],
    )
    .ok();
    assert_eq!(
        run(&["scan", db]).ok(),
        "{\"key\":\"1\",\"value\":\"x\"}\n{\"key\":\"2\",\"value\":\"y\"}\n{\"key\":\"3\",\"value\":\"\"}\n"
    );
    run_with(
        "{\"key\":\"4\",\"value\":\"4\"}\n\u{feff}{\"key\":\"5\",\"value\":\"5\"}\n",
        &["load", db],
    )
    .fails(1, "KV_INVALID_ARGUMENT");
}

#[test]
fn scan_and_count() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let keys = |options: &[&str]| {
        let arguments = [&["scan", db, "--keys-only"], options].concat();
        let lines = run(&arguments).ok();
        let keys = lines.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["key"].as_str().unwrap().parse().unwrap()
        });
        let keys: Vec<u32> = keys.collect();
        if !options.iter().any(|option| ["--reverse", "--limit"].contains(option)) {
            let arguments = [&["count", db], options].concat();
            assert_eq!(run(&arguments).ok(), format!("{}\n", keys.len()));
        }
        keys
    };
    let [first, second, third, fifth, seventh] = [0, 2, 3, 5, 7].map(key);
    assert_eq!(keys(&[]).len(), 10);
    assert_eq!(keys(&["--start", &seventh]), [7, 8, 9]);
    assert_eq!(keys(&["--end", &second]), [0, 1]);
    assert_eq!(keys(&["--start", "\"\"", "--end", "\"000001\""]), [0]);
    assert_eq!(keys(&["--start", &fifth, "--end", &second]), [0; 0]);
    assert_eq!(keys(&["--start", "\"text\""]), [0; 0]);
    assert_eq!(keys(&["--start", &first]).len(), 10);
    assert_eq!(keys(&["--reverse", "--limit", "2"]), [9, 8]);
    assert_eq!(keys(&["--reverse", "--start", &third, "--end", &fifth]), [4, 3]);
    assert_eq!(keys(&["--limit", "0"]), [0; 0]);
    assert_eq!(
        run(&["scan", db, "--limit", "1"]).ok(),
        "{\"key\":\"00000\",\"value\":\"value 0\"}\n"
    );
    assert_eq!(
        run(&["scan", db, "--limit", "1", "--keys-only"]).ok(),
        "{\"key\":\"00000\"}\n"
    );
}

#[test]
fn prefixes() {
    let place = Place::new();
    let keys = r#""a" "ab" "abc" "b" {"$bytes":"/w=="} {"$bytes":"//8="}"#;
    let line = |key| format!("{{\"key\":{key},\"value\":\"\"}}\n");
    let lines: String = keys.split(' ').map(line).collect();
    let db = &place.loaded("db", &lines);
    let count = |options: &[&str]| run(&[&["count", db], options].concat()).ok();
    assert_eq!(count(&["--prefix", "\"ab\""]), "2\n");
    assert_eq!(count(&["--prefix", "\"\""]), "6\n");
    assert_eq!(count(&["--prefix", "{\"$bytes\":\"/w==\"}"]), "2\n");
    assert_eq!(count(&["--prefix", "\"ab\"", "--start", "\"abb\""]), "1\n");
    assert_eq!(
        count(&["--prefix", "\"ab\"", "--start", "\"a\"", "--end", "\"abb\""]),
        "1\n"
    );
    run(&["count", db, "--prefix", "5"]).fails(1, "KV_INVALID_KEY");
}

#[test]
fn stat_names_collections_and_codecs() {
    let place = Place::new();
    let lines = r#"{"key":"1","value":"1"}
{"collection":"raw","keyCodec":"bytes","valueCodec":"bytes"}
{"collection":"own","keyCodec":"mine","valueCodec":"json"}"#;
    let db = &place.loaded("db", lines);
    let stat: Value = serde_json::from_str(&run(&["stat", db]).ok()).unwrap();
    assert_eq!(stat["entries"], 1);
    assert_eq!(stat["version"], stat["durableVersion"]);
    assert!(stat["fileSize"].as_u64().unwrap() > 0);
    assert_eq!(
        stat["collections"],
        json!([
            { "name": "", "count": 1, "keyCodec": "", "valueCodec": "" },
            { "name": "own", "count": 0, "keyCodec": "mine", "valueCodec": "json" },
            { "name": "raw", "count": 0, "keyCodec": "bytes", "valueCodec": "bytes" },
        ])
    );
}

/// `stat` shows every figure of the engine, including new ones.
#[test]
fn stat_shows_every_figure() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(10));
    let stat: Value = serde_json::from_str(&run(&["stat", db]).ok()).unwrap();
    let figures = format!("{:#?}", mangrove_engine::Stats::default());
    let count = figures.lines().filter(|line| line.starts_with("    ")).count();
    // The additional field is the length of the longest key.
    assert_eq!(stat.as_object().unwrap().len(), count + 1, "{figures}");
    assert_eq!(stat["recoveredFromOlder"], false);
    assert_eq!(stat["oldestSnapshot"], Value::Null);
    let unclosed: Value = serde_json::from_str(&run(&["stat", &common::killed(&place, "unclosed", 100)]).ok()).unwrap();
    assert!(unclosed["logFileSize"].as_u64().unwrap() > 0);
}

#[test]
fn verify_reports_what_it_checked() {
    let place = Place::new();
    let db = &place.loaded("db", &numbered(5000));
    let report: Value = serde_json::from_str(&run(&["verify", db]).ok()).unwrap();
    assert_eq!((&report["ok"], &report["entries"]), (&json!(true), &json!(5000)));
    assert!(report["pagesChecked"].as_u64().unwrap() > 3);
}

#[test]
fn dump_tells_collections_apart() {
    let place = Place::new();
    let lines = r#"{"key":"1","value":"1"}
{"collection":"a \"b\"","key":"2","value":"2"}
"#;
    let db = &place.loaded("db", lines);
    assert_eq!(
        run(&["dump", db]).ok(),
        "{\"collection\":\"\",\"key\":\"1\",\"value\":\"1\"}\n{\"collection\":\"a \\\"b\\\"\",\"key\":\"2\",\"value\":\"2\"}\n"
    );
    let one = run(&["dump", db, "--collection", "a \"b\""]).ok();
    assert_eq!(one, "{\"key\":\"2\",\"value\":\"2\"}\n");
    assert_eq!(
        run(&["dump", db, "--collection", ""]).ok(),
        "{\"key\":\"1\",\"value\":\"1\"}\n"
    );
    let copy = &place.db("copy");
    run_with(one, &["load", copy, "--collection", "c"]).ok();
    assert_eq!(
        run(&["scan", copy, "--collection", "c"]).ok(),
        "{\"key\":\"2\",\"value\":\"2\"}\n"
    );
    run(&["dump", db, "--collection", "c"]).fails(1, "KV_NOT_FOUND");
}

#[test]
fn load_batches_and_acknowledges() {
    let place = Place::new();
    let db = &place.db("db");
    let lines = "{\"key\":\"a\\u0020b\",\"value\":\"\"}\n\n  \r\n{\"key\":\"\",\"value\":\"\"}\r\n{\"value\":\"0\",\"key\":{\"$bytes\": \"AA==\"}}";
    let acks = run_with(lines, &["load", db, "--ack", "--batch", "2"]).ok();
    assert_eq!(acks, "\"a\\u0020b\"\n\"\"\n{\"$bytes\": \"AA==\"}\n");
    assert_eq!(run(&["count", db]).ok(), "3\n");
    let version = |db: &str| serde_json::from_str::<Value>(&run(&["stat", db]).ok()).unwrap()["version"].clone();
    assert_eq!(version(db), 2, "two batches are two commits");
    let large = &place.db("large");
    run_with(numbered(2500), &["load", large, "--durability", "none"]).ok();
    assert_eq!(
        (run(&["count", large]).ok().as_str(), version(large)),
        ("2500\n", json!(3))
    );
    run_with("", &["load", db]).ok();
    assert_eq!(version(db), 2, "nothing to load is no commit");
    let relaxed = &place.db("relaxed");
    let acks = run_with(lines, &["load", relaxed, "--ack", "--durability", "relaxed"]).ok();
    assert_eq!(acks, "\"a\\u0020b\"\n\"\"\n{\"$bytes\": \"AA==\"}\n");
}

/// A key is echoed before the next line is requested.
#[test]
fn acknowledgements_do_not_wait_for_more_lines() {
    use std::io::{BufRead, BufReader, Write};
    let place = Place::new();
    let mut child = common::spawn(&mut common::command(&[
        "load",
        &place.db("db"),
        "--ack",
        "--batch",
        "1",
    ]));
    let mut stdin = child.stdin.take().unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap());
    for index in 0..3 {
        writeln!(stdin, "{{\"key\":\"{index}\",\"value\":\"0\"}}").unwrap();
        let mut ack = String::new();
        acks.read_line(&mut ack).unwrap();
        assert_eq!(ack, format!("\"{index}\"\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn forms_of_bytes() {
    let place = Place::new();
    let header = "{\"keyCodec\":\"bytes\",\"valueCodec\":\"\"}\n";
    let db = &place.db("db");
    run_with(format!("{header}{{\"key\":\"k\",\"value\":\"é\"}}\n"), &["load", db]).ok();
    run(&["set", db, "{\"$bytes\":\"/w==\"}", "{\"$bytes\":\"\"}"]).ok();
    run(&["set", db, "\"feff\"", "\"00\"", "--raw", "hex"]).ok();
    let scan = |options: &[&str]| run(&[&["scan", db], options].concat()).ok();
    assert_eq!(
        scan(&[]),
        "{\"key\":\"k\",\"value\":\"é\"}\n\
         {\"key\":{\"$bytes\":\"/v8=\"},\"value\":\"\\u0000\"}\n\
         {\"key\":{\"$bytes\":\"/w==\"},\"value\":\"\"}\n"
    );
    assert_eq!(scan(&["--raw", "utf8"]), scan(&[]));
    assert_eq!(
        scan(&["--raw", "hex", "--start", "\"fe\"", "--limit", "1"]),
        "{\"key\":\"feff\",\"value\":\"00\"}\n"
    );
    assert_eq!(run(&["get", db, "\"aw==\"", "--raw", "base64"]).ok(), "\"w6k=\"\n");
    for form in ["utf8", "hex", "base64"] {
        let copy = &place.db(form);
        run_with(run(&["dump", db, "--raw", form]).ok(), &["load", copy, "--raw", form]).ok();
        assert_eq!(run(&["dump", copy]).ok(), run(&["dump", db]).ok());
    }
    run(&["set", db, "\"abc\"", "\"b\"", "--raw", "hex"]).fails(1, "KV_INVALID_KEY");
    run(&["set", db, "\"a\"", "\"b\"", "--raw", "base64"]).fails(1, "KV_INVALID_KEY");
    run(&["set", db, "{\"$bytes\":\"\"}", "1"]).fails(1, "KV_INVALID_VALUE");
}

#[test]
fn bench_prints_figures_and_leaves_nothing() {
    let place = Place::new();
    let db = &place.db("db");
    let figures: Value =
        serde_json::from_str(&run(&["bench", db, "--count", "3000", "--value-bytes", "9"]).ok()).unwrap();
    assert_eq!(figures["count"], 3000);
    for figure in ["setsPerSecond", "getsPerSecond", "scannedPerSecond", "fileSize"] {
        assert!(figures[figure].as_u64().unwrap() > 0, "{figure}");
    }
    assert!(!place.path("db").exists());
    place.loaded("db", "{\"key\":\"1\",\"value\":\"1\"}");
    run(&["bench", db]).fails(1, "KV_EXISTS");
    assert_eq!(run(&["count", db]).ok(), "1\n");
}

#[test]
fn long_names_of_verbs() {
    let place = Place::new();
    let db = &place.db("db");
    run_with(numbered(3), &["import", db]).ok();
    assert_eq!(run(&["delete", db, &key(1)]).ok(), "true\n");
    assert_eq!(run(&["stats", db]).ok(), run(&["stat", db]).ok());
    assert_eq!(run(&["export", db]).ok(), run(&["dump", db]).ok());
    for verb in ["delete", "stats", "import", "export", "list", "rename"] {
        assert!(run(&["--help"]).ok().contains(verb), "{verb}");
        assert!(run(&["help", verb]).ok().contains("Usage"), "{verb}");
    }
}

#[test]
fn indexes_are_listed_with_their_collection() {
    let place = Place::new();
    let db = &place.db("db");
    run(&["set", db, "\"1\"", "\"2\"", "--collection", "a"]).ok();
    // Another test's child process has the lock of a closed database until it executes its program.
    let open = || loop {
        match Database::open(Arc::new(FsStorage::new(db)), Options::default()) {
            Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(1)),
            opened => break opened.unwrap(),
        }
    };
    let declare = |collection: &str, name: &str, unique: bool| {
        let database = open();
        let mut transaction = database.begin().unwrap();
        let definition = IndexDefinition {
            name: name.into(),
            version: 3,
            unique,
        };
        let indexes = transaction.declare_indexes(collection, &[definition]).unwrap();
        transaction.commit(Durability::Strict).unwrap();
        indexes[0].id
    };
    declare("a", "by", false);
    let unique = declare("b", "by \"one\"", true);
    let database = open();
    let mut transaction = database.begin().unwrap();
    let mut keys = IndexKeys::new();
    keys.set(unique, [vec![1], vec![2]]);
    transaction.set_indexed("b", &[0x10], &[0x01], None, &keys).unwrap();
    transaction.commit(Durability::Strict).unwrap();
    drop(database);
    let listed = run(&["list", db]).ok();
    let lines: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| &line["indexes"]).collect::<Vec<&Value>>(),
        [
            &json!([{ "name": "by", "version": 3, "unique": false, "complete": false }]),
            &json!([{ "name": "by \"one\"", "version": 3, "unique": true, "complete": true, "count": 2 }]),
        ]
    );
    let stat: Value = serde_json::from_str(&run(&["stat", db]).ok()).unwrap();
    assert_eq!(stat["collections"].as_array(), Some(&lines));
    run(&["verify", db]).ok();
}

#[test]
fn collections_are_listed_and_renamed() {
    let place = Place::new();
    let db = &place.db("db");
    run(&["set", db, "\"1\"", "\"2\""]).ok();
    run(&["set", db, "\"1\"", "\"2\"", "--collection", "a"]).ok();
    let line = |name: &str| format!("{{\"name\":\"{name}\",\"count\":1,\"keyCodec\":\"\",\"valueCodec\":\"\"}}\n");
    assert_eq!(run(&["list", db]).ok(), line("") + &line("a"));
    assert_eq!(run(&["rename", db, "a", "b"]).ok(), "true\n");
    assert_eq!(run(&["rename", db, "a", "b"]).ok(), "false\n");
    assert_eq!(run(&["list", db]).ok(), line("") + &line("b"));
    assert_eq!(run(&["get", db, "\"1\"", "--collection", "b"]).ok(), "\"2\"\n");
    run(&["set", db, "\"1\"", "\"2\"", "--collection", "a"]).ok();
    run(&["rename", db, "a", "b"]).fails(1, "KV_EXISTS");
    run(&["rename", db, "", "c"]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["rename", db, "a", ""]).fails(1, "KV_INVALID_ARGUMENT");
    run(&["list", &place.db("none")]).fails(1, "KV_NOT_FOUND");
}

#[test]
fn a_failed_load_leaves_no_empty_database() {
    let place = Place::new();
    let db = &place.db("db");
    run_with("{\"id\":1}", &["load", db]).fails(1, "KV_INVALID_ARGUMENT");
    assert!(!place.path("db").exists());
    // An existing directory stays, with its contents.
    std::fs::create_dir(db).unwrap();
    std::fs::write(place.path("db/notes"), "mine").unwrap();
    run_with("{\"id\":1}", &["load", db]).fails(1, "KV_INVALID_ARGUMENT");
    assert_eq!(std::fs::read_dir(db).unwrap().count(), 1);
    // So do records that an earlier batch stored, and someone else's empty database.
    run_with("{\"key\":\"1\",\"value\":\"1\"}\n{}", &["load", db, "--batch", "1"]).fails(1, "KV_INVALID_ARGUMENT");
    assert_eq!(run(&["count", db]).ok(), "1\n");
    let empty = &place.loaded("empty", "");
    run_with("{}", &["load", empty]).fails(1, "KV_INVALID_ARGUMENT");
    assert_eq!(run(&["count", empty]).ok(), "0\n");
}

#[test]
fn a_line_says_what_is_missing() {
    let place = Place::new();
    let db = &place.db("db");
    for (line, missing) in [
        ("{}", "key"),
        ("{\"id\":1,\"name\":\"ada\"}", "key"),
        ("{\"value\":1}", "key"),
        ("{\"key\":1}", "value"),
        ("{\"key\":1,\"keyCodec\":\"any\"}", "value"),
        ("{\"keyCodec\":\"any\"}", "valueCodec"),
        ("{\"valueCodec\":\"any\"}", "keyCodec"),
    ] {
        let failed = run_with(line, &["load", db]).fails(1, "KV_INVALID_ARGUMENT");
        assert!(
            failed.err.contains(&format!("\"{missing}\" is missing")),
            "{line}: {}",
            failed.err
        );
    }
}

#[test]
fn a_program_can_wait_for_each_acknowledgement() {
    use std::io::{BufRead, BufReader, Write};

    let place = Place::new();
    let db = &place.db("db");
    let mut child = common::spawn(&mut common::command(&["load", db, "--ack"]));
    let mut stdin = child.stdin.take().unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        acks.read_line(&mut line).unwrap();
        line
    };
    for key in 0..5 {
        writeln!(stdin, "{{\"key\":\"{key}\",\"value\":\"1\"}}").unwrap();
        assert_eq!(next(), format!("\"{key}\"\n"));
    }
    // Also in the middle of a line.
    write!(stdin, "{{\"key\":\"5\",\"value\":\"1\"}}\n{{\"key\":\"6\",").unwrap();
    assert_eq!(next(), "\"5\"\n");
    writeln!(stdin, "\"value\":\"1\"}}").unwrap();
    assert_eq!(next(), "\"6\"\n");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(run(&["count", db]).ok(), "7\n");
}

//! Encrypted databases: their key comes from a file, and every verb takes it.

#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::{run, run_with};

const MARKER: &str = "c0nfid3nt1al";

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("key"), [7; 32]).unwrap();
        fs::write(directory.path().join("hex"), format!("{}\n", "07".repeat(32))).unwrap();
        fs::write(directory.path().join("other"), [8; 32]).unwrap();
        fs::write(directory.path().join("phrase"), "correct horse\n").unwrap();
        fs::write(directory.path().join("short"), [7; 31]).unwrap();
        fs::write(directory.path().join("empty"), "\n").unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self, database: &str) -> Vec<u8> {
        fs::read(self.path(database).join("data")).unwrap()
    }

    fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Replaces arguments that begin with `@` by paths.
    fn run(&self, arguments: &[&str]) -> crate::common::Run {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| match argument.strip_prefix('@') {
                Some(name) => self.arg(name),
                None => (*argument).to_owned(),
            })
            .collect();
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn holds_marker(path: &Path) -> bool {
    let contains = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes())
    };
    if path.is_file() {
        return contains(path);
    }
    fs::read_dir(path)
        .unwrap()
        .any(|entry| contains(&entry.unwrap().path()))
}

#[test]
fn every_verb_takes_the_key() {
    let files = Files::new();
    let value = format!("\"{MARKER}\"");
    files.run(&["--key-file", "@key", "set", "@db", &value, &value]).ok();
    assert!(!holds_marker(&files.path("db")));
    for key in [["--key-file", "@key"], ["--key-file", "@hex"]] {
        let found = files.run(&["get", "@db", &value, key[0], key[1]]).ok();
        assert_eq!(found.trim(), value);
    }
    files.run(&["scan", "@db", "--key-file", "@key"]).ok();
    files.run(&["stat", "@db", "--key-file", "@key"]).ok();
    files.run(&["verify", "@db", "--key-file", "@key"]).ok();
    assert_eq!(files.run(&["count", "@db", "--key-file", "@key"]).ok().trim(), "1");
    let dumped = files.run(&["dump", "@db", "--key-file", "@key"]).ok();
    let target = files.arg("loaded");
    run_with(dumped, &["load", &target, "--key-file", &files.arg("other")]);
    assert!(!holds_marker(&files.path("loaded")));
    assert_eq!(
        files.run(&["count", "@loaded", "--key-file", "@other"]).ok().trim(),
        "1"
    );

    files.run(&["backup", "@db", "@backup", "--key-file", "@key"]).ok();
    assert!(!holds_marker(&files.path("backup")));
    files.run(&["restore", "@backup", "@restored"]).fails(1, "KV_WRONG_KEY");
    files
        .run(&["restore", "@backup", "@restored", "--key-file", "@other"])
        .fails(1, "KV_WRONG_KEY");
    files
        .run(&["restore", "@backup", "@restored", "--key-file", "@key"])
        .ok();
    assert!(!holds_marker(&files.path("restored")));
    assert_eq!(
        files.run(&["recover", "@db", "@recovered", "--key-file", "@key"]).code,
        0
    );
    assert!(!holds_marker(&files.path("recovered")));
    assert_eq!(
        files.run(&["count", "@recovered", "--key-file", "@key"]).ok().trim(),
        "1"
    );
}

#[test]
fn wrong_missing_and_needless_keys_are_refused() {
    let files = Files::new();
    files.run(&["set", "@db", "\"1\"", "\"2\"", "--key-file", "@key"]).ok();
    files.run(&["get", "@db", "\"1\""]).fails(1, "KV_WRONG_KEY");
    files.run(&["set", "@db", "\"1\"", "\"3\""]).fails(1, "KV_WRONG_KEY");
    files
        .run(&["get", "@db", "\"1\"", "--key-file", "@other"])
        .fails(1, "KV_WRONG_KEY");
    files
        .run(&["get", "@db", "\"1\"", "--passphrase-file", "@phrase"])
        .fails(1, "KV_WRONG_KEY");
    for file in ["@short", "@empty", "@missing"] {
        let code = if file == "@missing" {
            "KV_IO"
        } else {
            "KV_INVALID_ARGUMENT"
        };
        files.run(&["get", "@db", "\"1\"", "--key-file", file]).fails(1, code);
    }
    files
        .run(&["get", "@db", "\"1\"", "--passphrase-file", "@empty"])
        .fails(1, "KV_INVALID_ARGUMENT");
    files.run(&["set", "@plain", "\"1\"", "\"2\""]).ok();
    files
        .run(&["get", "@plain", "\"1\"", "--key-file", "@key"])
        .fails(1, "KV_NOT_ENCRYPTED");
    files
        .run(&["change-key", "@plain", "--new-key-file", "@key"])
        .fails(1, "KV_NOT_ENCRYPTED");
    assert_eq!(
        files.run(&["get", "@db", "\"1\"", "--key-file", "@key"]).ok().trim(),
        "\"2\""
    );
}

#[test]
fn a_key_is_changed_for_a_passphrase_and_back() {
    let files = Files::new();
    files.run(&["set", "@db", "\"1\"", "\"2\"", "--key-file", "@key"]).ok();
    files
        .run(&[
            "change-key",
            "@db",
            "--key-file",
            "@key",
            "--new-passphrase-file",
            "@phrase",
            "--memory-kib",
            "64",
        ])
        .ok();
    files
        .run(&["get", "@db", "\"1\"", "--key-file", "@key"])
        .fails(1, "KV_WRONG_KEY");
    let found = files.run(&["get", "@db", "\"1\"", "--passphrase-file", "@phrase"]).ok();
    assert_eq!(found.trim(), "\"2\"");
    files
        .run(&[
            "change-key",
            "@db",
            "--passphrase-file",
            "@phrase",
            "--new-key-file",
            "@other",
        ])
        .ok();
    files
        .run(&["get", "@db", "\"1\"", "--passphrase-file", "@phrase"])
        .fails(1, "KV_WRONG_KEY");
    assert_eq!(
        files.run(&["get", "@db", "\"1\"", "--key-file", "@other"]).ok().trim(),
        "\"2\""
    );
}

#[test]
fn everything_is_encrypted_anew_under_the_same_key() {
    let files = Files::new();
    files.run(&["set", "@db", "\"1\"", "\"2\"", "--key-file", "@key"]).ok();
    files.run(&["set", "@plain", "\"1\"", "\"2\""]).ok();
    files.run(&["reencrypt", "@plain"]).fails(1, "KV_NOT_ENCRYPTED");
    files.run(&["reencrypt", "@db"]).fails(1, "KV_WRONG_KEY");
    let sealed_key = || files.data("db")[168..240].to_vec();
    let before = sealed_key();
    files.run(&["reencrypt", "@db", "--key-file", "@key"]).ok();
    assert_ne!(sealed_key(), before);
    assert_eq!(files.data("db")[164], 1, "no previous key is left");
    assert_eq!(
        files.run(&["get", "@db", "\"1\"", "--key-file", "@key"]).ok().trim(),
        "\"2\""
    );
    files.run(&["verify", "@db", "--key-file", "@key"]).ok();
}

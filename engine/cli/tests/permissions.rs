//! Verbs that read need no permission to write. This test is alone in its file: a program that was
//! just written cannot be started while another test is starting one.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use crate::common;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Place, exported, files, killed, reading};

/// Runs the tool as another user where the tests run as root.
#[test]
fn no_permission_to_write_is_needed() {
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let place = Place::new();
    mode(&place.path(""), 0o755);
    let db = killed(&place, "db", 100);
    fs::create_dir(place.path("js")).unwrap();
    let exported = exported(&place, "js/exported.mangrove");
    let directories = ["db", "js"].map(|name| place.path(name));
    let before = directories.each_ref().map(|directory| files(directory));
    for directory in &directories {
        for name in files(directory).keys() {
            mode(&directory.join(name), 0o444);
        }
        mode(directory, 0o555);
    }
    let tool = place.path("mangrove");
    fs::copy(env!("CARGO_BIN_EXE_mangrove"), &tool).unwrap();
    let is_root = fs::metadata(&tool).unwrap().uid() == 0;
    let output = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&tool);
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        common::output(command.args(arguments).stdout(Stdio::piped()))
    };
    for arguments in reading(&db) {
        let output = output(&arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    }
    let exported = exported.to_str().unwrap();
    for verb in ["scan", "count", "stat", "verify", "dump"] {
        assert_eq!(output(&[verb, exported]).status.code(), Some(0), "{verb}");
    }
    for arguments in [
        &["set", &db, "\"1\"", "\"1\""][..],
        &["del", &db, "\"1\""],
        &["compact", &db],
        &["set", exported, "\"1\"", "\"1\""],
    ] {
        let output = output(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(err.starts_with("mangrove: KV_IO: "), "{arguments:?}: {err}");
    }
    for directory in &directories {
        mode(directory, 0o755);
    }
    assert!(directories.each_ref().map(|directory| files(directory)) == before);
}

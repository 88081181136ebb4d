//! Runs the tool on databases in a temporary directory.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use tempfile::TempDir;

pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Asserts that it succeeded and wrote nothing to standard error; returns its output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, &*self.err), (0, ""), "{}", self.out);
        self.out
    }

    /// Asserts that it failed with this exit code and reported this error code.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, kv: &str) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        let start = format!("mangrove: {kv}: ");
        assert!(self.err.starts_with(&start), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove"));
    command.args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts a program, one at a time. Between fork and exec, a child holds copies of this process's
/// open files, and with them the locks that other tests have just released.
pub(crate) fn spawn(command: &mut Command) -> Child {
    static SPAWNING: Mutex<()> = Mutex::new(());
    let _alone = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

/// Runs a program to its end without input.
pub(crate) fn output(command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null()).stderr(Stdio::piped());
    spawn(command).wait_with_output().unwrap()
}

pub(crate) fn run_with(input: impl AsRef<[u8]>, arguments: &[&str]) -> Run {
    let mut child = spawn(&mut command(arguments));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // The tool may fail before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn run(arguments: &[&str]) -> Run {
    run_with("", arguments)
}

/// A directory for databases.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of a database as an argument.
    pub(crate) fn db(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Creates a database from these lines.
    pub(crate) fn loaded(&self, name: &str, lines: &str) -> String {
        let db = self.db(name);
        run_with(lines, &["load", &db]).ok();
        db
    }
}

/// Returns a key as JSON; keys sort as their numbers do.
pub(crate) fn key(index: usize) -> String {
    format!("\"{index:05}\"")
}

/// Returns records that count upwards.
pub(crate) fn numbered(count: usize) -> String {
    let line = |index: usize| format!("{{\"key\":{},\"value\":\"value {index}\"}}\n", key(index));
    (0..count).map(line).collect()
}

/// Creates a data file as a browser exports it.
pub(crate) fn exported(place: &Place, name: &str) -> PathBuf {
    let made = place.loaded("exported from here", &numbered(50));
    fs::copy(Path::new(&made).join("data"), place.path(name)).unwrap();
    fs::remove_dir_all(made).unwrap();
    place.path(name)
}

/// Creates a database whose process died: its commits are in the log alone.
pub(crate) fn killed(place: &Place, name: &str, count: usize) -> String {
    let db = place.db(name);
    let mut child = spawn(&mut command(&["load", &db, "--ack", "--batch", "10"]));
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(numbered(count).as_bytes())
        .unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..count {
        acks.read_line(&mut String::new()).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    db
}

/// Returns all verbs that read, with an existing key; `backup` writes to standard output.
pub(crate) fn reading(db: &str) -> [Vec<&str>; 7] {
    [
        vec!["get", db, "\"00007\""],
        vec!["scan", db],
        vec!["count", db],
        vec!["stat", db],
        vec!["verify", db],
        vec!["dump", db],
        vec!["backup", db, "-"],
    ]
}

/// Returns names, bytes and times of the files in a directory.
pub(crate) fn files(directory: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let files = fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (fs::read(entry.path()).unwrap(), modified))
    });
    files.collect()
}

//! Proves what readers of files may do: share them, read those they cannot write, and read beside a
//! writer in another process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::turn;
use mangrove_engine::storage::{FsStorage, Storage, StorageFile};
use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{AdvancedOptions, Database, Direction, Durability, Error, KeyRange, Options, Snapshot};

const CHILD: &str = "MANGROVE_TEST_READ_ONLY_DIRECTORY";
const KEYS: u64 = 200;

fn options(read_only: bool) -> Options {
    Options {
        read_only,
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            node_bytes: 512,
            unit_bytes: 512,
            log_bytes: Some(32 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn write(directory: &Path) -> Result<Database, Error> {
    Database::open(Arc::new(FsStorage::new(directory)), options(false))
}

fn read(storage: FsStorage) -> Result<Database, Error> {
    Database::open(Arc::new(storage), options(true))
}

/// Returns the value of a key in round `number`. Every commit writes all keys, with lengths that
/// make blocks move.
fn value(number: u64, key: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + ((number * 31 + key * 7) % 90) as usize, key as u8);
    if key == number % KEYS {
        value.resize(3_000, 1);
    }
    value
}

fn commit(database: &Database, number: u64) {
    let mut transaction = database.begin().expect("it can be written");
    for key in 0..KEYS {
        let set = transaction.set("all", &key.to_be_bytes(), &value(number, key));
        set.expect("the disk works");
    }
    transaction.commit(Durability::Relaxed).expect("the disk works");
}

/// Returns the round that a snapshot shows, if all of it can be read. Panics if the snapshot does
/// not show exactly one round.
fn round(snapshot: &Snapshot) -> Result<u64, Error> {
    let tree = snapshot.collection("all").expect("there always is one");
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    let mut number = None;
    let mut count = 0;
    while cursor.advance()? {
        let found = cursor.value()?;
        let of = u64::from_be_bytes(*found.first_chunk().expect("eight bytes are there"));
        assert_eq!(*number.get_or_insert(of), of, "two rounds in one snapshot");
        assert_eq!(found, value(of, count));
        count += 1;
    }
    assert_eq!(count, KEYS);
    Ok(number.expect("there are keys"))
}

#[test]
fn readers_share_and_keep_writers_out() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let missing = read(FsStorage::read_only(directory.path().join("none")));
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    assert!(!directory.path().join("none").exists());
    let writer = write(directory.path()).expect("nobody else has it");
    commit(&writer, 7);
    let refused = read(FsStorage::read_only(directory.path()));
    assert!(matches!(refused, Err(Error::Locked { .. })));
    writer.close().expect("the disk works");

    let one = read(FsStorage::read_only(directory.path())).expect("nobody writes");
    let mut other = read(FsStorage::read_only(directory.path())).expect("readers share");
    assert_eq!((round(&one.snapshot()), round(&other.snapshot())), (Ok(7), Ok(7)));
    assert_eq!(other.refresh(), Ok(false));
    assert!(matches!(one.begin(), Err(Error::ReadOnly)));
    assert!(matches!(write(directory.path()), Err(Error::Locked { .. })));
    drop((one, other));
    write(directory.path()).expect("the locks went with the handles");
}

#[test]
fn nothing_is_written_to_what_is_read() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let writer = write(directory.path()).expect("nobody else has it");
    commit(&writer, 1);
    // Not closed, so that opening has to read the log.
    drop(writer);
    let files = || ["data", "log"].map(|name| std::fs::read(directory.path().join(name)).expect("it is there"));
    let before = files();
    for name in ["data", "log"] {
        let path = directory.path().join(name);
        let mut permissions = std::fs::metadata(&path).expect("it is there").permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).expect("it is ours");
    }
    for storage in [
        FsStorage::read_only(directory.path()),
        FsStorage::read_only_beside_writer(directory.path()),
    ] {
        let database = read(storage.clone()).expect("it can be read");
        assert_eq!(round(&database.snapshot()), Ok(1));
        assert!(database.verify().expect("it can be read").is_ok());
        database.close().expect("there is nothing to do");
        let file = storage.open("data", false).expect("it can be read");
        assert!(matches!(file.write_at(0, b"x"), Err(Error::ReadOnly)));
        assert!(matches!(file.set_len(0), Err(Error::ReadOnly)));
        assert!(matches!(storage.open("new", true), Err(Error::ReadOnly)));
        assert!(matches!(storage.remove("data"), Err(Error::ReadOnly)));
        let writing = Database::open(Arc::new(storage), options(false));
        assert!(matches!(writing, Err(Error::ReadOnly | Error::InvalidArgument { .. })));
    }
    assert_eq!(files(), before);
}

/// Commits rounds for ever; runs in the child process and does nothing elsewhere.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let database = write(directory.as_ref()).expect("nobody else has it");
    let mut output = std::io::stdout().lock();
    for number in 1.. {
        commit(&database, number);
        if number.is_multiple_of(50) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        writeln!(output, "round {number}").expect("the parent listens");
        output.flush().expect("the parent listens");
    }
}

/// A writer in another process, and the newest round that it acknowledged.
struct Writer {
    child: Child,
    acknowledged: Arc<Mutex<u64>>,
}

impl Writer {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("tests have a path"))
            .args(["--exact", "read_only::child_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let acknowledged = Arc::new(Mutex::new(0));
        let newest = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(number) = line.strip_prefix("round ").and_then(|number| number.parse().ok()) {
                    *newest.lock().unwrap_or_else(PoisonError::into_inner) = number;
                }
            }
        });
        let writer = Self { child, acknowledged };
        writer.wait_for(1);
        writer
    }

    fn acknowledged(&self) -> u64 {
        *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, round: u64) {
        while self.acknowledged() < round {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
    }
}

/// Nobody has written since the reader opened: what it cannot read is damaged, not overwritten.
#[test]
fn damage_beside_no_writer_is_damage() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let writer = write(directory.path()).expect("nobody else has it");
    commit(&writer, 1);
    writer.close().expect("the disk works");
    let database = read(FsStorage::read_only_beside_writer(directory.path())).expect("it can be read");
    let path = directory.path().join("data");
    let mut data = std::fs::read(&path).expect("it is there");
    data[8192..].fill(0xff);
    std::fs::write(&path, data).expect("it is ours");
    let found = round(&database.snapshot());
    assert!(matches!(found, Err(Error::Corrupt(_))), "{found:?}");
}

/// On Windows no process can read what another has locked.
#[cfg(unix)]
#[test]
fn a_reader_beside_a_writer_sees_whole_commits_or_is_stale() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let writer = Writer::start(directory.path());
    let refused = read(FsStorage::read_only(directory.path()));
    assert!(matches!(refused, Err(Error::Locked { .. })));
    let open = || loop {
        match read(FsStorage::read_only_beside_writer(directory.path())) {
            Err(Error::Stale) => {}
            opened => return opened.expect("a reader beside a writer is stale at worst"),
        }
    };
    let (mut whole, mut stale, mut newest) = (0, 0, 0);
    let mut database = open();
    for attempt in 0..300 {
        let acknowledged = writer.acknowledged();
        match attempt % 3 {
            0 => database = open(),
            _ => match database.refresh() {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error, Error::Stale);
                    stale += 1;
                    continue;
                }
            },
        }
        let snapshot = database.snapshot();
        // Some attempts wait until the state they opened is gone.
        if attempt % 5 == 0 {
            writer.wait_for(acknowledged + 8);
        }
        match round(&snapshot) {
            Ok(number) => {
                assert!(number >= acknowledged, "{number}, but {acknowledged} was acknowledged");
                assert!(number >= newest);
                newest = number;
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error, Error::Stale);
                assert!(matches!(database.verify(), Err(Error::Stale)));
                stale += 1;
            }
        }
    }
    assert!(whole > 10 && stale > 0, "{whole} whole, {stale} stale");
    drop(writer);
    database.refresh().expect("nobody writes");
    assert!(round(&database.snapshot()).expect("nobody writes") >= newest);
    assert!(database.verify().expect("nobody writes").is_ok());
}

/// Files beside their writer, which goes on when they are read for the n-th time.
struct Overtaken {
    files: SimStorage,
    reads: Arc<Reads>,
}

struct Reads {
    left: AtomicU64,
    writer: Box<dyn Fn() + Send + Sync>,
}

struct OvertakenFile(Arc<dyn StorageFile>, Arc<Reads>);

impl Storage for Overtaken {
    fn open(&self, name: &str, _: bool) -> Result<Arc<dyn StorageFile>, Error> {
        let file = self.files.writer(name).expect("the writer has both files");
        Ok(Arc::new(OvertakenFile(file, Arc::clone(&self.reads))))
    }

    fn exists(&self, name: &str) -> Result<bool, Error> {
        self.files.exists(name)
    }

    fn is_beside_writer(&self) -> bool {
        true
    }

    fn remove(&self, _: &str) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
}

impl StorageFile for OvertakenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        if self.1.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.1.writer)();
        }
        self.0.read_at(offset, into)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn len(&self) -> Result<u64, Error> {
        self.0.len()
    }

    fn set_len(&self, _: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
}

/// At each point of an opening, the writer makes so many checkpoints that what the opening has read by
/// then leads nowhere, or to an older state. It shows a newer one.
#[test]
fn an_opening_that_is_overtaken_begins_anew() {
    let mut reads = 1;
    loop {
        let files = SimStorage::new();
        let writer = Database::open(Arc::new(files.clone()), options(false)).expect("it is new");
        let commit = move |number: u64| {
            let mut transaction = writer.begin().expect("it can be written");
            for key in [number % 40, number % 7 + 100] {
                let value = vec![number as u8; 300 + number as usize % 5 * 200];
                transaction.put("c", &key.to_be_bytes(), &value).expect("there is room");
            }
            transaction
                .put("newest", b"", &number.to_be_bytes())
                .expect("there is room");
            // No record says that the one before it was flushed.
            transaction.commit(Durability::Relaxed).expect("there is room");
            if number.is_multiple_of(50) {
                writer.checkpoint().expect("there is room");
            }
        };
        (0..=105).for_each(&commit);
        let overtaken = Overtaken {
            files,
            reads: Arc::new(Reads {
                left: AtomicU64::new(reads),
                writer: Box::new(move || (106..500).for_each(&commit)),
            }),
        };
        let left = Arc::clone(&overtaken.reads);
        let database = Database::open(Arc::new(overtaken), options(true));
        let database = database.unwrap_or_else(|error| panic!("read {reads}: {error}"));
        let snapshot = database.snapshot();
        let newest = snapshot.collection("newest").expect("it was written");
        match newest.get(b"") {
            Ok(found) => {
                let found = found.expect("it was written");
                let number = u64::from_be_bytes(*found.first_chunk().expect("eight bytes are there"));
                assert!(number >= 105, "read {reads}: {number}, but 105 was acknowledged");
            }
            Err(error) => assert_eq!(error, Error::Stale),
        }
        if left.left.load(Ordering::Relaxed) as i64 > 0 {
            break;
        }
        reads += 1;
    }
    assert!(reads > 5, "the opening has {reads} reads");
}

//! Proves that readers in other threads always see whole commits and never wait for the writer's
//! transaction to end.
//!
//! The writer keeps two collections in step: commit `n` stores `n` under every key of both. A
//! reader that finds two different numbers in one snapshot has seen half a commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use mangrove_engine::storage::{MemoryStorage, Storage, StorageFile};
use mangrove_engine::testing::sim::{Fault, FaultKind, Scope, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Background, Database, Direction, Durability, KeyRange, Options, Result, Snapshot,
};

const KEYS: u64 = 300;
const COMMITS: u64 = 200;
const COLLECTIONS: [&str; 2] = ["left", "right"];

fn small_database() -> Database {
    let options = Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(MemoryStorage::new()), options).expect("an empty storage can be opened")
}

fn commit_number(database: &Database, number: u64, durability: Durability) {
    let mut transaction = database.begin().expect("the database can be written");
    for collection in COLLECTIONS {
        for key in 0..KEYS {
            transaction
                .set(collection, &key.to_be_bytes(), &number.to_be_bytes())
                .expect("memory takes every write");
        }
    }
    transaction.commit(durability).expect("memory takes every commit");
}

/// Returns the number that every record of the snapshot holds.
fn number_in(snapshot: &Snapshot) -> u64 {
    let mut seen = None;
    for collection in COLLECTIONS {
        let tree = snapshot.collection(collection).expect("both were written");
        assert_eq!(tree.len(), KEYS);
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = tree.cursor(KeyRange::all(), direction);
            let mut records = 0;
            while cursor.advance().expect("reading succeeds") {
                let value = cursor.value().expect("reading succeeds");
                assert_eq!(
                    *seen.get_or_insert_with(|| value.clone()),
                    value,
                    "half a commit is visible"
                );
                records += 1;
            }
            assert_eq!(records, KEYS);
        }
    }
    u64::from_be_bytes(
        seen.expect("there are records")
            .try_into()
            .expect("values have 8 bytes"),
    )
}

#[test]
fn readers_see_whole_commits_in_order() {
    let database = small_database();
    commit_number(&database, 0, Durability::Strict);
    let done = AtomicBool::new(false);
    let checked = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut newest = 0;
                while !done.load(Ordering::Acquire) {
                    let number = number_in(&database.snapshot());
                    assert!(number >= newest, "a later snapshot is older");
                    newest = number;
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let old = database.snapshot();
        for number in 1..=COMMITS {
            let durability = if number % 3 == 0 {
                Durability::Strict
            } else {
                Durability::None
            };
            commit_number(&database, number, durability);
            assert_eq!(number_in(&database.snapshot()), number);
        }
        assert_eq!(number_in(&old), 0, "a held snapshot does not change");
        done.store(true, Ordering::Release);
    });
    assert!(checked.load(Ordering::Relaxed) > 0);
    assert!(database.verify().expect("it can be read").is_ok());
}

#[test]
fn readers_do_not_wait_for_an_open_transaction() {
    let database = small_database();
    commit_number(&database, 1, Durability::Strict);
    let mut transaction = database.begin().expect("the database can be written");
    transaction
        .set("left", b"new", b"value")
        .expect("memory takes every write");
    thread::scope(|scope| {
        // If reading took the writer's lock this would never return.
        let reader = scope.spawn(|| number_in(&database.snapshot()));
        assert_eq!(reader.join().expect("the reader does not panic"), 1);
    });
    drop(transaction);
    assert_eq!(number_in(&database.snapshot()), 1);
}

#[test]
fn writers_from_many_threads_take_turns() {
    let database = small_database();
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let database = &database;
            scope.spawn(move || {
                for number in 0..50_u8 {
                    let mut transaction = database.begin().expect("the database can be written");
                    transaction
                        .set("all", &[writer, number], b"x")
                        .expect("memory takes every write");
                    transaction
                        .commit(Durability::Strict)
                        .expect("memory takes every commit");
                }
            });
        }
    });
    assert_eq!(database.version(), 200);
    let tree = database.snapshot().collection("all").expect("it was written");
    assert_eq!(tree.len(), 200);
    assert!(database.verify().expect("it can be read").is_ok());
}

/// A storage whose data file calls a hook before each flush.
struct HookedStorage<S> {
    inner: S,
    hook: Hook,
}

type Hook = Arc<dyn Fn() + Send + Sync>;

struct HookedFile {
    inner: Arc<dyn StorageFile>,
    hook: Option<Hook>,
}

impl<S: Storage> Storage for HookedStorage<S> {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(HookedFile {
            inner: self.inner.open(name, create)?,
            hook: (name == "data").then(|| Arc::clone(&self.hook)),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
}

impl StorageFile for HookedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.inner.write_at(offset, from)
    }

    fn flush(&self) -> Result<()> {
        if let Some(hook) = &self.hook {
            hook();
        }
        self.inner.flush()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
}

/// Flushes announce themselves at the gate and wait for permission.
struct Gate {
    is_closed: AtomicBool,
    /// The thread that opens the gate. Where the merging thread had no processor for long, a commit
    /// makes a checkpoint itself, and its flush must not wait for the thread that makes it.
    keeper: ThreadId,
    arrived: Sender<()>,
    released: Mutex<Receiver<()>>,
}

impl Gate {
    fn pass(&self) {
        if self.is_closed.load(Ordering::Relaxed) && thread::current().id() != self.keeper {
            // Without the other ends, the test is over and the gate open.
            let _ = self.arrived.send(());
            let _ = self.released.lock().expect("nobody panicked").recv();
        }
    }
}

#[test]
fn commits_do_not_wait_for_the_flushes_of_a_merge() {
    let (arrived, arrivals) = channel();
    let (release, released) = channel();
    let gate = Arc::new(Gate {
        is_closed: AtomicBool::new(false),
        keeper: thread::current().id(),
        arrived,
        released: Mutex::new(released),
    });
    let storage = HookedStorage {
        inner: MemoryStorage::new(),
        hook: {
            let gate = Arc::clone(&gate);
            Arc::new(move || gate.pass())
        },
    };
    let options = Options {
        cache_bytes: 256 << 10,
        ..Options::default()
    };
    let database = Arc::new(Database::open(Arc::new(storage), options).expect("an empty storage can be opened"));
    // The other thread of the background never has its turn.
    let background = Background::start(Arc::clone(&database), Duration::from_hours(1));
    let mut number: u64 = 0;
    let mut commit = || {
        number += 1;
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let set = database.set("c", &key, &[7; 100], Durability::Relaxed);
        set.expect("memory takes every commit");
    };
    gate.is_closed.store(true, Ordering::Relaxed);
    let mut flushes = 0;
    while flushes < 8 {
        if arrivals.try_recv().is_err() {
            commit();
            thread::yield_now();
            continue;
        }
        // A flush is under way, and goes on only after these commits.
        for _ in 0..10 {
            commit();
        }
        flushes += 1;
        release.send(()).expect("the flush waits");
    }
    gate.is_closed.store(false, Ordering::Relaxed);
    // Those that came to the gate before it was opened.
    drop(release);
    drop(arrivals);
    drop(background);
    let report = database.verify().expect("memory can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(report.entries, number);
}

fn set_records(database: &Database, step: usize, fill: u8) {
    let mut transaction = database.begin().expect("the database can be written");
    for number in (0..RECORDS).step_by(step) {
        transaction
            .put("c", &number.to_be_bytes(), &[fill; 100])
            .expect("memory takes every write");
    }
    transaction
        .commit(Durability::Relaxed)
        .expect("memory takes every commit");
}

const RECORDS: u64 = 3000;

/// Commits that come while a merging thread flushes its checkpoint are not in it: what they take, of
/// the file and of the ids of collections, stays theirs, and so does what their snapshots read.
#[test]
fn a_checkpoint_of_a_merge_leaves_commits_beside_it_alone() {
    let next = Arc::new(Mutex::new(None::<Box<dyn FnOnce() + Send>>));
    let storage = HookedStorage {
        inner: SimStorage::new(),
        hook: {
            let next = Arc::clone(&next);
            Arc::new(move || {
                let work = next.lock().expect("nobody panicked").take();
                if let Some(work) = work {
                    work();
                }
            })
        },
    };
    let files = storage.inner.clone();
    let options = Options {
        cache_bytes: 4 << 20,
        ..Options::default()
    };
    let database = Arc::new(Database::open(Arc::new(storage), options.clone()).expect("it is new"));
    set_records(&database, 1, 1);
    database.checkpoint().expect("the storage works");
    set_records(&database, 2, 2);
    assert_eq!(database.merge_slice(), Ok(true), "a merge begins");
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let (sender, snapshots) = channel();
    let beside = {
        let (database, large) = (Arc::clone(&database), large.clone());
        move || {
            for (name, value) in [("beside", [1].as_slice()), ("large", &large)] {
                let set = database.set(name, b"key", value, Durability::Relaxed);
                set.expect("the storage works");
            }
            sender.send(database.snapshot()).expect("the test waits");
        }
    };
    *next.lock().expect("nobody panicked") = Some(Box::new(beside));
    while database.merge_beside().expect("the storage works") {}
    let snapshot = snapshots.try_recv().expect("the merge has flushed");
    let value_of = |name: &str| {
        let tree = database.snapshot().collection(name).expect("it was created");
        (tree.len(), tree.get(b"key").expect("it can be read"))
    };
    assert!(value_of("large") == (1, Some(large)));
    let after = database.set("after", b"key", &[2], Durability::Relaxed);
    after.expect("the storage works");
    assert_eq!(value_of("after"), (1, Some(vec![2])));
    assert_eq!(value_of("beside"), (1, Some(vec![1])));
    // The space of what these replace is used again, but for what the snapshot reads.
    for fill in 3..8 {
        set_records(&database, 1, fill);
        database.checkpoint().expect("the storage works");
    }
    let tree = snapshot.collection("c").expect("it was created");
    for number in 0..RECORDS {
        let expected = vec![if number % 2 == 0 { 2 } else { 1 }; 100];
        assert_eq!(tree.get(&number.to_be_bytes()).expect("it can be read"), Some(expected));
    }
    drop((tree, snapshot));
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    drop(database);
    let left = Database::open(Arc::new(SimStorage::from_files(files.files())), options).expect("it opens");
    assert_eq!(left.collections().len(), 4);
}

/// A commit begins the log of a database whose merge a thread is about to end: the checkpoint of the
/// merge stands, and the commit builds on what it has merged.
#[test]
fn a_commit_that_begins_the_log_takes_the_merge_of_a_thread_back() {
    let options = Options {
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let files = SimStorage::new();
    let open = |storage: &SimStorage| Database::open(Arc::new(storage.clone()), options.clone()).expect("it opens");
    let database = open(&files);
    set_records(&database, 1, 1);
    database.close().expect("the storage works");
    let (arrived, arrivals) = channel();
    let (release, released) = channel();
    let (gate, flushes) = (Mutex::new((arrived, released)), AtomicU64::new(u64::MAX));
    let flushes = Arc::new(flushes);
    let storage = HookedStorage {
        inner: files.clone(),
        hook: {
            let flushes = Arc::clone(&flushes);
            Arc::new(move || {
                // The second one is that of the superblock.
                if flushes.fetch_sub(1, Ordering::Relaxed) == 1 {
                    let gate = gate.lock().expect("nobody panicked");
                    gate.0.send(()).expect("the test waits");
                    gate.1.recv().expect("the test goes on");
                }
            })
        },
    };
    let database = Database::open(Arc::new(storage), options.clone()).expect("it was closed");
    // Removals take no room; with no log for them, the database stays as it was closed.
    files.set_fault(Some(Fault {
        scope: Scope::WritesOf("log"),
        ..Fault::from(files.counters().operations, FaultKind::StorageFull)
    }));
    let mut transaction = database.begin().expect("it is open");
    for number in 0..RECORDS - 500 {
        assert!(transaction.delete("c", &number.to_be_bytes()).expect("it can be read"));
    }
    transaction.commit(Durability::None).expect("memory takes it");
    files.set_fault(None);
    assert_eq!(database.merge_slice(), Ok(true), "a merge begins");
    flushes.store(2, Ordering::Relaxed);
    thread::scope(|scope| {
        let merger = scope.spawn(|| database.merge_beside());
        arrivals.recv().expect("the thread flushes");
        let mut transaction = database.begin().expect("the thread has not the lock");
        transaction.put("c", b"new", &[2]).expect("there is room");
        release.send(()).expect("the thread waits");
        transaction.commit(Durability::Strict).expect("there is room");
        merger.join().expect("it does not panic").expect("the storage works");
    });
    assert_eq!(database.stats().checkpoints, 1);
    let check = |database: &Database| {
        assert_eq!(database.version(), 3);
        let tree = database.snapshot().collection("c").expect("it was created");
        assert_eq!(tree.len(), 501);
        assert_eq!(tree.count(KeyRange::all()).expect("it can be read"), 501);
        assert_eq!(tree.get(b"new").expect("it can be read"), Some(vec![2]));
        let report = database.verify().expect("it can be read");
        assert!(report.is_ok(), "{:?}", report.problems);
    };
    check(&database);
    check(&open(&SimStorage::from_files(files.files())));
    database.checkpoint().expect("the storage works");
    check(&database);
    check(&open(&SimStorage::from_files(files.files())));
}

//! Shows how commits behave when the host flushes for them: they are invisible until the flush and
//! survive from then on; a failed flush ends writing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mangrove_engine::storage::{Storage, StorageFile};
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, Isolation, Options, Submission};

use Durability::{Relaxed, Strict};

type Files = BTreeMap<String, Arc<dyn StorageFile>>;

/// Collects the files that the engine opens, for the host to flush.
struct Watched {
    inner: SimStorage,
    files: Arc<Mutex<Files>>,
}

impl Storage for Watched {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>, Error> {
        let file = self.inner.open(name, create)?;
        self.files
            .lock()
            .expect("nobody panicked")
            .insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn exists(&self, name: &str) -> Result<bool, Error> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.inner.remove(name)
    }
}

struct Host {
    storage: SimStorage,
    data: Arc<dyn StorageFile>,
    log: Arc<dyn StorageFile>,
    database: Database,
}

fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(32 << 10),
            database_id: Some(7),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage) -> Database {
    Database::open(Arc::new(storage.clone()), options()).expect("every image opens")
}

impl Host {
    /// Returns a host with one durable commit.
    fn new() -> Self {
        let storage = SimStorage::new();
        let files = Arc::new(Mutex::new(Files::new()));
        let watched = Watched {
            inner: storage.clone(),
            files: Arc::clone(&files),
        };
        let database = Database::open(Arc::new(watched), options()).expect("the storage works");
        database.set("c", b"0", b"first", Strict).expect("the storage works");
        let file = |name| Arc::clone(&files.lock().expect("nobody panicked")[name]);
        let (data, log) = (file("data"), file("log"));
        Self {
            storage,
            data,
            log,
            database,
        }
    }

    fn submit(&self, key: &[u8], value: &[u8], durability: Durability) -> Submission {
        let mut transaction = self.database.begin().expect("the database can be written");
        transaction.set("c", key, value).expect("memory takes it");
        transaction.submit(durability).expect("the storage works")
    }

    fn flush(&self) {
        let flush = self.database.begin_flush().expect("something waits");
        if flush.needs_data() {
            self.data.flush().expect("the storage works");
        }
        flush.finish(self.log.flush()).expect("the storage works");
    }

    /// Returns the version after a power cut that loses all it may.
    fn survivor(&self) -> u64 {
        open(&SimStorage::from_files(self.storage.crash(CrashPolicy::Nothing, 0))).version()
    }
}

/// Nobody listened when the commit was made, and it becomes visible only after somebody does.
#[test]
fn a_listener_misses_no_commit_that_waits_for_its_flush() {
    for is_flushing in [false, true] {
        let host = Host::new();
        host.submit(b"1", b"value", Strict);
        let flush = is_flushing.then(|| {
            let mut flush = host.database.begin_flush().expect("something waits");
            flush.release();
            flush
        });
        let before = host.database.version();
        assert!(matches!(
            host.database.changes(Some(before)),
            Err(Error::TruncatedFeed { .. })
        ));
        let mut changes = host.database.changes(None).expect("the storage works");
        assert_eq!(changes.version(), host.database.version());
        assert_eq!(
            changes.version(),
            before + 1,
            "it is visible, and before the first change"
        );
        host.submit(b"2", b"value", Strict);
        if let Some(flush) = flush {
            flush.finish(host.log.flush()).expect("the storage works");
        }
        host.database.flush().expect("the storage works");
        let commit = changes.next_commit().expect("it is held").expect("there is one");
        assert_eq!(commit.version, before + 2);
        assert_eq!(changes.next_commit().expect("readable"), None);
        assert_eq!(host.survivor(), before + 2);
        // As long as somebody listens, all commits are held.
        host.submit(b"3", b"value", Strict);
        let mut other = host.database.changes(None).expect("the storage works");
        assert_eq!(other.version(), before + 2);
        host.database.flush().expect("the storage works");
        assert_eq!(
            other.next_commit().expect("it is held").map(|commit| commit.version),
            Some(before + 3)
        );
    }
}

#[test]
fn a_submitted_commit_is_seen_and_kept_from_its_flush_on() {
    let host = Host::new();
    let submitted = host.submit(b"1", b"value", Strict);
    assert!(submitted.awaits_flush);
    assert_eq!((submitted.info.version, host.database.version()), (2, 1));
    assert_eq!(host.survivor(), 1);
    let flush = host.database.begin_flush().expect("it waits");
    assert!(host.database.begin_flush().is_none(), "one at a time");
    host.log.flush().expect("the storage works");
    assert_eq!(host.database.version(), 1, "the host has not said so yet");
    flush.finish(Ok(())).expect("as given");
    assert_eq!((host.database.version(), host.survivor()), (2, 2));
    assert!(host.database.begin_flush().is_none(), "nothing is left");
}

#[test]
fn one_flush_serves_all_that_were_submitted_before() {
    let host = Host::new();
    for number in 0..5_u8 {
        assert!(host.submit(&[number], b"value", Strict).awaits_flush);
    }
    let flush = host.database.begin_flush().expect("they wait");
    let late = host.submit(b"late", b"value", Strict);
    host.log.flush().expect("the storage works");
    flush.finish(Ok(())).expect("as given");
    assert_eq!(host.database.version(), 6, "the late one has to wait for the next");
    host.flush();
    assert_eq!(
        (host.database.version(), host.survivor()),
        (late.info.version, late.info.version)
    );
}

#[test]
fn commits_without_a_flush_do_not_wait() {
    let host = Host::new();
    assert!(!host.submit(b"1", b"value", Relaxed).awaits_flush);
    assert_eq!(host.database.version(), 2);
    let nothing = host.database.begin().expect("the database can be written");
    assert!(
        nothing.submit(Strict).expect("the storage works").awaits_flush,
        "the prefix rule"
    );
    host.flush();
    assert_eq!(host.survivor(), 2);
    let transaction = host
        .database
        .transaction(Isolation::Serializable)
        .expect("the database can be written");
    assert!(!transaction.submit(Strict).expect("nothing to do").awaits_flush);
}

#[test]
fn optimistic_transactions_are_submitted_too() {
    let host = Host::new();
    let mut transaction = host
        .database
        .transaction(Isolation::Serializable)
        .expect("the database can be written");
    transaction.set("c", b"0", b"second").expect("memory takes it");
    let mut late = host
        .database
        .transaction(Isolation::Serializable)
        .expect("the database can be written");
    late.get("c", b"0").expect("memory gives it");
    late.set("c", b"1", b"value").expect("memory takes it");
    assert!(transaction.submit(Strict).expect("the storage works").awaits_flush);
    // It conflicts with a commit that it could not see yet.
    assert!(matches!(late.submit(Strict), Err(Error::Conflict { .. })));
    host.flush();
    assert_eq!(host.survivor(), 2);
}

#[test]
fn blocks_are_flushed_before_the_records_that_refer_to_them() {
    let host = Host::new();
    let large = vec![7; 6000];
    let submitted = host.submit(b"large", &large, Strict);
    assert!(submitted.awaits_flush);
    let mut flush = host.database.begin_flush().expect("it waits");
    assert!(flush.needs_data());
    flush.release();
    let again = host.database.begin_flush().expect("it still waits");
    assert!(again.needs_data(), "what was released is done again");
    host.data.flush().expect("the storage works");
    again.finish(host.log.flush()).expect("the storage works");
    flush.finish(Ok(())).expect("as given");
    let database = open(&SimStorage::from_files(host.storage.crash(CrashPolicy::Nothing, 0)));
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"large").expect("it can be read"), Some(large));
}

#[test]
fn a_failed_flush_undoes_what_waited_and_ends_writing() {
    let host = Host::new();
    host.submit(b"1", b"value", Strict);
    let flush = host.database.begin_flush().expect("it waits");
    let failure = Error::StorageFull {
        context: "flush log".into(),
    };
    assert!(flush.finish(Err(failure)).is_err());
    assert_eq!(host.database.version(), 1);
    assert!(matches!(host.database.begin(), Err(Error::Poisoned { .. })));
    assert!(host.database.begin_flush().is_none());
    assert!(host.database.snapshot().collection("c").is_some(), "reads continue");
}

#[test]
fn a_flush_that_is_given_up_counts_as_failed() {
    let host = Host::new();
    host.submit(b"1", b"value", Strict);
    drop(host.database.begin_flush());
    assert!(matches!(host.database.begin(), Err(Error::Poisoned { .. })));
}

#[test]
fn a_released_flush_lets_others_flush_and_still_counts() {
    let host = Host::new();
    let first = host.submit(b"1", b"value", Strict).info.version;
    let mut flush = host.database.begin_flush().expect("it waits");
    flush.release();
    host.database.flush().expect("nobody has to be waited for");
    assert_eq!((host.database.version(), host.survivor()), (first, first));
    let second = host
        .database
        .set("c", b"2", b"value", Strict)
        .expect("the storage works")
        .version;
    flush.finish(Ok(())).expect("as given");
    assert_eq!((host.database.version(), host.survivor()), (second, second));

    host.submit(b"3", b"value", Strict);
    let mut flush = host.database.begin_flush().expect("it waits");
    flush.release();
    host.database.flush().expect("the storage works");
    // The system reported lost writes to this flush and to no other.
    let failure = Error::StorageFull {
        context: "flush log".into(),
    };
    assert!(flush.finish(Err(failure)).is_err());
    assert!(matches!(host.database.begin(), Err(Error::Poisoned { .. })));
}

/// Regression: a commit refused for a failed flush became visible after all. An earlier flush,
/// which the commit did not wait for, succeeded later.
#[test]
fn a_refused_commit_stays_unseen_whatever_a_released_flush_says_later() {
    let host = Host::new();
    let first = host.database.version();
    host.submit(b"1", b"value", Strict);
    let mut released = host.database.begin_flush().expect("it waits");
    released.release();
    let at = host.storage.counters().operations;
    host.storage.set_fault(Some(Fault::once(at, FaultKind::Io)));
    assert!(host.database.flush().is_err(), "the commit is refused");
    released.finish(Ok(())).expect("as given");
    assert_eq!(host.database.version(), first);
    let tree = host.database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"1").expect("reads continue"), None);
}

#[test]
fn a_thread_that_has_to_flush_waits_for_the_host() {
    let host = Host::new();
    host.submit(b"1", b"value", Strict);
    let flush = host.database.begin_flush().expect("it waits");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| host.database.set("c", b"2", b"value", Strict));
        // Not a proof that it waits, which the scheduler tests give; without the wait this would
        // fail now and then.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        flush.finish(host.log.flush()).expect("the storage works");
        let info = waiting.join().expect("it does not panic").expect("the storage works");
        assert_eq!((info.version, host.survivor()), (3, 3));
    });
}

/// Commits become visible in their order, whatever each waits for.
#[test]
fn a_relaxed_commit_is_not_visible_before_a_strict_one() {
    let host = Host::new();
    let before = host.database.version();
    assert!(host.submit(b"1", b"strict", Strict).awaits_flush);
    assert!(host.submit(b"2", b"relaxed", Relaxed).awaits_flush);
    assert_eq!(host.database.version(), before);
    host.flush();
    assert_eq!(host.database.version(), before + 2);
    let tree = host.database.snapshot().collection("c").expect("it was created");
    for (key, value) in [(b"1", b"strict".to_vec()), (b"2", b"relaxed".to_vec())] {
        assert_eq!(tree.get(key).expect("the storage works"), Some(value));
    }
}

/// A checkpoint that holds a submitted commit makes it durable, and so visible.
#[test]
fn a_checkpoint_shows_what_was_submitted() {
    let host = Host::new();
    let submitted = host.submit(b"1", b"value", Strict);
    assert!(submitted.awaits_flush);
    host.database.checkpoint().expect("the storage works");
    assert_eq!(
        (host.database.version(), host.survivor()),
        (submitted.info.version, submitted.info.version)
    );
    let tree = host.database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"1").expect("it can be read"), Some(b"value".to_vec()));
}

/// Merges flush and switch the log while a commit waits: what waits has something to wait for.
#[test]
fn what_awaits_a_flush_has_one_to_begin() {
    let host = Host::new();
    let mut flushes = 0;
    for number in 0..600_u32 {
        let submitted = host.submit(&number.to_be_bytes(), &[number as u8; 100], Strict);
        if submitted.awaits_flush {
            host.flush();
            flushes += 1;
        }
        assert_eq!(host.database.version(), submitted.info.version);
    }
    let checkpoints = host.database.stats().checkpoints;
    assert!(
        flushes > 500 && checkpoints > 3,
        "{flushes} flushes, {checkpoints} checkpoints"
    );
}

/// A merge in idle time flushes the log before its checkpoint, and with it what was submitted
/// meanwhile: that is visible then, as nothing is left to flush.
#[test]
fn what_a_merge_in_idle_time_flushes_is_visible() {
    let host = Host::new();
    let mut number = 0_u32;
    while !host.database.merge_slice().expect("the storage works") {
        host.submit(&number.to_be_bytes(), &[1; 100], Strict);
        host.flush();
        number += 1;
    }
    let submitted = host.submit(b"last", b"value", Strict);
    assert!(submitted.awaits_flush);
    let before = host.database.stats().checkpoints;
    while host.database.stats().checkpoints == before {
        assert_eq!(host.database.merge_slice(), Ok(true), "the merge goes on");
    }
    assert_eq!(host.survivor(), submitted.info.version);
    assert_eq!(host.database.version(), submitted.info.version);
    assert!(host.database.begin_flush().is_none(), "nothing is left to flush");
}

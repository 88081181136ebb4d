//! Proves the protocols between threads: group flush, publication of staged versions, snapshots
//! against checkpoints. A scheduler decides at each lock, condition, atomic and storage operation
//! which thread runs next.
//!
//! Each transaction counts the commits, so the content of a version identifies it and shows whether
//! a commit is missing. Runs with `--features shuttle` only; `MANGROVE_SHUTTLE_SCHEDULES` and
//! `MANGROVE_SHUTTLE_SEED` ask for more (see docs/TESTING.md).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64 as Figure, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use mangrove_engine::storage::{Storage, StorageFile};
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Keeps, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Compression, Database, Direction, Durability, Error, ExclusiveTransaction, KeyRange, Options,
    Result, Snapshot,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, thread};

type Files = BTreeMap<String, Vec<u8>>;
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Yields to other threads before and after each storage operation.
struct Interleaved {
    inner: SimStorage,
    turns: Arc<AtomicU64>,
    /// The open files, for a host that flushes.
    files: OpenFiles,
}

/// One thread fills it while the database opens; afterwards it is only read.
type OpenFiles = Arc<std::sync::Mutex<BTreeMap<String, Arc<dyn StorageFile>>>>;

struct InterleavedFile {
    inner: Arc<dyn StorageFile>,
    turns: Arc<AtomicU64>,
}

impl InterleavedFile {
    fn between<T>(&self, operation: impl FnOnce(&dyn StorageFile) -> T) -> T {
        self.turns.fetch_add(1, Ordering::SeqCst);
        let result = operation(&*self.inner);
        self.turns.fetch_add(1, Ordering::SeqCst);
        result
    }
}

impl Storage for Interleaved {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(name, create)?;
        let turns = Arc::clone(&self.turns);
        let file: Arc<dyn StorageFile> = Arc::new(InterleavedFile { inner, turns });
        let mut files = self.files.lock().expect("nobody panicked");
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
}

impl StorageFile for InterleavedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.between(|file| file.read_at(offset, into))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.between(|file| file.write_at(offset, from))
    }

    fn flush(&self) -> Result<()> {
        self.between(|file| file.flush())
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.between(|file| file.set_len(len))
    }
}

fn options(log_bytes: u32) -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            database_id: Some(7),
            session: Some(thread_rng().r#gen()),
            log_bytes: Some(log_bytes),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

/// A database under test and the storage below it.
struct World {
    database: Database,
    storage: SimStorage,
    files: OpenFiles,
    /// Whether a host's flush may run beside another. That relies on a system that reports lost
    /// writes to both.
    may_release: bool,
}

impl World {
    fn open(files: &Files) -> Self {
        let storage = SimStorage::from_files(files.clone());
        let files = OpenFiles::default();
        let interleaved = Interleaved {
            inner: storage.clone(),
            turns: Arc::default(),
            files: Arc::clone(&files),
        };
        let database = Database::open(Arc::new(interleaved), options(0)).expect("the files are whole");
        Self {
            database,
            storage,
            files,
            may_release: false,
        }
    }

    fn file(&self, name: &str) -> Arc<dyn StorageFile> {
        Arc::clone(&self.files.lock().expect("nobody panicked")[name])
    }

    /// Commits like a host that flushes itself, unless another thread is flushing.
    fn commit_as_host(&self, transaction: ExclusiveTransaction<'_>, durability: Durability) -> Result<()> {
        let submission = transaction.submit(durability)?;
        if !submission.awaits_flush {
            return Ok(());
        }
        let Some(mut flush) = self.database.begin_flush() else {
            return self.database.flush();
        };
        if self.may_release && thread_rng().gen_bool(0.3) {
            flush.release();
            self.database.flush()?;
        }
        let blocks = if flush.needs_data() {
            self.file("data").flush()
        } else {
            Ok(())
        };
        flush.finish(blocks.and_then(|()| self.file("log").flush()))
    }

    /// Commits once more and checks what the acknowledgement promises.
    fn commit(&self, writer: u8, durability: Durability) -> Result<u64> {
        let mut transaction = self.database.begin()?;
        let count = transaction.get("c", b"count")?.map_or(0, |bytes| number(&bytes)) + 1;
        transaction.set("c", b"count", &count.to_be_bytes())?;
        transaction.set("c", &[writer], &count.to_be_bytes().repeat(20))?;
        if durability == Durability::Strict {
            transaction.set("c", b"strict", &count.to_be_bytes())?;
        }
        if thread_rng().gen_bool(0.3) {
            transaction.set("c", b"out of line", &count.to_be_bytes().repeat(80))?;
        }
        assert_eq!(transaction.seal().version, count, "a commit is missing below this one");
        if thread_rng().gen_bool(0.3) {
            self.commit_as_host(transaction, durability)?;
        } else {
            transaction.commit(durability)?;
        }
        match durability {
            Durability::Strict => self.crash(any_policy(), count),
            // Process death alone.
            Durability::Relaxed => check_image(self.storage.files(), count),
            Durability::None => self.crash(any_policy(), 0),
        }
        assert!(self.database.version() >= count, "a commit is not visible");
        Ok(count)
    }

    /// Crashes now; the commits up to `at_least` must survive.
    fn crash(&self, policy: CrashPolicy, at_least: u64) {
        check_image(self.storage.crash(policy, thread_rng().r#gen()), at_least);
    }
}

fn check_image(files: Files, at_least: u64) {
    let storage = Arc::new(SimStorage::from_files(files));
    let database = Database::open(storage, options(0)).expect("every image opens");
    let snapshot = database.snapshot();
    assert!(snapshot.version() >= at_least, "{at_least} is lost");
    check(&snapshot);
}

fn any_policy() -> CrashPolicy {
    CrashPolicy::ALL[thread_rng().gen_range(0..CrashPolicy::ALL.len())]
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().expect("numbers have 8 bytes"))
}

/// Returns the records of a snapshot, which must be those of its version.
fn check(snapshot: &Snapshot) -> Records {
    let tree = snapshot.collection("c").expect("it was there from the start");
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    let mut records = Records::new();
    while cursor.advance().expect("it can be read") {
        let value = cursor.value().expect("it can be read");
        assert!(value.chunks(8).all(|part| part == &value[..8]), "a torn value");
        assert!(number(&value) <= snapshot.version());
        records.insert(cursor.key().to_vec(), value);
    }
    assert_eq!(records.len() as u64, tree.len());
    assert_eq!(number(&records[&b"count"[..]]), snapshot.version());
    records
}

/// Takes snapshots while others write.
fn read(world: &World, times: u32) {
    let held = world.database.snapshot();
    let before = check(&held);
    let mut newest = held.version();
    for _ in 0..times {
        let snapshot = world.database.snapshot();
        let image = world.storage.crash(CrashPolicy::Nothing, 0);
        assert!(snapshot.version() >= newest, "time went backwards");
        newest = snapshot.version();
        let records = check(&snapshot);
        // A strict commit is invisible until it is durable.
        check_image(image, number(&records[&b"strict"[..]]));
    }
    assert!(check(&held) == before, "a held snapshot changed");
}

/// Makes checkpoints and flushes while others write.
fn keep_up(world: &World, times: u32) -> Result<()> {
    for _ in 0..times {
        let version = world.database.version();
        if thread_rng().gen_bool(0.5) {
            world.database.flush()?;
        } else {
            world.database.checkpoint()?;
        }
        world.crash(any_policy(), version);
    }
    Ok(())
}

/// Returns a closed database with `fill` further records, created once per process.
fn files(log_bytes: u32, fill: u8, made: &'static OnceLock<Files>) -> &'static Files {
    made.get_or_init(|| {
        let keep = Arc::new(OnceLock::new());
        let inside = Arc::clone(&keep);
        let scheduler = RandomScheduler::new_from_seed(0, 1);
        Runner::new(scheduler, config()).run(move || {
            let storage = SimStorage::new();
            let database = Database::open(Arc::new(storage.clone()), options(log_bytes)).expect("nothing fails");
            let mut transaction = database.begin().expect("nothing fails");
            for key in [&b"count"[..], b"strict"] {
                transaction.set("c", key, &1_u64.to_be_bytes()).expect("nothing fails");
            }
            for key in 0..fill {
                let value = 1_u64.to_be_bytes().repeat(100);
                transaction.set("c", &[100, key], &value).expect("nothing fails");
            }
            transaction.commit(Durability::Strict).expect("nothing fails");
            database.close().expect("nothing fails");
            inside.set(storage.files()).expect("there is one run");
        });
        keep.get().expect("the run ended").clone()
    })
}

fn from_environment(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("it is a number"))
}

/// Runs a test under random schedules, and half as many with few but well-placed thread switches.
/// The latter is probabilistic concurrency testing (Burckhardt et al. 2010).
fn explore(test: impl Fn() + Clone + Send + Sync + 'static) {
    let schedules = from_environment("MANGROVE_SHUTTLE_SCHEDULES", 3000) as usize;
    let seed = from_environment("MANGROVE_SHUTTLE_SEED", 1);
    let random = RandomScheduler::new_from_seed(seed, schedules);
    Runner::new(random, config()).run(test.clone());
    let few_changes = PctScheduler::new_from_seed(seed, 3, schedules / 2);
    Runner::new(few_changes, config()).run(test);
}

/// Recovery needs more stack than the scheduler's default of 60 KiB.
fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config
}

fn spawn(world: &Arc<World>, work: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || work(&world))
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Checks that all is released: the database closes, is intact, and holds all commits.
fn finish(world: Arc<World>, commits: u64) {
    let world = Arc::into_inner(world).expect("all threads have ended");
    let report = world.database.verify().expect("it can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(world.database.version(), 1 + commits);
    world.database.close().expect("nothing fails");
    check_image(world.storage.crash(CrashPolicy::Nothing, 0), 1 + commits);
}

fn any_durability() -> Durability {
    match thread_rng().gen_range(0..4) {
        0 => Durability::None,
        1 => Durability::Relaxed,
        _ => Durability::Strict,
    }
}

/// Everything at once, with a log that is full after a few commits, and without a log.
#[test]
fn commits_snapshots_and_checkpoints() {
    static LOGGED: OnceLock<Files> = OnceLock::new();
    static UNLOGGED: OnceLock<Files> = OnceLock::new();
    for files in [files(8 << 10, 0, &LOGGED), files(0, 0, &UNLOGGED)] {
        explore(move || {
            let world = Arc::new(World {
                may_release: true,
                ..World::open(files)
            });
            let mut threads = Vec::new();
            for writer in 0..3 {
                threads.push(spawn(&world, move |world| {
                    for _ in 0..3 {
                        world.commit(writer, any_durability()).expect("nothing fails");
                    }
                }));
            }
            threads.push(spawn(&world, |world| read(world, 3)));
            threads.push(spawn(&world, |world| keep_up(world, 3).expect("nothing fails")));
            join(threads);
            finish(world, 9);
        });
    }
}

/// A record goes to the log under the writer's lock. Another thread may flush it, but only after
/// that.
#[test]
fn strict_commits_share_flushes() {
    static FILES: OnceLock<Files> = OnceLock::new();
    static SCHEDULES: Figure = Figure::new(0);
    static FLUSHES: Figure = Figure::new(0);
    const WRITERS: u64 = 4;
    let files = files(64 << 10, 0, &FILES);
    explore(move || {
        let world = Arc::new(World::open(files));
        let threads = (0..WRITERS as u8).map(|writer| {
            spawn(&world, move |world| {
                world.commit(writer, Durability::Strict).expect("nothing fails");
            })
        });
        join(threads.collect());
        let flushes = world.database.stats().log_flushes;
        assert!(flushes <= WRITERS);
        SCHEDULES.fetch_add(1, Relaxed);
        FLUSHES.fetch_add(flushes, Relaxed);
        finish(world, WRITERS);
    });
    let (schedules, flushes) = (SCHEDULES.load(Relaxed), FLUSHES.load(Relaxed));
    assert!(flushes < schedules * WRITERS, "no schedule shared a flush");
}

/// Readers load pages from the file while checkpoints free and reuse space.
#[test]
fn cold_reads_against_reused_space() {
    static FILES: OnceLock<Files> = OnceLock::new();
    let files = files(8 << 10, 12, &FILES);
    explore(move || {
        let world = Arc::new(World::open(files));
        let reader = |world: &World| read(world, 2);
        let mut threads = vec![spawn(&world, reader), spawn(&world, reader)];
        threads.push(spawn(&world, |world| {
            for round in 0..4 {
                let mut transaction = world.database.begin().expect("nothing fails");
                let count = round + 2;
                for key in 0..6 {
                    let value = u64::to_be_bytes(count).repeat(100);
                    let key = [100, thread_rng().gen_range(0..12) * key % 12];
                    transaction.set("c", &key, &value).expect("nothing fails");
                }
                transaction
                    .set("c", b"count", &count.to_be_bytes())
                    .expect("nothing fails");
                transaction.commit(Durability::None).expect("nothing fails");
                world.database.checkpoint().expect("nothing fails");
            }
        }));
        join(threads);
        finish(world, 4);
    });
}

/// One storage operation fails at any moment, and a failed flush loses what it should have written.
/// No thread waits forever, and acknowledged commits hold.
#[test]
fn failures_under_contention() {
    static FILES: OnceLock<Files> = OnceLock::new();
    let files = files(8 << 10, 0, &FILES);
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        explore(move || {
            let world = Arc::new(World::open(files));
            let at = world.storage.counters().operations + thread_rng().gen_range(0..14);
            world.storage.set_fault(Some(Fault {
                forgets: true,
                keeps: if thread_rng().r#gen() {
                    Keeps::Half
                } else {
                    Keeps::Nothing
                },
                ..Fault::once(at, kind)
            }));
            let mut threads = Vec::new();
            for writer in 0..3 {
                threads.push(spawn(&world, move |world| {
                    let mut poisoned = false;
                    for _ in 0..2 {
                        match world.commit(writer, any_durability()) {
                            Ok(_) => assert!(!poisoned, "a commit after a failed flush"),
                            Err(Error::Poisoned { .. }) => poisoned = true,
                            Err(Error::Io(_) | Error::StorageFull { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }));
            }
            threads.push(spawn(&world, |world| read(world, 2)));
            threads.push(spawn(&world, |world| {
                let _ = keep_up(world, 2);
            }));
            join(threads);
            check(&world.database.snapshot());
            // No thread may have written a superblock that refers to blocks lost by another
            // thread's flush.
            for policy in CrashPolicy::ALL {
                world.crash(policy, 0);
            }
        });
    }
}

/// Fills the memtables with records whose merge takes several slices.
fn prefill(world: &World) {
    let mut transaction = world.database.begin().expect("nothing fails");
    let count = transaction.get("c", b"count").expect("nothing fails");
    let count = count.map_or(0, |bytes| number(&bytes)) + 1;
    for key in 0..24 {
        let value = count.to_be_bytes().repeat(30);
        transaction.put("c", &[100, key], &value).expect("nothing fails");
    }
    transaction
        .set("c", b"count", &count.to_be_bytes())
        .expect("nothing fails");
    transaction.commit(Durability::Relaxed).expect("nothing fails");
}

/// Merges what others commit, as a host's thread does. Returns how often there was something to
/// merge.
fn merge(world: &World, times: u32) -> u64 {
    let mut merged = 0;
    for _ in 0..times {
        // Freezes memtables where that is worthwhile.
        let _ = world.database.merge_slice();
        merged += u64::from(world.database.merge_beside() == Ok(true));
        world.crash(any_policy(), 0);
    }
    merged
}

/// A thread merges while others commit, make checkpoints that need its result, verify and read.
#[test]
fn a_merge_beside_commits() {
    static FILES: OnceLock<Files> = OnceLock::new();
    static MERGED: Figure = Figure::new(0);
    let files = files(64 << 10, 24, &FILES);
    explore(move || {
        let world = Arc::new(World::open(files));
        prefill(&world);
        let mut threads = Vec::new();
        for writer in 0..2 {
            threads.push(spawn(&world, move |world| {
                for _ in 0..2 {
                    world.commit(writer, any_durability()).expect("nothing fails");
                }
            }));
        }
        threads.push(spawn(&world, |world| {
            MERGED.fetch_add(merge(world, 3), Relaxed);
        }));
        threads.push(spawn(&world, |world| read(world, 2)));
        threads.push(spawn(&world, |world| {
            if thread_rng().gen_bool(0.5) {
                let report = world.database.verify().expect("it can be read");
                assert!(report.is_ok(), "{:?}", report.problems);
            } else {
                keep_up(world, 1).expect("nothing fails");
            }
        }));
        join(threads);
        finish(world, 5);
    });
    assert!(MERGED.load(Relaxed) > 0, "no schedule merged beside commits");
}

/// As above, with one failing storage operation.
#[test]
fn a_merge_beside_commits_fails() {
    static FILES: OnceLock<Files> = OnceLock::new();
    let files = files(64 << 10, 24, &FILES);
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        explore(move || {
            let world = Arc::new(World::open(files));
            prefill(&world);
            let at = world.storage.counters().operations + thread_rng().gen_range(0..40);
            world.storage.set_fault(Some(Fault {
                forgets: true,
                ..Fault::once(at, kind)
            }));
            let threads = vec![
                spawn(&world, |world| {
                    for _ in 0..3 {
                        match world.commit(0, any_durability()) {
                            Ok(_) | Err(Error::Poisoned { .. } | Error::Io(_) | Error::StorageFull { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }),
                spawn(&world, |world| {
                    merge(world, 3);
                }),
                spawn(&world, |world| {
                    let _ = keep_up(world, 1);
                }),
            ];
            join(threads);
            check(&world.database.snapshot());
            for policy in CrashPolicy::ALL {
                world.crash(policy, 0);
            }
        });
    }
}

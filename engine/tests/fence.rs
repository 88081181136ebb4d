//! Proves that when the same files are opened several times without a lock, no opening silently
//! loses what another acknowledged: a commit is there when the database is reopened, or it was
//! refused with [`Error::Locked`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mangrove_engine::storage::{Storage, StorageFile, Watch};
use mangrove_engine::testing::sim::{CrashPolicy, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, Options};
use proptest::prelude::*;

type Bytes = Arc<Mutex<Vec<u8>>>;
/// What happens in the middle of the next flush of a log.
type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Files that anyone may open at any time.
#[derive(Clone, Default)]
struct Unlocked {
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
    watch: Watch,
    /// No file may become longer.
    is_full: Arc<AtomicBool>,
    meanwhile: Meanwhile,
}

struct UnlockedFile {
    bytes: Bytes,
    is_full: Arc<AtomicBool>,
    meanwhile: Option<Meanwhile>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Storage for Unlocked {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>, Error> {
        let mut files = lock(&self.files);
        if !create && !files.contains_key(name) {
            return Err(Error::NotFound { what: name.into() });
        }
        let bytes = Arc::clone(files.entry(name.to_owned()).or_default());
        Ok(Arc::new(UnlockedFile {
            bytes,
            is_full: Arc::clone(&self.is_full),
            meanwhile: (name == "log").then(|| Arc::clone(&self.meanwhile)),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool, Error> {
        Ok(lock(&self.files).contains_key(name))
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        lock(&self.files).remove(name);
        Ok(())
    }
}

impl StorageFile for UnlockedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = lock(&self.bytes);
        let start = offset as usize;
        let part = bytes
            .get(start..start + into.len())
            .ok_or_else(|| Error::io("reading", "end of file"))?;
        into.copy_from_slice(part);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut bytes = lock(&self.bytes);
        let (start, end) = (offset as usize, offset as usize + from.len());
        if bytes.len() < end {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(Error::StorageFull {
                    context: "writing".into(),
                });
            }
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        let meanwhile = self.meanwhile.as_ref().and_then(|meanwhile| lock(meanwhile).take());
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(lock(&self.bytes).len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        lock(&self.bytes).resize(len as usize, 0);
        Ok(())
    }
}

fn open(storage: &Unlocked) -> Result<Database, Error> {
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(32 << 10),
            node_bytes: 1024,
            unit_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(storage.clone()), options)
}

fn set(database: &Database, key: u32, value: &[u8], durability: Durability) -> Result<(), Error> {
    let mut transaction = database.begin()?;
    transaction.set("", &key.to_be_bytes(), value)?;
    transaction.commit(durability).map(|_| ())
}

fn get(database: &Database, key: u32) -> Option<Vec<u8>> {
    let snapshot = database.snapshot();
    let collection = snapshot.collection("")?;
    collection.get(&key.to_be_bytes()).expect("what is there can be read")
}

fn is_locked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Locked { .. }))
}

/// What an opening does before or after the other one opens the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Nothing,
    Strict,
    Relaxed,
    Checkpoint,
    Close,
}

const STEPS: [Step; 5] = [
    Step::Nothing,
    Step::Strict,
    Step::Relaxed,
    Step::Checkpoint,
    Step::Close,
];

fn take(step: Step, database: Database, key: u32) -> Option<Database> {
    match step {
        Step::Nothing => {}
        Step::Strict => set(&database, key, b"strict", Durability::Strict).expect("it is alone"),
        Step::Relaxed => set(&database, key, b"relaxed", Durability::Relaxed).expect("it is alone"),
        Step::Checkpoint => {
            set(&database, key, b"checkpoint", Durability::None).expect("it is alone");
            database.checkpoint().expect("it is alone");
        }
        Step::Close => {
            set(&database, key, b"closed", Durability::None).expect("it is alone");
            database.close().expect("it is alone");
            return None;
        }
    }
    Some(database)
}

#[test]
fn the_first_opener_is_refused_once_another_took_over() {
    for watch in [Watch::Flushes, Watch::Writes] {
        for before in STEPS.into_iter().filter(|step| *step != Step::Close) {
            for after in STEPS
                .into_iter()
                .filter(|step| !matches!(step, Step::Nothing | Step::Relaxed))
            {
                for large in [false, true] {
                    let storage = Unlocked {
                        watch,
                        ..Unlocked::default()
                    };
                    let first = take(before, open(&storage).unwrap(), 0).expect("it stays open");
                    let second = open(&storage).unwrap();
                    let second = take(after, second, 1);
                    let value = vec![7; if large { 4000 } else { 4 }];
                    let context = format!("{watch:?} {before:?} {after:?} {large}");
                    assert!(is_locked(&set(&first, 2, &value, Durability::Strict)), "{context}");
                    assert!(
                        is_locked(&set(&first, 3, &value, Durability::Strict)),
                        "{context}: later too"
                    );
                    assert!(
                        is_locked(&set(&first, 3, &value, Durability::Relaxed)),
                        "{context}: later too"
                    );
                    assert_eq!(
                        get(&first, 0).is_some(),
                        before != Step::Nothing,
                        "{context}: reading goes on"
                    );
                    drop(first);
                    if let Some(second) = second {
                        set(&second, 4, b"on", Durability::Strict).expect(&context);
                    }
                    let again = open(&storage).unwrap();
                    assert!(get(&again, 1).is_some(), "{context}");
                    assert_eq!(get(&again, 2), None, "{context}");
                    assert!(again.verify().expect("it can be read").problems.is_empty(), "{context}");
                }
            }
        }
    }
}

#[test]
fn the_second_opener_is_refused_if_the_first_kept_writing() {
    for watch in [Watch::Flushes, Watch::Writes] {
        for before in STEPS.into_iter().filter(|step| *step != Step::Close) {
            for after in STEPS.into_iter().filter(|step| *step != Step::Nothing) {
                let storage = Unlocked {
                    watch,
                    ..Unlocked::default()
                };
                let first = take(before, open(&storage).unwrap(), 0).expect("it stays open");
                let second = open(&storage).unwrap();
                let first = take(after, first, 1);
                let context = format!("{watch:?} {before:?} {after:?}");
                assert!(is_locked(&set(&second, 2, b"x", Durability::Strict)), "{context}");
                drop(second);
                let again = open(&storage).unwrap();
                assert!(get(&again, 1).is_some(), "{context}");
                drop((first, again));
            }
        }
    }
}

/// Regression: what a refused write should have left in the log was looked for there.
#[test]
fn a_refused_write_of_the_log_is_no_other_writer() {
    for watch in [Watch::Writes, Watch::Flushes] {
        for commits in 0..3 {
            let storage = Unlocked {
                watch,
                ..Unlocked::default()
            };
            let first = open(&storage).unwrap();
            set(&first, 1, b"a", Durability::Strict).unwrap();
            first.close().unwrap();
            let database = open(&storage).unwrap();
            for number in 0..commits {
                set(&database, number, b"b", Durability::Relaxed).unwrap();
            }
            storage.is_full.store(true, Ordering::Relaxed);
            let refused = (0..2000).find_map(|_| set(&database, 2, &[1; 200], Durability::Strict).err());
            assert!(matches!(refused, Some(Error::StorageFull { .. })), "{refused:?}");
            storage.is_full.store(false, Ordering::Relaxed);
            set(&database, 3, b"c", Durability::Strict).unwrap();
            database.close().unwrap();
        }
    }
}

#[test]
fn opening_and_reading_do_not_disturb_the_writer() {
    let storage = Unlocked {
        watch: Watch::Writes,
        ..Unlocked::default()
    };
    let first = open(&storage).unwrap();
    for durability in [Durability::Strict, Durability::None] {
        set(&first, 1, b"a", durability).unwrap();
    }
    let contents = || {
        lock(&storage.files)
            .iter()
            .map(|(name, bytes)| {
                // The log may have got more zeros, as room for a checkpoint.
                let end = lock(bytes).iter().rposition(|byte| *byte != 0);
                (name.clone(), lock(bytes)[..=end.unwrap_or(0)].to_vec())
            })
            .collect::<Vec<_>>()
    };
    let before = contents();
    for _ in 0..3 {
        let second = open(&storage).unwrap();
        assert!(get(&second, 1).is_some());
        set(&first, 1, b"a", Durability::None).unwrap();
    }
    assert_eq!(contents(), before);
    set(&first, 2, b"b", Durability::Strict).unwrap();
    first.close().unwrap();
}

#[derive(Clone, Debug)]
enum Action {
    Open(usize),
    Set(usize, Step, bool),
    Checkpoint(usize),
    Close(usize),
    Drop(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let who = 0..3usize;
    prop_oneof![
        2 => who.clone().prop_map(Action::Open),
        8 => (who.clone(), prop_oneof![Just(Step::Strict), Just(Step::Relaxed), Just(Step::Nothing)], prop::bool::weighted(0.2))
            .prop_map(|(who, step, large)| Action::Set(who, step, large)),
        1 => who.clone().prop_map(Action::Checkpoint),
        1 => who.clone().prop_map(Action::Close),
        1 => who.prop_map(Action::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_acknowledged_strict_commit_is_lost(actions in prop::collection::vec(action(), 1..60)) {
        let storage = Unlocked { watch: Watch::Writes, ..Unlocked::default() };
        let mut openings: [Option<Database>; 3] = [None, None, None];
        let mut acknowledged = Vec::new();
        for (key, action) in actions.into_iter().enumerate() {
            let key = key as u32;
            match action {
                Action::Open(who) => {
                    openings[who] = None;
                    openings[who] = Some(open(&storage).unwrap());
                }
                Action::Set(who, step, large) => {
                    let Some(database) = &openings[who] else { continue };
                    let durability = match step {
                        Step::Strict => Durability::Strict,
                        Step::Relaxed => Durability::Relaxed,
                        _ => Durability::None,
                    };
                    match set(database, key, &vec![1; if large { 5000 } else { 10 }], durability) {
                        Ok(()) if durability == Durability::Strict => acknowledged.push(key),
                        Ok(()) => {}
                        Err(error) => prop_assert!(matches!(error, Error::Locked { .. }), "{error}"),
                    }
                }
                Action::Checkpoint(who) => {
                    if let Some(Err(error)) = openings[who].as_ref().map(Database::checkpoint) {
                        prop_assert!(matches!(error, Error::Locked { .. }), "{error}");
                    }
                }
                Action::Close(who) => {
                    if let Some(Err(error)) = openings[who].take().map(Database::close) {
                        prop_assert!(matches!(error, Error::Locked { .. }), "{error}");
                    }
                }
                Action::Drop(who) => openings[who] = None,
            }
        }
        drop(openings);
        let again = open(&storage).unwrap();
        for key in acknowledged {
            prop_assert!(get(&again, key).is_some(), "{key} is lost");
        }
        prop_assert!(again.verify().unwrap().problems.is_empty());
    }
}

/// The host's flush succeeds although another opening has claimed the files meanwhile: what it flushed
/// may be overwritten.
#[test]
fn a_flush_of_the_host_acknowledges_nothing_after_another_opening() {
    for watch in [Watch::Flushes, Watch::Writes] {
        let storage = Unlocked {
            watch,
            ..Unlocked::default()
        };
        let first = open(&storage).unwrap();
        set(&first, 1, b"a", Durability::Strict).unwrap();
        let mut transaction = first.begin().unwrap();
        transaction.set("", &2_u32.to_be_bytes(), b"b").unwrap();
        assert!(transaction.submit(Durability::Strict).unwrap().awaits_flush);
        let flush = first.begin_flush().expect("a commit waits");
        let second = open(&storage).unwrap();
        set(&second, 3, b"c", Durability::Strict).unwrap();
        assert!(is_locked(&flush.finish(Ok(()))), "{watch:?}");
        assert_eq!(get(&first, 2), None, "{watch:?}");
    }
}

/// A record whose value a power cut took does not count, and stands where the next one goes. It is
/// nobody's but the log's own.
#[test]
fn a_record_that_does_not_count_is_no_other_writer() {
    let small = || Options {
        advanced: AdvancedOptions {
            log_bytes: Some(32 << 10),
            node_bytes: 1024,
            unit_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let simulated = SimStorage::new();
    let database = Database::open(Arc::new(simulated.clone()), small()).unwrap();
    set(&database, 1, b"a", Durability::Strict).unwrap();
    set(&database, 2, &vec![7; 5000], Durability::Relaxed).unwrap();
    let mut files = simulated.files();
    let durable = simulated.crash(CrashPolicy::Nothing, 0);
    files.insert("data".to_owned(), durable["data"].clone());
    for watch in [Watch::Flushes, Watch::Writes] {
        let storage = Unlocked {
            watch,
            ..Unlocked::default()
        };
        *lock(&storage.files) = files
            .iter()
            .map(|(name, bytes)| (name.clone(), Arc::new(Mutex::new(bytes.clone()))))
            .collect();
        let database = open(&storage).unwrap();
        assert!(get(&database, 1).is_some() && get(&database, 2).is_none());
        set(&database, 3, b"c", Durability::Strict).expect("it is alone");
    }
}

/// What is not flushed may overwrite, too: a write of an earlier opening is refused before it is made.
#[test]
fn a_relaxed_commit_of_an_earlier_opening_overwrites_nothing() {
    let storage = Unlocked {
        watch: Watch::Writes,
        ..Unlocked::default()
    };
    let first = open(&storage).unwrap();
    set(&first, 1, b"a", Durability::Strict).unwrap();
    let second = open(&storage).unwrap();
    set(&second, 2, b"b", Durability::Strict).unwrap();
    assert!(is_locked(&set(&first, 3, b"c", Durability::Relaxed)));
    drop((first, second));
    let again = open(&storage).unwrap();
    assert!(get(&again, 1).is_some() && get(&again, 2).is_some());
    assert_eq!(get(&again, 3), None);
}

/// A write that an earlier opening was about to make before it could see the claim may come when the
/// first record is written and not flushed yet, and take its place.
#[test]
fn a_first_record_that_was_overwritten_is_not_acknowledged() {
    // Records of relaxed commits are written without a look at the claims.
    let storage = Unlocked {
        watch: Watch::Flushes,
        ..Unlocked::default()
    };
    let first = open(&storage).unwrap();
    set(&first, 1, b"a", Durability::Strict).unwrap();
    let second = open(&storage).unwrap();
    let late = move || set(&first, 2, b"b", Durability::Relaxed).expect("it sees no claim");
    *lock(&storage.meanwhile) = Some(Box::new(late));
    let acknowledged = set(&second, 3, b"c", Durability::Strict);
    drop(second);
    let again = open(&storage).unwrap();
    assert_eq!(get(&again, 3), None, "it was overwritten");
    assert!(is_locked(&acknowledged), "{acknowledged:?}");
}

/// A death while the claim is written may tear all that a large sector holds: the whole slot. What a
/// checkpoint has acknowledged is in the newest superblock only, which has the other one.
#[test]
fn a_claim_that_was_torn_takes_no_checkpoint_away() {
    for checkpoints in 1..4 {
        let storage = Unlocked {
            watch: Watch::Writes,
            ..Unlocked::default()
        };
        let first = open(&storage).unwrap();
        for number in 0..checkpoints {
            set(&first, number, b"a", Durability::None).unwrap();
            first.checkpoint().unwrap();
        }
        drop(first);
        let slots = || lock(&lock(&storage.files)["data"])[..8192].to_vec();
        let before = slots();
        let second = open(&storage).unwrap();
        set(&second, 100, b"b", Durability::Relaxed).unwrap();
        drop(second);
        let differs = (0..8192)
            .find(|at| slots()[*at] != before[*at])
            .expect("it has a claim");
        let slot = differs / 4096 * 4096;
        lock(&lock(&storage.files)["data"])[slot..slot + 4096].fill(0xA5);
        let again = open(&storage).unwrap();
        for number in 0..checkpoints {
            assert!(get(&again, number).is_some(), "{number} of {checkpoints}");
        }
    }
}

//! Proves that each event is emitted in the situation that it names, with its fields. Runs with
//! `--features tracing` only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, Once};

use mangrove_engine::storage::{MemoryStorage, Storage, StorageFile, Watch};
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options, Result};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// An event, with its fields as text.
#[derive(Clone, Debug)]
struct Seen {
    level: Level,
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().expect("it is a number")
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => drop(self.fields.insert(name, text)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

thread_local! {
    /// The events of this thread, if a test wants them.
    static EVENTS: RefCell<Option<Vec<Seen>>> = const { RefCell::new(None) };
}

/// Collects the engine's events.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mangrove_engine"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = Seen {
            level: *event.metadata().level(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut seen);
        EVENTS.with_borrow_mut(|events| events.iter_mut().for_each(|events| events.push(seen.clone())));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Opens a database, once the events of all threads are collected.
fn open_with(storage: impl Storage + 'static, options: Options) -> Database {
    static COLLECTED: Once = Once::new();
    COLLECTED.call_once(|| tracing::subscriber::set_global_default(Collector).expect("there is no other"));
    Database::open(Arc::new(storage), options).expect("the storage works")
}

/// Returns the events that this thread emits meanwhile, in order.
fn events(work: impl FnOnce()) -> Vec<Seen> {
    EVENTS.set(Some(Vec::new()));
    work();
    EVENTS.take().expect("it was just set")
}

fn of<'s>(seen: &'s [Seen], message: &str) -> Vec<&'s Seen> {
    seen.iter().filter(|seen| seen.message == message).collect()
}

fn only<'s>(seen: &'s [Seen], message: &str) -> &'s Seen {
    let found = of(seen, message);
    assert_eq!(found.len(), 1, "{message}: {seen:#?}");
    found[0]
}

fn open(storage: &MemoryStorage) -> Database {
    open_with(storage.clone(), Options::default())
}

fn set(database: &Database, key: u8) {
    let done = database.set("c", &[key], b"value", Durability::Strict);
    done.expect("memory works");
}

#[test]
fn opening_tells_what_it_found() {
    let storage = MemoryStorage::new();
    let seen = events(|| set(&open(&storage), 1));
    let opened = only(&seen, "opened");
    assert_eq!(opened.level, Level::INFO);
    assert_eq!(
        (opened.number("version"), opened.fields["was_closed"].as_str()),
        (0, "true")
    );
    assert!(
        of(&seen, "one superblock is lost, the other one is used").is_empty(),
        "{seen:#?}"
    );
    // The handle was dropped without a close.
    let seen = events(|| drop(open(&storage)));
    let opened = only(&seen, "opened");
    assert_eq!((opened.number("version"), opened.number("checkpoint_version")), (1, 0));
    assert_eq!(opened.fields["was_closed"], "false");
    assert_eq!(opened.fields["read_only"], "false");
}

#[test]
fn a_checkpoint_is_the_end_of_a_merge() {
    let database = open(&MemoryStorage::new());
    set(&database, 1);
    set(&database, 2);
    let seen = events(|| database.checkpoint().expect("memory works"));
    let order: Vec<&str> = seen.iter().map(|seen| seen.message.as_str()).collect();
    assert_eq!(order, ["merge began", "checkpoint", "merge ended"]);
    assert!(seen.iter().all(|seen| seen.level == Level::DEBUG));
    assert_eq!((seen[0].number("version"), seen[0].number("entries")), (2, 2));
    assert_eq!((seen[2].number("version"), seen[2].number("entries")), (2, 2));
    let checkpoint = &seen[1];
    assert_eq!(checkpoint.number("version"), 2);
    assert_eq!(checkpoint.fields["partial"], "false");
    assert_eq!(checkpoint.fields["closing"], "false");
    let seen = events(|| database.close().expect("memory works"));
    assert_eq!(only(&seen, "checkpoint").fields["closing"], "true");
}

#[test]
fn a_merge_that_a_clear_gives_up_is_abandoned() {
    let options = Options {
        cache_bytes: 64 << 10,
        ..Options::default()
    };
    let database = open_with(MemoryStorage::new(), options);
    let has_begun =
        || EVENTS.with_borrow(|events| !of(events.as_deref().unwrap_or_default(), "merge began").is_empty());
    let seen = events(|| {
        for number in 0..4000_u32 {
            if has_begun() {
                break;
            }
            let done = database.set("c", &number.to_be_bytes(), &[7; 100], Durability::Relaxed);
            done.expect("memory works");
        }
        let mut transaction = database.begin().expect("it is open");
        transaction.drop_collection("c").expect("memory works");
        transaction.commit(Durability::Relaxed).expect("memory works");
    });
    let version = only(&seen, "merge began").number("version");
    assert_eq!(only(&seen, "merge was abandoned").number("version"), version);
    assert!(of(&seen, "merge ended").is_empty());
}

#[test]
fn a_full_half_switches_the_log() {
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(16 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = open_with(MemoryStorage::new(), options);
    let few = events(|| set(&database, 1));
    assert!(of(&few, "log switched halves").is_empty());
    let seen = events(|| (0..=255).for_each(|key| (0..8).for_each(|_| set(&database, key))));
    let switches = of(&seen, "log switched halves");
    assert!(switches.len() > 1);
    assert!(switches.is_sorted_by_key(|switch| switch.number("generation")));
}

/// Files that several openings share without a lock.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<BTreeMap<String, SharedFile>>>);

#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl Storage for Shared {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let mut files = self.0.lock().expect("nobody panicked");
        if !create && !files.contains_key(name) {
            return Err(Error::NotFound { what: name.into() });
        }
        Ok(Arc::new(files.entry(name.to_owned()).or_default().clone()))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.0.lock().expect("nobody panicked").contains_key(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().expect("nobody panicked").remove(name);
        Ok(())
    }

    fn watch(&self) -> Watch {
        Watch::Writes
    }
}

impl SharedFile {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panicked")
    }
}

impl StorageFile for SharedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let at = offset as usize;
        into.copy_from_slice(&self.bytes()[at..at + into.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let (mut bytes, end) = (self.bytes(), offset as usize + from.len());
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes().resize(len as usize, 0);
        Ok(())
    }
}

#[test]
fn the_fence_tells_of_its_claim_and_of_another_writer() {
    let storage = Shared::default();
    let open = |session| {
        let options = Options {
            advanced: AdvancedOptions {
                session: Some(session),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        open_with(storage.clone(), options)
    };
    let (first, second) = (open(1), open(2));
    let seen = events(|| set(&second, 1));
    assert_eq!(only(&seen, "fence wrote its claim").number("session"), 2);
    let seen = events(|| {
        let refused = first.set("c", b"key", b"value", Durability::Strict);
        assert!(matches!(refused, Err(Error::Locked { .. })));
    });
    let found = only(&seen, "fence found another writer");
    assert_eq!((found.level, found.fields["is_open"].as_str()), (Level::WARN, "true"));
    assert!(of(&seen, "fence wrote its claim").is_empty());
}

/// Files of a database with two checkpoints.
fn checkpointed() -> BTreeMap<String, Vec<u8>> {
    let storage = MemoryStorage::new();
    let database = open_with(storage.clone(), small());
    for key in 0..6 {
        set(&database, key);
        if key % 2 == 1 {
            database.checkpoint().expect("memory works");
        }
    }
    storage.files().into_iter().collect()
}

fn small() -> Options {
    Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn word(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"))
}

fn reopen(files: BTreeMap<String, Vec<u8>>) -> Vec<Seen> {
    let storage = SimStorage::from_files(files).without_shadow();
    events(|| drop(open_with(storage, small())))
}

#[test]
fn a_damaged_block_of_the_newest_checkpoint_leads_to_the_older_superblock() {
    let mut files = checkpointed();
    assert!(of(&reopen(files.clone()), "opened from the older superblock").is_empty());
    let data = files.get_mut("data").expect("it is there");
    let newest = word(data, 32).max(word(data, 4128));
    for at in (8192..data.len()).step_by(512) {
        if data[at..].starts_with(b"MGBK\x01") && word(data, at + 16) == newest {
            data[at + 40] ^= 1;
        }
    }
    let seen = reopen(files);
    let fallback = only(&seen, "opened from the older superblock");
    assert_eq!(fallback.level, Level::WARN);
    assert_eq!(fallback.number("damaged_generation"), newest);
    assert!(fallback.number("generation") < newest);
    assert_eq!(fallback.number("version"), 6);
    assert!(
        fallback.fields["cause"].starts_with("corrupt database: "),
        "{fallback:?}"
    );
}

#[test]
fn a_slot_without_a_superblock_is_told() {
    let mut files = checkpointed();
    let data = files.get_mut("data").expect("it is there");
    let older = usize::from(word(data, 32) > word(data, 4128));
    data[older * 4096..][..4096].fill(0);
    let seen = reopen(files);
    let lost = only(&seen, "one superblock is lost, the other one is used");
    assert_eq!((lost.level, lost.number("version")), (Level::WARN, 6));
    assert!(of(&seen, "opened from the older superblock").is_empty());
}

#[test]
fn a_log_that_a_full_storage_cannot_merge_stays_in_memory() {
    let options = |cache_bytes| Options {
        cache_bytes,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(8 << 20),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let storage = SimStorage::new();
    let mut rng = SimRng::new(1);
    let database = open_with(storage.clone(), options(4 << 20));
    for first in 0..40_u64 {
        let mut transaction = database.begin().expect("it is open");
        for number in 0..100_u64 {
            let value: Vec<u8> = (0..60).map(|_| rng.next_u64() as u8).collect();
            let key = (first * 100 + number).to_be_bytes();
            transaction.put("c", &key, &value).expect("the storage works");
        }
        transaction.commit(Durability::Strict).expect("the storage works");
    }
    drop(database);
    storage.set_capacity(Some(storage.files().values().map(|file| file.len() as u64).sum()));
    let seen = events(|| drop(open_with(storage, options(64 << 10))));
    let fallback = only(&seen, "opening found no space to merge the log, and keeps it in memory");
    assert_eq!((fallback.level, fallback.number("version")), (Level::WARN, 0));
    assert_eq!(only(&seen, "opened").number("version"), 40);
}

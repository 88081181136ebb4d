//! Single records: versions, conditional writes, updates, renaming of collections, and time to live
//! with a test clock.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{
    AdvancedOptions, Background, Clock, Database, Direction, Durability, Error, ExclusiveTransaction, Isolation,
    KeyRange, Options, ReadWrite, Update,
};

struct World {
    storage: MemoryStorage,
    time: Arc<AtomicU64>,
}

impl World {
    fn new() -> Self {
        Self {
            storage: MemoryStorage::new(),
            time: Arc::new(AtomicU64::new(1000)),
        }
    }

    fn open(&self) -> Database {
        let time = Arc::clone(&self.time);
        let storage: Arc<dyn Storage> = Arc::new(self.storage.clone());
        let options = Options {
            clock: Clock::new(move || time.load(Ordering::Relaxed)),
            advanced: AdvancedOptions {
                unit_bytes: 512,
                node_bytes: 512,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        Database::open(storage, options).expect("memory works")
    }
}

fn keys(database: &Database, direction: Direction) -> Vec<Vec<u8>> {
    let Some(tree) = database.snapshot().collection("c") else {
        return Vec::new();
    };
    let mut cursor = tree.cursor(KeyRange::all(), direction);
    let mut keys = Vec::new();
    while cursor.advance().expect("memory works") {
        keys.push(cursor.key().to_vec());
    }
    keys
}

#[test]
fn every_record_knows_the_commit_that_wrote_it() {
    let world = World::new();
    let database = world.open();
    for (version, key) in [(1, b"a"), (2, b"b")] {
        let mut transaction = database.begin().expect("it is open");
        transaction.set("c", key, b"1").expect("memory works");
        assert_eq!(
            transaction.commit(Durability::Strict).expect("memory works").version,
            version
        );
    }
    let mut transaction = database.begin().expect("it is open");
    assert!(
        !transaction
            .compare_and_set("c", b"a", Some(2), b"no")
            .expect("memory works")
    );
    assert!(
        !transaction
            .compare_and_set("c", b"a", None, b"no")
            .expect("memory works")
    );
    assert!(
        transaction
            .compare_and_set("c", b"a", Some(1), b"2")
            .expect("memory works")
    );
    assert!(
        transaction
            .compare_and_set("c", b"new", None, b"3")
            .expect("memory works")
    );
    transaction.commit(Durability::Strict).expect("memory works");
    // Once before and once after a checkpoint.
    for _ in 0..2 {
        let reopened = {
            let _ = database.version();
            database.snapshot()
        };
        let tree = reopened.collection("c").expect("it is there");
        let versions: Vec<u64> = [b"a".as_slice(), b"b", b"new"]
            .iter()
            .map(|key| tree.entry(key).expect("memory works").expect("it is there").version)
            .collect();
        assert_eq!(versions, [3, 2, 3]);
        database.checkpoint().expect("memory works");
    }
    drop(database);
    let database = world.open();
    let tree = database.snapshot().collection("c").expect("it is there");
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    let mut versions = Vec::new();
    while cursor.advance().expect("memory works") {
        versions.push(cursor.version());
    }
    assert_eq!(versions, [3, 2, 3]);
}

#[test]
fn versions_survive_in_the_log() {
    let world = World::new();
    let database = world.open();
    for _ in 0..3 {
        let mut transaction = database.begin().expect("it is open");
        transaction.set("c", b"k", b"v").expect("memory works");
        transaction.commit(Durability::Relaxed).expect("memory works");
    }
    drop(database);
    let tree = world.open().snapshot().collection("c").expect("it is there");
    assert_eq!(tree.entry(b"k").expect("memory works").expect("it is there").version, 3);
}

#[test]
fn updates_inserts_and_takes() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    let made = transaction
        .get_or_insert("c", b"k", || b"1".to_vec())
        .expect("memory works");
    assert_eq!(made, b"1");
    let found = transaction
        .get_or_insert("c", b"k", || unreachable!())
        .expect("memory works");
    assert_eq!(found, b"1");
    let grown = transaction
        .update("c", b"k", |value| {
            Update::Set([value.expect("it is there").value.as_slice(), b"2"].concat())
        })
        .expect("memory works");
    assert_eq!(grown, Some(b"12".to_vec()));
    assert_eq!(
        transaction.update("c", b"none", |value| {
            assert_eq!(value, None);
            Update::Keep
        }),
        Ok(None)
    );
    assert_eq!(transaction.take("c", b"k"), Ok(Some(b"12".to_vec())));
    assert_eq!(transaction.take("c", b"k"), Ok(None));
    transaction.set("c", b"gone", b"").expect("memory works");
    assert_eq!(transaction.update("c", b"gone", |_| Update::Delete), Ok(None));
    assert_eq!(transaction.get("c", b"gone"), Ok(None));
}

#[test]
fn an_update_keeps_the_expiry_unless_it_says_otherwise() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    transaction
        .set_until("c", b"lease", b"a", Some(9000))
        .expect("memory works");
    transaction
        .update("c", b"lease", |entry| {
            assert_eq!(entry.expect("it is there").expires_at, Some(9000));
            Update::Set(b"b".to_vec())
        })
        .expect("memory works");
    let expiry = |transaction: &ExclusiveTransaction<'_>| {
        let entry = transaction.entry("c", b"lease").expect("memory works");
        entry.expect("it is there").expires_at
    };
    assert_eq!(expiry(&transaction), Some(9000));
    for expires_at in [Some(12_000), None] {
        transaction
            .update("c", b"lease", |_| Update::SetUntil(b"c".to_vec(), expires_at))
            .expect("memory works");
        assert_eq!(expiry(&transaction), expires_at);
    }
}

#[test]
fn collections_are_renamed() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    transaction.set("c", b"k", b"v").expect("memory works");
    transaction.set("d", b"k", b"w").expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let mut transaction = database.begin().expect("it is open");
    assert!(matches!(
        transaction.rename_collection("c", "d"),
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(transaction.rename_collection("none", "e"), Ok(false));
    assert_eq!(transaction.rename_collection("c", "e"), Ok(true));
    assert!(matches!(
        transaction.rename_collection("e", "\0ttl7"),
        Err(Error::InvalidArgument { .. })
    ));
    transaction.commit(Durability::Strict).expect("memory works");
    for closes in [false, true] {
        let names =
            |database: &Database| -> Vec<String> { database.collections().into_iter().map(|info| info.name).collect() };
        let database = world_database(&world, &database, closes);
        assert_eq!(names(&database), ["d", "e"]);
        let tree = database.snapshot().collection("e").expect("it is there");
        assert_eq!(tree.get(b"k"), Ok(Some(b"v".to_vec())));
    }
}

/// Opens a copy of the files as they are now.
fn world_database(world: &World, open: &Database, closes: bool) -> Database {
    if closes {
        open.checkpoint().expect("memory works");
    }
    let copy = World {
        storage: MemoryStorage::new(),
        time: Arc::clone(&world.time),
    };
    for (name, bytes) in world.storage.files() {
        let file = copy.storage.open(&name, true).expect("memory works");
        file.write_at(0, &bytes).expect("memory works");
    }
    copy.open()
}

#[test]
fn expired_records_are_invisible_at_once_and_purged_in_slices() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    for number in 0..100_u64 {
        let expires = (number % 2 == 0).then_some(2000 + number);
        transaction
            .set_until("c", &number.to_be_bytes(), b"v", expires)
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    let before = database.snapshot();
    let len = |database: &Database| database.snapshot().collection("c").expect("it is there").len();
    assert_eq!(len(&database), 100);
    world.time.store(2050, Ordering::Relaxed);
    let held = before.collection("c").expect("it is there");
    assert_eq!(held.len(), 100, "a snapshot stays at its time");
    assert!(held.contains(&0_u64.to_be_bytes()).expect("memory works"));
    // 2000, 2002, ... 2050: 26 have expired.
    assert_eq!(len(&database), 74);
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(&0_u64.to_be_bytes()), Ok(None));
    assert_eq!(
        tree.entry(&52_u64.to_be_bytes())
            .expect("memory works")
            .expect("it is there")
            .expires_at,
        Some(2052)
    );
    assert_eq!(tree.rank(&52_u64.to_be_bytes()), Ok(26));
    assert_eq!(
        tree.at(0).expect("memory works").expect("it is there").0,
        1_u64.to_be_bytes()
    );
    assert_eq!(
        tree.at(25).expect("memory works").expect("it is there").0,
        51_u64.to_be_bytes()
    );
    assert_eq!(
        tree.at(26).expect("memory works").expect("it is there").0,
        52_u64.to_be_bytes()
    );
    assert_eq!(tree.at(74), Ok(None));
    assert_eq!(
        tree.last().expect("memory works").expect("it is there").0,
        99_u64.to_be_bytes()
    );
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    cursor.skip(26).expect("memory works");
    assert!(cursor.advance().expect("memory works"));
    assert_eq!(cursor.key(), 52_u64.to_be_bytes());
    let mut transaction = database.begin().expect("it is open");
    assert_eq!(transaction.get("c", &2_u64.to_be_bytes()), Ok(None));
    assert_eq!(
        transaction.set("c", &2_u64.to_be_bytes(), b"again"),
        Ok(false),
        "an expired record is none"
    );
    assert_eq!(transaction.delete("c", &4_u64.to_be_bytes()), Ok(false));
    transaction.commit(Durability::Strict).expect("memory works");
    assert_eq!(len(&database), 75);
    let mut due = 0;
    loop {
        let found = database.purge_expired(10).expect("memory works");
        due += found;
        if found < 10 {
            break;
        }
    }
    assert_eq!(due, 26);
    assert_eq!(len(&database), 75);
    assert_eq!(
        database
            .snapshot()
            .collection("c")
            .expect("it is there")
            .get(&2_u64.to_be_bytes()),
        Ok(Some(b"again".to_vec()))
    );
    assert_eq!(database.purge_expired(10), Ok(0));
    assert!(database.verify().expect("memory works").is_ok());
    assert_eq!(database.collections().len(), 1, "hints are hidden");
    assert_eq!(before.collection("c").expect("it is there").len(), 100);
    let mut transaction = database.begin().expect("it is open");
    assert_eq!(transaction.drop_collection("c"), Ok(true));
    transaction.commit(Durability::Strict).expect("memory works");
    drop((before, held, tree, cursor));
    database.close().expect("memory works");
    let database = world.open();
    assert_eq!(database.stats().collections, 0);
}

#[test]
fn time_to_live_matches_a_model() {
    for seed in 0..20 {
        let world = World::new();
        let mut database = world.open();
        let mut rng = SimRng::new(seed);
        let mut model: BTreeMap<Vec<u8>, (u64, Option<u64>)> = BTreeMap::new();
        for step in 0..60 {
            let mut transaction = database.begin().expect("it is open");
            let now = world.time.load(Ordering::Relaxed);
            for _ in 0..rng.below(20) {
                let key = vec![rng.below(40) as u8; 1 + rng.below(2) as usize];
                match rng.below(4) {
                    0 => {
                        let existed = model
                            .remove(&key)
                            .is_some_and(|(_, expires)| expires.is_none_or(|expires| expires > now));
                        assert_eq!(transaction.delete("c", &key), Ok(existed));
                    }
                    kind => {
                        let expires = (kind != 1).then(|| now + rng.below(300));
                        let value = rng.next_u64();
                        let existed = model
                            .insert(key.clone(), (value, expires))
                            .is_some_and(|(_, expires)| expires.is_none_or(|expires| expires > now));
                        let set = transaction.set_until("c", &key, &value.to_be_bytes(), expires);
                        assert_eq!(set, Ok(existed));
                    }
                }
            }
            transaction.commit(Durability::Strict).expect("memory works");
            let now = world.time.fetch_add(rng.below(60), Ordering::Relaxed);
            let now = now.max(world.time.load(Ordering::Relaxed));
            if rng.below(3) == 0 {
                database
                    .purge_expired(rng.below(10) as usize + 1)
                    .expect("memory works");
            }
            if rng.below(10) == 0 {
                drop(database);
                database = world.open();
            }
            let visible: Vec<&Vec<u8>> = model
                .iter()
                .filter(|(_, (_, expires))| expires.is_none_or(|expires| expires > now))
                .map(|(key, _)| key)
                .collect();
            assert!(
                keys(&database, Direction::Forward).iter().eq(visible.iter().copied()),
                "seed {seed} step {step}"
            );
            assert!(
                keys(&database, Direction::Reverse)
                    .iter()
                    .rev()
                    .eq(visible.iter().copied())
            );
            let Some(tree) = database.snapshot().collection("c") else {
                continue;
            };
            assert_eq!(tree.len(), visible.len() as u64);
            let (low, high) = (vec![rng.below(40) as u8], vec![rng.below(40) as u8]);
            let inside = visible.iter().filter(|key| ***key >= low && ***key < high).count() as u64;
            let range = KeyRange {
                lower: Bound::Included(&low),
                upper: Bound::Excluded(&high),
            };
            assert_eq!(tree.count(range), Ok(inside));
            for (index, key) in visible.iter().enumerate() {
                assert_eq!(tree.rank(key), Ok(index as u64));
                assert_eq!(
                    &tree.at(index as u64).expect("memory works").expect("it is there").0,
                    *key
                );
            }
        }
        assert!(database.verify().expect("memory works").is_ok());
    }
}

#[test]
fn verification_reports_progress_and_can_be_cancelled() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    for number in 0..500_u64 {
        transaction
            .set_until("c", &number.to_be_bytes(), &[1; 50], Some(number + 1))
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    database.checkpoint().expect("memory works");
    let mut last = 0;
    let report = database
        .verify_with(&mut |progress| {
            assert!(progress.entries >= last && progress.entries <= progress.total_entries);
            last = progress.entries;
            ControlFlow::Continue(())
        })
        .expect("memory works")
        .expect("it was not ended");
    assert!(report.is_ok() && report.entries == 500 && last > 400);
    let mut left = 5;
    let ended = database.verify_with(&mut |_| {
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(ended, Ok(None));
}

#[test]
fn purging_is_no_conflict() {
    let expiring = |database: &Database| {
        let mut transaction = database.begin().expect("it is open");
        transaction
            .set_until("c", b"a", b"v", Some(2000))
            .expect("memory works");
        transaction.set("c", b"b", b"v").expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
    };
    // Begun before the record expires, and after.
    for begun in [1000, 3000] {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let world = World::new();
            let database = world.open();
            expiring(&database);
            world.time.store(begun, Ordering::Relaxed);
            let mut transaction = database.transaction(isolation).expect("it is open");
            let live = begun < 2000;
            let found = transaction.get("c", b"a").expect("memory works");
            assert_eq!(found.is_some(), live);
            assert_eq!(transaction.count("c", KeyRange::all()), Ok(1 + u64::from(live)));
            transaction.put("c", b"a", b"new").expect("memory works");
            world.time.store(3000, Ordering::Relaxed);
            assert_eq!(database.purge_expired(10), Ok(1));
            let version = database.snapshot().version();
            assert_eq!(database.purge_expired(10), Ok(0));
            assert_eq!(database.snapshot().version(), version, "nothing to purge is no commit");
            transaction.commit(Durability::Strict).expect("nobody changed anything");
            let tree = database.snapshot().collection("c").expect("it is there");
            assert_eq!(tree.get(b"a"), Ok(Some(b"new".to_vec())));
            assert_eq!(tree.len(), 2);
            // A concurrent write by someone else is still a conflict.
            let mut transaction = database.transaction(isolation).expect("it is open");
            assert_eq!(transaction.get("c", b"b"), Ok(Some(b"v".to_vec())));
            transaction.put("c", b"b", b"mine").expect("memory works");
            expiring(&database);
            assert_eq!(database.purge_expired(10), Ok(1));
            let result = transaction.commit(Durability::Strict);
            assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
            assert!(database.verify().expect("memory works").is_ok());
        }
    }
}

#[test]
fn a_background_thread_flushes_and_purges() {
    let world = World::new();
    let database = Arc::new(world.open());
    let background = Background::start(Arc::clone(&database), Duration::from_millis(1));
    let mut transaction = database.begin().expect("it is open");
    transaction.set_until("c", b"gone", b"", Some(1)).expect("memory works");
    transaction.set_until("c", b"kept", b"", None).expect("memory works");
    transaction.commit(Durability::Relaxed).expect("memory works");
    while database.needs_flush() || database.purge_expired(1) != Ok(0) {
        std::thread::yield_now();
    }
    drop(background);
    assert!(!database.needs_flush());
    assert_eq!(keys(&database, Direction::Forward), [b"kept"]);
}

/// Beside a record that expires there is a key which is longer than its own.
#[test]
fn a_key_that_expires_has_to_leave_room_for_its_hint() {
    let database = Database::open(Arc::new(MemoryStorage::new()), Options::default()).expect("memory works");
    let longest = vec![7; database.max_expiring_key_bytes()];
    let longer = [longest.as_slice(), b"1"].concat();
    let mut transaction = database.begin().expect("it is open");
    transaction
        .put_until("c", &longest, b"", Some(u64::MAX))
        .expect("there is room");
    let refused = transaction.put_until("c", &longer, b"", Some(u64::MAX));
    assert!(matches!(refused, Err(Error::KeyTooLarge(_))), "{refused:?}");
    let refused = transaction.set_until("c", &longer, b"", Some(u64::MAX));
    assert!(matches!(refused, Err(Error::KeyTooLarge(_))), "{refused:?}");
    transaction.put("c", &longer, b"").expect("it does not expire");
    transaction
        .commit(Durability::Strict)
        .expect("nothing was refused of it");
    let tree = database.snapshot().collection("c").expect("it was created");
    assert_eq!(tree.len(), 2);
}

/// Replay of the log finds again what is due, and when.
#[test]
fn records_from_the_log_are_purged_like_others() {
    let world = World::new();
    let database = world.open();
    let mut transaction = database.begin().expect("it is open");
    for number in 0..5_u8 {
        let expires_at = Some(2000 + u64::from(number));
        transaction
            .set_until("c", &[number], b"1", expires_at)
            .expect("memory works");
    }
    transaction.set("c", b"stays", b"1").expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    // Not closed: the records are in the log.
    drop(database);
    let database = world.open();
    world.time.store(2002, Ordering::Relaxed);
    assert_eq!(database.purge_expired(100), Ok(3));
    assert_eq!(database.purge_expired(100), Ok(0));
    world.time.store(3000, Ordering::Relaxed);
    assert_eq!(database.purge_expired(100), Ok(2));
    assert_eq!(keys(&database, Direction::Forward), [b"stays".to_vec()]);
}

#[test]
fn the_next_expiry_in_a_range_is_that_of_a_model() {
    for seed in 0..20 {
        let world = World::new();
        let database = world.open();
        let mut rng = SimRng::new(seed);
        let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        for _ in 0..60 {
            let now = world.time.load(Ordering::Relaxed);
            let mut transaction = database.begin().expect("it is open");
            for _ in 0..rng.below(20) {
                let key = rng.below(60);
                let expires = (rng.below(3) > 0).then(|| now + 1 + rng.below(300));
                if rng.below(4) == 0 {
                    transaction.delete("c", &key.to_be_bytes()).expect("memory works");
                    model.remove(&key);
                } else {
                    transaction
                        .set_until("c", &key.to_be_bytes(), b"v", expires)
                        .expect("memory works");
                    model.insert(key, expires);
                }
            }
            transaction.commit(Durability::Strict).expect("memory works");
            if rng.below(3) == 0 {
                database.purge_expired(10).expect("memory works");
            }
            let (from, to) = (rng.below(60), rng.below(60));
            let (lower, upper) = (from.min(to).to_be_bytes(), from.max(to).to_be_bytes());
            let range = KeyRange {
                lower: Bound::Included(&lower[..]),
                upper: Bound::Excluded(&upper[..]),
            };
            let inside = model.range(from.min(to)..from.max(to));
            let expected = inside
                .filter_map(|(_, expires)| *expires)
                .filter(|expires| *expires > now)
                .min();
            if let Some(tree) = database.snapshot().collection("c") {
                assert_eq!(tree.next_expiry(&range), Ok(expected), "seed {seed}");
            }
            world.time.fetch_add(rng.below(60), Ordering::Relaxed);
        }
    }
}

#[test]
fn behind_many_expiring_records_the_next_expiry_is_a_lower_bound() {
    let world = World::new();
    let database = world.open();
    let now = world.time.load(Ordering::Relaxed);
    let mut transaction = database.begin().expect("it is open");
    for number in 0..2000_u64 {
        transaction
            .set_until("c", &number.to_be_bytes(), b"v", Some(now + 10 + number))
            .expect("memory works");
    }
    transaction
        .set_until("c", b"last", b"v", Some(now + 5000))
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let range = KeyRange {
        lower: Bound::Included(b"l"),
        upper: Bound::Unbounded,
    };
    let tree = database.snapshot().collection("c").expect("it is there");
    let bound = tree.next_expiry(&range).expect("memory works").expect("one expires");
    assert!((now + 1000..now + 2010).contains(&bound), "{bound}");
    world.time.fetch_add(3000, Ordering::Relaxed);
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.next_expiry(&range), Ok(Some(now + 5000)));
}

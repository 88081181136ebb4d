//! Proves that cursors pass runs of records that have expired, or that the transaction itself
//! removed, without a look at each, and that no record is lost that way.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{
    AdvancedOptions, Clock, Database, Direction, Durability, Isolation, KeyRange, OptimisticTransaction, Options,
    ReadWrite as _, Snapshot,
};

/// Value and expiry of each record, expired or not.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

const KEYS: u64 = 300;
const BOTH: [Direction; 2] = [Direction::Forward, Direction::Reverse];

fn open(time: &Arc<AtomicU64>, node_bytes: u32) -> Database {
    let time = Arc::clone(time);
    let options = Options {
        clock: Clock::new(move || time.load(Ordering::Relaxed)),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works")
}

fn key(number: u64) -> Vec<u8> {
    (number as u16).to_be_bytes().to_vec()
}

fn bound(rng: &mut SimRng) -> Bound<Vec<u8>> {
    match rng.below(4) {
        0 => Bound::Included(key(rng.below(KEYS))),
        1 => Bound::Excluded(key(rng.below(KEYS))),
        _ => Bound::Unbounded,
    }
}

fn range_of<'b>(lower: &'b Bound<Vec<u8>>, upper: &'b Bound<Vec<u8>>) -> KeyRange<'b> {
    KeyRange {
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
    }
}

fn is_in(range: &KeyRange<'_>, key: &[u8]) -> bool {
    use std::ops::RangeBounds as _;
    (range.lower, range.upper).contains(key)
}

fn is_visible(expires: Option<u64>, now: u64) -> bool {
    expires.is_none_or(|expires| expires > now)
}

/// What a reader has to find in a range, in a direction.
fn visible(model: &Model, now: u64, range: &KeyRange<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = model
        .iter()
        .filter(|(key, (_, expires))| is_in(range, key) && is_visible(*expires, now));
    let mut records: Vec<_> = inside.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
    if direction == Direction::Reverse {
        records.reverse();
    }
    records
}

/// What remains after a seek.
fn behind(records: &[(Vec<u8>, Vec<u8>)], sought: &[u8], direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_behind = |key: &[u8]| match direction {
        Direction::Forward => key >= sought,
        Direction::Reverse => key <= sought,
    };
    records.iter().filter(|(key, _)| is_behind(key)).cloned().collect()
}

fn check_snapshot(rng: &mut SimRng, snapshot: &Snapshot, model: &Model, now: u64, hint: &str) {
    let Some(tree) = snapshot.collection("c") else { return };
    let (lower, upper) = (bound(rng), bound(rng));
    let range = range_of(&lower, &upper);
    for direction in BOTH {
        let all = visible(model, now, &range, direction);
        let mut cursor = tree.cursor(range, direction);
        let mut expected = all.clone();
        for _ in 0..3 {
            let limit = rng.below(KEYS) as usize;
            for record in expected.iter().take(limit) {
                assert!(cursor.advance().expect("memory works"), "{hint}");
                assert_eq!(
                    (cursor.key(), cursor.value().expect("memory works")),
                    (record.0.as_slice(), record.1.clone()),
                    "{hint}"
                );
            }
            if limit > expected.len() {
                assert!(!cursor.advance().expect("memory works"), "{hint}");
            }
            let sought = key(rng.below(KEYS));
            cursor.seek(&sought).expect("memory works");
            expected = behind(&all, &sought, direction);
        }
    }
    let all = visible(model, now, &KeyRange::all(), Direction::Forward);
    assert_eq!(tree.first().expect("memory works").as_ref(), all.first(), "{hint}");
    assert_eq!(tree.last().expect("memory works").as_ref(), all.last(), "{hint}");
    assert_eq!(tree.at(0).expect("memory works").as_ref(), all.first(), "{hint}");
}

/// Changes a few neighbouring keys at a time, so that runs of one kind come about.
enum Change {
    Set(Vec<u8>, Vec<u8>, Option<u64>),
    Delete(Vec<u8>),
    Clear(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

fn changes(rng: &mut SimRng, now: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..=rng.below(3) {
        if rng.below(8) == 0 {
            changes.push(Change::Clear(bound(rng), bound(rng)));
            continue;
        }
        let kind = rng.below(4);
        let expires = (kind == 0).then(|| now + rng.below(60));
        let len = [1, 1, 10, 80][rng.below(4) as usize];
        let from = rng.below(KEYS);
        // Other records may be between.
        let step = 1 + rng.below(3);
        for number in (from..KEYS.min(from + rng.below(len) + 1)).step_by(step as usize) {
            changes.push(match kind {
                0 | 1 => Change::Set(key(number), rng.next_u64().to_be_bytes().to_vec(), expires),
                _ => Change::Delete(key(number)),
            });
        }
    }
    changes
}

fn apply(model: &mut Model, change: &Change) {
    match change {
        Change::Set(key, value, expires) => {
            model.insert(key.clone(), (value.clone(), *expires));
        }
        Change::Delete(key) => {
            model.remove(key);
        }
        Change::Clear(lower, upper) => model.retain(|key, _| !is_in(&range_of(lower, upper), key)),
    }
}

/// Snapshots of all ages, read in any order, beside commits, removals of what has expired, merges
/// and a clock that also goes back.
#[test]
fn cursors_over_expired_records_match_a_model() {
    for seed in 0..60 {
        let time = Arc::new(AtomicU64::new(1000));
        let mut rng = SimRng::new(seed);
        let database = open(&time, 512);
        let mut model = Model::new();
        let mut snapshots: Vec<(Snapshot, Model, u64)> = Vec::new();
        for step in 0..80 {
            let now = time.load(Ordering::Relaxed);
            let before = model.clone();
            let mut transaction = database.begin().expect("it is open");
            for change in changes(&mut rng, now) {
                match &change {
                    Change::Set(key, value, expires) => transaction.set_until("c", key, value, *expires).map(|_| ()),
                    Change::Delete(key) => transaction.delete("c", key).map(|_| ()),
                    Change::Clear(lower, upper) => transaction.clear("c", range_of(lower, upper)).map(|_| ()),
                }
                .expect("memory works");
                apply(&mut model, &change);
            }
            if rng.below(8) == 0 {
                drop(transaction);
                model = before;
            } else {
                transaction.commit(Durability::Relaxed).expect("memory works");
            }
            match rng.below(6) {
                0 => {
                    database.purge_expired(usize::MAX).expect("memory works");
                    model.retain(|_, (_, expires)| is_visible(*expires, now));
                }
                1 => while database.merge_slice().expect("memory works") {},
                _ => {}
            }
            let now = match rng.below(6) {
                0 => now.saturating_sub(rng.below(40)),
                _ => now + rng.below(30),
            };
            time.store(now, Ordering::Relaxed);
            snapshots.push((database.snapshot(), model.clone(), now));
            if snapshots.len() > 6 {
                snapshots.remove(rng.below(7) as usize);
            }
            for _ in 0..3 {
                let (snapshot, model, now) = &snapshots[rng.below(snapshots.len() as u64) as usize];
                check_snapshot(&mut rng, snapshot, model, *now, &format!("seed {seed} step {step}"));
            }
        }
        drop(snapshots);
        assert!(database.verify().expect("memory works").is_ok());
    }
}

fn check_transaction(rng: &mut SimRng, transaction: &OptimisticTransaction, model: &Model, now: u64, hint: &str) {
    let (lower, upper) = (bound(rng), bound(rng));
    let range = range_of(&lower, &upper);
    for direction in BOTH {
        let all = visible(model, now, &range, direction);
        let mut scan = transaction.scan("c", range, direction);
        let mut expected = all.clone();
        for _ in 0..3 {
            let limit = rng.below(KEYS) as usize;
            for record in expected.iter().take(limit) {
                assert!(scan.advance(transaction).expect("memory works"), "{hint}");
                assert_eq!(
                    (scan.key(), scan.value().expect("memory works")),
                    (record.0.as_slice(), record.1.clone()),
                    "{hint}"
                );
            }
            if limit > expected.len() {
                assert!(!scan.advance(transaction).expect("memory works"), "{hint}");
            }
            let sought = key(rng.below(KEYS));
            scan.seek(&sought).expect("memory works");
            expected = behind(&all, &sought, direction);
        }
    }
}

/// A transaction with writes, removals, cleared ranges and savepoints over a collection in which
/// records have expired.
#[test]
fn scans_over_own_removals_match_a_model() {
    for seed in 0..400 {
        let time = Arc::new(AtomicU64::new(1000));
        let mut rng = SimRng::new(seed);
        let database = open(&time, 512);
        let mut model = Model::new();
        let mut transaction = database.begin().expect("it is open");
        // From a record for each key to few.
        let density = 1 + rng.below(8);
        for number in (0..KEYS).filter(|_| rng.below(density) == 0).collect::<Vec<_>>() {
            let expires = (rng.below(4) == 0).then(|| 1000 + rng.below(30));
            let change = Change::Set(key(number), b"base".to_vec(), expires);
            transaction
                .set_until("c", &key(number), b"base", expires)
                .expect("memory works");
            apply(&mut model, &change);
        }
        transaction.commit(Durability::Relaxed).expect("memory works");
        let now = 1000 + rng.below(30);
        time.store(now, Ordering::Relaxed);
        let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
        let mut savepoint = (transaction.savepoint(), model.clone());
        for step in 0..12 {
            for change in changes(&mut rng, now) {
                match &change {
                    Change::Set(key, value, expires) => transaction.put_until("c", key, value, *expires),
                    Change::Delete(key) => transaction.delete("c", key).map(|_| ()),
                    Change::Clear(lower, upper) => transaction.clear("c", range_of(lower, upper)),
                }
                .expect("memory works");
                apply(&mut model, &change);
            }
            let hint = format!("seed {seed} step {step}");
            check_transaction(&mut rng, &transaction, &model, now, &hint);
            match rng.below(6) {
                0 => savepoint = (transaction.savepoint(), model.clone()),
                1 => {
                    transaction.rollback_to(&savepoint.0);
                    model.clone_from(&savepoint.1);
                    check_transaction(&mut rng, &transaction, &model, now, &hint);
                }
                _ => {}
            }
        }
        transaction.commit(Durability::Relaxed).expect("nobody else wrote");
        let snapshot = database.snapshot();
        check_snapshot(&mut rng, &snapshot, &model, now, &format!("seed {seed}"));
    }
}

const QUEUE: u64 = 20_000;

/// Number of pages that `work` looks up.
fn lookups(database: &Database, work: impl FnOnce()) -> u64 {
    let count = || {
        let stats = database.stats();
        stats.cache_hits + stats.cache_misses
    };
    let before = count();
    work();
    count() - before
}

fn queue(database: &Database, expires: impl Fn(u64) -> Option<u64>) {
    let mut transaction = database.begin().expect("it is open");
    for number in 0..QUEUE {
        transaction
            .set_until("c", &key(number), &[7; 100], expires(number))
            .expect("memory works");
    }
    transaction.commit(Durability::Relaxed).expect("memory works");
    while database.merge_slice().expect("memory works") {}
}

#[test]
fn a_transaction_finds_what_it_left_at_either_end_without_a_look_at_what_it_removed() {
    let database = open(&Arc::new(AtomicU64::new(1000)), 512);
    queue(&database, |_| None);
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    let middle = QUEUE / 2;
    for number in (0..middle).chain(middle + 1..QUEUE) {
        transaction.delete("c", &key(number)).expect("memory works");
    }
    for direction in BOTH {
        let lookups = lookups(&database, || {
            let mut cursor = transaction.cursor("c", KeyRange::all(), direction);
            assert!(cursor.advance().expect("memory works"));
            assert_eq!(cursor.key(), key(middle));
            assert!(!cursor.advance().expect("memory works"));
        });
        assert!(lookups < 1000, "{lookups} lookups");
    }
}

#[test]
fn a_transaction_passes_what_it_cleared_with_a_seek() {
    let database = open(&Arc::new(AtomicU64::new(1000)), 512);
    queue(&database, |_| None);
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    let (low, high) = (key(10), key(QUEUE - 10));
    let range = KeyRange {
        lower: Bound::Included(low.as_slice()),
        upper: Bound::Excluded(high.as_slice()),
    };
    transaction.clear("c", range).expect("memory works");
    for direction in BOTH {
        let lookups = lookups(&database, || {
            let mut cursor = transaction.cursor("c", KeyRange::all(), direction);
            for _ in 0..20 {
                assert!(cursor.advance().expect("memory works"));
            }
            assert!(!cursor.advance().expect("memory works"));
        });
        assert!(lookups < 1000, "{lookups} lookups");
    }
}

#[test]
fn expired_records_are_passed_one_by_one_once() {
    let time = Arc::new(AtomicU64::new(1000));
    let database = open(&time, 512);
    queue(&database, |number| (number != QUEUE / 2).then_some(2000));
    time.store(2000, Ordering::Relaxed);
    let first = |direction| {
        let queue = database.snapshot().collection("c").expect("it exists");
        let found = match direction {
            Direction::Forward => queue.first(),
            Direction::Reverse => queue.last(),
        };
        found.expect("memory works").expect("one is left").0
    };
    for direction in BOTH {
        assert_eq!(first(direction), key(QUEUE / 2));
    }
    for round in 0..5 {
        // Each commit makes a new state, and stores a record in a run.
        let number = QUEUE / 4 + round;
        for direction in BOTH {
            let lookups = lookups(&database, || assert_eq!(first(direction), key(QUEUE / 2)));
            assert!(lookups < 100, "{lookups} lookups in round {round}");
        }
        let set = |expires| {
            let mut transaction = database.begin().expect("it is open");
            transaction
                .set_until("c", &key(number), b"job", expires)
                .expect("memory works");
            transaction.commit(Durability::Relaxed).expect("memory works");
        };
        set(None);
        assert_eq!(first(Direction::Forward), key(number));
        set(Some(2000));
    }
}

//! A property test of indexed collections against sorted maps, with tiny nodes, reopening, expiry,
//! rollbacks, both kinds of transactions, and indexes that are declared and dropped.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{
    Database, Durability, ExclusiveTransaction, IndexedCollection, Isolation, KeyRange, WriteIndexed,
};
use proptest::prelude::*;

use crate::model::{bound, inside, range};

use super::{
    NAME, Time, by_bytes, by_first, by_value, bytes, expected, first_byte, open, read_index, records, start, verify,
};

type Key = Vec<u8>;
/// Value and expiry of each record; 0 means never.
type Model = BTreeMap<Key, (Vec<u8>, u64)>;

#[derive(Clone, Debug)]
enum Change {
    Set(Key, Vec<u8>, Option<u64>),
    Delete(Key),
    Discard(Key),
    Clear(Bound<Key>, Bound<Key>),
    Drop,
}

#[derive(Clone, Debug)]
enum Step {
    Exclusive(Vec<Change>),
    Optimistic(Vec<Change>, bool),
    RollBack(Vec<Change>),
    Read(Vec<u8>, Vec<u8>),
    Purge(u64, usize),
    Declare(u32),
    DropIndex(bool),
    Build(usize),
    Checkpoint,
    Reopen(bool),
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        prop::collection::vec(0_u8..3, 0..4),
        (0_u8..60).prop_map(|number| vec![number]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0_u8..4, 0..4),
        1 => prop::collection::vec(any::<u8>(), 0..120),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let lifetime = prop_oneof![3 => Just(None), 1 => (1_u64..30).prop_map(Some)];
    prop_oneof![
        12 => (key(), value(), lifetime).prop_map(|(key, value, lifetime)| Change::Set(key, value, lifetime)),
        3 => key().prop_map(Change::Delete),
        2 => key().prop_map(Change::Discard),
        1 => (bound(key), bound(key)).prop_map(|(lower, upper)| Change::Clear(lower, upper)),
        1 => Just(Change::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || prop::collection::vec(change(), 1..25);
    prop_oneof![
        6 => changes().prop_map(Step::Exclusive),
        6 => (changes(), any::<bool>()).prop_map(|(changes, snapshot)| Step::Optimistic(changes, snapshot)),
        1 => changes().prop_map(Step::RollBack),
        3 => (value(), value()).prop_map(|(from, to)| Step::Read(from, to)),
        2 => (0_u64..25, 1_usize..20).prop_map(|(passed, limit)| Step::Purge(passed, limit)),
        1 => (1_u32..4).prop_map(Step::Declare),
        1 => any::<bool>().prop_map(Step::DropIndex),
        2 => (0_usize..3).prop_map(Step::Build),
        1 => Just(Step::Checkpoint),
        2 => any::<bool>().prop_map(Step::Reopen),
    ]
}

/// Operations of both kinds of transactions.
trait Changing: WriteIndexed {
    fn delete(&mut self, key: &[u8]) -> bool;
    fn discard(&mut self, key: &[u8]);
    fn clear(&mut self, range: KeyRange<'_>);
    fn drop_collection(&mut self);
}

impl Changing for ExclusiveTransaction<'_> {
    fn delete(&mut self, key: &[u8]) -> bool {
        ExclusiveTransaction::delete(self, NAME, key).expect("memory works")
    }

    fn discard(&mut self, key: &[u8]) {
        ExclusiveTransaction::discard(self, NAME, key).expect("memory works");
    }

    fn clear(&mut self, range: KeyRange<'_>) {
        ExclusiveTransaction::clear(self, NAME, range).expect("memory works");
    }

    fn drop_collection(&mut self) {
        ExclusiveTransaction::drop_collection(self, NAME).expect("memory works");
    }
}

impl Changing for mangrove_engine::OptimisticTransaction {
    fn delete(&mut self, key: &[u8]) -> bool {
        mangrove_engine::OptimisticTransaction::delete(self, NAME, key).expect("memory works")
    }

    fn discard(&mut self, key: &[u8]) {
        Changing::delete(self, key);
    }

    fn clear(&mut self, range: KeyRange<'_>) {
        mangrove_engine::OptimisticTransaction::clear(self, NAME, range).expect("memory works");
    }

    fn drop_collection(&mut self) {
        mangrove_engine::OptimisticTransaction::drop_collection(self, NAME).expect("memory works");
    }
}

/// The declared indexes: version of "first", and whether there is "bytes".
#[derive(Clone, Copy)]
struct Declared {
    first: u32,
    bytes: bool,
}

fn declare(database: &Database, declared: Declared) -> IndexedCollection<'_> {
    let mut indexes = vec![by_first(declared.first), by_value(false)];
    if declared.bytes {
        indexes.push(by_bytes());
    }
    database
        .indexed_collection(NAME, indexes)
        .expect("they can be declared")
}

/// Makes the changes, up to one that drops the collection, as a new one has no indexes.
fn apply(
    transaction: &mut impl Changing,
    notes: &IndexedCollection<'_>,
    model: &mut Model,
    changes: &[Change],
    now: u64,
) {
    for change in changes {
        match change {
            Change::Set(key, value, lifetime) => {
                let expires = lifetime.map(|lifetime| now + lifetime);
                let existed = notes.set(transaction, key, value, expires).expect("it states the keys");
                let before = model.insert(key.clone(), (value.clone(), expires.unwrap_or(0)));
                assert_eq!(
                    existed,
                    before.is_some_and(|(_, expires)| expires == 0 || expires > now)
                );
            }
            Change::Delete(key) => {
                let existed = transaction.delete(key);
                let before = model.remove(key);
                assert_eq!(
                    existed,
                    before.is_some_and(|(_, expires)| expires == 0 || expires > now)
                );
            }
            Change::Discard(key) => {
                transaction.discard(key);
                model.remove(key);
            }
            Change::Clear(lower, upper) => {
                transaction.clear(range(lower, upper));
                model.retain(|key, _| !inside(key, lower, upper));
            }
            Change::Drop => {
                transaction.drop_collection();
                model.clear();
                return;
            }
        }
    }
}

fn check(database: &Database, model: &Model, now: u64) {
    let snapshot = database.snapshot();
    let visible: BTreeMap<Key, Vec<u8>> = model
        .iter()
        .filter(|(_, (_, expires))| *expires == 0 || *expires > now)
        .map(|(key, (value, _))| (key.clone(), value.clone()))
        .collect();
    assert_eq!(records(&snapshot), visible);
    for index in snapshot.indexes(NAME).iter().filter(|index| index.is_complete()) {
        let name = index.definition.name.as_str();
        let wanted = match name {
            "first" => expected(&visible, |value| first_byte(index.definition.version, value)),
            "bytes" => expected(&visible, bytes),
            _ => expected(&visible, start),
        };
        assert_eq!(read_index(&snapshot, name), wanted, "{name}");
    }
}

fn build_some(notes: &IndexedCollection<'_>, slices: usize) {
    let mut left = slices;
    notes
        .build(&mut |_, _| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })
        .expect("memory works");
}

fn run(steps: &[Step]) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let time = Time::default();
    time.set(1000);
    let mut database = open(&storage, &time, 1);
    let mut declared = Declared { first: 1, bytes: true };
    let mut model = Model::new();
    for (number, step) in steps.iter().enumerate() {
        let notes = declare(&database, declared);
        let now = time.now();
        match step {
            Step::Exclusive(changes) => {
                let mut transaction = database.begin().expect("memory works");
                apply(&mut transaction, &notes, &mut model, changes, now);
                transaction.commit(Durability::Strict).expect("memory works");
            }
            Step::Optimistic(changes, snapshot) => {
                let isolation = if *snapshot {
                    Isolation::Snapshot
                } else {
                    Isolation::Serializable
                };
                let mut transaction = database.transaction(isolation).expect("memory works");
                // Deleting an expired record leaves it to the purge.
                let kept: Model = model.clone();
                apply(&mut transaction, &notes, &mut model, changes, now);
                for (key, (value, expires)) in kept {
                    if expires != 0 && expires <= now {
                        model.entry(key).or_insert((value, expires));
                    }
                }
                transaction.commit(Durability::Relaxed).expect("nobody else writes");
            }
            Step::RollBack(changes) => {
                let mut transaction = database.begin().expect("memory works");
                apply(&mut transaction, &notes, &mut model.clone(), changes, now);
            }
            Step::Read(from, to) => {
                let snapshot = database.snapshot();
                let Ok(index) = snapshot.index(NAME, "value") else {
                    continue;
                };
                let (from, to) = if from <= to { (from, to) } else { (to, from) };
                let range = KeyRange {
                    lower: Bound::Included(from),
                    upper: Bound::Excluded(to),
                };
                let starts = records(&snapshot).into_values().flat_map(|value| start(&value));
                let wanted = starts.filter(|value| value >= from && value < to).count();
                assert_eq!(index.count(range).expect("memory works"), wanted as u64);
            }
            Step::Purge(passed, limit) => {
                time.set(now + passed);
                database.purge_expired(*limit).expect("memory works");
            }
            Step::Declare(version) => declared.first = declared.first.max(*version),
            Step::DropIndex(bytes) => {
                declared.bytes = *bytes;
                let mut transaction = database.begin().expect("memory works");
                transaction.drop_index(NAME, "bytes").expect("memory works");
                transaction.commit(Durability::Strict).expect("memory works");
            }
            Step::Build(slices) => build_some(&notes, *slices),
            Step::Checkpoint => database.checkpoint().expect("memory works"),
            Step::Reopen(closes) => {
                if *closes {
                    database.close().expect("memory works");
                } else {
                    database.flush().expect("memory works");
                    drop(database);
                }
                database = open(&storage, &time, number as u64 + 2);
            }
        }
        check(&database, &model, time.now());
    }
    verify(&database, "at the end");
    let notes = declare(&database, declared);
    build_some(&notes, usize::MAX);
    check(&database, &model, time.now());
    verify(&database, "built");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn indexes_behave_like_sorted_maps(steps in prop::collection::vec(step(), 1..30)) {
        run(&steps);
    }
}

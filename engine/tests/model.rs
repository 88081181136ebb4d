//! Proves that a database behaves like sorted maps, whatever the order of operations: a property
//! test against `BTreeMap` with tiny nodes, so that splits and merges happen all the time, and with
//! reopening, snapshots, rollbacks and checkpoints in the mix.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::shadow::{self, ShadowStorage};
use mangrove_engine::{
    AdvancedOptions, Compression, Database, Direction, Durability, Error, KeyRange, Options, Snapshot,
    SnapshotCollection,
};
use proptest::prelude::*;

use crate::common::re_encrypt;

type Key = Vec<u8>;
type Records = BTreeMap<Key, Vec<u8>>;
type Model = BTreeMap<String, Records>;

const NAMES: [&str; 2] = ["", "other"];

#[derive(Clone, Debug)]
enum Change {
    Set(usize, Key, usize),
    Put(usize, Key, usize),
    Delete(usize, Key),
    Discard(usize, Key),
    /// A seed and a number of changes without a read in between; the seed determines the keys.
    Burst(usize, u32, u32),
    Clear(usize, Bound<Key>, Bound<Key>),
    Drop(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Change>, bool),
    RollBack(Vec<Change>),
    Read(usize, Key, Bound<Key>, Bound<Key>, u64),
    Snapshot,
    CheckSnapshot,
    Checkpoint,
    /// Up to so many slices of a re-encryption, where there is a key.
    Reencrypt(u32),
    Reopen(bool),
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        prop::collection::vec(0_u8..3, 0..5),
        prop::collection::vec(any::<u8>(), 0..32),
        (0_u16..400).prop_map(|number| number.to_be_bytes().to_vec()),
    ]
}

/// Bounds with keys of a strategy.
pub(crate) fn bound<S: Strategy<Value = Key>>(key: impl Fn() -> S) -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let name = 0..NAMES.len();
    let len = prop_oneof![8 => 0_usize..60, 1 => 0_usize..3000];
    prop_oneof![
        8 => (name.clone(), key(), len.clone()).prop_map(|(name, key, len)| Change::Set(name, key, len)),
        5 => (name.clone(), key(), len).prop_map(|(name, key, len)| Change::Put(name, key, len)),
        2 => (name.clone(), key()).prop_map(|(name, key)| Change::Discard(name, key)),
        1 => (name.clone(), any::<u32>(), 1_u32..400).prop_map(|(name, seed, count)| Change::Burst(name, seed, count)),
        5 => (name.clone(), key()).prop_map(|(name, key)| Change::Delete(name, key)),
        1 => (name.clone(), bound(key), bound(key)).prop_map(|(name, lower, upper)| Change::Clear(name, lower, upper)),
        1 => name.prop_map(Change::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || prop::collection::vec(change(), 1..40);
    prop_oneof![
        8 => (changes(), any::<bool>()).prop_map(|(changes, durable)| Step::Commit(changes, durable)),
        1 => changes().prop_map(Step::RollBack),
        6 => (0..NAMES.len(), key(), bound(key), bound(key), 0_u64..6)
            .prop_map(|(name, key, lower, upper, skip)| Step::Read(name, key, lower, upper, skip)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::CheckSnapshot),
        1 => Just(Step::Checkpoint),
        1 => (1_u32..20).prop_map(Step::Reencrypt),
        1 => any::<bool>().prop_map(Step::Reopen),
    ]
}

pub(crate) fn inside(key: &[u8], lower: &Bound<Key>, upper: &Bound<Key>) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
    };
    let below = match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound.as_slice(),
        Bound::Excluded(bound) => key < bound.as_slice(),
    };
    above && below
}

pub(crate) fn range<'a>(lower: &'a Bound<Key>, upper: &'a Bound<Key>) -> KeyRange<'a> {
    KeyRange {
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
    }
}

fn re_encrypt_some(database: &Database, slices: u32) {
    let ended = re_encrypt(database, 2048, slices);
    match ended {
        Err(Error::NotEncrypted) => assert_eq!(database.sealed_key(), None),
        ended => drop(ended.expect("memory works")),
    }
}

fn apply(database: &Database, model: &mut Model, changes: &[Change], end: Option<Durability>) {
    let mut next = model.clone();
    let mut transaction = database.begin().expect("memory works");
    for change in changes {
        match change {
            Change::Set(name, key, len) => {
                let value = vec![*len as u8; *len];
                let existed = transaction.set(NAMES[*name], key, &value).expect("memory works");
                let old = next
                    .entry(NAMES[*name].to_owned())
                    .or_default()
                    .insert(key.clone(), value);
                assert_eq!(existed, old.is_some());
            }
            Change::Put(name, key, len) => {
                let value = vec![*len as u8; *len];
                transaction.put(NAMES[*name], key, &value).expect("memory works");
                let records = next.entry(NAMES[*name].to_owned()).or_default();
                records.insert(key.clone(), value);
            }
            Change::Discard(name, key) => {
                transaction.discard(NAMES[*name], key).expect("memory works");
                next.get_mut(NAMES[*name]).map(|records| records.remove(key));
            }
            Change::Burst(name, seed, count) => {
                for number in 0..*count {
                    let random = (number ^ seed).wrapping_mul(0x9E37_79B1).rotate_left(11);
                    let key = ((random % 400) as u16).to_be_bytes();
                    let value = vec![random as u8; (random >> 8) as usize % 40];
                    let records = next.entry(NAMES[*name].to_owned()).or_default();
                    // The collection exists after the first change.
                    if random.is_multiple_of(4) && number > 0 {
                        transaction.discard(NAMES[*name], &key).expect("memory works");
                        records.remove(&key[..]);
                    } else {
                        transaction.put(NAMES[*name], &key, &value).expect("memory works");
                        records.insert(key.to_vec(), value);
                    }
                }
            }
            Change::Delete(name, key) => {
                let existed = transaction.delete(NAMES[*name], key).expect("memory works");
                let old = next.get_mut(NAMES[*name]).and_then(|records| records.remove(key));
                assert_eq!(existed, old.is_some());
            }
            Change::Clear(name, lower, upper) => {
                let removed = transaction
                    .clear(NAMES[*name], range(lower, upper))
                    .expect("memory works");
                let mut expected = 0;
                if let Some(records) = next.get_mut(NAMES[*name]) {
                    let before = records.len();
                    records.retain(|key, _| !inside(key, lower, upper));
                    expected = before - records.len();
                }
                assert_eq!(removed, expected as u64);
            }
            Change::Drop(name) => {
                let existed = transaction.drop_collection(NAMES[*name]).expect("memory works");
                assert_eq!(existed, next.remove(NAMES[*name]).is_some());
            }
        }
    }
    // A commit whose transaction read nothing takes another path.
    let is_read = changes.len().is_multiple_of(2);
    for (name, records) in next.iter().filter(|_| is_read) {
        for key in records.keys().take(3) {
            assert_eq!(
                transaction.get(name, key).expect("memory works").as_ref(),
                records.get(key)
            );
        }
    }
    if let Some(durability) = end {
        transaction.commit(durability).expect("memory works");
        *model = next;
    }
}

/// Checks every kind of read of one collection against the model.
fn check_reads(
    tree: &SnapshotCollection,
    records: &Records,
    key: &[u8],
    lower: &Bound<Key>,
    upper: &Bound<Key>,
    skip: u64,
) {
    assert_eq!(tree.len(), records.len() as u64);
    assert_eq!(tree.get(key).expect("memory works").as_ref(), records.get(key));
    assert_eq!(tree.contains(key).expect("memory works"), records.contains_key(key));
    let below = records.keys().filter(|other| other.as_slice() < key).count();
    assert_eq!(tree.rank(key).expect("memory works"), below as u64);
    let entry = records
        .iter()
        .nth(below)
        .map(|(key, value)| (key.clone(), value.clone()));
    assert_eq!(tree.at(below as u64).expect("memory works"), entry);
    let mut expected: Vec<&Key> = records.keys().filter(|key| inside(key, lower, upper)).collect();
    assert_eq!(
        tree.count(range(lower, upper)).expect("memory works"),
        expected.len() as u64
    );
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = tree.cursor(range(lower, upper), direction);
        cursor.skip(skip).expect("memory works");
        for key in expected.iter().skip(skip as usize) {
            assert!(cursor.advance().expect("memory works"));
            assert_eq!(cursor.key(), key.as_slice());
            assert_eq!(Some(&cursor.value().expect("memory works")), records.get(*key));
        }
        assert!(!cursor.advance().expect("memory works"));
        cursor.seek(key).expect("memory works");
        let beyond = |other: &&&Key| match direction {
            Direction::Forward => other.as_slice() >= key,
            Direction::Reverse => other.as_slice() <= key,
        };
        let wanted = expected.iter().find(beyond);
        assert_eq!(cursor.advance().expect("memory works"), wanted.is_some());
        if let Some(wanted) = wanted {
            assert_eq!(cursor.key(), wanted.as_slice());
        }
        expected.reverse();
    }
}

fn check_all(snapshot: &Snapshot, model: &Model) {
    for name in NAMES {
        match (snapshot.collection(name), model.get(name)) {
            (Some(tree), Some(records)) => {
                check_reads(&tree, records, b"", &Bound::Unbounded, &Bound::Unbounded, 0);
                assert_eq!(
                    tree.first().expect("memory works").map(|(key, _)| key),
                    records.keys().next().cloned()
                );
                assert_eq!(
                    tree.last().expect("memory works").map(|(key, _)| key),
                    records.keys().next_back().cloned()
                );
            }
            (tree, records) => {
                // A collection that only saw deletes was never created; one that was created may be
                // empty.
                assert_eq!(
                    tree.map_or(0, |tree| tree.len()),
                    records.map_or(0, |records| records.len() as u64)
                );
            }
        }
    }
}

fn run(options: &Options, steps: Vec<Step>) {
    shadow::use_key(options.key.clone());
    let storage = ShadowStorage::new(Arc::new(MemoryStorage::new()));
    shadow::use_key(None);
    let open = || Database::open(Arc::new(storage.clone()), options.clone()).expect("memory works");
    let mut database = open();
    let mut model = Model::new();
    let mut durable = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for step in steps {
        match step {
            Step::Commit(changes, is_durable) => {
                let durability = if is_durable {
                    Durability::Strict
                } else {
                    Durability::None
                };
                apply(&database, &mut model, &changes, Some(durability));
                if is_durable {
                    durable = model.clone();
                }
            }
            Step::RollBack(changes) => apply(&database, &mut model, &changes, None),
            Step::Read(name, key, lower, upper, skip) => {
                let empty = Records::new();
                let records = model.get(NAMES[name]).unwrap_or(&empty);
                if let Some(tree) = database.snapshot().collection(NAMES[name]) {
                    check_reads(&tree, records, &key, &lower, &upper, skip);
                }
            }
            Step::Snapshot => snapshots.push((database.snapshot(), model.clone())),
            Step::CheckSnapshot => {
                if let Some((snapshot, then)) = snapshots.pop() {
                    check_all(&snapshot, &then);
                }
            }
            Step::Checkpoint => {
                database.checkpoint().expect("memory works");
                durable = model.clone();
            }
            Step::Reencrypt(slices) => {
                re_encrypt_some(&database, slices);
                if database.stats().durable_version == database.version() {
                    durable = model.clone();
                }
            }
            Step::Reopen(closes) => {
                for (snapshot, then) in snapshots.drain(..) {
                    check_all(&snapshot, &then);
                }
                if closes {
                    database.close().expect("memory works");
                } else {
                    let stats = database.stats();
                    // A later checkpoint may have made a commit without durability durable.
                    if stats.durable_version == stats.version {
                        durable = model.clone();
                    }
                    model = durable.clone();
                    drop(database);
                }
                database = open();
                durable = model.clone();
            }
        }
    }
    check_all(&database.snapshot(), &model);
    snapshots.clear();
    let report = database.verify().expect("memory works");
    assert!(report.is_ok(), "{:?}", report.problems);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tiny_nodes(steps in prop::collection::vec(step(), 1..40), node_bytes in prop::sample::select(vec![256_u32, 300, 512]), lz4 in any::<bool>()) {
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        run(&Options { cache_bytes: 256 << 10, compression, advanced: AdvancedOptions { unit_bytes: 512, node_bytes, ..AdvancedOptions::default() }, ..Options::default() }, steps);
    }

    #[test]
    fn encrypted_nodes(steps in prop::collection::vec(step(), 1..40), node_bytes in prop::sample::select(vec![300_u32, 512])) {
        let key = Some(mangrove_engine::Key::new([3; 32]));
        run(&Options { cache_bytes: 256 << 10, key, advanced: AdvancedOptions { unit_bytes: 512, node_bytes, ..AdvancedOptions::default() }, ..Options::default() }, steps);
    }

    #[test]
    fn default_nodes(steps in prop::collection::vec(step(), 1..30)) {
        run(&Options::default(), steps);
    }
}

/// The key and value limits themselves, in the smallest, default and largest nodes.
#[test]
fn keys_and_values_at_their_limits() {
    let sizes = [(256, 512), (512, 512), (16384, 4096), (65536, 65536)];
    for (is_encrypted, (node_bytes, unit_bytes)) in
        [false, true].into_iter().flat_map(|one| sizes.map(|size| (one, size)))
    {
        let options = Options {
            key: is_encrypted.then(|| mangrove_engine::Key::new([3; 32])),
            cache_bytes: 1 << 20,
            advanced: AdvancedOptions {
                node_bytes,
                unit_bytes,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
        let max = database.max_key_bytes();
        let mut model = Model::new();
        let changes: Vec<Change> = (0..60_usize)
            .flat_map(|number| {
                // Keys that differ in the first byte, in the last byte, or only in their length.
                let mut early = vec![number as u8; max];
                early[0] = number as u8 * 3;
                let mut late = vec![9; max];
                late[max - 1] = number as u8;
                [early, late, vec![7; number * max / 60]]
                    .map(|key| Change::Set(0, key, number * node_bytes as usize / 50))
            })
            .collect();
        apply(&database, &mut model, &changes, Some(Durability::Strict));
        check_all(&database.snapshot(), &model);
        let deletes: Vec<Change> = model[""]
            .keys()
            .step_by(2)
            .map(|key| Change::Delete(0, key.clone()))
            .collect();
        apply(&database, &mut model, &deletes, Some(Durability::Strict));
        check_all(&database.snapshot(), &model);
        let report = database.verify().expect("memory works");
        assert!(report.is_ok(), "{:?}", report.problems);
    }
}

/// Values of several chunks, at and around the chunk boundary, across reopening.
#[test]
fn values_of_many_blocks() {
    let storage = MemoryStorage::new();
    let open = || Database::open(Arc::new(storage.clone()), Options::default()).expect("memory works");
    let lens = [
        0_usize,
        1,
        4087,
        4088,
        4089,
        16384,
        (1 << 20) - 33,
        (1 << 20) - 32,
        (1 << 20) - 31,
        1 << 20,
        5_000_000,
    ];
    let value = |len: usize| (0..len).map(|at| (at * 31 / 7) as u8).collect::<Vec<u8>>();
    let database = open();
    let mut transaction = database.begin().expect("memory works");
    for len in lens {
        transaction
            .set("v", &len.to_be_bytes(), &value(len))
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    database.close().expect("memory works");
    let database = open();
    let tree = database.snapshot().collection("v").expect("it was written");
    for len in lens {
        assert!(
            tree.get(&len.to_be_bytes()).expect("memory works") == Some(value(len)),
            "{len}"
        );
    }
    drop(tree);
    let before = database.stats().free_bytes;
    let mut transaction = database.begin().expect("memory works");
    assert!(transaction.drop_collection("v").expect("memory works"));
    transaction.commit(Durability::Strict).expect("memory works");
    for number in 0..3_u8 {
        let mut transaction = database.begin().expect("memory works");
        transaction.set("w", b"k", &[number]).expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
    }
    let report = database.verify().expect("memory works");
    assert!(report.is_ok(), "{:?}", report.problems);
    let stats = database.stats();
    assert!(
        stats.free_bytes > before || stats.file_bytes < 1 << 20,
        "the space of a dropped collection comes back"
    );
}

//! Proves that the in-memory database, with either index, behaves like a standard map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::{Clock, Direction, Error, KeyRange, ReadWrite};
use mangrove_memory::CritBit;
use mangrove_memory::index::{BTree, OrderedIndex};
use mangrove_memory::{MemoryCursor, MemoryDatabase, MemorySnapshot, MemoryTree, Record};
use proptest::prelude::*;

const NAMES: [&str; 3] = ["", "a", "b"];

/// Value, version and expiry.
type Model = BTreeMap<String, BTreeMap<Vec<u8>, (Vec<u8>, u64, u64)>>;

#[derive(Clone, Debug)]
enum Step {
    Set(usize, Vec<u8>, u8, u64),
    Delete(usize, Vec<u8>),
    Clear(usize, Bound<Vec<u8>>, Bound<Vec<u8>>),
    Drop(usize),
    Rename(usize, usize),
    Commit,
    Undo,
    Keep,
    Wait(u64),
    Purge(usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..4),
        (0_u8..200).prop_map(|number| vec![b'k', number]),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..NAMES.len(), key(), any::<u8>(), prop_oneof![3 => Just(0), 1 => 1_u64..40])
            .prop_map(|(name, key, value, ttl)| Step::Set(name, key, value, ttl)),
        8 => (0..NAMES.len(), key()).prop_map(|(name, key)| Step::Delete(name, key)),
        2 => (0..NAMES.len(), bound(), bound()).prop_map(|(name, lower, upper)| Step::Clear(name, lower, upper)),
        1 => (0..NAMES.len()).prop_map(Step::Drop),
        1 => (0..NAMES.len(), 0..NAMES.len()).prop_map(|(from, to)| Step::Rename(from, to)),
        5 => Just(Step::Commit),
        2 => Just(Step::Undo),
        2 => Just(Step::Keep),
        2 => (1_u64..20).prop_map(Step::Wait),
        1 => (1_usize..5).prop_map(Step::Purge),
    ]
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn contains(key: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    (match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    }) && (match upper {
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
        Bound::Unbounded => true,
    })
}

type Found = (Vec<u8>, Vec<u8>, u64, Option<u64>);

fn rest<I: OrderedIndex<Record>>(cursor: &mut MemoryCursor<'_, I>) -> Vec<Found> {
    let mut found = Vec::new();
    while cursor.advance() {
        found.push((
            cursor.key().to_vec(),
            cursor.value().to_vec(),
            cursor.version(),
            cursor.expires_at(),
        ));
    }
    found
}

fn check_tree<I: OrderedIndex<Record>>(
    tree: &MemoryTree<I>,
    expected: &[Found],
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) {
    assert_eq!(
        (tree.len(), tree.is_empty()),
        (expected.len() as u64, expected.is_empty())
    );
    let range = KeyRange { lower, upper };
    let inside: Vec<Found> = expected
        .iter()
        .filter(|found| contains(&found.0, lower, upper))
        .cloned()
        .collect();
    assert_eq!(tree.count(range), inside.len() as u64);
    if let Some(first) = inside.first() {
        let from = expected
            .iter()
            .position(|found| found == first)
            .expect("it is one of them") as u64;
        assert_eq!(tree.positions(&range), (from, from + inside.len() as u64));
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut wanted = inside.clone();
        if direction == Direction::Reverse {
            wanted.reverse();
        }
        assert_eq!(rest(&mut tree.cursor(range, direction)), wanted);
        let passed = wanted.len() / 2;
        let mut cursor = tree.cursor(range, direction);
        cursor.skip(passed as u64);
        assert_eq!(rest(&mut cursor), wanted[passed..]);
        if let Some(target) = wanted.get(passed) {
            cursor.seek(&target.0);
            assert_eq!(rest(&mut cursor), wanted[passed..]);
        }
        for beyond in [&b""[..], &[255; 5]] {
            cursor.seek(beyond);
            let from = wanted.iter().filter(|found| match direction {
                Direction::Forward => found.0.as_slice() >= beyond,
                Direction::Reverse => found.0.as_slice() <= beyond,
            });
            assert_eq!(rest(&mut cursor), from.cloned().collect::<Vec<_>>());
        }
    }
    for (position, (key, value, version, expires)) in expected.iter().enumerate() {
        assert_eq!(tree.at(position as u64), Some((&key[..], &value[..])));
        assert_eq!(tree.rank(key), position as u64);
        assert_eq!(tree.get(key), Some(&value[..]));
        assert!(tree.contains(key));
        let entry = tree.entry(key).expect("it is there");
        assert_eq!((entry.version, entry.expires_at), (*version, *expires));
    }
    assert_eq!(tree.at(expected.len() as u64), None);
    assert_eq!(tree.last(), expected.last().map(|found| (&found.0[..], &found.1[..])));
}

fn visible(model: &Model, name: &str, now: u64) -> Vec<Found> {
    let records = model.get(name).into_iter().flatten();
    let alive = records.filter(|(_, (_, _, expires))| *expires == 0 || *expires > now);
    alive
        .map(|(key, (value, version, expires))| {
            (
                key.clone(),
                value.clone(),
                *version,
                (*expires != 0).then_some(*expires),
            )
        })
        .collect()
}

fn check<I: OrderedIndex<Record>>(
    snapshot: &MemorySnapshot<I>,
    model: &Model,
    now: u64,
    range: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
) {
    let names: Vec<String> = snapshot.collections().into_iter().map(|info| info.name).collect();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    for name in NAMES {
        let tree = snapshot.collection(name);
        assert_eq!(tree.is_some(), model.contains_key(name));
        if let Some(tree) = tree {
            let expected = visible(model, name, now);
            check_tree(&tree, &expected, borrowed(&range.0), borrowed(&range.1));
        }
    }
}

#[allow(clippy::too_many_lines, reason = "one arm for each kind of step")]
fn run<I: OrderedIndex<Record>>(steps: Vec<Step>, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) {
    let time = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&time);
    let database = MemoryDatabase::<I>::with_clock(Clock::new(move || clock.load(Ordering::Relaxed)));
    let mut committed = Model::new();
    let mut kept = Vec::new();
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        let now = time.load(Ordering::Relaxed);
        let mut model = committed.clone();
        let mut transaction = database.begin();
        let version = database.version() + 1;
        for step in steps.by_ref() {
            match step {
                Step::Set(name, key, value, ttl) => {
                    let expires = if ttl == 0 { 0 } else { now + ttl };
                    let was_there = visible(&model, NAMES[name], now).iter().any(|found| found.0 == key);
                    let records = model.entry(NAMES[name].to_owned()).or_default();
                    records.insert(key.clone(), (vec![value; 3], version, expires));
                    let until = (expires != 0).then_some(expires);
                    let replaced = transaction.set_until(NAMES[name], &key, &[value; 3], until);
                    assert_eq!(replaced, Ok(was_there));
                }
                Step::Delete(name, key) => {
                    let was_there = visible(&model, NAMES[name], now).iter().any(|found| found.0 == key);
                    if let Some(records) = model.get_mut(NAMES[name]) {
                        records.remove(&key);
                    }
                    assert_eq!(transaction.delete(NAMES[name], &key), was_there);
                    assert_eq!(transaction.get(NAMES[name], &key), None);
                }
                Step::Clear(name, lower, upper) => {
                    let (lower, upper) = (borrowed(&lower), borrowed(&upper));
                    let mut removed = 0;
                    if let Some(records) = model.get_mut(NAMES[name]) {
                        let before = records.len();
                        records.retain(|key, _| !contains(key, lower, upper));
                        removed = before - records.len();
                    }
                    assert_eq!(
                        transaction.clear(NAMES[name], KeyRange { lower, upper }),
                        removed as u64
                    );
                }
                Step::Drop(name) => {
                    assert_eq!(
                        transaction.drop_collection(NAMES[name]),
                        model.remove(NAMES[name]).is_some()
                    );
                }
                Step::Rename(from, to) => {
                    let renamed = transaction.rename_collection(NAMES[from], NAMES[to]);
                    if from != to && model.contains_key(NAMES[from]) {
                        if model.contains_key(NAMES[to]) {
                            assert!(matches!(renamed, Err(Error::AlreadyExists { .. })));
                        } else if let Some(records) = model.remove(NAMES[from]) {
                            model.insert(NAMES[to].to_owned(), records);
                        }
                    }
                }
                Step::Keep => {
                    for name in NAMES {
                        if let Some(tree) = transaction.collection(name) {
                            check_tree(
                                &tree,
                                &visible(&model, name, now),
                                borrowed(&range.0),
                                borrowed(&range.1),
                            );
                        }
                    }
                    let snapshot = database.snapshot();
                    assert_eq!(snapshot.version() + 1, version);
                    kept.push((snapshot, committed.clone(), now));
                }
                Step::Undo => {
                    model = committed.clone();
                    break;
                }
                Step::Wait(ms) => {
                    transaction.commit();
                    time.fetch_add(ms, Ordering::Relaxed);
                    break;
                }
                Step::Purge(limit) => {
                    transaction.commit();
                    purge(&database, &mut model, now, limit);
                    break;
                }
                Step::Commit => {
                    transaction.commit();
                    break;
                }
            }
        }
        // Roll the model back if the arms above did not commit.
        if database.version() == version - 1 && model != committed {
            model = committed.clone();
        }
        committed = model;
    }
    kept.push((database.snapshot(), committed, time.load(Ordering::Relaxed)));
    for (snapshot, model, now) in kept {
        check(&snapshot, &model, now, range);
    }
}

fn purge<I: OrderedIndex<Record>>(database: &MemoryDatabase<I>, model: &mut Model, now: u64, limit: usize) {
    let mut due: Vec<(String, u64, Vec<u8>)> = Vec::new();
    for (name, records) in &*model {
        let mut expired: Vec<_> = records
            .iter()
            .filter(|(_, record)| record.2 != 0 && record.2 <= now)
            .collect();
        expired.sort_by_key(|(key, record)| (record.2, (*key).clone()));
        due.extend(
            expired
                .into_iter()
                .map(|(key, record)| (name.clone(), record.2, key.clone())),
        );
    }
    due.truncate(limit);
    assert_eq!(database.purge_expired(limit), due.len());
    for (name, _, key) in due {
        if let Some(records) = model.get_mut(&name) {
            records.remove(&key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn btree_equals_the_model(steps in prop::collection::vec(step(), 1..150), range in (bound(), bound())) {
        run::<BTree<Record>>(steps, &range);
    }

    #[test]
    fn crit_bit_equals_the_model(steps in prop::collection::vec(step(), 1..150), range in (bound(), bound())) {
        run::<CritBit<Record>>(steps, &range);
    }
}

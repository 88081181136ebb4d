//! Proves that a database with an order of its own does what a map with that comparator does, and opens with no other.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{
    Cursor, Database, Direction, Durability, Error, Isolation, KeyOrder, KeyRange, Options, ReadWrite, Reverse, Tree,
    WriteBatch, recover,
};
use proptest::prelude::*;

/// ASCII letters of either case are alike; keys that differ in nothing else are ordered by their bytes.
struct AnyCase;

impl KeyOrder for AnyCase {
    fn name(&self) -> &'static str {
        "any-case"
    }

    /// The key in lower case with zeros escaped, its end, the key.
    fn to_stored(&self, key: &[u8], into: &mut Vec<u8>) {
        for byte in key {
            into.push(byte.to_ascii_lowercase());
            if *byte == 0 {
                into.push(0xFF);
            }
        }
        into.extend_from_slice(&[0, 0]);
        into.extend_from_slice(key);
    }

    fn to_key(&self, stored: &[u8], into: &mut Vec<u8>) {
        let mut at = 0;
        while at + 2 <= stored.len() && stored[at..at + 2] != [0, 0] {
            at += if stored[at] == 0 { 2 } else { 1 };
        }
        into.extend_from_slice(stored.get(at + 2..).unwrap_or_default());
    }
}

/// A way to order keys that the map of the model can be asked for.
trait Compare: Clone + std::fmt::Debug + 'static {
    fn order() -> Arc<dyn KeyOrder>;
    fn compare(a: &[u8], b: &[u8]) -> Ordering;
}

#[derive(Clone, Debug)]
struct Backwards;

impl Compare for Backwards {
    fn order() -> Arc<dyn KeyOrder> {
        Arc::new(Reverse)
    }
    fn compare(a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

#[derive(Clone, Debug)]
struct CaseLess;

impl Compare for CaseLess {
    fn order() -> Arc<dyn KeyOrder> {
        Arc::new(AnyCase)
    }
    fn compare(a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()).then(a.cmp(b))
    }
}

#[derive(Clone, Debug)]
struct Key<C>(Vec<u8>, std::marker::PhantomData<C>);

impl<C: Compare> Ord for Key<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        C::compare(&self.0, &other.0)
    }
}
impl<C: Compare> PartialOrd for Key<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<C: Compare> PartialEq for Key<C> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<C: Compare> Eq for Key<C> {}

type Model<C> = BTreeMap<Key<C>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn as_range(bounds: &Bounds) -> KeyRange<'_> {
    KeyRange {
        lower: bounds.0.as_ref().map(Vec::as_slice),
        upper: bounds.1.as_ref().map(Vec::as_slice),
    }
}

fn contains<C: Compare>(key: &[u8], bounds: &Bounds) -> bool {
    (match &bounds.0 {
        Bound::Included(lower) => C::compare(key, lower).is_ge(),
        Bound::Excluded(lower) => C::compare(key, lower).is_gt(),
        Bound::Unbounded => true,
    }) && (match &bounds.1 {
        Bound::Included(upper) => C::compare(key, upper).is_le(),
        Bound::Excluded(upper) => C::compare(key, upper).is_lt(),
        Bound::Unbounded => true,
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![
            Just(0),
            Just(1),
            Just(255),
            Just(b'a'),
            Just(b'A'),
            Just(b'b'),
            Just(b'B'),
            Just(b'_')
        ],
        0..5,
    )
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded)
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, u8, bool),
    Delete(Vec<u8>),
    Clear(Bounds),
    Commit,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), any::<u8>(), any::<bool>()).prop_map(|(key, value, expires)| Step::Set(key, value, expires)),
        5 => key().prop_map(Step::Delete),
        1 => (bound(), bound()).prop_map(Step::Clear),
        3 => Just(Step::Commit),
        1 => Just(Step::Reopen),
    ]
}

fn options(order: Option<Arc<dyn KeyOrder>>) -> Options {
    Options {
        key_order: order,
        node_bytes: 256,
        unit_bytes: 512,
        log_bytes: 64 << 10,
        ..Options::default()
    }
}

fn open<C: Compare>(storage: &MemoryStorage) -> Database {
    Database::open(Arc::new(storage.clone()), options(Some(C::order()))).expect("it was made with this order")
}

type Record = (Vec<u8>, Vec<u8>);

fn rest(cursor: &mut Cursor) -> Vec<Record> {
    let mut records = Vec::new();
    while cursor.advance().expect("it can be read") {
        records.push((cursor.key().to_vec(), cursor.value().expect("it can be read")));
    }
    records
}

fn check<C: Compare>(tree: &Tree, model: &Model<C>, bounds: &Bounds) -> Result<(), Error> {
    let all: Vec<Record> = model
        .iter()
        .map(|(key, value)| (key.0.clone(), value.clone()))
        .collect();
    let mut inside: Vec<Record> = all
        .iter()
        .filter(|(key, _)| contains::<C>(key, bounds))
        .cloned()
        .collect();
    assert_eq!(tree.count(as_range(bounds))?, inside.len() as u64);
    assert_eq!(rest(&mut tree.cursor(as_range(bounds), Direction::Forward)), inside);
    if let Some((target, _)) = inside.get(inside.len() / 2) {
        let mut cursor = tree.cursor(as_range(bounds), Direction::Forward);
        cursor.seek(target)?;
        assert_eq!(rest(&mut cursor), inside[inside.len() / 2..]);
    }
    inside.reverse();
    assert_eq!(rest(&mut tree.cursor(as_range(bounds), Direction::Reverse)), inside);
    for (position, (key, value)) in all.iter().enumerate() {
        assert_eq!(tree.rank(key)?, position as u64);
        assert_eq!(tree.at(position as u64)?, Some((key.clone(), value.clone())));
        assert_eq!(tree.get(key)?.as_ref(), Some(value));
        assert!(tree.contains(key)? && tree.entry(key)?.is_some());
    }
    assert_eq!(
        (tree.first()?, tree.last()?),
        (all.first().cloned(), all.last().cloned())
    );
    Ok(())
}

/// The changes between two commits go alternately through an exclusive transaction, an optimistic one and a batch.
fn run<C: Compare>(steps: Vec<Step>, bounds: &Bounds) -> Result<(), Error> {
    let storage = MemoryStorage::new();
    let mut database = open::<C>(&storage);
    let mut model = Model::<C>::new();
    let key_of = |key: &[u8]| Key(key.to_vec(), std::marker::PhantomData);
    let mut pending = Vec::new();
    let mut round = 0;
    for step in steps.into_iter().chain([Step::Commit]) {
        if !matches!(step, Step::Commit | Step::Reopen) {
            pending.push(step);
            continue;
        }
        for change in &pending {
            match change {
                Step::Set(key, value, _) => drop(model.insert(key_of(key), vec![*value; 40])),
                Step::Delete(key) => drop(model.remove(&key_of(key))),
                Step::Clear(range) => model.retain(|key, _| !contains::<C>(&key.0, range)),
                Step::Commit | Step::Reopen => {}
            }
        }
        round += 1;
        if round % 3 == 0 {
            let mut transaction = database.transaction(Isolation::Serializable)?;
            for change in &pending {
                match change {
                    Step::Set(key, value, expires) => {
                        transaction.set_until("c", key, &[*value; 40], expires.then_some(u64::MAX))?;
                    }
                    Step::Delete(key) => drop(transaction.delete("c", key)?),
                    Step::Clear(range) => transaction.clear("c", as_range(range))?,
                    Step::Commit | Step::Reopen => {}
                }
            }
            let mut cursor = transaction.cursor("c", as_range(bounds), Direction::Forward);
            let mut found = Vec::new();
            while cursor.advance()? {
                found.push((cursor.key().to_vec(), cursor.value()?));
            }
            let inside = model.iter().filter(|(key, _)| contains::<C>(&key.0, bounds));
            let inside: Vec<Record> = inside.map(|(key, value)| (key.0.clone(), value.clone())).collect();
            assert_eq!(found, inside);
            drop(cursor);
            assert_eq!(transaction.count("c", as_range(bounds))?, inside.len() as u64);
            transaction.commit(Durability::Strict)?;
        } else if round % 3 == 1 && !pending.iter().any(|change| matches!(change, Step::Clear(_))) {
            let mut batch = WriteBatch::new();
            for change in &pending {
                match change {
                    Step::Set(key, value, _) => drop(batch.set("c", key, &[*value; 40])),
                    Step::Delete(key) => drop(batch.delete("c", key)),
                    _ => {}
                }
            }
            database.write(&batch, Durability::Strict)?;
        } else {
            let mut transaction = database.begin()?;
            for change in &pending {
                match change {
                    Step::Set(key, value, expires) => {
                        transaction.set_until("c", key, &[*value; 40], expires.then_some(u64::MAX))?;
                        assert_eq!(transaction.get("c", key)?, Some(vec![*value; 40]));
                    }
                    Step::Delete(key) => drop(transaction.delete("c", key)?),
                    Step::Clear(range) => drop(transaction.clear("c", as_range(range))?),
                    Step::Commit | Step::Reopen => {}
                }
            }
            transaction.commit(Durability::Strict)?;
        }
        pending.clear();
        if matches!(step, Step::Reopen) {
            drop(database);
            database = open::<C>(&storage);
        }
    }
    if let Some(tree) = database.snapshot().collection("c") {
        check(&tree, &model, bounds)?;
    }
    assert!(database.verify()?.is_ok());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn reverse_order_equals_the_model(steps in prop::collection::vec(step(), 1..120), range in (bound(), bound())) {
        run::<Backwards>(steps, &range).expect("memory does not fail");
    }

    #[test]
    fn order_without_case_equals_the_model(steps in prop::collection::vec(step(), 1..120), range in (bound(), bound())) {
        run::<CaseLess>(steps, &range).expect("memory does not fail");
    }
}

#[test]
fn another_order_is_refused_and_nothing_is_changed() {
    let storage = MemoryStorage::new();
    let try_open = |order| Database::open(Arc::new(storage.clone()), options(order));
    try_open(Some(Arc::new(Reverse)))
        .and_then(Database::close)
        .expect("it is new");
    let files = storage.files();
    for (order, name) in [(None, "bytewise"), (Some(CaseLess::order()), "any-case")] {
        let expected = Error::KeyOrderMismatch {
            stored: "reverse".into(),
            requested: name.into(),
        };
        assert_eq!(expected.code(), "KV_INVALID_ARGUMENT");
        assert_eq!(try_open(order).err(), Some(expected));
    }
    assert_eq!(storage.files(), files);
    try_open(Some(Arc::new(Reverse))).expect("it is its own order");

    let storage = MemoryStorage::new();
    let try_open = |order| Database::open(Arc::new(storage.clone()), options(order));
    try_open(None).and_then(Database::close).expect("it is new");
    let result = try_open(Some(Arc::new(Reverse)));
    assert!(matches!(result, Err(Error::KeyOrderMismatch { .. })));
}

#[test]
fn conflicts_are_found_among_ordered_keys() -> Result<(), Error> {
    for (written, conflicts) in [(b"d", true), (b"a", false)] {
        let database = open::<Backwards>(&MemoryStorage::new());
        let mut transaction = database.begin()?;
        transaction.set("c", b"x", b"")?;
        transaction.commit(Durability::None)?;
        let mut transaction = database.transaction(Isolation::Serializable)?;
        let range = KeyRange {
            lower: Bound::Included(&b"f"[..]),
            upper: Bound::Included(&b"c"[..]),
        };
        assert_eq!(transaction.count("c", range)?, 0);
        transaction.put("c", b"y", b"")?;
        let mut other = database.begin()?;
        other.set("c", written, b"")?;
        other.commit(Durability::None)?;
        match transaction.commit(Durability::None) {
            Err(Error::Conflict(conflict)) => {
                assert!(conflicts && conflict.key.as_deref() == Some(&b"d"[..]), "{conflict}");
            }
            result => assert!(result.is_ok() && !conflicts),
        }
    }
    Ok(())
}

#[test]
fn salvage_keeps_the_order() -> Result<(), Error> {
    let damaged = MemoryStorage::new();
    let database = open::<Backwards>(&damaged);
    let mut transaction = database.begin()?;
    for number in 0..200_u32 {
        transaction.set("c", &number.to_be_bytes(), b"value")?;
    }
    transaction.commit(Durability::Strict)?;
    database.close()?;
    let salvage = |order| {
        let target = MemoryStorage::new();
        let mut progress = |_| ControlFlow::Continue(());
        recover(
            Arc::new(damaged.clone()),
            Arc::new(target.clone()),
            options(order),
            &mut progress,
        )?;
        let tree = open::<Backwards>(&target)
            .snapshot()
            .collection("c")
            .expect("it came back");
        assert_eq!(
            (tree.len(), tree.first()?),
            (200, Some((199_u32.to_be_bytes().to_vec(), b"value".to_vec())))
        );
        Ok::<(), Error>(())
    };
    salvage(None).and_then(|()| salvage(Some(Arc::new(Reverse))))?;
    assert!(matches!(
        salvage(Some(CaseLess::order())),
        Err(Error::KeyOrderMismatch { .. })
    ));
    damaged.open("data", false)?.write_at(0, &[0xFF; 8192])?;
    salvage(Some(Arc::new(Reverse)))
}

//! Optimistic transactions: what commits is serializable, conflicts are reported, nothing is
//! locked, transactions see their own writes, and savepoints and collections work. Both kinds of
//! write set run the same tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{
    AdvancedOptions, Clock, Database, Direction, Durability, Error, Isolation, KeyRange, OptimisticTransaction,
    Options, ReadWrite,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn database() -> Database {
    let options = Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 256,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works")
}

fn set(database: &Database, key: &[u8], value: &[u8]) {
    let mut transaction = database.begin().expect("it is open");
    transaction.set("c", key, value).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
}

fn get(database: &Database, key: &[u8]) -> Option<Vec<u8>> {
    let tree = database.snapshot().collection("c")?;
    tree.get(key).expect("memory works")
}

#[derive(Clone, Debug)]
enum Operation {
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, Direction, usize),
    Count(Vec<u8>, Vec<u8>),
    Set(Vec<u8>, Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Clear(Vec<u8>, Vec<u8>),
    ClearAll,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Value(Option<Vec<u8>>),
    Records(Vec<(Vec<u8>, Vec<u8>)>),
    Count(u64),
    Found(bool),
    Nothing,
}

fn key(rng: &mut SimRng) -> Vec<u8> {
    vec![b'a' + rng.below(4) as u8; 1 + rng.below(3) as usize]
}

fn operation(rng: &mut SimRng) -> Operation {
    let (mut low, mut high) = (key(rng), key(rng));
    if low > high {
        std::mem::swap(&mut low, &mut high);
    }
    let value = vec![rng.below(256) as u8; rng.below(20) as usize];
    match rng.below(20) {
        0..=4 => Operation::Get(low),
        5..=7 => {
            let direction = [Direction::Forward, Direction::Reverse][rng.below(2) as usize];
            Operation::Scan(low, high, direction, rng.below(6) as usize)
        }
        8 => Operation::Count(low, high),
        9..=12 => Operation::Set(low, value),
        13..=15 => Operation::Put(low, value),
        16 | 17 => Operation::Delete(low),
        18 => Operation::Clear(low, high),
        _ if rng.below(3) == 0 => Operation::ClearAll,
        _ => Operation::Get(high),
    }
}

fn between<'a>(low: &'a [u8], high: &'a [u8]) -> KeyRange<'a> {
    KeyRange {
        lower: Bound::Included(low),
        upper: Bound::Excluded(high),
    }
}

fn run(transaction: &mut OptimisticTransaction, operation: &Operation) -> Result<Seen, Error> {
    Ok(match operation {
        Operation::Get(key) => Seen::Value(transaction.get("c", key)?),
        Operation::Scan(low, high, direction, limit) => {
            let mut cursor = transaction.cursor("c", between(low, high), *direction);
            let mut records = Vec::new();
            while records.len() < *limit && cursor.advance()? {
                records.push((cursor.key().to_vec(), cursor.value()?));
            }
            Seen::Records(records)
        }
        Operation::Count(low, high) => Seen::Count(transaction.count("c", between(low, high))?),
        Operation::Set(key, value) => Seen::Found(transaction.set("c", key, value)?),
        Operation::Put(key, value) => {
            transaction.put("c", key, value)?;
            Seen::Nothing
        }
        Operation::Delete(key) => Seen::Found(transaction.delete("c", key)?),
        Operation::Clear(low, high) => {
            transaction.clear("c", between(low, high))?;
            Seen::Nothing
        }
        Operation::ClearAll => {
            transaction.clear("c", KeyRange::all())?;
            Seen::Nothing
        }
    })
}

fn run_model(model: &mut Model, operation: &Operation) -> Seen {
    match operation {
        Operation::Get(key) => Seen::Value(model.get(key).cloned()),
        Operation::Scan(low, high, direction, limit) => {
            let inside = model.range(low.clone()..high.clone());
            let pairs: Vec<_> = match direction {
                Direction::Forward => inside.take(*limit).collect(),
                Direction::Reverse => inside.rev().take(*limit).collect(),
            };
            Seen::Records(
                pairs
                    .into_iter()
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            )
        }
        Operation::Count(low, high) => Seen::Count(model.range(low.clone()..high.clone()).count() as u64),
        Operation::Set(key, value) => Seen::Found(model.insert(key.clone(), value.clone()).is_some()),
        Operation::Put(key, value) => {
            model.insert(key.clone(), value.clone());
            Seen::Nothing
        }
        Operation::Delete(key) => Seen::Found(model.remove(key).is_some()),
        Operation::Clear(low, high) => {
            model.retain(|key, _| key < low || key >= high);
            Seen::Nothing
        }
        Operation::ClearAll => {
            model.clear();
            Seen::Nothing
        }
    }
}

struct Active {
    transaction: OptimisticTransaction,
    done: Vec<(Operation, Seen)>,
    /// The transaction's own view.
    view: Model,
}

/// Interleaves transactions at random. Each that commits must have seen what it would have seen
/// running alone at its commit.
#[test]
fn committed_transactions_are_serializable() {
    let (mut committed, mut conflicts) = (0, 0);
    for seed in 0..150 {
        let mut rng = SimRng::new(seed);
        let database = database();
        // The collection exists from the start: two transactions that create it would conflict.
        set(&database, b"first", b"");
        let mut model = Model::from([(b"first".to_vec(), Vec::new())]);
        let mut active: Vec<Active> = Vec::new();
        for _ in 0..120 {
            let choice = rng.below(10);
            if active.is_empty() || (choice == 0 && active.len() < 4) {
                active.push(Active {
                    transaction: database.transaction(Isolation::Serializable).expect("it is open"),
                    done: Vec::new(),
                    view: model.clone(),
                });
                continue;
            }
            let index = rng.below(active.len() as u64) as usize;
            if choice < 8 {
                let one = &mut active[index];
                let operation = operation(&mut rng);
                let seen = run(&mut one.transaction, &operation).expect("memory works");
                assert_eq!(seen, run_model(&mut one.view, &operation), "seed {seed}: {operation:?}");
                one.done.push((operation, seen));
                continue;
            }
            if choice == 8 {
                let one = active.swap_remove(index);
                // A transaction that only read is correct as of its snapshot.
                let wrote = one.done.iter().any(|(operation, seen)| match operation {
                    Operation::Get(_) | Operation::Scan(..) | Operation::Count(..) => false,
                    Operation::Delete(_) => *seen == Seen::Found(true),
                    _ => true,
                });
                match one.transaction.commit(Durability::Strict) {
                    Ok(_) if !wrote => {}
                    Ok(_) => {
                        for (operation, seen) in &one.done {
                            assert_eq!(&run_model(&mut model, operation), seen, "seed {seed}: {operation:?}");
                        }
                        committed += 1;
                    }
                    Err(Error::Conflict { .. }) => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
            } else if rng.below(4) == 0 {
                // A plain writer in between.
                let (key, value) = (key(&mut rng), vec![7]);
                set(&database, &key, &value);
                model.insert(key, value);
            }
        }
        let tree = database.snapshot().collection("c").expect("it is there");
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        let mut found = Model::new();
        while cursor.advance().expect("memory works") {
            found.insert(cursor.key().to_vec(), cursor.value().expect("memory works"));
        }
        assert_eq!(found, model, "seed {seed}");
        drop(active);
        assert!(database.verify().expect("memory works").is_ok());
    }
    assert!(
        committed > 200 && conflicts > 100,
        "{committed} committed, {conflicts} conflicts"
    );
}

#[test]
fn phantoms_and_absent_keys_are_conflicts() {
    for read in 0..3 {
        let database = database();
        set(&database, b"b", b"");
        let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
        match read {
            0 => assert_eq!(transaction.get("c", b"absent"), Ok(None)),
            1 => assert_eq!(transaction.count("c", between(b"a", b"az")), Ok(0)),
            _ => {
                let mut cursor = transaction.cursor("c", between(b"a", b"az"), Direction::Reverse);
                assert_eq!(cursor.advance(), Ok(false));
            }
        }
        transaction.put("c", b"z", b"").expect("memory works");
        set(&database, if read == 0 { b"absent" } else { b"ab" }, b"");
        let result = transaction.commit(Durability::Strict);
        assert!(matches!(result, Err(Error::Conflict { .. })), "{read}: {result:?}");
        assert_eq!(get(&database, b"z"), None);
    }
}

#[test]
fn unread_records_cause_no_conflict() {
    let database = database();
    for key in [b"a", b"b", b"c", b"d"] {
        set(&database, key, b"");
    }
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    let mut cursor = transaction.cursor("c", KeyRange::all(), Direction::Forward);
    assert!(cursor.advance().expect("memory works") && cursor.advance().expect("memory works"));
    assert_eq!(cursor.key(), b"b");
    drop(cursor);
    transaction.put("c", b"z", b"").expect("memory works");
    set(&database, b"c", b"beyond what was read");
    transaction
        .commit(Durability::Strict)
        .expect("the cursor stopped before it");
}

#[test]
fn write_skew_is_seen_by_serializable_transactions_only() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let database = database();
        set(&database, b"a", b"on");
        set(&database, b"b", b"on");
        let mut first = database.transaction(isolation).expect("it is open");
        let mut second = database.transaction(isolation).expect("it is open");
        assert_eq!(first.get("c", b"b"), Ok(Some(b"on".to_vec())));
        assert_eq!(second.get("c", b"a"), Ok(Some(b"on".to_vec())));
        first.put("c", b"a", b"off").expect("memory works");
        second.put("c", b"b", b"off").expect("memory works");
        first.commit(Durability::Strict).expect("it is the first");
        let result = second.commit(Durability::Strict);
        match isolation {
            Isolation::Serializable => assert!(matches!(result, Err(Error::Conflict { .. }))),
            Isolation::Snapshot => assert!(result.is_ok()),
        }
        // Both isolation levels detect lost updates.
        let mut first = database.transaction(isolation).expect("it is open");
        let mut second = database.transaction(isolation).expect("it is open");
        for transaction in [&mut first, &mut second] {
            transaction.set("c", b"a", b"mine").expect("memory works");
        }
        first.commit(Durability::Strict).expect("it is the first");
        let result = second.commit(Durability::Strict);
        let Err(error @ Error::Conflict { .. }) = result else {
            panic!("{result:?}")
        };
        assert!(error.to_string().contains("key a of collection \"c\" was changed") && error.is_retryable());
        assert_eq!(error.code(), "KV_CONFLICT");
    }
}

#[test]
fn many_threads_count_to_the_right_number() {
    let database = Arc::new(database());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let durability = Durability::Strict;
                    database
                        .transact(durability, 1000, |transaction| {
                            transaction.update("c", b"count", |value| {
                                let count = value.map_or(0, |entry| {
                                    u32::from_le_bytes(entry.value[..].try_into().expect("4 bytes"))
                                });
                                mangrove_engine::Update::Set((count + 1).to_le_bytes().to_vec())
                            })
                        })
                        .expect("it succeeds in the end");
                }
            });
        }
    });
    assert_eq!(get(&database, b"count"), Some(400_u32.to_le_bytes().to_vec()));
}

#[test]
fn an_error_of_the_work_undoes_it_and_conflicts_end() {
    let database = database();
    let failed = database.transact(Durability::Strict, 3, |transaction| {
        transaction.set("c", b"k", b"v")?;
        Err::<(), _>(Error::Closed)
    });
    assert!(matches!(failed, Err(Error::Closed)));
    assert_eq!(get(&database, b"k"), None);
    let mut attempts = 0;
    let conflict = database.transact(Durability::Strict, 3, |transaction| {
        attempts += 1;
        transaction.get("c", b"k")?;
        set(&database, b"k", &[attempts]);
        transaction.put("c", b"x", b"")
    });
    assert!(matches!(conflict, Err(Error::Conflict { .. })));
    assert_eq!(attempts, 3);
}

#[test]
fn an_error_of_the_application_undoes_the_work_and_comes_back_as_it_is() {
    #[derive(Debug, PartialEq)]
    enum Failure {
        TooPoor(u8),
        Store(&'static str),
    }
    impl From<Error> for Failure {
        fn from(error: Error) -> Self {
            Self::Store(error.code())
        }
    }
    let database = database();
    set(&database, b"balance", &[3]);
    let pay = |amount: u8, key: &[u8]| {
        database.transact(Durability::Strict, 3, |transaction| {
            let balance = transaction.get("c", b"balance")?.map_or(0, |value| value[0]);
            transaction.put("c", key, &[amount])?;
            let left = balance.checked_sub(amount).ok_or(Failure::TooPoor(balance))?;
            transaction.put("c", b"balance", &[left])?;
            Ok(left)
        })
    };
    assert_eq!(pay(4, b"rent").map(|(left, _)| left), Err(Failure::TooPoor(3)));
    assert_eq!(get(&database, b"rent"), None);
    assert_eq!(
        pay(1, &[0; 5000]).map(|(left, _)| left),
        Err(Failure::Store("KV_KEY_TOO_LARGE"))
    );
    assert_eq!(pay(1, b"bread").map(|(left, _)| left), Ok(2));
    assert_eq!(get(&database, b"balance"), Some(vec![2]));
}

#[test]
fn a_loop_over_a_cursor_gets_what_the_cursor_passes() {
    let database = database();
    for key in [b"a", b"b", b"c"] {
        set(&database, key, key);
    }
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    transaction.put("c", b"d", b"own").expect("memory works");
    transaction.delete("c", b"b").expect("memory works");
    let found: Result<Vec<_>, Error> = transaction
        .cursor("c", KeyRange::new("b"..), Direction::Reverse)
        .into_iter()
        .collect();
    let record = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    assert_eq!(found.expect("memory works"), [record(b"d", b"own"), record(b"c", b"c")]);
    let tree = database.snapshot().collection("c").expect("it exists");
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    assert!(cursor.advance().expect("memory works"));
    let rest: Vec<_> = cursor.into_iter().map(|found| found.expect("memory works")).collect();
    assert_eq!(rest, [record(b"b", b"b"), record(b"c", b"c")]);
}

#[test]
fn savepoints_bring_back_what_was() {
    let database = database();
    set(&database, b"base", b"0");
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    transaction.set("c", b"a", b"1").expect("memory works");
    let first = transaction.savepoint();
    transaction.set("c", b"a", b"2").expect("memory works");
    transaction.clear("c", KeyRange::all()).expect("memory works");
    transaction.rename_collection("c", "d").expect("memory works");
    let second = transaction.savepoint();
    transaction.drop_collection("d").expect("memory works");
    transaction.rollback_to(&second);
    assert!(transaction.has_collection("d") && !transaction.has_collection("c"));
    transaction.rollback_to(&first);
    assert_eq!(transaction.get("c", b"a"), Ok(Some(b"1".to_vec())));
    assert_eq!(transaction.get("c", b"base"), Ok(Some(b"0".to_vec())));
    transaction.commit(Durability::Strict).expect("nobody else wrote");
    assert_eq!(get(&database, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(&database, b"base"), Some(b"0".to_vec()));
}

#[test]
fn collections_change_inside_a_transaction() {
    let database = database();
    set(&database, b"k", b"old");
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    assert_eq!(transaction.rename_collection("c", "d"), Ok(true));
    assert!(matches!(transaction.rename_collection("d", "d"), Ok(true)));
    transaction.set("c", b"k", b"new").expect("memory works");
    transaction.set("d", b"l", b"more").expect("memory works");
    transaction.set("e", b"k", b"dropped").expect("memory works");
    assert_eq!(transaction.drop_collection("e"), Ok(true));
    assert_eq!(transaction.drop_collection("e"), Ok(false));
    transaction.set_codecs("f", "any", "json").expect("memory works");
    assert_eq!(transaction.get("d", b"k"), Ok(Some(b"old".to_vec())));
    assert_eq!(
        get(&database, b"k"),
        Some(b"old".to_vec()),
        "nothing shows before the commit"
    );
    transaction.commit(Durability::Strict).expect("nobody else wrote");
    let names: Vec<_> = database
        .collections()
        .into_iter()
        .map(|info| (info.name, info.count))
        .collect();
    assert_eq!(names, [("c".to_owned(), 1), ("d".to_owned(), 2), ("f".to_owned(), 0)]);
    assert_eq!(get(&database, b"k"), Some(b"new".to_vec()));
    let dropped = database.transaction(Isolation::Serializable).expect("it is open");
    assert_eq!(dropped.get("d", b"k"), Ok(Some(b"old".to_vec())));
    let mut writer = database.begin().expect("it is open");
    writer.drop_collection("d").expect("memory works");
    writer.commit(Durability::Strict).expect("memory works");
    assert_eq!(dropped.get("d", b"k"), Ok(Some(b"old".to_vec())), "its snapshot has it");
    let mut dropped = dropped;
    dropped.put("c", b"x", b"").expect("memory works");
    assert!(matches!(
        dropped.commit(Durability::Strict),
        Err(Error::Conflict { .. })
    ));
}

#[test]
fn bad_input_leaves_the_transaction_as_it_was() {
    let database = database();
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    let long = vec![0; database.max_key_bytes() + 1];
    assert!(matches!(transaction.set("c", &long, b""), Err(Error::KeyTooLarge(_))));
    assert!(matches!(
        transaction.set_until("c", &long[..long.len() - 1], b"", Some(1)),
        Err(Error::KeyTooLarge(_))
    ));
    assert!(matches!(
        transaction.set("\0c", b"k", b""),
        Err(Error::InvalidArgument { .. })
    ));
    transaction.set("c", b"k", b"v").expect("memory works");
    transaction.commit(Durability::Strict).expect("nobody else wrote");
    assert_eq!(get(&database, b"k"), Some(b"v".to_vec()));
}

/// Scans outlive single calls and match a model. They see writes made before the scan was created,
/// seek both ways inside their range, and count as reads.
#[test]
fn scans_beside_a_transaction_match_a_model() {
    for seed in 0..300 {
        let mut rng = SimRng::new(seed);
        let database = database();
        let mut model = Model::new();
        for _ in 0..rng.below(30) {
            let key = key(&mut rng);
            set(&database, &key, b"base");
            model.insert(key, b"base".to_vec());
        }
        let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
        let mut emptied = false;
        for _ in 0..rng.below(20) {
            let operation = operation(&mut rng);
            run(&mut transaction, &operation).expect("memory works");
            run_model(&mut model, &operation);
            // After clearing everything, the transaction depends on nothing.
            emptied |= matches!(operation, Operation::ClearAll);
        }
        let (mut low, mut high) = (key(&mut rng), key(&mut rng));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let direction = [Direction::Forward, Direction::Reverse][rng.below(2) as usize];
        let mut scan = transaction.scan("c", between(&low, &high), direction);
        // The scan does not see these writes.
        transaction.put("c", &low, b"later").expect("memory works");
        transaction.delete("c", &high).expect("memory works");
        let mut left: Vec<(&Vec<u8>, &Vec<u8>)> = model.range(low.clone()..high.clone()).collect();
        if direction == Direction::Reverse {
            left.reverse();
        }
        for _ in 0..3 {
            let mut found = Vec::new();
            let limit = rng.below(8) as usize;
            while found.len() < limit && scan.advance(&transaction).expect("memory works") {
                found.push((scan.key().to_vec(), scan.value().expect("memory works")));
            }
            let expected: Vec<_> = left
                .iter()
                .take(limit)
                .map(|(key, value)| ((*key).clone(), (*value).clone()))
                .collect();
            assert_eq!(found, expected, "seed {seed}");
            let sought = key(&mut rng);
            scan.seek(&sought).expect("memory works");
            left = model.range(low.clone()..high.clone()).collect();
            if direction == Direction::Reverse {
                left.reverse();
            }
            left.retain(|(key, _)| match direction {
                Direction::Forward => **key >= sought,
                Direction::Reverse => **key <= sought,
            });
        }
        // Passing a record counts as reading it.
        let passed = !emptied && scan.advance(&transaction).expect("memory works");
        if passed {
            let key = scan.key().to_vec();
            set(&database, &key, b"changed meanwhile");
            transaction.put("c", b"zzz", b"").expect("memory works");
            let result = transaction.commit(Durability::None);
            assert!(matches!(result, Err(Error::Conflict { .. })), "seed {seed}");
        }
    }
}

#[test]
fn codecs_are_those_that_the_transaction_sees() {
    let database = database();
    let mut transaction = database.begin().expect("it is open");
    transaction.set_codecs("c", "k", "v").expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let pair = |key: &str, value: &str| Some((key.to_owned(), value.to_owned()));
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    assert_eq!(
        (transaction.codecs("c"), transaction.codecs("d")),
        (pair("k", "v"), None)
    );
    transaction.put("c", b"1", b"").expect("memory works");
    transaction.put("d", b"1", b"").expect("memory works");
    assert_eq!(
        (transaction.codecs("c"), transaction.codecs("d")),
        (pair("k", "v"), pair("", ""))
    );
    transaction.rename_collection("c", "e").expect("memory works");
    assert_eq!(
        (transaction.codecs("c"), transaction.codecs("e")),
        (None, pair("k", "v"))
    );
    transaction.clear("e", KeyRange::all()).expect("memory works");
    assert_eq!(transaction.codecs("e"), pair("k", "v"));
    transaction.drop_collection("e").expect("memory works");
    assert_eq!(transaction.codecs("e"), None);
    transaction.set_codecs("e", "x", "y").expect("memory works");
    assert_eq!(transaction.codecs("e"), pair("x", "y"));
}

#[test]
fn own_writes_that_have_expired_are_invisible() {
    let database = database();
    set(&database, b"old", b"1");
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    for key in [b"new", b"old"] {
        transaction.set_until("c", key, b"2", Some(1)).expect("memory works");
        assert_eq!(transaction.get("c", key), Ok(None));
    }
    assert_eq!(transaction.count("c", KeyRange::all()), Ok(0));
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = transaction.cursor("c", KeyRange::all(), direction);
        assert_eq!(cursor.advance(), Ok(false));
    }
    assert_eq!(transaction.delete("c", b"new"), Ok(false), "an expired record is none");
    transaction.commit(Durability::Strict).expect("memory works");
    assert_eq!(get(&database, b"old"), None);
}

#[test]
fn a_delete_removes_a_record_that_has_expired() {
    let time = Arc::new(AtomicU64::new(50));
    let now = Arc::clone(&time);
    let options = Options {
        clock: Clock::new(move || now.load(Ordering::Relaxed)),
        ..Options::default()
    };
    let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
    let mut transaction = database.begin().expect("it is open");
    for key in [b"deleted", b"removed", b"cleared", b"replays"] {
        transaction.set_until("c", key, b"1", Some(100)).expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    time.store(200, Ordering::Relaxed);
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    assert_eq!(
        transaction.delete("c", b"deleted"),
        Ok(false),
        "an expired record is none"
    );
    transaction
        .set_until("c", b"removed", b"2", Some(120))
        .expect("memory works");
    assert_eq!(
        transaction.delete("c", b"removed"),
        Ok(false),
        "an expired record is none"
    );
    transaction
        .clear("c", included_to_excluded(b"cleared", b"d"))
        .expect("memory works");
    assert_eq!(transaction.delete("c", b"cleared"), Ok(false));
    assert_eq!(transaction.delete("c", b"missing"), Ok(false));
    transaction.commit(Durability::Strict).expect("memory works");
    time.store(50, Ordering::Relaxed);
    assert_eq!(get(&database, b"deleted"), None);
    assert_eq!(get(&database, b"removed"), None);
    assert_eq!(get(&database, b"cleared"), None);
    assert_eq!(get(&database, b"replays"), Some(b"1".to_vec()));
}

fn included_to_excluded<'k>(lower: &'k [u8], upper: &'k [u8]) -> KeyRange<'k> {
    KeyRange {
        lower: Bound::Included(lower),
        upper: Bound::Excluded(upper),
    }
}

/// What a transaction has only removed counts as written, too.
#[test]
fn a_range_that_both_changed_is_a_conflict_in_snapshot_isolation() {
    let database = database();
    set(&database, b"a", b"1");
    let mut transaction = database.transaction(Isolation::Snapshot).expect("it is open");
    transaction
        .clear("c", included_to_excluded(b"b", b"d"))
        .expect("memory works");
    set(&database, b"c", b"2");
    let result = transaction.commit(Durability::Strict);
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    assert_eq!(get(&database, b"c"), Some(b"2".to_vec()));
}

#[test]
fn a_range_that_another_commit_cleared_conflicts_with_keys_read_in_it() {
    let database = database();
    // Long keys: the removal is logged as one of a range.
    let long = |number: u8| vec![number; 31];
    for number in 0..30 {
        set(&database, &long(number), b"1");
    }
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    assert!(transaction.get("c", &long(7)).expect("memory works").is_some());
    transaction.put("c", b"seen", b"yes").expect("memory works");
    let mut other = database.begin().expect("it is open");
    let removed = other.clear("c", included_to_excluded(&long(1), &long(29)));
    assert_eq!(removed.expect("memory works"), 28);
    other.commit(Durability::Strict).expect("memory works");
    let result = transaction.commit(Durability::Strict);
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    assert_eq!(get(&database, b"seen"), None);
}

/// The changes of a commit that the log cannot take are not kept, so nothing shows that they were
/// others.
#[test]
fn a_commit_too_large_for_the_log_is_a_conflict() {
    let options = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(16 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
    set(&database, b"a", b"1");
    let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
    assert!(transaction.get("c", b"a").expect("memory works").is_some());
    transaction.put("c", b"b", b"derived").expect("memory works");
    let mut other = database.begin().expect("it is open");
    other.set("c", b"a", b"2").expect("memory works");
    for number in 0..200_u16 {
        other.set("c", &number.to_be_bytes(), &[7; 100]).expect("memory works");
    }
    other.commit(Durability::Strict).expect("memory works");
    let result = transaction.commit(Durability::Strict);
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    assert_eq!(get(&database, b"b"), None);
}

/// Regression: the end of the only transaction dropped the changes of commits that were still invisible,
/// so that the next transaction, which did not see them either, overwrote them.
#[test]
fn a_commit_that_waits_for_its_flush_is_news_after_another_transaction_has_ended() {
    for ends in [false, true] {
        let database = database();
        set(&database, b"a", b"0");
        let mut writer = database.begin().expect("it is open");
        writer.set("c", b"a", b"1").expect("memory works");
        let submitted = writer.submit(Durability::Strict).expect("memory works");
        assert!(submitted.awaits_flush);
        let reader = database.transaction(Isolation::Serializable).expect("it is open");
        if ends {
            drop(reader);
        }
        let mut transaction = database.transaction(Isolation::Serializable).expect("it is open");
        assert_eq!(transaction.get("c", b"a").expect("memory works"), Some(b"0".to_vec()));
        transaction.put("c", b"a", b"2").expect("memory works");
        let lost = transaction.commit(Durability::Strict);
        assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
        database.flush().expect("memory works");
        assert_eq!(get(&database, b"a"), Some(b"1".to_vec()));
    }
}

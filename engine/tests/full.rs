//! Proves what a reserve promises when the storage is full: writes fail with a typed error and
//! leave no trace, removals work, the space they free can be used, and nothing is lost. The storage
//! takes a fixed number of bytes in all; the tests try every size of a range.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::read_state;
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, CompactOptions, Compression, Database, Durability, Error, KeyRange, Options};

const RESERVE_BYTES: u32 = 16 << 10;

/// What fills the storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// Records in place, one per commit.
    Small,
    /// Out-of-line values.
    Large,
    /// Records in place, many per commit.
    Batches,
    /// Records of various sizes, a varying number per commit.
    Mixed,
    /// Transactions larger than memory.
    Huge,
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(session: u64) -> Options {
    Options {
        cache_bytes: 128 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(32 << 10),
            reserve_bytes: RESERVE_BYTES,
            database_id: Some(7),
            session: Some(session),
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage, session: u64) -> Database {
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    Database::open(shared, options(session)).expect("a full storage is no reason not to open")
}

fn records(database: &Database) -> Model {
    let mut state = read_state(&database.snapshot()).expect("reads continue");
    state.remove("c").unwrap_or_default()
}

fn bytes(rng: &mut SimRng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Makes one commit that stores something; updates the model if it succeeds.
fn store(
    database: &Database,
    model: &mut Model,
    rng: &mut SimRng,
    load: Load,
    durability: Durability,
) -> Result<(), Error> {
    let (count, len) = match load {
        Load::Small => (1, 60),
        Load::Large => (1, 5000),
        Load::Batches => (30, 60),
        Load::Mixed => (1 + rng.below(10), [10, 100, 1500][rng.below(3) as usize]),
        Load::Huge => (1500, 60),
    };
    let mut after = model.clone();
    let mut transaction = database.begin()?;
    for _ in 0..count {
        let key = rng.below(4000).to_be_bytes().to_vec();
        let len = rng.below(len);
        let value = bytes(rng, len);
        transaction.set("c", &key, &value)?;
        after.insert(key, value);
    }
    transaction.commit(durability)?;
    *model = after;
    Ok(())
}

fn fill(database: &Database, model: &mut Model, rng: &mut SimRng, load: Load, durability: Durability) {
    for _ in 0..100_000 {
        match store(database, model, rng, load, durability) {
            Ok(()) => {}
            Err(Error::StorageFull { .. }) => return,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the storage never was full");
}

fn check(database: &Database, model: &Model, context: &str) {
    assert!(records(database) == *model, "{context}");
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
}

fn compact(database: &Database) {
    let all = CompactOptions {
        threshold_bytes: 0,
        ..CompactOptions::default()
    };
    database
        .compact(all, &mut |_| ControlFlow::Continue(()))
        .expect("a full storage can be compacted");
}

/// Checks what the next opening finds, whether or not the process died.
fn check_again(storage: &SimStorage, model: &Model, context: &str) {
    let image = SimStorage::from_files(storage.crash(CrashPolicy::Everything, 0));
    image.set_capacity(Some(storage.files().values().map(|file| file.len() as u64).sum()));
    check(&open(&image, 99), model, context);
}

fn remove_and_go_on(load: Load, durability: Durability, capacity: u64, reopens: bool) {
    let context = format!("{load:?} {durability:?} with {capacity} bytes, opened again: {reopens}");
    let storage = SimStorage::new();
    let mut rng = SimRng::new(capacity);
    let mut model = Model::new();
    let mut database = open(&storage, 1);
    storage.set_capacity(Some(capacity));
    fill(&database, &mut model, &mut rng, load, durability);
    check(&database, &model, &context);
    if reopens {
        if durability == Durability::None {
            database.flush().expect("what was acknowledged has room");
        }
        drop(database);
        database = open(&storage, 2);
        check(&database, &model, &context);
    }
    // One by one, in an order that touches all pages.
    let mut keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    while keys.len() > 1 {
        let key = keys.swap_remove(rng.below(keys.len() as u64) as usize);
        let mut transaction = database.begin().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(
            transaction
                .delete("c", &key)
                .unwrap_or_else(|error| panic!("{context}: {error}"))
        );
        transaction
            .commit(durability)
            .unwrap_or_else(|error| panic!("{context}, {} left: {error}", keys.len()));
        model.remove(&key);
        if keys.len().is_multiple_of(64) {
            check(&database, &model, &context);
            if durability == Durability::Strict {
                check_again(&storage, &model, &context);
            }
        }
    }
    compact(&database);
    let small = if load == Load::Huge { Load::Batches } else { load };
    // The smallest storages may lack room for ten long values at once.
    let fits_again = |database: &Database, model: &mut Model, rng: &mut SimRng| {
        (0..2).any(|_| store(database, model, rng, small, durability).is_ok())
    };
    assert!(
        fits_again(&database, &mut model, &mut rng),
        "{context}: there is room again"
    );
    fill(&database, &mut model, &mut rng, load, durability);
    check(&database, &model, &context);
    let mut transaction = database.begin().expect("it can be written");
    transaction
        .clear("c", KeyRange::all())
        .expect("a full storage can be cleared");
    transaction.commit(durability).expect("a full storage can be cleared");
    model.clear();
    compact(&database);
    assert!(
        fits_again(&database, &mut model, &mut rng),
        "{context}: there is room again"
    );
    check(&database, &model, &context);
    database.close().expect("a full storage can be closed");
    check(&open(&storage, 3), &model, &context);
}

/// Fills the storage, then removes and stores again, until the power is cut. Returns the states
/// that were acknowledged.
fn run_until_cut(storage: &SimStorage, load: Load) -> Vec<Model> {
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let mut states = vec![Model::new()];
    let Ok(database) = Database::open(shared, options(1)) else {
        return states;
    };
    let mut rng = SimRng::new(5);
    let mut model = Model::new();
    storage.set_capacity(Some(60_000));
    for round in 0..3 {
        loop {
            let mut ahead = model.clone();
            match store(&database, &mut ahead, &mut rng, load, Durability::Strict) {
                Ok(()) => {
                    states.push(ahead.clone());
                    model = ahead;
                }
                Err(Error::StorageFull { .. }) => break,
                Err(_) => return states,
            }
        }
        for key in model.keys().skip(round).step_by(2).cloned().collect::<Vec<_>>() {
            let Ok(mut transaction) = database.begin() else {
                return states;
            };
            if transaction.delete("c", &key).is_err() || transaction.commit(Durability::Strict).is_err() {
                return states;
            }
            model.remove(&key);
            states.push(model.clone());
        }
    }
    states
}

#[test]
fn no_cut_on_a_full_storage_loses_anything() {
    for load in [Load::Small, Load::Large, Load::Batches] {
        let whole = SimStorage::new();
        let expected = run_until_cut(&whole, load);
        let operations = whole.counters().operations;
        let step = (operations / 150).max(1) as usize;
        for at in (0..operations).step_by(step) {
            let storage = SimStorage::new();
            storage.cut_at(at);
            let acknowledged = run_until_cut(&storage, load).len() - 1;
            for policy in CrashPolicy::ALL {
                let context = format!("{load:?} cut at {at}, {policy:?}");
                let image = SimStorage::from_files(storage.crash(policy, at));
                // Recovery gets no more room than there was before.
                image.set_capacity(Some(60_000));
                let database = open(&image, 2);
                let version = database.version() as usize;
                assert!(
                    (acknowledged..=acknowledged + 1).contains(&version),
                    "{context}: {version}, {acknowledged} was acknowledged"
                );
                check(&database, &expected[version], &context);
            }
        }
    }
}

#[test]
fn removing_works_where_nothing_else_does() {
    for load in [Load::Small, Load::Large, Load::Batches, Load::Mixed, Load::Huge] {
        for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
            for step in 0..6 {
                remove_and_go_on(load, durability, 120_000 + step * 7001, step % 2 == 1);
            }
        }
    }
}

#[test]
fn every_size_may_be_the_last() {
    for load in [Load::Small, Load::Mixed] {
        for step in 0..120 {
            remove_and_go_on(load, Durability::Strict, 60_000 + step * 331, step % 3 == 0);
        }
    }
}

/// The file is extended for merges to come. Once the database is closed, nothing needs that room,
/// and a browser's quota counts it.
#[test]
fn closing_leaves_no_free_tail_but_the_reserve() {
    let reserve_bytes = 512 << 10;
    let storage = SimStorage::new();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let options = Options {
        advanced: AdvancedOptions {
            reserve_bytes,
            database_id: Some(7),
            session: Some(1),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(shared, options.clone()).expect("it is new");
    let mut rng = SimRng::new(1);
    for commit in 0..20_u64 {
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..500 {
            let value = bytes(&mut rng, 150);
            let key = (commit * 500 + number).to_be_bytes();
            transaction.put("c", &key, &value).expect("it is small");
        }
        transaction.commit(Durability::Strict).expect("there is room");
    }
    let model = records(&database);
    database.close().expect("nothing fails");
    let len = storage.files()["data"].len() as u64;
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let database = Database::open(
        shared,
        Options {
            advanced: AdvancedOptions {
                session: Some(2),
                ..options.advanced
            },
            ..options
        },
    )
    .expect("it was closed");
    let stats = database.stats();
    assert_eq!(len, stats.file_bytes + u64::from(reserve_bytes), "{stats:?}");
    check(&database, &model, "closed and opened again");
}

/// A merge knows from the one before how long a leaf has to be to fill its units.
#[test]
fn leaves_of_text_fill_their_units_in_short_merges_too() {
    let size = |reserve_bytes: u32| {
        let storage = SimStorage::new();
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        let options = Options {
            cache_bytes: 4 << 20,
            advanced: AdvancedOptions {
                reserve_bytes,
                log_bytes: Some(4 << 20),
                database_id: Some(7),
                session: Some(1),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let database = Database::open(shared, options).expect("it is new");
        let mut rng = SimRng::new(1);
        for commit in 0..100_u64 {
            let mut transaction = database.begin().expect("it can be written");
            for number in commit * 1000..commit * 1000 + 1000 {
                let value = format!(
                    "{{\"id\":{number},\"name\":\"name of {}\",\"tags\":[{},{}],\"text\":\"a few words that come again\"}}",
                    rng.below(1 << 20),
                    rng.below(1000),
                    rng.below(1000),
                );
                transaction
                    .put("c", &number.to_be_bytes(), value.as_bytes())
                    .expect("it is small");
            }
            transaction.commit(Durability::Relaxed).expect("there is room");
        }
        database.close().expect("nothing fails");
        storage.files()["data"].len() - reserve_bytes as usize
    };
    // Estimates that restarted with each merge made 3.7 MB of it.
    for (reserve_bytes, most) in [(0, 3_500_000), (512 << 10, 3_300_000)] {
        let len = size(reserve_bytes);
        assert!(len < most, "{len} bytes with a reserve of {reserve_bytes}");
    }
}

/// A browser's configuration: large nodes, a log as large as the data, and one quota for both.
#[test]
fn a_compaction_makes_room_for_the_next_commit() {
    let options = |session| Options {
        cache_bytes: 64 << 20,
        advanced: AdvancedOptions {
            reserve_bytes: 512 << 10,
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let open = |storage: &SimStorage, session| {
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        Database::open(shared, options(session)).expect("a full storage is no reason not to open")
    };
    for (per_commit, len, reopens) in [(1, 5000, false), (1, 5000, true), (200, 1000, false), (200, 1000, true)] {
        let storage = SimStorage::new();
        storage.set_capacity(Some(8 << 20));
        let mut rng = SimRng::new(1);
        let mut database = open(&storage, 1);
        let mut count = 0_u64;
        loop {
            let mut transaction = database.begin().expect("it can be written");
            for number in count..count + per_commit {
                let value = bytes(&mut rng, len);
                transaction
                    .put("c", &number.to_be_bytes(), &value)
                    .expect("it is small");
            }
            match transaction.commit(Durability::Strict) {
                Ok(_) => count += per_commit,
                Err(Error::StorageFull { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if reopens {
            drop(database);
            database = open(&storage, 2);
        }
        for number in (0..count).step_by(2) {
            let mut transaction = database.begin().expect("it can be written");
            assert!(transaction.delete("c", &number.to_be_bytes()).expect("it is there"));
            transaction.commit(Durability::Strict).expect("a removal has room");
        }
        let sizes = |storage: &SimStorage| -> Vec<(String, usize)> {
            storage
                .files()
                .iter()
                .map(|(name, file)| (name.clone(), file.len()))
                .collect()
        };
        let before = sizes(&storage);
        compact(&database);
        let context = format!(
            "{count} of {len}, opened again: {reopens}, {before:?} -> {:?} {:?}",
            sizes(&storage),
            database.stats()
        );
        let mut transaction = database.begin().expect("it can be written");
        transaction
            .put("c", b"new", &bytes(&mut rng, len))
            .expect("it is small");
        let committed = transaction.commit(Durability::Strict);
        println!("{context}");
        assert!(committed.is_ok(), "{committed:?} {context}");
    }
}

/// A removal that finds less than half of the reserve is in the data file when its commit returns,
/// whatever it was to wait for: what it frees is needed, and the next checkpoint needs what is left.
#[test]
fn removals_that_reach_half_of_the_reserve_are_checkpoints() {
    let storage = SimStorage::new();
    let mut rng = SimRng::new(1);
    let mut model = Model::new();
    let database = open(&storage, 1);
    storage.set_capacity(Some(120_000));
    fill(&database, &mut model, &mut rng, Load::Small, Durability::Strict);
    // It keeps all that removals replace.
    let snapshot = database.snapshot();
    let (mut later, mut at_once) = (0, 0);
    for key in model.keys() {
        let removed = database.begin().and_then(|mut transaction| {
            transaction.delete("c", key)?;
            transaction.commit(Durability::None)
        });
        match removed {
            Ok(info) if database.stats().durable_version == info.version => at_once += 1,
            Ok(_) => later += 1,
            Err(Error::StorageFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(later > 0 && at_once > 0, "{later} later, {at_once} at once");
    drop(snapshot);
    let mut transaction = database.begin().expect("it can be written");
    transaction.clear("c", KeyRange::all()).expect("it can be cleared");
    transaction.commit(Durability::Strict).expect("there is room again");
    check(&database, &Model::new(), "cleared");
}

//! Proves that no power cut separates an index from its records, or an index under construction
//! from its progress: a workload is cut at each of its storage operations, and each image must
//! open, hold a committed state, and verify in both directions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, KeyRange, Options};

use super::{NAME, Time, by_bytes, by_first, bytes, expected, first_byte, options, read_index, records, verify};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The records after each commit that may have happened.
#[derive(Default)]
struct History {
    states: Vec<Records>,
    /// The first of them that recovery may produce.
    acknowledged: usize,
}

fn small(time: &Time, session: u64) -> Options {
    Options {
        advanced: AdvancedOptions {
            log_bytes: Some(16 << 10),
            ..options(time, session).advanced
        },
        ..options(time, session)
    }
}

/// Fills a collection, indexes it in slices beside other writes, replaces an index, and clears a
/// part.
fn run(storage: &SimStorage, seed: u64, history: &mut History) -> Result<(), Error> {
    let time = Time::default();
    let mut rng = SimRng::new(seed);
    history.states.push(Records::new());
    let database = Database::open(Arc::new(storage.clone()), small(&time, 1))?;
    let mut state = Records::new();
    let mut transaction = database.begin()?;
    for number in 0..1500_u16 {
        let value = vec![rng.below(256) as u8, rng.below(4) as u8];
        transaction.set(NAME, &number.to_be_bytes(), &value)?;
        state.insert(number.to_be_bytes().to_vec(), value);
    }
    history.states.push(state.clone());
    transaction.commit(Durability::Strict)?;
    history.acknowledged = history.states.len() - 1;
    for version in 1..=2 {
        let notes = database.indexed_collection(NAME, vec![by_first(version), by_bytes()])?;
        let mut calls = 0;
        let mut failed = None;
        notes.build(&mut |_, _| {
            calls += 1;
            let mut change = || {
                let mut transaction = database.begin()?;
                for _ in 0..6 {
                    let key = (rng.below(1600) as u16).to_be_bytes();
                    if rng.below(4) == 0 {
                        transaction.delete(NAME, &key)?;
                        state.remove(key.as_slice());
                    } else {
                        let value = vec![rng.below(256) as u8; 1 + rng.below(30) as usize];
                        notes.set(&mut transaction, &key, &value, None)?;
                        state.insert(key.to_vec(), value);
                    }
                }
                history.states.push(state.clone());
                transaction.commit(Durability::Strict)?;
                history.acknowledged = history.states.len() - 1;
                Ok(())
            };
            failed = change().err();
            if failed.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        failed.map_or(Ok(()), Err)?;
    }
    let mut transaction = database.begin()?;
    let range = KeyRange {
        lower: std::ops::Bound::Included(&[2]),
        upper: std::ops::Bound::Excluded(&[3]),
    };
    transaction.clear(NAME, range)?;
    state.retain(|key, _| key[0] != 2);
    history.states.push(state.clone());
    transaction.commit(Durability::Strict)?;
    history.acknowledged = history.states.len() - 1;
    database.close()
}

fn check(image: BTreeMap<String, Vec<u8>>, history: &History, context: &str) {
    let time = Time::default();
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::from_files(image));
    let open = |session| {
        Database::open(Arc::clone(&storage), small(&time, session)).unwrap_or_else(|error| panic!("{context}: {error}"))
    };
    let database = open(2);
    let found = records(&database.snapshot());
    let possible = &history.states[history.acknowledged..];
    assert!(possible.contains(&found), "{context}: {} records", found.len());
    verify(&database, context);
    let snapshot = database.snapshot();
    for index in snapshot.indexes(NAME).iter().filter(|index| index.is_complete()) {
        let wanted = match index.definition.name.as_str() {
            "first" => expected(&found, |value| first_byte(index.definition.version, value)),
            _ => expected(&found, bytes),
        };
        assert_eq!(read_index(&snapshot, &index.definition.name), wanted, "{context}");
    }
    // A build that was cut off continues.
    let notes = database
        .indexed_collection(NAME, vec![by_first(2), by_bytes()])
        .expect("they can be declared");
    assert!(
        notes
            .build(&mut |_, _| ControlFlow::Continue(()))
            .expect("nothing fails"),
        "{context}"
    );
    drop((snapshot, database));
    let database = open(3);
    let snapshot = database.snapshot();
    assert_eq!(
        read_index(&snapshot, "first"),
        expected(&found, |value| first_byte(2, value)),
        "{context}"
    );
    assert_eq!(read_index(&snapshot, "bytes"), expected(&found, bytes), "{context}");
    verify(&database, context);
}

#[test]
fn no_power_cut_separates_an_index_from_its_records() {
    let whole = SimStorage::new();
    run(&whole, 1, &mut History::default()).expect("nothing fails without a cut");
    let operations = whole.counters().operations;
    assert!(operations > 100, "{operations} operations");
    // Cuts at each n-th operation.
    let stride = std::env::var("MANGROVE_CRASH_STRIDE").map_or(3, |stride| stride.parse().expect("a number"));
    for cut in (0..operations).step_by(stride) {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let mut history = History::default();
        // The run may succeed: a cut at one of the last operations can be harmless.
        let _ = run(&storage, 1, &mut history);
        for policy in CrashPolicy::ALL {
            check(
                storage.crash(policy, cut),
                &history,
                &format!("cut {cut} of {operations} {policy:?}"),
            );
        }
    }
}

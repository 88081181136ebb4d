//! Proves that a log that temporarily finds no room loses nothing: whatever the log was doing when
//! writes began to fail, however many failed and whatever they left in the file, a refused commit
//! never happened, and one acknowledged afterwards survives a power cut.

#![allow(clippy::print_stdout, reason = "the number of images is a result")]

use std::sync::Arc;

use crate::common::{History, State, check};
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Keeps, Scope, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options};

/// State of the log when its writes begin to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begins {
    /// The database was just created.
    Created,
    /// It was opened after a clean close.
    Closed,
    /// It was opened after its process died.
    Killed,
    /// A quarter of the half is used.
    Used,
    /// A checkpoint has just switched to the other half, which has no header yet.
    Switched,
    /// One or two more records make a checkpoint due.
    NearlyFull,
}

#[derive(Clone, Copy, Debug)]
struct Scenario {
    begins: Begins,
    fault: Fault,
    reserve_bytes: u32,
    seed: u64,
}

const BEFORE: usize = 8;
const DURING: usize = 10;
const AFTER: usize = 5;
const HALF_BYTES: u64 = 8 << 10;

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

fn options(scenario: &Scenario, session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(2 * HALF_BYTES as u32),
            reserve_bytes: scenario.reserve_bytes,
            session: Some(session),
            database_id: Some(7),
        },
        ..Options::default()
    }
}

/// Commits one record; the history is correct whether or not that succeeds.
fn commit(database: &Database, history: &mut History, rng: &mut SimRng, durability: Durability) -> Result<(), Error> {
    let base = database.version() as usize;
    history.states.truncate(base + 1);
    let mut state = State::clone(&history.states[base]);
    let key = vec![rng.below(40) as u8];
    let value = vec![rng.below(256) as u8; rng.below(300) as usize];
    state
        .entry("c".to_owned())
        .or_default()
        .insert(key.clone(), value.clone());
    history.states.push(Arc::new(state));
    let mut transaction = database.begin()?;
    let done = transaction
        .set("c", &key, &value)
        .and_then(|_| transaction.commit(durability));
    match done {
        Ok(info) => {
            history.handed_over = info.version;
            if durability == Durability::Strict {
                history.acknowledged = info.version;
            }
            Ok(())
        }
        Err(error) => {
            // On an I/O error the power may have gone midway; otherwise the commit never happened.
            if !matches!(error, Error::Io(_)) {
                history.states.truncate(base + 1);
            }
            Err(error)
        }
    }
}

fn fill_log(database: &Database, history: &mut History, rng: &mut SimRng, until: u64) -> Result<(), Error> {
    let begin = database.stats().log_bytes_written;
    while database.stats().log_bytes_written - begin < until {
        commit(database, history, rng, Durability::Strict)?;
    }
    Ok(())
}

/// Brings the log into the state in which the scenario begins.
fn prepare(
    storage: &SimStorage,
    scenario: &Scenario,
    history: &mut History,
    rng: &mut SimRng,
) -> Result<Database, Error> {
    history.states.push(Arc::default());
    let database = Database::open(shared(storage), options(scenario, 1))?;
    if scenario.begins == Begins::Created {
        return Ok(database);
    }
    for _ in 0..BEFORE {
        commit(&database, history, rng, Durability::Strict)?;
    }
    match scenario.begins {
        Begins::Created => {}
        Begins::Closed => {
            database.close()?;
            return Database::open(shared(storage), options(scenario, 2));
        }
        Begins::Killed => {
            drop(database);
            return Database::open(shared(storage), options(scenario, 2));
        }
        Begins::Used => fill_log(&database, history, rng, HALF_BYTES / 8)?,
        Begins::Switched => {
            fill_log(&database, history, rng, HALF_BYTES / 2)?;
            database.checkpoint()?;
        }
        Begins::NearlyFull => fill_log(&database, history, rng, HALF_BYTES / 2)?,
    }
    Ok(database)
}

/// Runs a scenario until its end or the power cut; returns the number of refused commits.
fn run(storage: &SimStorage, scenario: &Scenario, history: &mut History) -> Result<u32, Error> {
    let mut rng = SimRng::new(scenario.seed);
    let database = prepare(storage, scenario, history, &mut rng)?;
    let fault = Fault {
        at: storage.counters().operations + scenario.fault.at,
        ..scenario.fault
    };
    storage.set_fault(Some(fault));
    let mut refused = 0;
    for number in 0..DURING + AFTER {
        if number == DURING {
            storage.set_fault(None);
        }
        let durability = if rng.below(4) == 0 {
            Durability::Relaxed
        } else {
            Durability::Strict
        };
        match commit(&database, history, &mut rng, durability) {
            Ok(()) => {}
            Err(Error::StorageFull { .. }) if number < DURING => refused += 1,
            Err(error) => return Err(error),
        }
    }
    let report = database.verify()?;
    assert!(report.is_ok(), "{scenario:?}: {:?}", report.problems);
    Ok(refused)
}

fn check_image(
    storage: &SimStorage,
    policy: CrashPolicy,
    seed: u64,
    scenario: &Scenario,
    history: &History,
    context: &str,
) {
    let mut history = history.clone();
    if policy == CrashPolicy::Everything {
        history.acknowledged = history.handed_over;
    }
    let context = format!("{context} {policy:?} {seed}");
    let image = SimStorage::from_files(storage.crash(policy, seed));
    let database =
        Database::open(shared(&image), options(scenario, 9)).unwrap_or_else(|error| panic!("{context}: {error}"));
    let version = check(&database, &history, &context);
    // The database accepts further commits.
    history.states.truncate(version as usize + 1);
    let mut rng = SimRng::new(seed);
    commit(&database, &mut history, &mut rng, Durability::Strict).unwrap_or_else(|error| panic!("{context}: {error}"));
    drop(database);
    let database =
        Database::open(shared(&image), options(scenario, 10)).unwrap_or_else(|error| panic!("{context}: {error}"));
    check(&database, &history, &context);
}

/// Runs a scenario to its end, and again with the power cut at some of its operations.
fn explore(scenario: &Scenario) -> (u64, u32) {
    let context = format!("{scenario:?}");
    let storage = SimStorage::new();
    let mut history = History::default();
    let refused = run(&storage, scenario, &mut history).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(
        history.acknowledged.max(history.handed_over),
        history.states.len() as u64 - 1
    );
    let mut images = 0;
    for policy in CrashPolicy::ALL {
        check_image(&storage, policy, scenario.seed, scenario, &history, &context);
        images += 1;
    }
    let operations = storage.counters().operations;
    let mut rng = SimRng::new(!scenario.seed);
    for _ in 0..4 {
        let cut = operations.saturating_sub(1 + rng.below(2 * (DURING + AFTER) as u64));
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let mut history = History::default();
        let _ = run(&storage, scenario, &mut history);
        for _ in 0..2 {
            let policy = CrashPolicy::ALL[rng.below(CrashPolicy::ALL.len() as u64) as usize];
            check_image(
                &storage,
                policy,
                rng.next_u64(),
                scenario,
                &history,
                &format!("{context} cut at {cut}"),
            );
            images += 1;
        }
    }
    (images, refused)
}

fn explore_all(begins: Begins) {
    let (mut images, mut refused, mut seed) = (0, 0, 0);
    for scope in [Scope::WritesOf("log"), Scope::WritesOf("data"), Scope::Writes] {
        for times in [1, 2, 3, 4, 5, 8, 13, u64::MAX] {
            for at in 0..5 {
                for keeps in [Keeps::Nothing, Keeps::Half, Keeps::All] {
                    seed += 1;
                    let fault = Fault {
                        times,
                        scope,
                        keeps,
                        ..Fault::once(at, FaultKind::StorageFull)
                    };
                    let reserve_bytes = if seed % 3 == 0 { 8 << 10 } else { 0 };
                    let scenario = Scenario {
                        begins,
                        fault,
                        reserve_bytes,
                        seed,
                    };
                    let (checked, failed) = explore(&scenario);
                    images += checked;
                    refused += failed;
                }
            }
        }
    }
    println!("{begins:?}: {images} images, {refused} commits refused");
    assert!(refused > 100, "the faults refused {refused} commits only");
}

#[test]
fn a_new_log() {
    explore_all(Begins::Created);
}

#[test]
fn a_log_after_a_clean_close() {
    explore_all(Begins::Closed);
}

#[test]
fn a_log_after_a_crash() {
    explore_all(Begins::Killed);
}

#[test]
fn a_log_in_use() {
    explore_all(Begins::Used);
}

#[test]
fn a_log_at_the_switch_of_halves() {
    explore_all(Begins::Switched);
}

#[test]
fn a_log_before_its_checkpoint() {
    explore_all(Begins::NearlyFull);
}

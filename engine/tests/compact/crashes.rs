//! Power cuts at every operation of a compaction.

use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{CompactOptions, CompactReport, Database, Durability, Error};

use super::{content, go_on, shared, value};
use crate::common::{Flavour, History, State, check, options, run, visit_crashes, without_empty};

/// Checks that whatever survives a cut at any operation opens with the same content and verifies.
/// It must also compact to the end.
fn crash_everywhere(flavour: Flavour, seed: u64, commits: u64) {
    let options_of = || options(flavour, 77);
    let storage = SimStorage::new();
    let mut history = History::default();
    run(&shared(&storage), flavour, seed, commits, &mut history).expect("the storage works");
    let database = Database::open(shared(&storage), options_of()).expect("it opens");
    history.acknowledged = database.version();
    // Deletes two of every three records and leaves that commit in the log.
    let mut state = State::clone(&history.states[database.version() as usize]);
    let mut transaction = database.begin().expect("it can be written");
    for (name, records) in &mut state {
        let mut number = 0;
        records.retain(|key, _| {
            number += 1;
            let stays = number % 3 == 0;
            if !stays {
                transaction.delete(name, key).expect("it is there");
            }
            stays
        });
    }
    transaction.set("late", b"key", &value(5, 1500)).expect("there is room");
    state
        .entry("late".to_owned())
        .or_default()
        .insert(b"key".to_vec(), value(5, 1500));
    transaction.commit(Durability::Strict).expect("there is room");
    assert!(content(&database) == without_empty(&state));
    history.states.truncate(history.acknowledged as usize + 1);
    history.states.push(Arc::new(state));
    history.acknowledged += 1;
    assert_eq!(database.version(), history.acknowledged);
    drop(database);
    let image = storage.files();
    let small_slices = CompactOptions {
        slice_bytes: 512,
        threshold_bytes: 1024,
    };
    // A commit arrives during the compaction; the last entry of the history may or may not survive.
    let late = value(9, 1100);
    let mut next = State::clone(&history.states[history.acknowledged as usize]);
    next.entry("late".to_owned())
        .or_default()
        .insert(b"more".to_vec(), late.clone());
    history.states.push(Arc::new(next));
    let work = |storage: &SimStorage, acknowledged: &mut u64| -> Result<CompactReport, Error> {
        let database = Database::open(shared(storage), options_of())?;
        let mut calls = 0;
        database.compact(small_slices, &mut |_| {
            calls += 1;
            if calls == 3
                && let Ok(mut transaction) = database.begin()
                && transaction.set("late", b"more", &late).is_ok()
                && let Ok(info) = transaction.commit(Durability::Strict)
            {
                *acknowledged = info.version;
            }
            ControlFlow::Continue(())
        })
    };
    let whole = SimStorage::from_files(image.clone());
    let report = work(&whole, &mut 0).expect("nothing fails without a cut");
    assert!(report.moved_bytes > 0 && report.slices > 2, "{report:?}");
    let operations = whole.counters().operations;
    let mut images = 0;
    let cut_work = |storage: &SimStorage, acknowledged: &mut u64| {
        let _ = work(storage, acknowledged);
    };
    visit_crashes(
        (&image, operations, 1),
        &history,
        cut_work,
        |files, crash_seed, history, context| {
            let context = format!("{flavour:?} {context}");
            let storage = SimStorage::from_files(files);
            let database =
                Database::open(shared(&storage), options_of()).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&database, history, &context);
            if crash_seed == 0 {
                database
                    .compact(small_slices, &mut go_on)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                check(&database, history, &context);
            }
            images += 1;
        },
    );
    println!("{flavour:?}: {operations} operations, {images} images, {report:?}");
}

#[test]
fn no_cut_loses_anything() {
    crash_everywhere(Flavour::Batches, 5, 40);
    crash_everywhere(Flavour::Large, 3, 30);
    crash_everywhere(Flavour::Mixed, 9, 120);
    crash_everywhere(Flavour::Unlogged, 5, 60);
}

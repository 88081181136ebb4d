//! Power cuts at every operation of a re-encryption.

use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{Database, Durability, Error, ReencryptEnd, ReencryptOptions};

use super::{CONTINUE, go_on, is_over, oldest_generation, renewal};
use crate::common::{Flavour, History, State, check, encrypted, options, run, visit_crashes};
use crate::encryption::{filled, number, options as encrypted_options};

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

/// Checks that whatever survives a cut at any operation opens with its key and the same content,
/// verifies, and is re-encrypted to the end. Each cut hits one of two re-encryptions, with commits
/// between their slices.
fn crash_everywhere(flavour: Flavour, seed: u64, commits: u64, step: usize) {
    let options_of = || options(flavour, 77);
    let storage = SimStorage::new();
    let mut history = History::default();
    run(&shared(&storage), flavour, seed, commits, &mut history).expect("the storage works");
    let database = Database::open(shared(&storage), options_of()).expect("it opens");
    history.acknowledged = database.version();
    history.states.truncate(history.acknowledged as usize + 1);
    drop(database);
    let image = storage.files();
    let slices = ReencryptOptions {
        slice_bytes: 1024,
        continues_only: false,
    };
    // A commit arrives after the first slice of each.
    for round in 0..2_u8 {
        let mut next = State::clone(history.states.last().expect("there is one"));
        next.entry("late".to_owned())
            .or_default()
            .insert(vec![round], vec![round; 900]);
        history.states.push(Arc::new(next));
    }
    let work = |storage: &SimStorage, acknowledged: &mut u64| -> Result<(), Error> {
        let database = Database::open(shared(storage), options_of())?;
        for round in 0..2_u8 {
            let mut calls = 0;
            database.reencrypt(slices, &mut |_| {
                calls += 1;
                if calls == 1
                    && let Ok(info) = database.set("late", &[round], &[round; 900], Durability::Strict)
                {
                    *acknowledged = info.version;
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    };
    let whole = SimStorage::from_files(image.clone());
    let mut acknowledged = 0;
    work(&whole, &mut acknowledged).expect("nothing fails without a cut");
    assert_eq!(acknowledged as usize, history.states.len() - 1);
    let operations = whole.counters().operations;
    let (mut images, mut under_way) = (0, 0);
    let cut_work = |storage: &SimStorage, acknowledged: &mut u64| {
        let _ = work(storage, acknowledged);
    };
    visit_crashes(
        (&image, operations, step),
        &history,
        cut_work,
        |files, crash_seed, history, context| {
            let context = format!("{flavour:?} {context}");
            let storage = MemoryStorage::from_files(files);
            let open = || Database::open(Arc::new(storage.clone()), options_of());
            let database = open().unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&database, history, &context);
            images += 1;
            let is_begun = database.is_reencrypting();
            under_way += u32::from(is_begun);
            if crash_seed == 0 {
                let from = renewal(&storage.files()["data"]).1;
                let end = database.reencrypt(CONTINUE, &mut go_on);
                assert_eq!(end, Ok(ReencryptEnd::Done), "{context}");
                let files = storage.files();
                if is_begun {
                    assert!(is_over(&files), "{context}");
                    assert!(oldest_generation(&database, &files["data"]) >= from, "{context}");
                }
                check(&database, history, &context);
                drop(database);
                let again = open().unwrap_or_else(|error| panic!("{context}: {error}"));
                check(&again, history, &context);
            }
        },
    );
    assert!(under_way > images / 2 && under_way < images, "{under_way} of {images}");
    println!("{flavour:?}: {operations} operations, {images} images, {under_way} under way");
}

#[test]
fn no_cut_loses_anything() {
    encrypted(true, || {
        crash_everywhere(Flavour::Tiny, 5, 20, 1);
        crash_everywhere(Flavour::Large, 3, 12, 3);
        crash_everywhere(Flavour::Mixed, 9, 60, 2);
        crash_everywhere(Flavour::Unlogged, 5, 30, 2);
    });
}

/// What the previous data key has sealed is older than the generation that begins the new one: the
/// superblock that still has that key, too.
#[test]
fn the_new_key_begins_behind_everything_under_the_previous_one() {
    let (filled, database) = filled(20);
    drop(database);
    let files = filled.files();
    let begin = |storage: &SimStorage| {
        let database = Database::open(shared(storage), encrypted_options(1))?;
        database.reencrypt(ReencryptOptions::default(), &mut |_| ControlFlow::Break(()))
    };
    let whole = SimStorage::from_files(files.clone());
    begin(&whole).expect("nothing fails");
    let mut seen = 0;
    for cut in 0..whole.counters().operations {
        let storage = SimStorage::from_files(files.clone());
        storage.cut_at(cut);
        let _ = begin(&storage);
        let data = &storage.files()["data"];
        let [one, other] = [0, 4096].map(|slot| (data[slot + 164], number(data, slot + 32), number(data, slot + 480)));
        for (old, new) in [(one, other), (other, one)] {
            if (old.0, new.0) == (1, 2) {
                assert!(
                    old.1 < new.2,
                    "cut {cut}: the previous key is for blocks before generation {}, and sealed {}",
                    new.2,
                    old.1
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no cut fell between the two superblocks");
}

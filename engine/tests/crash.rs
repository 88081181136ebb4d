//! Proves that no power cut loses an acknowledged commit, shows half of one, or leaves a database
//! that cannot be opened.
//!
//! A workload runs once to count its storage operations, then once more for each operation, with
//! the power cut there. Every crash policy and several seeds turn each cut into images. Each image
//! must open, hold exactly a committed state no older than the last acknowledged one, verify, take
//! new commits, and hold those after reopening. Every tenth cut crashes again inside the recovery
//! and the first commit after it.

#![allow(clippy::print_stdout, reason = "the number of images is a result")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Flavour, History, State, check, encrypted, options, run};
use mangrove_engine::storage::Storage;
use mangrove_engine::testing::sim::{CrashPolicy, SimStorage};
use mangrove_engine::{Database, Durability, Error};

/// Images of each cut by each policy that chooses at random.
const SEEDS: u64 = 4;
/// Number of images that all tests of the process have checked.
static IMAGES: AtomicU64 = AtomicU64::new(0);

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("it is a number"))
}

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

/// Opens an image, checks it, commits once more and reopens it; returns the number of images. With
/// `again`, it also crashes at each operation on the way.
fn recover(image: &BTreeMap<String, Vec<u8>>, flavour: Flavour, history: &History, context: &str, again: bool) -> u64 {
    let storage = SimStorage::from_files(image.clone());
    let database =
        Database::open(shared(&storage), options(flavour, 1)).unwrap_or_else(|error| panic!("{context}: {error}"));
    let version = check(&database, history, context);
    let mut after = history.clone();
    after.states.truncate(version as usize + 1);
    after
        .remembered
        .as_mut()
        .map(|versions| versions.split_off(&(version + 1)));
    let mut state = State::clone(&after.states[version as usize]);
    state
        .entry("after".to_owned())
        .or_default()
        .insert(b"key".to_vec(), vec![1; 700]);
    after.states.push(Arc::new(state));
    after.acknowledged = version;
    write_after(&database, context);
    drop(database);
    let operations = storage.counters().operations;
    let database =
        Database::open(shared(&storage), options(flavour, 2)).unwrap_or_else(|error| panic!("{context}: {error}"));
    let complete = History {
        acknowledged: version + 1,
        ..after.clone()
    };
    check(&database, &complete, context);
    if !again {
        return 1;
    }
    let mut images = 1;
    for cut in 0..operations {
        let storage = SimStorage::from_files(image.clone());
        storage.cut_at(cut);
        if let Ok(database) = Database::open(shared(&storage), options(flavour, 1)) {
            let mut transaction = database.begin().expect("it is not poisoned yet");
            let _ = transaction.set("after", b"key", &[1; 700]);
            let _ = transaction.commit(Durability::Strict);
        }
        for policy in CrashPolicy::ALL {
            let context = format!("{context}, again at {cut} {policy:?}");
            let second = SimStorage::from_files(storage.crash(policy, cut));
            let database = Database::open(shared(&second), options(flavour, 3))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&database, &after, &context);
            images += 1;
        }
    }
    images
}

fn write_after(database: &Database, context: &str) {
    let mut transaction = database.begin().unwrap_or_else(|error| panic!("{context}: {error}"));
    transaction
        .set("after", b"key", &[1; 700])
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    transaction
        .commit(Durability::Strict)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
}

/// Crashes a workload at each of its operations, or each n-th if `MANGROVE_CRASH_STRIDE` says so;
/// returns the number of images checked.
fn crash_everywhere(flavour: Flavour, seed: u64, commits: u64) -> u64 {
    let whole = SimStorage::new();
    run(&shared(&whole), flavour, seed, commits, &mut History::remembering()).expect("nothing fails without a cut");
    let operations = whole.counters().operations;
    let stride = number("MANGROVE_CRASH_STRIDE", 1);
    let mut images = 0;
    for cut in (seed % stride..operations).step_by(stride as usize) {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let mut history = History::remembering();
        // The run may succeed: a cut at one of the last operations can be harmless.
        let _ = run(&shared(&storage), flavour, seed, commits, &mut history);
        for policy in CrashPolicy::ALL {
            let mut history = history.clone();
            if policy == CrashPolicy::Everything {
                // Equivalent to the death of the process alone.
                history.acknowledged = history.handed_over;
            }
            let seeds = if matches!(policy, CrashPolicy::Nothing | CrashPolicy::Everything) {
                1
            } else {
                SEEDS
            };
            for crash_seed in 0..seeds {
                let context = format!("{flavour:?} seed {seed} cut {cut} of {operations} {policy:?} {crash_seed}");
                let image = storage.crash(policy, crash_seed);
                images += recover(
                    &image,
                    flavour,
                    &history,
                    &context,
                    (cut / stride).is_multiple_of(10) && crash_seed == 0,
                );
            }
        }
    }
    let total = IMAGES.fetch_add(images, Ordering::Relaxed) + images;
    println!("{flavour:?} seed {seed}: {operations} operations, {images} images; {total} images in all");
    assert!(images > operations / stride);
    images
}

#[test]
fn tiny_transactions() {
    crash_everywhere(Flavour::Tiny, 1, 60);
}

#[test]
fn batches_with_splits_and_merges() {
    crash_everywhere(Flavour::Batches, 2, 40);
}

#[test]
fn large_values() {
    crash_everywhere(Flavour::Large, 3, 30);
}

#[test]
fn mixed_durability_snapshots_and_reopening() {
    for seed in 4..12 {
        crash_everywhere(Flavour::Mixed, seed, 60);
    }
}

#[test]
fn mixed_durability_without_a_log() {
    for seed in 4..6 {
        crash_everywhere(Flavour::Unlogged, seed, 40);
    }
}

#[test]
fn memtables_that_are_merged_in_parts() {
    crash_everywhere(Flavour::Merging, 20, 10);
}

#[test]
fn values_written_in_parts() {
    for seed in 30..33 {
        crash_everywhere(Flavour::Staged, seed, 24);
    }
}

#[test]
fn transactions_larger_than_memory() {
    crash_everywhere(Flavour::Huge, 6, 8);
}

#[test]
fn encrypted_databases() {
    encrypted(true, || {
        crash_everywhere(Flavour::Tiny, 41, 30);
        crash_everywhere(Flavour::Mixed, 42, 60);
        crash_everywhere(Flavour::Unlogged, 43, 30);
        crash_everywhere(Flavour::Merging, 44, 6);
        crash_everywhere(Flavour::Staged, 45, 20);
        crash_everywhere(Flavour::Huge, 46, 4);
    });
}

/// Runs fresh workloads on all processors until `MANGROVE_CRASH_IMAGES` images are checked. The
/// default is 10 million. Seeds begin at `MANGROVE_CRASH_SEED`; a failure names its seed.
#[test]
#[ignore = "takes hours"]
fn soak() {
    let wanted = number("MANGROVE_CRASH_IMAGES", 10_000_000);
    let next = AtomicU64::new(number("MANGROVE_CRASH_SEED", 1000));
    let begin = Instant::now();
    let work = || {
        while IMAGES.load(Ordering::Relaxed) < wanted {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let (flavour, commits) = match seed % 9 {
                0 => (Flavour::Tiny, 90),
                1 => (Flavour::Batches, 50),
                2 => (Flavour::Large, 40),
                3 => (Flavour::Unlogged, 50),
                4 => (Flavour::Huge, 8),
                5 => (Flavour::Merging, 10 + seed % 10),
                6 => (Flavour::Staged, 20 + seed % 20),
                _ => (Flavour::Mixed, 40 + seed % 50),
            };
            encrypted(seed % 4 == 3, || crash_everywhere(flavour, seed, commits));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (images, taken) = (IMAGES.load(Ordering::Relaxed), begin.elapsed());
    let rate = images / taken.as_secs().max(1);
    println!(
        "{images} images in {:?}, {rate} a second",
        Duration::from_secs(taken.as_secs())
    );
}

/// Returns the generation of the record at the front of a superblock slot, or 0 if never written.
fn generation(data: &[u8], slot: usize) -> u64 {
    let bytes = data.get(slot + 32..slot + 40).unwrap_or(&[0; 8]);
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Destroying the newest superblock loses nothing, whatever is being written. The checkpoint before
/// it is whole too (invariant I1), and with the log it leads to the newest state (I16). Where
/// commits bypassed the log, opening reports that or, without a log, yields the older state.
#[test]
fn the_older_superblock_and_the_log_stay_complete() {
    let stride = number("MANGROVE_CRASH_STRIDE", 1);
    for (flavour, seed) in [
        (Flavour::Tiny, 1),
        (Flavour::Batches, 2),
        (Flavour::Large, 3),
        (Flavour::Mixed, 4),
        (Flavour::Unlogged, 5),
        (Flavour::Merging, 6),
        (Flavour::Staged, 7),
    ] {
        let commits = if flavour == Flavour::Staged { 40 } else { 90 };
        let whole = SimStorage::new();
        run(&shared(&whole), flavour, seed, commits, &mut History::remembering()).expect("nothing fails without a cut");
        let (mut opened, mut refused) = (0, 0);
        for cut in (0..whole.counters().operations).step_by(stride as usize) {
            let storage = SimStorage::new();
            storage.cut_at(cut);
            let mut history = History::remembering();
            let _ = run(&shared(&storage), flavour, seed, commits, &mut history);
            let mut image = storage.crash(CrashPolicy::Everything, 0);
            let data = image.get_mut("data").expect("it is created first");
            let (a, b) = (generation(data, 0), generation(data, 4096));
            if a.min(b) == 0 {
                continue;
            }
            let newest = if a > b { 0 } else { 4096 };
            data[newest..newest + 4096].fill(0xEE);
            let context = format!("{flavour:?} cut {cut}, generation {} destroyed", a.max(b));
            let storage = SimStorage::from_files(image);
            match Database::open(shared(&storage), options(flavour, 9)) {
                Ok(database) => {
                    if flavour == Flavour::Unlogged {
                        history.acknowledged = 0;
                    }
                    check(&database, &history, &context);
                    write_after(&database, &context);
                    opened += 1;
                }
                Err(Error::Corrupt(_)) if flavour != Flavour::Unlogged => refused += 1,
                Err(error) => panic!("{context}: {error}"),
            }
        }
        assert!(opened > 50 / stride, "{flavour:?}: {opened} images had two superblocks");
        println!("{flavour:?}: {opened} opened, {refused} refused");
        // Their large commits bypassed the log.
        assert!(refused == 0 || matches!(flavour, Flavour::Mixed | Flavour::Merging | Flavour::Staged));
    }
}

/// Opening passes over the newest superblock if it is whole but a block that opening needs is not.
/// The older superblock and the log are used instead, and the database goes on from there.
#[test]
fn a_damaged_block_of_the_newest_checkpoint_is_passed_over() {
    let storage = SimStorage::new();
    let mut history = History::remembering();
    run(&shared(&storage), Flavour::Tiny, 8, 90, &mut history).expect("the storage works");
    let files = storage.files();
    let mut passed_over = 0;
    for unit in 16..files["data"].len() / 512 {
        let mut image = files.clone();
        image.get_mut("data").expect("it is there")[unit * 512..][..512].fill(0xEE);
        // What the damaged checkpoint needed is free once it was passed over.
        let storage = SimStorage::from_files(image).without_shadow();
        let context = format!("unit {unit}");
        let Ok(database) = Database::open(shared(&storage), options(Flavour::Tiny, 9)) else {
            continue;
        };
        let intact = database.verify().is_ok_and(|report| report.is_ok());
        if intact && database.stats().checkpoints == 0 && database.stats().recovered_from_older {
            check(&database, &history, &context);
            write_after(&database, &context);
            // The checkpoint in front of that commit lets the log go on.
            assert!(!database.stats().recovered_from_older, "{context}");
            drop(database);
            let database = Database::open(shared(&storage), options(Flavour::Tiny, 10)).expect("it is healed");
            assert!(!database.stats().recovered_from_older);
            passed_over += 1;
        }
    }
    assert!(passed_over > 0);
}

//! Salvage of damaged databases, against models that know every version of every record.

mod catalogs;
mod crashes;
mod edges;
mod expiry;
mod hostile;
mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{Flavour, History, State, options, read_state, run, without_empty};
use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{Completeness, Database, Error, Options, RecoverReport, RecoveredRoot, recover};

const FLAVOURS: [Flavour; 4] = [Flavour::Tiny, Flavour::Batches, Flavour::Large, Flavour::Mixed];
/// Unit size of all databases here.
const UNIT: usize = 512;

/// All files of a database.
type Files = BTreeMap<String, Vec<u8>>;

fn files_of(data: &[u8]) -> Files {
    Files::from([("data".to_owned(), data.to_vec())])
}

fn storage_of(data: &[u8]) -> MemoryStorage {
    MemoryStorage::from_files(files_of(data))
}

/// Returns the data file of a database closed after a workload, and the states it went through.
fn grown(flavour: Flavour, seed: u64, commits: u64) -> (Vec<u8>, Vec<Arc<State>>) {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let mut history = History::remembering();
    run(&storage, flavour, seed, commits, &mut history).expect("memory works");
    let database = Database::open(storage, options(flavour, 1)).expect("it was closed or dropped");
    history.states.truncate(database.version() as usize + 1);
    database.close().expect("memory works");
    (memory.files()["data"].clone(), history.states)
}

fn recovered(data: &[u8], context: &str) -> (RecoverReport, State) {
    recovered_files(&files_of(data), context)
}

/// Recovers a database; checks that the source is unchanged and the result is sound.
fn recovered_files(files: &Files, context: &str) -> (RecoverReport, State) {
    let (source, target) = (MemoryStorage::from_files(files.clone()), MemoryStorage::new());
    let target_options = Options {
        cache_bytes: 64 << 10,
        ..Options::default()
    };
    let report = recover(
        Arc::new(source.clone()),
        Arc::new(target.clone()),
        target_options,
        &mut |_| ControlFlow::Continue(()),
    );
    let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(source.files() == *files, "{context}: the source was changed");
    let database = Database::open(Arc::new(target), Options::default()).expect("it was made just now");
    assert!(database.verify().expect("it can look").is_ok(), "{context}");
    let state = read_state(&database.snapshot()).expect("it is intact");
    let counts: BTreeMap<String, u64> = database
        .collections()
        .into_iter()
        .map(|info| (info.name, info.count))
        .collect();
    let reported = report
        .collections
        .iter()
        .map(|collection| (collection.name.clone(), collection.count));
    assert_eq!(reported.collect::<BTreeMap<_, _>>(), counts, "{context}");
    (report, state)
}

#[test]
fn an_undamaged_database_comes_back_as_it_is() {
    for flavour in FLAVOURS {
        for seed in 0..4 {
            let (data, states) = grown(flavour, seed, 40);
            let (report, state) = recovered(&data, "undamaged");
            assert_eq!(report.completeness, Completeness::Exact);
            assert!(matches!(report.root, RecoveredRoot::Superblock { .. }));
            assert!(state == without_empty(states.last().expect("there is one")));
            assert_eq!(
                report.damaged_range_count + report.lost_record_count + report.unreadable_blocks,
                0
            );
        }
    }
}

#[test]
fn without_superblocks_everything_comes_back() {
    for flavour in FLAVOURS {
        for seed in 0..4 {
            let (mut data, states) = grown(flavour, seed, 40);
            let expected = without_empty(states.last().expect("there is one"));
            // The slot of the newest checkpoint alone, then both.
            let newest = newest_slot(&data);
            data[newest * 4096..(newest + 1) * 4096].fill(0x5A);
            for what in ["the newest slot", "both slots"] {
                let context = format!("{flavour:?} {seed}: {what}");
                let (report, state) = recovered(&data, &context);
                assert!(state == expected, "{context}: {:?}", report.completeness);
                assert_eq!(report.completeness, Completeness::Reconstructed, "{context}");
                // The last checkpoint may have had nothing to write.
                let is_found = matches!(report.root, RecoveredRoot::Catalog { .. });
                assert!(is_found || what == "the newest slot", "{context}");
                data[..8192].fill(0);
            }
        }
    }
}

fn count(state: &State) -> u64 {
    state.values().map(|records| records.len() as u64).sum()
}

/// Whether a copy of the superblock is unchanged.
fn same_record(data: &[u8], original: &[u8], at: usize) -> bool {
    data[at..at + 512] == original[at..at + 512]
}

fn newest_slot(data: &[u8]) -> usize {
    // A cut may leave only the second copy intact.
    let generation = |slot: usize| {
        let copies = [0, 2048].map(|copy| data[slot * 4096 + copy + 32..].first_chunk().expect("a slot is longer"));
        copies.map(|bytes| u64::from_le_bytes(*bytes)).into_iter().max()
    };
    usize::from(generation(1) > generation(0))
}

/// Place of a block in the file.
struct Block {
    start: usize,
    len: usize,
}

fn blocks(data: &[u8]) -> Vec<Block> {
    let mut found = Vec::new();
    let mut at = 8192;
    while at + 32 <= data.len() {
        let stored = u32::from_le_bytes(*data[at + 8..].first_chunk().expect("in bounds")) as usize;
        let is_block = &data[at..at + 4] == b"MGBK" && at + 32 + stored <= data.len();
        let len = if is_block {
            (32 + stored).next_multiple_of(UNIT)
        } else {
            UNIT
        };
        if is_block {
            found.push(Block { start: at, len });
        }
        at += len;
    }
    found
}

/// Checks a recovery against the states the database went through. Outside of damaged ranges and
/// lost records there must be exactly the newest state; inside them only what once existed.
fn check(report: &RecoverReport, state: &State, states: &[Arc<State>], context: &str) {
    let newest = without_empty(states.last().expect("there is one"));
    let mut once: BTreeMap<(&str, &[u8]), BTreeSet<&[u8]>> = BTreeMap::new();
    for (name, records) in states.iter().flat_map(|state| state.iter()) {
        for (key, value) in records {
            once.entry((name, key)).or_default().insert(value);
        }
    }
    let is_named = |name: &str| {
        report
            .collections
            .iter()
            .any(|found| found.name == name && found.is_named)
    };
    for (name, records) in state.iter().filter(|(name, _)| is_named(name)) {
        for (key, value) in records {
            let values = once.get(&(name.as_str(), key.as_slice()));
            assert!(
                values.is_some_and(|values| values.contains(value.as_slice())),
                "{context}: invented record"
            );
        }
    }
    let in_catalog = report.damaged_ranges.iter().any(|range| range.collection.is_none());
    if in_catalog {
        return;
    }
    let is_damaged = |name: &str, key: &[u8]| {
        let in_range = report.damaged_ranges.iter().any(|range| {
            range.collection.as_deref() == Some(name)
                && range.lower.as_slice() <= key
                && range.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
        });
        let is_lost = |lost: &mangrove_engine::LostRecord| lost.collection.as_deref() == Some(name) && lost.key == key;
        in_range || report.lost_records.iter().any(is_lost)
    };
    let outside = |state: &State| -> State {
        let mut state = state.clone();
        for (name, records) in &mut state {
            records.retain(|key, _| !is_damaged(name, key));
        }
        without_empty(&state)
    };
    assert!(
        outside(state) == outside(&newest),
        "{context}: wrong records outside of the damage {report:?}"
    );
}

/// Checks that no record is missing or outdated. Collections may have lost their names, and dropped
/// ones may be back.
fn assert_none_missing(expected: &State, state: &State, context: &str) {
    for (name, records) in expected {
        let nameless = state
            .iter()
            .any(|(name, found)| name.starts_with("recovered-") && found == records);
        assert!(state.get(name) == Some(records) || nameless, "{context}: {name}");
    }
}

fn generation(data: &[u8], block: &Block) -> u64 {
    u64::from_le_bytes(*data[block.start + 16..].first_chunk().expect("in bounds"))
}

fn is_catalog(data: &[u8], block: &Block) -> bool {
    data[block.start + 24..block.start + 28] == [0; 4]
}

#[test]
fn every_damaged_unit_costs_at_most_its_block() {
    for (flavour, commits) in [
        (Flavour::Tiny, 250),
        (Flavour::Batches, 12),
        (Flavour::Large, 12),
        (Flavour::Mixed, 30),
    ] {
        let (data, states) = grown(flavour, 9, commits);
        let expected = without_empty(states.last().expect("there is one"));
        let mut salvaged = 0;
        for at in (0..data.len()).step_by(UNIT) {
            let mut damaged = data.clone();
            let end = data.len().min(at + UNIT);
            damaged[at..end].iter_mut().for_each(|byte| *byte ^= 0xA5);
            let context = format!("{flavour:?} unit {}", at / UNIT);
            let (report, state) = recovered(&damaged, &context);
            check(&report, &state, &states, &context);
            if report.completeness == Completeness::Salvage {
                salvaged += 1;
                let only_catalog = report.damaged_ranges.iter().all(|range| range.collection.is_none());
                if only_catalog && report.lost_record_count == 0 {
                    assert_none_missing(&expected, &state, &context);
                }
            } else {
                assert!(state == expected, "{context}");
            }
        }
        assert!(salvaged > 5, "{flavour:?}: {salvaged}");
    }
}

/// An inner node only points at records: losing it costs none, and nothing deleted returns.
#[test]
fn damaged_inner_nodes_cost_nothing() {
    for seed in 0..6 {
        let (data, states) = grown(Flavour::Batches, seed, 60);
        let expected = without_empty(states.last().expect("there is one"));
        let inner: Vec<Block> = blocks(&data)
            .into_iter()
            .filter(|block| data[block.start + 4] == 2)
            .collect();
        assert!(inner.len() > 2);
        let mut all = data.clone();
        for block in &inner {
            let mut one = data.clone();
            for bytes in [&mut one, &mut all] {
                bytes[block.start + 20..block.start + block.len].fill(0xEE);
            }
            let (report, state) = recovered(&one, "one inner node");
            assert!(state == expected, "seed {seed}: inner node at {}", block.start);
            for range in &report.damaged_ranges {
                assert!(range.expected.is_none_or(|expected| expected == range.recovered));
            }
        }
        let (report, state) = recovered(&all, "all inner nodes");
        assert!(state == expected, "seed {seed}: all inner nodes");
        // The damaged nodes may all have been outdated.
        let is_salvaged = report.completeness == Completeness::Salvage;
        assert!(is_salvaged || report.completeness == Completeness::Exact);
        // Also without the newest catalog: the previous one knows only the previous roots.
        let newest = blocks(&data).iter().map(|block| generation(&data, block)).max();
        let last: Vec<Block> = blocks(&data)
            .into_iter()
            .filter(|block| is_catalog(&data, block) && Some(generation(&data, block)) == newest)
            .collect();
        for block in last {
            all[block.start..block.start + block.len].fill(0);
        }
        for context in ["no newest catalog", "no superblock either"] {
            let (_, state) = recovered(&all, context);
            assert_none_missing(&expected, &state, context);
            all[..8192].fill(0);
        }
    }
}

#[test]
fn random_damage_never_invents_anything() {
    for seed in 0..400_u64 {
        let mut rng = SimRng::new(seed);
        let flavour = FLAVOURS[rng.below(4) as usize];
        let commits = 1 + rng.below(30);
        let (mut data, states) = grown(flavour, seed, commits);
        let original = data.clone();
        for _ in 0..=rng.below(6) {
            let at = rng.below(data.len() as u64) as usize;
            let longest = [4, 600, 9000][rng.below(3) as usize];
            let len = 1 + rng.below(longest) as usize;
            let end = data.len().min(at + len);
            match rng.below(4) {
                0 => data[at..end].fill(0),
                1 => data[at..end].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8),
                2 => {
                    let from = rng.below((data.len() - (end - at)) as u64 + 1) as usize / UNIT * UNIT;
                    let to = at / UNIT * UNIT;
                    let piece = data[from..from + (end - at)].to_vec();
                    data[to..to + piece.len()].copy_from_slice(&piece);
                }
                _ if rng.below(4) == 0 => data.truncate(at.max(8192)),
                _ => data[at] ^= 1 << rng.below(8),
            }
        }
        let context = format!("seed {seed} {flavour:?}");
        let (source, target) = (storage_of(&data), MemoryStorage::new());
        let result = recover(Arc::new(source), Arc::new(target), Options::default(), &mut |_| {
            ControlFlow::Continue(())
        });
        if matches!(result, Err(Error::NotADatabase { .. })) {
            continue;
        }
        let (report, state) = recovered(&data, &context);
        // A whole checkpoint can only be lost together with its superblock.
        if (0..2).all(|slot| {
            [0, 2048]
                .iter()
                .any(|at| same_record(&data, &original, slot * 4096 + at))
        }) {
            check(&report, &state, &states, &context);
        }
        if report.completeness == Completeness::Exact {
            assert!(
                state == without_empty(states.last().expect("there is one")),
                "{context}"
            );
        }
    }
}

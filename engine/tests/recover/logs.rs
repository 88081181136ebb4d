//! Commits that only the log holds, and damaged logs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{
    AdvancedOptions, Completeness, Compression, Database, Durability, Error, LogState, Options, recover,
};

use super::{Files, UNIT, blocks, recovered_files};
use crate::common::{Flavour, State, options, read_state};

const CHECKPOINT_AT: u32 = 20;
const COMMITS: u32 = 60;
/// Length of both copies of a half's header.
const HEADER_BYTES: usize = 1024;

/// Returns the files of an unclosed database, and its states. The commits have small and
/// out-of-line values, create one collection and drop another; a checkpoint lies among them.
fn logged() -> (Files, Vec<State>) {
    let memory = MemoryStorage::new();
    let large_log = Options {
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..options(Flavour::Tiny, 1).advanced
        },
        ..options(Flavour::Tiny, 1)
    };
    let database = Database::open(Arc::new(memory.clone()), large_log).expect("memory works");
    let mut states = vec![State::new()];
    for number in 0..COMMITS {
        let mut state = states.last().expect("there is one").clone();
        let name = if number < 40 { "early" } else { "late" };
        let value = vec![number as u8; if number % 5 == 0 { 2000 } else { 10 }];
        let key = (number % 15).to_be_bytes();
        let mut transaction = database.begin().expect("it can be written");
        transaction.set(name, &key, &value).expect("memory works");
        state.entry(name.to_owned()).or_default().insert(key.to_vec(), value);
        if number == 30 {
            transaction.set("gone", b"key", b"value").expect("memory works");
        } else if number == 35 {
            transaction.drop_collection("gone").expect("memory works");
        }
        if (30..35).contains(&number) {
            let gone = BTreeMap::from([(b"key".to_vec(), b"value".to_vec())]);
            state.insert("gone".to_owned(), gone);
        } else {
            state.remove("gone");
        }
        transaction.commit(Durability::Strict).expect("memory works");
        states.push(state);
        if number + 1 == CHECKPOINT_AT {
            database.checkpoint().expect("memory works");
        }
    }
    drop(database);
    (memory.files(), states)
}

fn newest(states: &[State]) -> &State {
    states.last().expect("there is one")
}

/// Returns the offsets of the records in the log.
fn records(log: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some(header) = log.get(at..at + 40).filter(|header| header[..4] != [0; 4]) {
        found.push(at);
        let stored = u32::from_le_bytes(*header[4..].first_chunk().expect("in bounds")) as usize;
        at += (40 + stored).next_multiple_of(8);
    }
    found
}

#[test]
fn commits_that_are_in_the_log_alone_come_back() {
    let (files, states) = logged();
    let (report, state) = recovered_files(&files, "as it is");
    assert!(state == *newest(&states));
    assert_eq!(report.completeness, Completeness::Exact);
    assert_eq!(report.log.state, LogState::Intact);
    assert_eq!(report.log.applied_records, u64::from(COMMITS - CHECKPOINT_AT));
    assert_eq!(report.log.lost_commits, 0);
}

/// The log file ends after its last record. That record may unpack to more than the whole file.
#[test]
fn a_commit_that_unpacks_to_more_than_the_file_comes_back() {
    let memory = MemoryStorage::new();
    let large_log = Options {
        compression: Compression::Lz4,
        cache_bytes: 1 << 20,
        advanced: AdvancedOptions {
            log_bytes: Some(1 << 20),
            ..options(Flavour::Tiny, 1).advanced
        },
        ..options(Flavour::Tiny, 1)
    };
    let database = Database::open(Arc::new(memory.clone()), large_log).expect("memory works");
    let commit = |records: u32| {
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..records {
            let value = [number as u8; 100];
            transaction
                .set("c", &number.to_be_bytes(), &value)
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
    };
    commit(1);
    database.checkpoint().expect("memory works");
    commit(900);
    let expected = read_state(&database.snapshot()).expect("it is intact");
    drop(database);
    let mut files = memory.files();
    let written = files["log"].iter().rposition(|byte| *byte != 0);
    assert!(written.is_some_and(|last| last < 900 * 100));
    // One slot, then the other, then both.
    for damaged in [[true, false], [false, true], [true, true]] {
        let data = files.get_mut("data").expect("it is there");
        let whole = data.clone();
        for slot in (0..2).filter(|slot| damaged[*slot]) {
            data[slot * 4096..(slot + 1) * 4096].fill(0x77);
        }
        let leaf = blocks(data)
            .iter()
            .map(|block| block.start)
            .find(|at| data[at + 4] == 1);
        data[leaf.expect("the checkpoint wrote one") + 40] ^= 1;
        let (report, state) = recovered_files(&files, &format!("{damaged:?}"));
        assert_eq!(report.log.lost_commits, 0, "{damaged:?}");
        assert!(state.values().next() == expected.values().next(), "{damaged:?}");
        files.insert("data".to_owned(), whole);
    }
}

#[test]
fn a_missing_log_is_reported() {
    let (mut files, states) = logged();
    files.remove("log");
    let (report, state) = recovered_files(&files, "no log");
    assert!(state == states[CHECKPOINT_AT as usize]);
    assert_eq!(report.completeness, Completeness::Reconstructed);
    assert_eq!(report.log.state, LogState::Missing);
}

#[test]
fn an_empty_log_without_a_data_file_is_no_database() {
    for log in [Vec::new(), vec![0; 3000]] {
        let source = MemoryStorage::from_files(BTreeMap::from([("log".to_owned(), log)]));
        let target = MemoryStorage::new();
        let unlimited = &mut |_| ControlFlow::Continue(());
        let result = recover(
            Arc::new(source),
            Arc::new(target.clone()),
            Options::default(),
            unlimited,
        );
        assert!(matches!(result, Err(Error::NotFound { .. })));
        assert!(target.files().is_empty());
    }
}

/// The records that the log has do not depend on the data file, but for values out of line.
#[test]
fn a_log_without_a_data_file_gives_its_records() {
    let (mut files, states) = logged();
    files.remove("data");
    let (report, state) = recovered_files(&files, "no data");
    let newest = states.last().expect("there are commits");
    assert!(report.log.applied_records > 0 && !state.is_empty());
    for (name, records) in &state {
        for (key, value) in records {
            let is_newest = newest.values().any(|records| records.get(key) == Some(value));
            assert!(is_newest, "{key:?} in {name}");
        }
    }
}

/// A damaged record costs only its own change, unless nothing tells that it was durable.
#[test]
fn a_damaged_record_costs_its_commit() {
    let (files, states) = logged();
    let list = records(&files["log"]);
    assert_eq!(list.len(), COMMITS as usize);
    for (index, at) in list.iter().enumerate() {
        let mut damaged = files.clone();
        damaged.get_mut("log").expect("it is there")[at + 41] ^= 1;
        let (report, state) = recovered_files(&damaged, &format!("record {index}"));
        if index < CHECKPOINT_AT as usize {
            assert!(state == *newest(&states), "{index}");
            assert_eq!(report.completeness, Completeness::Exact);
        } else if index + 1 < list.len() {
            assert_eq!(report.completeness, Completeness::Salvage, "{index}");
            assert_eq!((report.log.state, report.log.lost_commits), (LogState::Damaged, 1));
            assert_eq!(
                report.log.applied_records as usize,
                list.len() - CHECKPOINT_AT as usize - 1
            );
            // A collection that the damaged record created has lost its name.
            let is_named = |name: &str| {
                report
                    .collections
                    .iter()
                    .any(|found| found.name == name && found.is_named)
            };
            let last = &newest(&states)["early"];
            assert!(
                is_named("early")
                    && state["early"]
                        .iter()
                        .all(|(key, value)| last[key] == *value || index < 40)
            );
            // The lost commit may have dropped it.
            assert_eq!(state.contains_key("gone"), index == 35);
            assert_eq!(is_named("late"), index != 40);
        } else {
            // A power cut leaves such a tail.
            assert!(state == states[index], "{index}");
        }
    }
}

#[test]
fn without_superblocks_the_log_still_counts() {
    let (files, states) = logged();
    for zeroed in [0..4096, 4096..8192, 0..8192] {
        let mut damaged = files.clone();
        damaged.get_mut("data").expect("it is there")[zeroed.clone()].fill(0);
        let (report, state) = recovered_files(&damaged, "no superblock");
        assert!(state == *newest(&states), "{zeroed:?} {report:?}");
        assert_eq!(report.completeness, Completeness::Reconstructed, "{zeroed:?}");
        assert!(report.log.applied_records >= u64::from(COMMITS - CHECKPOINT_AT));
    }
}

/// No checkpoint was ever made and the superblock is lost: the log is all there is.
#[test]
fn a_database_that_is_only_a_log_comes_back() {
    let memory = MemoryStorage::new();
    let database = Database::open(Arc::new(memory.clone()), options(Flavour::Tiny, 1)).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("c", b"small", b"1").expect("memory works");
    transaction.set("c", b"large", &[7; 3000]).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let expected = read_state(&database.snapshot()).expect("it is intact");
    drop(database);
    let mut files = memory.files();
    files.get_mut("data").expect("it is there")[..8192].fill(0);
    let (report, state) = recovered_files(&files, "only a log");
    assert_eq!(state, expected);
    assert_eq!(report.log.applied_records, 1);
}

/// A log record may refer to a value in the data file; its loss is reported.
#[test]
fn a_value_that_is_gone_is_reported() {
    let (files, states) = logged();
    let data = &files["data"];
    let list = blocks(data);
    let chunk = list
        .iter()
        .rfind(|block| data[block.start + 4] == 3)
        .expect("there are values");
    let mut damaged = files.clone();
    damaged.get_mut("data").expect("it is there")[chunk.start + 33] ^= 1;
    let (report, mut state) = recovered_files(&damaged, "no value");
    assert_eq!(
        (report.completeness, report.lost_record_count),
        (Completeness::Salvage, 1)
    );
    let lost = &report.lost_records[0];
    let collection = lost.collection.as_deref().expect("it has a name");
    let mut expected = newest(&states).clone();
    expected.get_mut(collection).expect("it is there").remove(&lost.key);
    state.get_mut(collection).expect("it is there").remove(&lost.key);
    assert!(state == expected);
}

/// Damage anywhere: nothing panics, and a result reported as exact is a committed state.
#[test]
fn logs_with_any_damage_are_harmless() {
    let (files, states) = logged();
    for at in (0..files["log"].len()).step_by(101) {
        let mut damaged = files.clone();
        let log = damaged.get_mut("log").expect("it is there");
        let end = log.len().min(at + 1 + at % 700);
        log[at..end].fill(0xA5);
        if at % 2 == 0 {
            damaged.get_mut("data").expect("it is there")[..8192].fill(0);
        }
        let (report, state) = recovered_files(&damaged, &format!("byte {at}"));
        if report.completeness == Completeness::Exact {
            assert!(states.contains(&state), "byte {at}");
        }
    }
    let mut foreign = files.clone();
    foreign.insert("log".to_owned(), b"something else".repeat(999));
    let (report, state) = recovered_files(&foreign, "a foreign log");
    assert_eq!(report.log.applied_records, 0);
    assert!(state == states[CHECKPOINT_AT as usize]);
}

/// A half of the log is left only after a flush, so what its last record refers to was there once. That
/// it is damaged costs one value, not the commits in the other half.
#[test]
fn a_lost_value_at_the_end_of_a_half_costs_no_later_commit() {
    const HALF_BYTES: usize = 8 << 10;
    let memory = MemoryStorage::new();
    let database = Database::open(Arc::new(memory.clone()), options(Flavour::Large, 1)).expect("memory works");
    let mut expected = BTreeMap::new();
    let mut set = || {
        let number = expected.len() as u32;
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 1000]);
        let done = database.set("c", &key, &value, Durability::Strict);
        done.expect("memory works");
        expected.insert(key, value);
    };
    while memory.files()["log"].len() <= HALF_BYTES {
        set();
    }
    for _ in 0..9 {
        set();
    }
    drop(database);
    let mut files = memory.files();
    let log = &files["log"];
    assert_eq!(log[HALF_BYTES..HALF_BYTES + 8], *b"MANGRLOG");
    let last = *records(&log[..HALF_BYTES]).last().expect("the half is full");
    // The reference to the value stands before the end of the commit.
    let stored = u32::from_le_bytes(*log[last + 4..].first_chunk().expect("in bounds")) as usize;
    let reference = log[last + 40 + stored - 17..].first_chunk().expect("in bounds");
    let unit = u64::from_le_bytes(*reference) << 16 >> 16;
    let data = files.get_mut("data").expect("it is there");
    let chunk = &mut data[unit as usize * UNIT..][..UNIT];
    assert_eq!(chunk[..5], *b"MGBK\x03");
    let lost = u32::from(chunk[40]).to_be_bytes().to_vec();
    expected.remove(&lost);
    chunk[40] ^= 1;
    for what in ["a damaged value", "no superblock either"] {
        let (report, state) = recovered_files(&files, what);
        assert!(state["c"] == expected, "{what}: {report:?}");
        let reported: Vec<_> = report.lost_records.iter().map(|lost| &lost.key).collect();
        assert_eq!(reported, [&lost], "{what}");
        files.get_mut("data").expect("it is there")[..8192].fill(0);
    }
}

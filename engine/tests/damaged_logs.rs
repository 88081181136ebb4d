//! Damages each record of a log in turn. Whatever half it is in and whatever follows it, no commit that
//! was acknowledged is left out without a word: the opening is refused, unless the record is the last
//! one, which looks like a torn one, or a checkpoint has its commit already.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::read_state;
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options};

const HALF_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 1024;
/// Keys that are written again and again.
const KEYS: u64 = 60;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(2 * HALF_BYTES as u32),
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn state_of(database: &Database) -> State {
    let mut all = read_state(&database.snapshot()).expect("it is intact");
    all.remove("c").unwrap_or_default()
}

/// Makes strict commits, one record each, until the log has come to the end in view; returns the states
/// after each of them.
fn write(storage: &SimStorage, rng: &mut SimRng, is_over: impl Fn(&[u8]) -> bool) -> Vec<State> {
    let database = Database::open(Arc::new(storage.clone()), options(1)).expect("it is new");
    let mut states = vec![State::new()];
    while !is_over(&storage.files()["log"]) {
        let mut state = states.last().expect("the first one").clone();
        let key = rng.below(KEYS).to_be_bytes().to_vec();
        // Some are out of line.
        let value = vec![rng.below(256) as u8; 20 + rng.below(400) as usize];
        database
            .set("c", &key, &value, Durability::Strict)
            .expect("there is room");
        state.insert(key, value);
        states.push(state);
    }
    states
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Offsets and lengths of the records that each half has, the half that was begun last at the end.
fn records(log: &[u8]) -> Vec<(usize, usize)> {
    let mut halves = Vec::new();
    for half in [0, HALF_BYTES] {
        let mut found = Vec::new();
        let mut at = half + HEADER_BYTES;
        let tag = log.get(at..at + 4).map_or(0, |_| word(log, at));
        while tag != 0 && at + 40 <= log.len().min(half + HALF_BYTES) && word(log, at) == tag {
            let len = (40 + word(log, at + 4) as usize).next_multiple_of(8);
            found.push((at, len));
            at += len;
        }
        let base_version = log.get(half + 48..half + 56).map_or(0, |bytes| word(bytes, 0));
        if !found.is_empty() {
            halves.push((base_version, found));
        }
    }
    halves.sort();
    halves.into_iter().flat_map(|(_, found)| found).collect()
}

fn has_second_half(log: &[u8]) -> bool {
    log.len() > HALF_BYTES + HEADER_BYTES + 2000 && word(log, HALF_BYTES + HEADER_BYTES) != 0
}

fn damage(log: &mut [u8], (at, len): (usize, usize), how: usize, rng: &mut SimRng) {
    match how {
        0 => log[at..at + len].fill(0),
        1 => log[at + rng.below(40) as usize] ^= 1 << rng.below(8),
        2 => log[at + 40 + rng.below(len as u64 - 40) as usize] ^= 1 << rng.below(8),
        _ => log[at..at + len]
            .iter_mut()
            .for_each(|byte| *byte = rng.below(256) as u8),
    }
}

#[test]
fn no_damaged_record_takes_acknowledged_commits_away() {
    let (mut whole, mut shorter, mut refused) = (0, 0, 0);
    let one_half = |log: &[u8]| records(log).len() >= 30;
    let both_halves = |log: &[u8]| has_second_half(log) && records(log).len() > 20;
    for (seed, is_over) in [one_half as fn(&[u8]) -> bool, both_halves, both_halves, both_halves]
        .into_iter()
        .enumerate()
    {
        let mut rng = SimRng::new(seed as u64);
        let storage = SimStorage::new();
        let states = write(&storage, &mut rng, is_over);
        let files = storage.files();
        let all = records(&files["log"]);
        for (number, place) in all.iter().enumerate() {
            for how in 0..4 {
                let mut files = files.clone();
                damage(files.get_mut("log").expect("it is there"), *place, how, &mut rng);
                let context = format!("seed {seed}, record {number} of {}, damage {how}", all.len());
                let image = SimStorage::from_files(files.clone()).without_shadow();
                match Database::open(Arc::new(image.clone()), options(2)) {
                    Ok(database) => {
                        let found = state_of(&database);
                        let is_last = number + 1 == all.len();
                        let is_whole = found == states[states.len() - 1];
                        assert!(is_whole || is_last && found == states[states.len() - 2], "{context}");
                        assert!(database.verify().expect("it can be read").is_ok(), "{context}");
                        whole += u32::from(is_whole);
                        shorter += u32::from(!is_whole);
                    }
                    Err(Error::Corrupt(_)) => {
                        assert!(image.files() == files, "{context}: nothing was changed");
                        refused += 1;
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
            }
        }
    }
    assert!(
        whole > 10 && shorter > 3 && refused > 100,
        "{whole}, {shorter}, {refused}"
    );
}

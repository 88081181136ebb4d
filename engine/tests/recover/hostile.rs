//! Blocks with valid checksums and wrong content, by accident or on purpose.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::{Fault, FaultKind, SimRng, SimStorage};
use mangrove_engine::{
    Completeness, Compression, Database, Durability, Options, RecoverPhase, RecoverProgress, recover,
};
use twox_hash::XxHash64;

use super::{FLAVOURS, UNIT, blocks, files_of, grown, newest_slot, recovered, storage_of};
use crate::common::{Flavour, State, options, read_state};

/// Writes the correct checksum into a block.
fn sign(block: &mut [u8]) {
    let stored = u32::from_le_bytes(*block[8..].first_chunk().expect("a header")) as usize;
    let seed = XxHash64::oneshot(0, &block[..28]);
    let end = (32 + stored).min(block.len());
    let checksum = XxHash64::oneshot(seed, &block[32..end]) as u32;
    block[28..32].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns a leaf with one record that covers all keys. `number` orders it among those of its
/// generation.
fn leaf(owner: u32, (generation, number): (u64, u32), key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut cell = key.to_vec();
    let meta = value.len() << 4;
    assert!(meta < 0x4000);
    if meta < 0x80 {
        cell.push(meta as u8);
    } else {
        cell.extend_from_slice(&[meta as u8 | 0x80, (meta >> 7) as u8]);
    }
    cell.extend_from_slice(value);
    let mut payload = vec![0; 24];
    payload[20..24].copy_from_slice(&number.to_le_bytes());
    payload[2] = 1;
    payload[4..6].copy_from_slice(&(cell.len() as u16).to_le_bytes());
    let mut head = [0; 4];
    let known = key.len().min(4);
    head[..known].copy_from_slice(&key[..known]);
    payload[16..18].copy_from_slice(&(cell.len() as u16).to_le_bytes());
    payload[18..20].copy_from_slice(&(cell.len() as u16).to_le_bytes());
    payload.extend_from_slice(&(cell.len() as u16).to_le_bytes());
    payload.extend_from_slice(&(key.len() as u16).to_le_bytes());
    payload.extend_from_slice(&u32::from_be_bytes(head).to_le_bytes());
    payload.extend_from_slice(&cell);
    let mut block = b"MGBK\x01\0\0\0".to_vec();
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&generation.to_le_bytes());
    block.extend_from_slice(&owner.to_le_bytes());
    block.extend_from_slice(&[0; 4]);
    block.extend_from_slice(&payload);
    sign(&mut block);
    block.resize(block.len().next_multiple_of(UNIT), 0);
    block
}

#[test]
fn a_key_that_no_database_can_hold_is_lost() {
    let mut data = vec![0; 8192];
    data.extend(leaf(7, (3, 1), b"short", b"value"));
    data.extend(leaf(8, (u64::MAX, 1), &vec![9; 30_000], b"value"));
    let (report, state) = recovered(&data, "long key");
    let records = BTreeMap::from([(b"short".to_vec(), b"value".to_vec())]);
    assert_eq!(state, State::from([("recovered-7".to_owned(), records)]));
    assert_eq!(report.lost_record_count, 1);
    assert_eq!(report.lost_records[0].key.len(), 30_000);
    assert_eq!(report.completeness, Completeness::Salvage);
}

#[test]
fn of_two_blocks_of_one_generation_the_higher_number_counts() {
    let mut data = vec![0; 8192];
    data.extend(leaf(7, (3, 2), b"key", b"newer"));
    data.extend(leaf(7, (3, 1), b"key", b"older"));
    let (_, state) = recovered(&data, "numbers");
    let records = BTreeMap::from([(b"key".to_vec(), b"newer".to_vec())]);
    assert_eq!(state, State::from([("recovered-7".to_owned(), records)]));
}

/// The catalog with the newer name of a collection is lost, and another one has its older name.
#[test]
fn a_name_that_another_collection_has_since_is_lost() {
    let entry = |id: u32| [&id.to_le_bytes()[..], &[0; 26]].concat();
    let mut data = vec![0; 8192];
    data.extend(leaf(0, (3, 1), b"name", &entry(1)));
    data.extend(leaf(0, (5, 1), b"name", &entry(2)));
    data.extend(leaf(1, (6, 1), b"key", b"first"));
    data.extend(leaf(2, (6, 2), b"key", b"second"));
    let (report, state) = recovered(&data, "names");
    let record = |value: &[u8]| BTreeMap::from([(b"key".to_vec(), value.to_vec())]);
    let expected = [("name", record(b"second")), ("recovered-1", record(b"first"))];
    assert_eq!(state, expected.map(|(name, records)| (name.to_owned(), records)).into());
    for found in report.collections {
        assert_eq!(found.is_named, found.id == 2, "{found:?}");
    }
}

/// A database whose tree has two levels, without a log.
struct Grown {
    data: Vec<u8>,
    expected: State,
    /// Generation of the newest superblock.
    generation: u64,
    /// Where a unit of free space begins.
    unused: usize,
    free_map: usize,
}

fn unlogged() -> Options {
    Options {
        compression: Compression::None,
        ..options(Flavour::Unlogged, 1)
    }
}

impl Grown {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let database = Database::open(Arc::new(storage.clone()), unlogged()).expect("memory works");
        for round in 0..5_u32 {
            let mut transaction = database.begin().expect("it is open");
            for number in (round * 9..60).step_by(round as usize * 7 + 1) {
                let value = [round as u8; 30];
                transaction
                    .set("c", &number.to_be_bytes(), &value)
                    .expect("memory works");
            }
            transaction.commit(Durability::Strict).expect("memory works");
        }
        let expected = read_state(&database.snapshot()).expect("memory works");
        database.close().expect("memory works");
        let data = storage.files()["data"].clone();
        let slot = newest_slot(&data) * 4096;
        let word = |at: usize| u64::from_le_bytes(*data[at..].first_chunk().expect("in bounds"));
        let is_unused = |at: &usize| {
            let mut data = data.clone();
            data[*at..*at + UNIT].fill(0xEE);
            Database::open(Arc::new(storage_of(&data)), unlogged())
                .is_ok_and(|database| database.verify().expect("it can look").is_ok())
        };
        Self {
            generation: word(slot + 32),
            unused: (8192..data.len())
                .step_by(UNIT)
                .find(is_unused)
                .expect("there is free space"),
            free_map: (word(slot + 72) & 0xFFFF_FFFF) as usize * UNIT,
            data,
            expected,
        }
    }

    /// Damages what leads to the leaves: only a scan finds them.
    fn without_inner_nodes(mut self) -> Self {
        let list = blocks(&self.data);
        let inner = list.iter().filter(|block| self.data[block.start + 4] == 2);
        let places: Vec<usize> = inner.map(|block| block.start).collect();
        assert!(!places.is_empty());
        for at in places {
            self.data[at + 40] ^= 1;
        }
        self
    }

    fn without_free_map(mut self) -> Self {
        assert_eq!(self.data[self.free_map..self.free_map + 5], *b"MGBK\x05");
        self.data[self.free_map + 40] ^= 1;
        self
    }

    /// Puts a leaf that no checkpoint reaches at this place: it would replace all others.
    fn with_left_over(mut self, generation: u64, at: usize) -> Self {
        let leaf = leaf(1, (generation, u32::MAX), b"left over", b"by a crash");
        self.data.resize(self.data.len().max(at + UNIT), 0);
        self.data[at..at + UNIT].copy_from_slice(&leaf);
        self
    }
}

/// A crash leaves blocks of the generation of a checkpoint that is finished later, in space that is free
/// in it or behind its end.
#[test]
fn blocks_outside_of_the_checkpoint_replace_none_of_its_blocks() {
    for behind_the_end in [false, true] {
        let grown = Grown::new().without_inner_nodes();
        let at = if behind_the_end { grown.data.len() } else { grown.unused };
        let generation = grown.generation;
        let left = grown.with_left_over(generation, at);
        let (_, state) = recovered(&left.data, "blocks of the generation");
        assert!(state == left.expected, "behind the end: {behind_the_end}");
    }
}

/// Where the free map is lost, too, the superblock still tells that a checkpoint was never finished.
#[test]
fn blocks_of_an_unfinished_checkpoint_replace_none_of_the_last_one() {
    let grown = Grown::new().without_inner_nodes().without_free_map();
    let (generation, at) = (grown.generation, grown.unused);
    let left = grown.with_left_over(generation + 1, at);
    let (_, state) = recovered(&left.data, "blocks of the next generation");
    assert!(state == left.expected);
}

/// Nor do they if one superblock is lost, and a read fails once the other one has been chosen.
#[test]
fn blocks_of_an_unfinished_checkpoint_stand_in_for_no_failed_read() {
    let grown = Grown::new().without_free_map();
    let (generation, at) = (grown.generation, grown.unused);
    let mut left = grown.with_left_over(generation + 1, at);
    let older = 1 - newest_slot(&left.data);
    left.data[older * 4096..(older + 1) * 4096].fill(0xEE);
    let mut failed = 0;
    loop {
        let (source, target) = (SimStorage::from_files(files_of(&left.data)), MemoryStorage::new());
        let mut chosen = None;
        let mut progress = |progress: RecoverProgress| {
            if progress.phase == RecoverPhase::Copying && chosen.is_none() {
                let reads = source.counters().reads;
                source.set_read_fault(Some(Fault::once(reads + failed, FaultKind::Io)));
                chosen = Some(reads);
            }
            ControlFlow::Continue(())
        };
        let report = recover(
            Arc::new(source.clone()),
            Arc::new(target.clone()),
            unlogged(),
            &mut progress,
        );
        report.expect("a read that fails is damage");
        let database = Database::open(Arc::new(target), unlogged()).expect("it was made just now");
        let state = read_state(&database.snapshot()).expect("it is intact");
        assert!(state == left.expected, "read {failed}");
        if source.counters().reads <= chosen.expect("it came to copying") + failed {
            break;
        }
        failed += 1;
    }
    assert!(failed > 5, "{failed}");
}

/// Nothing that looks like a block makes recovery panic, and the result is always a sound database.
#[test]
fn wrong_content_with_right_checksums_is_harmless() {
    let mut checked = 0;
    for seed in 0..300_u64 {
        let mut rng = SimRng::new(seed);
        let (mut data, _) = grown(FLAVOURS[seed as usize % 4], seed, 12);
        let list = blocks(&data);
        let damages = 1 + rng.below(12);
        // The damage may hit every block; then there is nothing to recover.
        if list.len() as u64 <= damages {
            continue;
        }
        checked += 1;
        for _ in 0..damages {
            let block = &list[rng.below(list.len() as u64) as usize];
            let bytes = &mut data[block.start..block.start + block.len];
            let reach = [32, 64, bytes.len()][rng.below(3) as usize] as u64;
            let at = 4 + rng.below(reach - 4) as usize;
            bytes[at] = [0, 1, 0xFF, rng.next_u64() as u8][rng.below(4) as usize];
            sign(bytes);
        }
        if rng.below(2) == 0 {
            data[..8192].fill(0);
        }
        recovered(&data, &format!("seed {seed}"));
    }
    assert!(checked > 200, "{checked}");
}

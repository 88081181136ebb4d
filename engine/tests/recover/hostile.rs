//! Blocks with valid checksums and wrong content, by accident or on purpose.

use std::collections::BTreeMap;

use mangrove_engine::Completeness;
use mangrove_engine::testing::sim::SimRng;
use twox_hash::XxHash64;

use super::{FLAVOURS, UNIT, blocks, grown, recovered};
use crate::common::State;

/// Writes the correct checksum into a block.
fn sign(block: &mut [u8]) {
    let stored = u32::from_le_bytes(*block[8..].first_chunk().expect("a header")) as usize;
    let seed = XxHash64::oneshot(0, &block[..28]);
    let end = (32 + stored).min(block.len());
    let checksum = XxHash64::oneshot(seed, &block[32..end]) as u32;
    block[28..32].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns a leaf with one record that covers all keys.
fn leaf(owner: u32, generation: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut cell = key.to_vec();
    let meta = (value.len() as u64) << 4;
    assert!(meta < 0x80);
    cell.push(meta as u8);
    cell.extend_from_slice(value);
    let mut payload = vec![0; 24];
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
    data.extend(leaf(7, 3, b"short", b"value"));
    data.extend(leaf(8, u64::MAX, &vec![9; 30_000], b"value"));
    let (report, state) = recovered(&data, "long key");
    let records = BTreeMap::from([(b"short".to_vec(), b"value".to_vec())]);
    assert_eq!(state, State::from([("recovered-7".to_owned(), records)]));
    assert_eq!(report.lost_record_count, 1);
    assert_eq!(report.lost_records[0].key.len(), 30_000);
    assert_eq!(report.completeness, Completeness::Salvage);
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

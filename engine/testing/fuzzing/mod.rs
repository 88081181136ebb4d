//! Entry points of the fuzz targets in `fuzz/`, and for the replay of their corpus in
//! `tests/fuzz_regressions.rs`.
//!
//! Each takes any bytes and returns whether they were accepted. A panic, a hang or unbounded memory
//! use is a bug in the engine.

mod node;
mod open;
mod operations;
mod reseal;
mod seeds;

use std::sync::Arc;

use crate::block::{self, BlockInfo, BlockRef, Compression, Kind, REF_BYTES, checksum};
use crate::node::Child;
use crate::node::cell::{get_varint, put_varint};
use crate::pages::{Found, FreeExtents, Superblock, free_map as free_map_block, read_all};
use crate::state::Collection;
use crate::storage::{MemoryStorage, Storage, StorageFile};

pub use node::node;
pub use open::open;
pub use operations::operations;
pub use seeds::seeds;

/// A fuzz target: returns whether the bytes were accepted.
pub type Target = fn(&[u8]) -> bool;

/// All targets by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("operations", operations),
    ("superblock", superblock),
    ("block", block),
    ("node", node),
    ("free_map", free_map),
    ("catalog", catalog),
    ("reference", reference),
    ("open", open),
];

const RECORD_BYTES: usize = 512;
/// The smallest unit, so that a short input makes many units.
const UNIT_BYTES: usize = 512;

fn memory_file(bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = MemoryStorage::new().open("data", true).expect("memory works");
    file.write_at(0, bytes).expect("memory works");
    file
}

fn put_checksum(bytes: &mut [u8], at: usize) {
    let crc = checksum::hash(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Input: one byte whose low bits select which of the four records get a correct checksum, then up
/// to four records.
pub fn superblock(bytes: &[u8]) -> bool {
    let Some((selector, records)) = bytes.split_first() else {
        return false;
    };
    let mut area = Vec::new();
    for (index, record) in records.chunks(RECORD_BYTES).take(4).enumerate() {
        area.resize(index * 2048, 0);
        area.extend_from_slice(record);
        if selector >> index & 1 == 1 && record.len() == RECORD_BYTES {
            put_checksum(&mut area[index * 2048..], RECORD_BYTES - 4);
        }
    }
    let Ok(Found::Superblocks(found)) = read_all(&*memory_file(&area), "data") else {
        return false;
    };
    assert!(found.iter().all(|other| other.generation <= found[0].generation));
    for superblock in &found {
        let file = memory_file(&[]);
        superblock.write(&*file).expect("memory works");
        let Ok(Found::Superblocks(again)) = read_all(&*file, "data") else {
            panic!("a superblock that was read can be written")
        };
        assert_eq!(again, [superblock.clone(), superblock.clone()]);
        // The next checkpoint and the statistics rely on these.
        assert!(Superblock::first_data_unit(superblock.unit_shift) <= superblock.file_units);
        assert!(superblock.file_units.leading_zeros() > u32::from(superblock.unit_shift));
        assert!(superblock.generation.max(superblock.version) < u64::MAX);
    }
    true
}

/// Input: one byte that selects whether the checksum is corrected, then a block. The same bytes are
/// also written as a block and read back.
pub fn block(bytes: &[u8]) -> bool {
    let Some((selector, content)) = bytes.split_first() else {
        return false;
    };
    let info = BlockInfo {
        kind: Kind::Leaf,
        level: 0,
        owner: 1,
        generation: 1,
    };
    for compression in [Compression::None, Compression::Lz4] {
        let mut out = Vec::new();
        let reference = block::encode(info, &[content], compression, UNIT_BYTES, &mut out);
        let read = block::decode(out, &reference, &[Kind::Leaf], 1);
        assert_eq!(read.as_deref(), Ok(content));
    }
    let mut image = content.to_vec();
    image.resize(content.len().max(1).next_multiple_of(UNIT_BYTES), 0);
    if selector & 1 == 1 {
        reseal::block(&mut image);
    }
    let word = |at: usize| u32::from_le_bytes([image[at], image[at + 1], image[at + 2], image[at + 3]]);
    let reference = BlockRef {
        unit: 16,
        units: (image.len() / UNIT_BYTES) as u16,
        checksum: word(28),
        raw_len: word(12),
    };
    let kinds = [
        Kind::Leaf,
        Kind::Inner,
        Kind::ValueChunk,
        Kind::ValueIndex,
        Kind::FreeMap,
    ];
    let owner = word(24);
    let Ok(payload) = block::decode(image, &reference, &kinds, owner) else {
        return false;
    };
    assert_eq!(payload.len(), reference.raw_len as usize);
    assert!(payload.len() <= content.len().max(UNIT_BYTES) * 256);
    true
}

/// Input: two bytes for the size of the file in units, then a free map.
pub fn free_map(bytes: &[u8]) -> bool {
    let Some((units, bytes)) = bytes.split_first_chunk() else {
        return false;
    };
    let (first, end) = (2, u64::from(u16::from_le_bytes(*units)));
    let Ok((free, kept)) = free_map_block::decode(bytes, first, end) else {
        return false;
    };
    for list in [&free, &kept] {
        assert!(list.iter().all(|extent| extent.start >= first && extent.units > 0));
        assert!(list.iter().all(|extent| extent.start + extent.units <= end));
        assert!(
            list.windows(2)
                .all(|pair| pair[0].start + pair[0].units <= pair[1].start)
        );
    }
    let again = free_map_block::encode(&free, &kept);
    assert!(again.len() <= 20 + 14 * (free.len() + kept.len()));
    let expected = (free.clone(), kept.clone());
    assert_eq!(free_map_block::decode(&again, first, end), Ok(expected));
    let mut space = FreeExtents::new(end);
    for extent in &free {
        space.free(*extent).expect("decoded extents do not overlap");
    }
    let units: u64 = free.iter().map(|extent| extent.units).sum();
    assert_eq!(space.free_units(), units);
    for extent in &kept {
        if space.free(*extent).is_err() {
            return false;
        }
    }
    while space.free_units() > 0 {
        let before = space.free_units();
        let _ = space.allocate(1 + before % 7);
        assert!(space.free_units() < before || space.end() > end);
        if space.end() > end {
            break;
        }
    }
    true
}

/// Input: the value of a catalog record.
pub fn catalog(bytes: &[u8]) -> bool {
    let Ok(collection) = Collection::decode(bytes) else {
        return false;
    };
    let again = Collection::decode(&collection.encode()).map(|again| again.encode());
    assert_eq!(again, Ok(collection.encode()));
    true
}

/// Input: bytes that are decoded as a variable-length number, a block reference and a child
/// reference, each from the start.
pub fn reference(bytes: &[u8]) -> bool {
    if let Some((number, len)) = get_varint(bytes) {
        assert!(len <= bytes.len());
        let mut again = Vec::new();
        put_varint(&mut again, number);
        assert!(again.len() <= len);
        assert_eq!(get_varint(&again), Some((number, again.len())));
    }
    let Some(first) = bytes.first_chunk::<REF_BYTES>() else {
        return false;
    };
    let reference = BlockRef::decode(first);
    if let Some(child) = Child::decode(bytes) {
        assert_eq!(Some(child.pointer), reference);
        assert_eq!(Child::decode(&child.encode()), Some(child));
    }
    if let Some(reference) = reference {
        assert_eq!(reference.encode(), *first);
        assert!(reference.unit > 0 && (1..=block::MAX_BLOCK_UNITS).contains(&u64::from(reference.units)));
    }
    reference.is_some()
}

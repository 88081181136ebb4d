//! Corrects the checksums of a mutated file, so that the code behind them is tested too.

use super::{RECORD_BYTES, put_checksum};
use crate::block::{BlockRef, HEADER_BYTES, REF_BYTES, block_checksum};
use crate::node::cell::get_varint;

/// Offset of the only superblock slot in use.
pub(super) const SLOT: usize = 4096;
/// More blocks than the file of a fuzz target has. Damage can make references circular.
const MAX_BLOCKS: u32 = 2000;
const MAX_DEPTH: u32 = 300;

/// Computes a block's checksum and stores it in its header. A block of impossible length is left
/// unchanged.
pub(super) fn block(image: &mut [u8]) {
    let stored_len = u32_at(image, 8).unwrap_or(u32::MAX) as usize;
    if stored_len > image.len().saturating_sub(HEADER_BYTES) {
        return;
    }
    let checksum = block_checksum(&image[..HEADER_BYTES + stored_len]);
    image[28..32].copy_from_slice(&checksum.to_le_bytes());
}

/// Corrects all checksums reachable from the superblock, from the leaves up.
pub(super) fn file(data: &mut [u8]) {
    let Some(shift) = data.get(SLOT + 10).copied() else {
        return;
    };
    let mut resealer = Resealer {
        data,
        shift: u32::from(shift).clamp(9, 16),
        left: MAX_BLOCKS,
    };
    resealer.reference(SLOT + 48, true, 0);
    resealer.reference(SLOT + 72, false, 0);
    if let Some(record) = data.get_mut(SLOT..SLOT + RECORD_BYTES) {
        put_checksum(record, RECORD_BYTES - 4);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let pair = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*pair)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

struct Resealer<'a> {
    data: &'a mut [u8],
    shift: u32,
    left: u32,
}

impl Resealer<'_> {
    /// Corrects the checksums below the reference at byte `at`, then the reference.
    fn reference(&mut self, at: usize, in_catalog: bool, depth: u32) -> Option<()> {
        let reference = BlockRef::decode(self.data.get(at..)?.first_chunk()?)?;
        let start = usize::try_from(reference.unit << self.shift).ok()?;
        let end = start.checked_add(usize::from(reference.units) << self.shift)?;
        if end > self.data.len() || depth > MAX_DEPTH {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let stored_len = u32_at(self.data, start + 8)? as usize;
        let payload_end = start.checked_add(HEADER_BYTES + stored_len)?;
        let is_raw = self.data[start + 5] == 0 && payload_end <= end;
        match self.data[start + 4] {
            1 | 2 if is_raw => self.node(start + HEADER_BYTES, payload_end, in_catalog, depth),
            4 if is_raw => {
                let mut entry = start + HEADER_BYTES;
                while entry + REF_BYTES <= payload_end {
                    self.reference(entry, false, depth + 1);
                    entry += REF_BYTES;
                }
            }
            _ => {}
        }
        block(&mut self.data[start..end]);
        self.data.copy_within(start + 28..start + 32, at + 8);
        self.data.copy_within(start + 12..start + 16, at + 12);
        Some(())
    }

    fn node(&mut self, start: usize, end: usize, in_catalog: bool, depth: u32) {
        let is_leaf = self.data.get(start) == Some(&0);
        for index in 0..u16_at(self.data, start + 2).unwrap_or(0) {
            let slot = start + crate::node::HEADER_BYTES + index * crate::node::SLOT_BYTES;
            let (Some(offset), Some(suffix_len)) = (u16_at(self.data, slot), u16_at(self.data, slot + 2)) else {
                return;
            };
            let Some(payload) = end.checked_sub(offset).map(|cell| cell + suffix_len) else {
                continue;
            };
            if !is_leaf {
                self.reference(payload, in_catalog, depth + 1);
                continue;
            }
            let Some((meta, taken)) = self.data.get(payload..).and_then(get_varint) else {
                continue;
            };
            if meta & 1 == 1 {
                self.reference(payload + taken, false, depth + 1);
            } else if in_catalog {
                self.reference(payload + taken + 4, false, depth + 1);
            }
        }
    }
}

//! References to blocks and the identity of pages.
//!
//! ```text
//! BlockRef, 16 bytes, little endian
//!  0  u64  bits 0..48 first unit, bits 48..63 length in units
//!  8  u32  checksum of the block, as in its header: the low half of its XXH64
//! 12  u32  length of the payload before compression, in bytes
//! ```
//! Unit 0 holds the superblock, so a first unit of 0 marks a null reference.

use crate::error::{Error, Result};

/// Bytes of an encoded reference.
pub(crate) const REF_BYTES: usize = 16;
const UNIT_MASK: u64 = (1 << 48) - 1;
/// Length of the longest block, in units.
pub(crate) const MAX_BLOCK_UNITS: u64 = 0x7FFF;

/// Address, length and checksum of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRef {
    pub unit: u64,
    pub units: u16,
    pub checksum: u32,
    pub raw_len: u32,
}

/// Key of a page in the page table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageId(u64);

impl BlockRef {
    pub(crate) fn encode(&self) -> [u8; REF_BYTES] {
        debug_assert!(self.unit <= UNIT_MASK && u64::from(self.units) <= MAX_BLOCK_UNITS);
        let mut bytes = [0; REF_BYTES];
        bytes[..8].copy_from_slice(&(self.unit | u64::from(self.units) << 48).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[12..].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes
    }

    /// Decodes a reference from storage, where all zeros mean no block.
    pub(crate) fn decode_optional(bytes: &[u8; REF_BYTES]) -> Result<Option<Self>> {
        match Self::decode(bytes) {
            None if bytes.iter().any(|byte| *byte != 0) => Err(Error::corrupt("a block reference is malformed")),
            reference => Ok(reference),
        }
    }

    /// `None` for a null or malformed reference.
    pub(crate) fn decode(bytes: &[u8; REF_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let first = u64::from(word(0)) | u64::from(word(4)) << 32;
        let reference = Self {
            unit: first & UNIT_MASK,
            units: (first >> 48) as u16,
            checksum: word(8),
            raw_len: word(12),
        };
        let is_length = (1..=MAX_BLOCK_UNITS).contains(&u64::from(reference.units));
        (reference.unit != 0 && is_length).then_some(reference)
    }

    pub(crate) fn page_id(&self) -> PageId {
        PageId(self.unit)
    }
}

impl PageId {
    pub(crate) fn disk(unit: u64) -> Self {
        Self(unit)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_round_trip() {
        let reference = BlockRef {
            unit: 0x0102_0304_0506,
            units: 0x0708,
            checksum: 0xA1A2_A3A4,
            raw_len: 0xB1B2,
        };
        let bytes = reference.encode();
        assert_eq!(
            bytes,
            [6, 5, 4, 3, 2, 1, 8, 7, 0xA4, 0xA3, 0xA2, 0xA1, 0xB2, 0xB1, 0, 0]
        );
        assert_eq!(BlockRef::decode(&bytes), Some(reference));
        assert_eq!(BlockRef::decode(&[0; REF_BYTES]), None);
        let mut too_long = bytes;
        too_long[7] |= 0x80;
        assert_eq!(BlockRef::decode(&too_long), None);
    }
}

//! References to blocks and the identity of pages.
//!
//! ```text
//! BlockRef, 16 bytes, little endian
//!  0  u64  bits 0..48 first unit, bits 48..64 length in units
//!  8  u32  CRC32 of the block, as in its header
//! 12  u32  length of the payload before compression, in bytes
//! ```
//! Unit 0 holds the superblock, so a first unit of 0 is no reference. In memory the same 16 bytes may name a dirty
//! page instead: bit 63 of the first word is set and the rest of the word is the page's number. Such a pointer is never
//! written to storage (invariant I4).

use crate::error::{Error, Result};

/// Bytes of an encoded reference.
pub(crate) const REF_BYTES: usize = 16;
/// Set in the first word of a pointer to a page that has no block yet.
const MEMORY_BIT: u64 = 1 << 63;
const UNIT_MASK: u64 = (1 << 48) - 1;
/// Longest block in units, kept below the memory bit.
pub(crate) const MAX_BLOCK_UNITS: u64 = 0x7FFF;

/// Address, length and checksum of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRef {
    pub unit: u64,
    pub units: u16,
    pub checksum: u32,
    pub raw_len: u32,
}

/// A child reference as it stands in an inner node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pointer {
    /// A page that was changed since the last checkpoint.
    Memory(u64),
    /// A block in the file.
    Disk(BlockRef),
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

    /// A reference from storage, where all zeros mean that there is no block.
    pub(crate) fn decode_optional(bytes: &[u8; REF_BYTES]) -> Result<Option<Self>> {
        match Self::decode(bytes) {
            None if bytes.iter().any(|byte| *byte != 0) => Err(Error::corrupt("a block reference is malformed")),
            reference => Ok(reference),
        }
    }

    /// `None` for the null reference and for a memory pointer.
    pub(crate) fn decode(bytes: &[u8; REF_BYTES]) -> Option<Self> {
        match Pointer::decode(bytes) {
            Some(Pointer::Disk(reference)) => Some(reference),
            _ => None,
        }
    }
}

impl Pointer {
    pub(crate) fn encode(&self) -> [u8; REF_BYTES] {
        match self {
            Self::Disk(reference) => reference.encode(),
            Self::Memory(number) => {
                let mut bytes = [0; REF_BYTES];
                bytes[..8].copy_from_slice(&(number | MEMORY_BIT).to_le_bytes());
                bytes
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8; REF_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let first = u64::from(word(0)) | u64::from(word(4)) << 32;
        if first & MEMORY_BIT != 0 {
            return Some(Self::Memory(first & !MEMORY_BIT));
        }
        let reference = BlockRef {
            unit: first & UNIT_MASK,
            units: (first >> 48) as u16,
            checksum: word(8),
            raw_len: word(12),
        };
        (reference.unit != 0 && reference.units != 0).then_some(Self::Disk(reference))
    }

    pub(crate) fn page_id(&self) -> PageId {
        match self {
            Self::Memory(number) => PageId(number | MEMORY_BIT),
            Self::Disk(reference) => PageId(reference.unit),
        }
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
        let memory = Pointer::Memory(77);
        assert_eq!(Pointer::decode(&memory.encode()), Some(memory));
        assert_eq!(BlockRef::decode(&memory.encode()), None);
        assert_eq!(Pointer::decode(&[0; REF_BYTES]), None);
    }
}

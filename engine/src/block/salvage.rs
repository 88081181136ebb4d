//! Block headers as salvage finds them, without a reference.

use super::{BlockRef, HEADER_BYTES, Kind, MAGIC, decode, expand, generation, open_at, remove_encryption, word};
use crate::cipher::Cipher;
use crate::error::Result;

/// Header of a block found by scanning the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    pub stored_len: u32,
    pub raw_len: u32,
    pub generation: u64,
    pub owner: u32,
    pub checksum: u32,
}

impl Header {
    /// Parses the header at the start of `bytes`; `None` if there is none. The checksum is not
    /// checked.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        if word(bytes, 0) != MAGIC {
            return None;
        }
        let kinds = [
            Kind::Leaf,
            Kind::Inner,
            Kind::ValueChunk,
            Kind::ValueIndex,
            Kind::FreeMap,
        ];
        Some(Self {
            kind: kinds.into_iter().find(|kind| *kind as u8 == bytes[4])?,
            stored_len: word(bytes, 8),
            raw_len: word(bytes, 12),
            generation: generation(bytes),
            owner: word(bytes, 24),
            checksum: word(bytes, 28),
        })
    }

    /// Length of header and payload, without padding.
    pub(crate) fn block_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.stored_len)
    }

    /// The reference to this block at byte `offset`, but for the stamp of a sealed block; `None` if
    /// no reference can point there.
    pub(crate) fn reference(&self, offset: u64, unit_shift: u32) -> Option<BlockRef> {
        let unit_bytes = 1_u64 << unit_shift;
        let units = self.block_bytes().div_ceil(unit_bytes);
        let is_reachable = offset.is_multiple_of(unit_bytes) && units <= super::MAX_BLOCK_UNITS;
        is_reachable.then_some(BlockRef {
            unit: offset >> unit_shift,
            units: units as u16,
            checksum: self.checksum,
            raw_len: self.raw_len,
        })
    }

    /// Checks a whole block, starting with this header, against itself and returns its payload and
    /// the checksum or stamp that a reference to it repeats. A sealed one has to stand at `unit`.
    pub(crate) fn payload(&self, block: &[u8], cipher: &Cipher, unit: u64) -> Result<(Vec<u8>, u32)> {
        let itself = BlockRef {
            unit,
            units: 0,
            checksum: self.checksum,
            raw_len: self.raw_len,
        };
        let mut block = block.to_vec();
        if cipher.is_on() {
            let stamp = open_at(cipher, &mut block, unit)?;
            remove_encryption(&mut block);
            return Ok((expand(block, &itself)?, stamp));
        }
        Ok((decode(block, &itself, &[self.kind], self.owner)?, itself.checksum))
    }

    /// Whether the checksum of a whole block, starting with this header, matches.
    pub(crate) fn matches(&self, block: &[u8]) -> bool {
        super::block_checksum(block) == self.checksum
    }
}

//! Write buffer for blocks in newly allocated extents: adjacent blocks are written together.

use super::{Extent, FreeSpace};
use crate::block::{BlockFile, BlockInfo, BlockRef, Compression};
use crate::error::Result;

/// Encoded blocks not written yet.
pub(crate) struct BlockBuffer {
    bytes: Vec<u8>,
    /// Unit of the first block.
    at: u64,
    /// Number of buffered bytes that triggers a write.
    limit: usize,
    /// Compressed length of the last block's payload, even if it is stored raw.
    pub packed_len: usize,
}

impl BlockBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            at: 0,
            limit,
            packed_len: 0,
        }
    }

    /// Encodes a block and allocates its extent, reporting it to `allocated` before any write. If
    /// anything fails from here on, the caller has to free the extent. After a failure nothing is
    /// pending.
    pub(crate) fn put(
        &mut self,
        blocks: &BlockFile,
        free: &FreeSpace,
        allocated: impl FnOnce(Extent),
        compression: Compression,
        info: BlockInfo,
        payload: &[&[u8]],
    ) -> Result<BlockRef> {
        let start = self.bytes.len();
        let (mut reference, packed_len) = blocks.encode_measured(info, payload, compression, &mut self.bytes);
        self.packed_len = packed_len;
        let placed = self.place(blocks, free, allocated, start, &mut reference);
        // The block follows others in the buffer although its extent may be elsewhere: written
        // there, it would overwrite blocks in use.
        placed.inspect_err(|_| self.bytes.clear())?;
        Ok(reference)
    }

    /// Allocates an extent for the block encoded at `start`.
    fn place(
        &mut self,
        blocks: &BlockFile,
        free: &FreeSpace,
        allocated: impl FnOnce(Extent),
        start: usize,
        reference: &mut BlockRef,
    ) -> Result<()> {
        let extent = free.allocate(u64::from(reference.units))?;
        allocated(extent);
        blocks.place(&mut self.bytes[start..], reference, extent.start);
        let pending_units = (start / blocks.unit_bytes()) as u64;
        if start == 0 {
            self.at = extent.start;
        } else if self.at + pending_units != extent.start {
            blocks.write_units(self.at, &self.bytes[..start])?;
            self.bytes.drain(..start);
            self.at = extent.start;
        }
        if self.bytes.len() >= self.limit {
            self.flush(blocks)?;
        }
        Ok(())
    }

    /// Writes the pending blocks.
    pub(crate) fn flush(&mut self, blocks: &BlockFile) -> Result<()> {
        if !self.bytes.is_empty() {
            blocks.write_units(self.at, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::Kind;
    use crate::error::Error;
    use crate::storage::Storage;
    use crate::testing::sim::{Fault, FaultKind, SimStorage};

    /// Regression: after a failed write, the next block stayed in the buffer behind earlier ones
    /// although its extent was elsewhere, and the next flush wrote it over a block in use.
    #[test]
    fn a_failed_write_leaves_nothing_pending() {
        let storage = SimStorage::new();
        let file = storage.open("data", true).expect("the storage works");
        file.write_at(0, &[0xAA; 16 << 10]).expect("the storage works");
        let blocks = BlockFile::new(Arc::clone(&file), 9);
        let free = FreeSpace::new(32);
        for start in [20, 25] {
            free.free(Extent { start, units: 1 }).expect("it is in use");
        }
        let info = BlockInfo {
            kind: Kind::Leaf,
            level: 0,
            owner: 1,
            generation: 1,
        };
        let mut buffer = BlockBuffer::new(1 << 20);
        let put = |buffer: &mut BlockBuffer| {
            let none = Compression::None;
            buffer.put(&blocks, &free, |_| (), none, info, &[&[1; 100]])
        };
        put(&mut buffer).expect("it stays pending");
        storage.set_fault(Some(Fault::once(storage.counters().operations, FaultKind::StorageFull)));
        assert!(matches!(put(&mut buffer), Err(Error::StorageFull { .. })));
        buffer.flush(&blocks).expect("nothing is left to write");
        assert_eq!(storage.files()["data"], [0xAA; 16 << 10]);
    }
}

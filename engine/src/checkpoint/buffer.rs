//! Blocks on their way to fresh extents: those that lie side by side are written together.

use super::{Extent, FreeExtents};
use crate::block::{self, BlockFile, BlockInfo, BlockRef, Compression};
use crate::error::Result;

/// Encoded blocks that were not written yet.
pub(crate) struct BlockBuffer {
    bytes: Vec<u8>,
    /// Unit at which they begin.
    at: u64,
    /// They are written when they have this many bytes.
    limit: usize,
}

impl BlockBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            at: 0,
            limit,
        }
    }

    /// Encodes a block and gives it an extent, which the caller has to give back if anything fails from here on: `allocated` is told of it
    /// before anything is written.
    pub(crate) fn put(
        &mut self,
        blocks: &BlockFile,
        free: &mut FreeExtents,
        allocated: impl FnOnce(Extent),
        compression: Compression,
        info: BlockInfo,
        payload: &[&[u8]],
    ) -> Result<BlockRef> {
        let start = self.bytes.len();
        let unit_bytes = blocks.unit_bytes();
        let mut reference = block::encode(info, payload, compression, unit_bytes, &mut self.bytes);
        let extent = free.allocate(u64::from(reference.units))?;
        allocated(extent);
        reference.unit = extent.start;
        let pending_units = (start / unit_bytes) as u64;
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
        Ok(reference)
    }

    /// Writes what is still pending.
    pub(crate) fn flush(&mut self, blocks: &BlockFile) -> Result<()> {
        if !self.bytes.is_empty() {
            blocks.write_units(self.at, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

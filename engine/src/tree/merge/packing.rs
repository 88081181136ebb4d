//! Chooses the size of leaves.
//!
//! To get one record, a whole leaf is read, checked and expanded; for one change, a whole leaf is
//! written. So leaves are small. They take whole units of the file, so each is made as large as
//! fills its units after compression, as predicted from the leaves before it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "lengths of a few thousand bytes"
)]

use crate::block::BlockRef;
use crate::node::Limits;

/// Minimum size of a leaf, before compression. Smaller leaves slow down scans and need more nodes
/// above them.
const LEAST_BYTES: f32 = 6144.0;
/// With fewer cells, the space wasted behind the last one matters.
const LEAST_CELLS: usize = 8;
/// Minimum compression ratio: less is not worth the time for expanding.
const LEAST_RATIO: f32 = 1.1;
/// After `DULL_LEAVES` leaves in a row below that ratio, only one leaf in `TRIED_LEAVES` is tried.
const DULL_LEAVES: u8 = 8;
const TRIED_LEAVES: u8 = 16;
/// Weight of the newest leaf in the means.
const WEIGHT: f32 = 0.125;

/// How well leaves have compressed: mean and mean deviation of the ratio of their length before
/// compression to their length after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    unit_bytes: f32,
    /// Length of a block without its payload.
    overhead: f32,
    ratio: f32,
    deviation: f32,
    is_known: bool,
    /// Consecutive leaves that did not compress, and leaves left untried since.
    dull: u8,
    untried: u8,
}

impl Packing {
    pub(super) fn new(unit_bytes: usize, overhead: usize) -> Self {
        Self {
            unit_bytes: unit_bytes as f32,
            overhead: overhead as f32,
            ratio: 1.0,
            deviation: 0.0,
            is_known: false,
            dull: 0,
            untried: 0,
        }
    }

    /// Whether the next leaf is worth the time for trying to compress it.
    pub(super) fn should_try(&mut self) -> bool {
        if self.dull < DULL_LEAVES {
            return true;
        }
        self.untried = (self.untried + 1) % TRIED_LEAVES;
        self.untried == 0
    }

    /// Records the length of a written leaf before and after compression.
    pub(super) fn wrote(&mut self, raw_len: usize, packed_len: usize) {
        let ratio = raw_len as f32 / packed_len.max(1) as f32;
        if !self.is_known {
            (self.ratio, self.is_known) = (ratio, true);
        }
        self.dull = if ratio < LEAST_RATIO {
            self.dull.saturating_add(1)
        } else {
            0
        };
        self.deviation += WEIGHT * ((ratio - self.ratio).abs() - self.deviation);
        self.ratio += WEIGHT * (ratio - self.ratio);
    }

    /// Estimates the ratio from a leaf of the old tree while no written leaf is recorded.
    /// A compressed leaf fills its units to within a few percent.
    pub(super) fn read(&mut self, leaf: BlockRef) {
        let stored = f32::from(leaf.units) * self.unit_bytes;
        if !self.is_known && leaf.raw_len as f32 > stored {
            self.ratio = leaf.raw_len as f32 / (stored * 0.95);
            self.deviation = 0.0;
        }
    }

    /// Number of bytes to which a leaf is filled, without the block header, if its cells have about
    /// `cell_bytes` each.
    pub(super) fn capacity(&self, limits: Limits, cell_bytes: usize) -> usize {
        // With a margin of two mean deviations, one leaf in twenty needs another unit.
        let ratio = self.ratio - 2.0 * self.deviation;
        let ratio = if ratio < LEAST_RATIO { 1.0 } else { ratio };
        let units = (LEAST_BYTES / (self.unit_bytes * ratio)).ceil();
        let capacity = (units * self.unit_bytes - self.overhead) * ratio;
        if capacity < (LEAST_CELLS * cell_bytes) as f32 {
            return limits.node_capacity;
        }
        (capacity as usize).min(limits.node_capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::HEADER_BYTES;

    fn capacity_after(leaves: &[(usize, usize)]) -> usize {
        let mut packing = Packing::new(4096, HEADER_BYTES);
        for (raw, packed) in leaves {
            packing.wrote(*raw, *packed);
        }
        packing.capacity(Limits::new(16 << 10), 100)
    }

    #[test]
    fn leaves_fill_their_units() {
        let two = 8192 - HEADER_BYTES;
        assert_eq!(capacity_after(&[]), two);
        // Leaves that barely compress are stored raw.
        assert_eq!(capacity_after(&[(8000, 8030), (8000, 7700)]), two);
        // Leaves that compress a little fill two units, leaves that compress well fill one.
        assert_eq!(capacity_after(&[(8000, 6400)]), two * 5 / 4);
        let one = 4096 - HEADER_BYTES;
        assert_eq!(capacity_after(&[(8000, 4000)]), one * 2);
        assert_eq!(capacity_after(&[(8000, 1000)]), Limits::new(16 << 10).node_capacity);
    }

    #[test]
    fn long_records_have_leaves_of_full_size() {
        let limits = Limits::new(16 << 10);
        assert_eq!(
            Packing::new(4096, HEADER_BYTES).capacity(limits, 1020),
            8192 - HEADER_BYTES
        );
        assert_eq!(
            Packing::new(4096, HEADER_BYTES).capacity(limits, 1021),
            limits.node_capacity
        );
    }

    #[test]
    fn incompressible_data_is_tried_now_and_then() {
        let mut packing = Packing::new(4096, HEADER_BYTES);
        let mut tried = || (0..160).filter(|_| packing.should_try()).count();
        assert_eq!(tried(), 160);
        for _ in 0..DULL_LEAVES {
            packing.wrote(8000, 7900);
        }
        let mut tried = || (0..160).filter(|_| packing.should_try()).count();
        assert_eq!(tried(), 10);
        packing.wrote(8000, 4000);
        assert!(packing.should_try(), "it compresses again");
    }

    #[test]
    fn the_more_they_vary_the_smaller_they_are() {
        let alike = capacity_after(&[(8000, 4000); 20]);
        let varied: Vec<_> = (0..20).map(|leaf| (8000, 3800 + leaf % 2 * 400)).collect();
        let varied = capacity_after(&varied);
        assert!(
            (alike * 85 / 100..alike * 97 / 100).contains(&varied),
            "{varied} of {alike}"
        );
    }
}

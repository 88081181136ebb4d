//! The steps of reading one record from a leaf that is not in memory, separated so that a benchmark
//! can time each.

use std::hint::black_box;
use std::sync::Arc;

use crate::block::{self, BlockFile, BlockInfo, BlockRef, Compression, Kind};
use crate::error::Result;
use crate::node::{LeafCell, Limits, Node};
use crate::pages::{Access, Expected, Pager};
use crate::storage::{MemoryStorage, Storage};

const OWNER: u32 = 1;
const UNIT_BYTES: usize = 4096;

/// The steps in the order in which a read takes them, then the whole read.
pub const STAGES: [&str; 6] = [
    "read the units",
    "checksum",
    "expand",
    "validate",
    "search",
    "cold get, whole",
];

/// A full leaf, stored as a block.
pub struct Stages {
    pager: Pager,
    limits: Limits,
    reference: BlockRef,
    /// The block's units as stored, and the page they contain.
    stored: Vec<u8>,
    image: Vec<u8>,
    keys: Vec<Vec<u8>>,
}

impl Stages {
    /// Builds a leaf of `node_bytes` filled with `records`, which are in key order.
    ///
    /// # Errors
    /// Those of an in-memory storage.
    pub fn new(node_bytes: usize, compression: Compression, records: &[(Vec<u8>, Vec<u8>)]) -> Result<Self> {
        let limits = Limits::new(node_bytes);
        let mut node = Node::new(limits.node_capacity, 0, &[], None);
        let mut keys = Vec::new();
        let mut payload = Vec::new();
        for (key, value) in records {
            LeafCell::inline(value).encode_into(&mut payload);
            if !node.insert(keys.len(), key, &payload) {
                break;
            }
            keys.push(key.clone());
        }
        let (front, heap) = node.image();
        let image = [front, heap].concat();
        let info = BlockInfo {
            kind: Kind::Leaf,
            level: 0,
            owner: OWNER,
            generation: 1,
        };
        let mut stored = Vec::new();
        let mut reference = block::encode(info, &[&image], compression, UNIT_BYTES, &mut stored);
        reference.unit = 4;
        let blocks = BlockFile::new(MemoryStorage::new().open("data", true)?, UNIT_BYTES.trailing_zeros());
        blocks.write_units(reference.unit, &stored)?;
        Ok(Self {
            pager: Pager::new(blocks, limits, 1 << 20),
            limits,
            reference,
            stored,
            image,
            keys,
        })
    }

    /// Bytes of the page, bytes of its block, and number of its records.
    #[must_use]
    pub fn sizes(&self) -> [usize; 3] {
        [self.image.len(), self.stored.len(), self.keys.len()]
    }

    /// Runs one of [`STAGES`] `times` times.
    ///
    /// # Errors
    /// Those of an in-memory storage.
    pub fn run(&self, stage: usize, times: usize) -> Result<()> {
        for round in 0..times {
            let key = &self.keys[round * 7 % self.keys.len()];
            match stage {
                0 => drop(black_box(self.pager.blocks.read_units(&self.reference)?)),
                1 => block::check(black_box(&self.stored), &self.reference, &[Kind::Leaf], OWNER)?,
                2 => drop(black_box(block::expand(self.stored.clone(), &self.reference)?)),
                3 => self.validate()?,
                4 => self.search(key),
                _ => self.get(key)?,
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<()> {
        let node = Node::from_image(self.image.clone());
        black_box(node.validate(&self.limits))
    }

    fn search(&self, key: &[u8]) {
        let node = Node::from_image(self.image.clone());
        black_box(node.lower_bound(key));
    }

    fn get(&self, key: &[u8]) -> Result<()> {
        let expected = Expected::root(OWNER, self.keys.len() as u64);
        let node: Arc<Node> = self.pager.load(&self.reference, &expected, Access::Point)?;
        black_box(node.lower_bound(key));
        self.pager.remove(block::PageId::disk(self.reference.unit));
        Ok(())
    }
}

impl std::fmt::Debug for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

//! The scan for nodes that no readable reference leads to.
//!
//! A node's block gives its owner, the checkpoint that wrote it and, by its fences, the keys it
//! covers. The trees are copy-on-write, so of all nodes of a collection that cover a key, the one
//! with the highest generation counts, and within a generation the one with the highest number.

use super::control::{Control, Flow};
use super::source::Source;
use crate::block::{Header, Kind};
use crate::node::{Node, ValuePlace};
use crate::state::Collection;
use crate::state::expiry::HINT_BYTES;

/// Blocks begin at multiples of this, whatever the unit.
const SECTOR_BYTES: u64 = 512;
const UNIT_SHIFTS: std::ops::RangeInclusive<u32> = 9..=16;
/// Longest block whose checksum is verified only to skip it.
const MAX_SKIPPED_BYTES: u64 = 1 << 20;
/// Number of references sampled to determine the unit.
const MAX_SAMPLES: usize = 4096;

/// A node found by the scan: 32 bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Sector in bits 9 to 63, whether the node covers all keys in bit 8, its level in bits 0 to 7.
    place: u64,
    pub(super) generation: u64,
    pub(super) owner: u32,
    pub(super) checksum: u32,
    /// Its number among the blocks of its generation.
    number: u32,
}

impl Found {
    pub(super) fn offset(&self) -> u64 {
        self.sector() * SECTOR_BYTES
    }

    fn sector(&self) -> u64 {
        self.place >> 9
    }

    /// Only a current or former root covers all keys.
    fn is_root(&self) -> bool {
        self.place & 0x100 != 0
    }

    pub(super) fn level(&self) -> u8 {
        self.place as u8
    }
}

/// The newest root among these nodes; within one checkpoint, the one on the highest level.
pub(super) fn newest_root<'a>(nodes: impl Iterator<Item = &'a Found>) -> Option<Found> {
    let roots = nodes.filter(|found| found.is_root());
    roots.max_by_key(|found| (found.generation, found.level())).copied()
}

/// Nodes found by the scan, by owner and generation.
pub(super) struct Index {
    nodes: Vec<Found>,
    pub(super) unit_shift: u32,
    pub(super) longest_key: usize,
}

impl Index {
    /// Nodes of an owner, oldest first.
    pub(super) fn of(&self, owner: u32) -> &[Found] {
        let from = self.nodes.partition_point(|found| found.owner < owner);
        let to = self.nodes.partition_point(|found| found.owner <= owner);
        &self.nodes[from..to]
    }

    /// The newest checkpoint that wrote a node.
    pub(super) fn newest_of_all(&self) -> u64 {
        self.nodes.iter().map(|found| found.generation).max().unwrap_or(0)
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes
            .chunk_by(|a, b| a.owner == b.owner)
            .filter_map(|group| group.first())
            .map(|found| found.owner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// References seen during the scan, to determine the unit if no superblock gives it.
#[derive(Default)]
struct Samples(Vec<(u64, u32)>);

impl Samples {
    fn take(&mut self, owner: u32, node: &Node) {
        for index in 0..node.len() {
            if self.0.len() >= MAX_SAMPLES {
                return;
            }
            let pointer = if !node.is_leaf() {
                Some(node.child(index).pointer)
            } else if owner == 0
                && let ValuePlace::Inline(bytes) = node.record(index).place
            {
                let entry = Collection::decode(bytes).ok();
                entry.and_then(|entry| entry.root).map(|root| root.pointer)
            } else {
                None
            };
            if let Some(reference) = pointer {
                self.0.push((reference.unit, reference.checksum));
            }
        }
    }

    /// Finds the unit with which most references lead to the right block. `nodes` are in address
    /// order.
    fn unit_shift(&self, nodes: &[Found]) -> u32 {
        let leads = |unit: u64, checksum: u32, shift: u32| {
            let sector = unit.checked_shl(shift - *UNIT_SHIFTS.start()).unwrap_or(u64::MAX);
            let found = nodes.binary_search_by_key(&sector, Found::sector);
            found.is_ok_and(|index| nodes[index].checksum == checksum)
        };
        let hits = |shift: u32| {
            self.0
                .iter()
                .filter(|(unit, checksum)| leads(*unit, *checksum, shift))
                .count()
        };
        let aligned = nodes
            .iter()
            .fold(u64::MAX, |all, found| all.min((found.sector()).trailing_zeros().into()));
        let widest = *UNIT_SHIFTS.start() + aligned.min(7) as u32;
        // `max_by_key` takes the last of equals. Without references, the widest unit that fits is
        // as good as any.
        let best = UNIT_SHIFTS
            .map(|shift| (shift, hits(shift)))
            .max_by_key(|(_, hits)| *hits);
        best.filter(|(_, hits)| *hits > 0).map_or(widest, |(shift, _)| shift)
    }
}

/// Scans the whole file. Blocks of checkpoints after `last_generation` were never part of the
/// database.
pub(super) fn scan(
    source: &mut Source,
    unit_shift: Option<u32>,
    last_generation: u64,
    control: &mut Control<'_>,
) -> Flow<Index> {
    let step = 1 << unit_shift.unwrap_or(*UNIT_SHIFTS.start());
    let mut scan = Scan {
        index: Index {
            nodes: Vec::new(),
            unit_shift: 0,
            longest_key: 0,
        },
        samples: Samples::default(),
        budget: source.len.saturating_mul(16).saturating_add(64 << 20),
        last_generation,
    };
    let mut offset = crate::pages::AREA_BYTES.next_multiple_of(step);
    while offset < source.len {
        control.at(offset)?;
        let taken = scan.block(source, offset);
        offset += taken.max(1).next_multiple_of(step);
    }
    let mut index = scan.index;
    index.unit_shift = unit_shift.unwrap_or_else(|| scan.samples.unit_shift(&index.nodes));
    let unit_bytes = 1 << index.unit_shift;
    index.nodes.retain(|found| found.offset().is_multiple_of(unit_bytes));
    let order = |found: &Found| (found.owner, found.generation, found.number, found.place);
    index.nodes.sort_unstable_by_key(order);
    Ok(index)
}

struct Scan {
    index: Index,
    samples: Samples,
    /// Bytes of failed checks still allowed, so that overlapping false headers cannot stall the
    /// scan.
    budget: u64,
    last_generation: u64,
}

impl Scan {
    /// Records the block at `offset`; returns its length, 0 if there is none. The content of a
    /// valid block is not searched, because values may look like blocks.
    fn block(&mut self, source: &mut Source, offset: u64) -> u64 {
        let Some(header) = source.header(offset) else { return 0 };
        if matches!(header.kind, Kind::Leaf | Kind::Inner) {
            let Ok((header, node)) = source.node_at(offset) else {
                return 0;
            };
            if (header.kind == Kind::Leaf) != node.is_leaf() {
                return 0;
            }
            self.node(offset, &header, &node);
            return header.block_bytes();
        }
        let len = header.block_bytes();
        if len > MAX_SKIPPED_BYTES || self.budget < len {
            return 0;
        }
        if source
            .bytes(offset, len as usize)
            .is_some_and(|block| header.matches(block))
        {
            return len;
        }
        self.budget -= len;
        0
    }

    fn node(&mut self, offset: u64, header: &Header, node: &Node) {
        if header.generation > self.last_generation {
            return;
        }
        let is_root = node.lower_fence().is_empty() && node.upper_fence().is_none();
        self.index.nodes.push(Found {
            place: ((offset / SECTOR_BYTES) << 9) | u64::from(is_root) << 8 | u64::from(node.level()),
            generation: header.generation,
            owner: header.owner,
            checksum: header.checksum,
            number: node.block_number(),
        });
        self.samples.take(header.owner, node);
        // The new database may need space for the record's expiry hint.
        let expires = |index| node.is_leaf() && node.record(index).expires != 0;
        let hint_bytes = |index| if expires(index) { HINT_BYTES } else { 0 };
        let keys = (0..node.len()).map(|index| node.prefix_len() + node.suffix(index).len() + hint_bytes(index));
        let fences = [node.lower_fence().len(), node.upper_fence().map_or(0, <[u8]>::len)];
        let longest = keys.chain(fences).max().unwrap_or(0);
        self.index.longest_key = self.index.longest_key.max(longest);
    }
}

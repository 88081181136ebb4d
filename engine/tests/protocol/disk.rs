//! The two files: superblocks and blocks of "data", and the two halves of "log", each as the system
//! has it in memory and as the disk has it.

use std::hash::{Hash, Hasher};

/// Keys of all collections.
pub(super) const KEYS: usize = 5;
/// The hint of every record that expires: there is one expiry.
pub(super) const HINT: usize = 4;
pub(super) const COLLECTIONS: usize = 3;
pub(super) const EXTENTS: usize = 14;
/// Records that a half has room for.
pub(super) const HALF: usize = 5;

/// A set of extents.
pub(super) type Set = u16;

/// Where a value that is in its leaf stands.
pub(super) const INLINE: u8 = 0xFF;
/// In a memtable: the record is removed.
pub(super) const REMOVED: u8 = 0xFF;
/// Content of a block that was damaged.
pub(super) const TORN: u16 = 1;

/// A record's value. `id` 0: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Value {
    pub id: u8,
    /// Version of the commit that wrote it.
    pub version: u8,
    pub extent: u8,
    pub expires: bool,
}

impl Value {
    pub(super) const HINT: Self = Self {
        id: 0xFE,
        version: 0,
        extent: INLINE,
        expires: false,
    };
    pub(super) const REMOVAL: Self = Self {
        id: REMOVED,
        version: 0,
        extent: INLINE,
        expires: false,
    };

    pub(super) fn is_some(self) -> bool {
        self.id != 0
    }

    /// What the block of an out-of-line value holds.
    pub(super) fn content(self) -> u16 {
        0x100 | u16::from(self.id)
    }

    pub(super) fn is_out_of_line(self) -> bool {
        self.is_some() && self.extent != INLINE
    }

    /// Its extent, if it has one.
    pub(super) fn extents(self) -> Set {
        if self.is_out_of_line() { 1 << self.extent } else { 0 }
    }
}

pub(super) type Records = [Value; KEYS];
/// Extent of the one node that each tree has.
pub(super) type Roots = [Option<u8>; COLLECTIONS];

pub(super) fn extents_of(records: &Records) -> Set {
    records.iter().fold(0, |set, value| set | value.extents())
}

pub(super) fn roots_of(roots: Roots) -> Set {
    roots.iter().flatten().fold(0, |set, extent| set | 1 << extent)
}

/// A position between two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Position {
    pub half: u8,
    pub index: u8,
    pub crc: u8,
    pub salt: u8,
}

impl Position {
    pub(super) fn first(half: u8, salt: u8) -> Self {
        Self {
            half,
            index: 0,
            crc: salt,
            salt,
        }
    }
}

/// A superblock, with the content of what it refers to: the catalog, the free map and the records
/// that its trees have to hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Superblock {
    pub generation: u8,
    pub version: u8,
    /// Version that its log has to reach: the trees hold parts of the commits up to it.
    pub reaches: u8,
    pub closed: bool,
    pub log: Position,
    pub roots: Roots,
    pub records: Records,
    /// Collections in the catalog.
    pub exists: u8,
    pub free: Set,
    /// What only the superblock before this one reaches.
    pub leaving: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LogRecord {
    pub crc: u8,
    pub previous_crc: u8,
    pub salt: u8,
    pub version: u8,
    /// Records of its half that were flushed when it was made.
    pub flushed_to: u8,
    /// Collections that it empties, before its changes.
    pub clears: u8,
    pub changes: Records,
    /// It has no commit: it follows a checkpoint with a commit that is missing from the log.
    pub is_marker: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct HalfHeader {
    pub salt: u8,
    pub from: Position,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Half {
    pub header: Option<HalfHeader>,
    pub records: [Option<LogRecord>; HALF],
}

impl Half {
    /// The half after the first `count` of the writes that lead to `newer`, and their number.
    fn partly(&self, newer: &Self, count: usize) -> (Self, usize) {
        let mut half = *self;
        let mut writes = 0;
        if half.header != newer.header {
            if writes < count {
                half.header = newer.header;
            }
            writes += 1;
        }
        for (record, newer) in half.records.iter_mut().zip(&newer.records) {
            if record != newer {
                if writes < count {
                    *record = *newer;
                }
                writes += 1;
            }
        }
        (half, writes)
    }
}

/// Content of both files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Files {
    pub blocks: [u16; EXTENTS],
    pub slots: [Option<Superblock>; 2],
    pub halves: [Half; 2],
}

/// The files as everyone reads them, and as a power cut leaves them if it takes all it may.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Disk {
    pub cached: Files,
    pub durable: Files,
}

/// What a power cut leaves of a superblock that was written and not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Slot {
    Older,
    Newer,
    Torn,
}

/// What a power cut keeps of the writes that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cut {
    pub blocks: Set,
    pub slots: [Slot; 2],
    /// Number of writes to each half, in their order.
    pub halves: [u8; 2],
}

impl Disk {
    pub(super) fn flush_data(&mut self) {
        self.durable.blocks = self.cached.blocks;
        self.durable.slots = self.cached.slots;
    }

    pub(super) fn flush_log(&mut self) {
        self.durable.halves = self.cached.halves;
    }

    /// Everything that a power cut may do now.
    pub(super) fn cuts(&self) -> Vec<Cut> {
        let (durable, cached) = (&self.durable, &self.cached);
        let differing = (0..EXTENTS).filter(|&extent| durable.blocks[extent] != cached.blocks[extent]);
        let mut blocks: Vec<Set> = vec![0];
        for extent in differing {
            blocks.extend_from_within(..);
            let half = blocks.len() / 2;
            blocks[half..].iter_mut().for_each(|set| *set |= 1 << extent);
        }
        let fates = |slot: usize| {
            if durable.slots[slot] == cached.slots[slot] {
                &[Slot::Newer][..]
            } else {
                &[Slot::Older, Slot::Newer, Slot::Torn]
            }
        };
        let counts = |half: usize| 0..=durable.halves[half].partly(&cached.halves[half], 0).1 as u8;
        let mut cuts = Vec::new();
        for &blocks in &blocks {
            for &first in fates(0) {
                for &second in fates(1) {
                    for first_half in counts(0) {
                        cuts.extend(counts(1).map(|second_half| Cut {
                            blocks,
                            slots: [first, second],
                            halves: [first_half, second_half],
                        }));
                    }
                }
            }
        }
        cuts
    }

    pub(super) fn cut(&mut self, cut: Cut) {
        let mut files = self.durable;
        for extent in 0..EXTENTS {
            if cut.blocks & 1 << extent != 0 {
                files.blocks[extent] = self.cached.blocks[extent];
            }
        }
        for slot in 0..2 {
            match cut.slots[slot] {
                Slot::Older => {}
                Slot::Newer => files.slots[slot] = self.cached.slots[slot],
                Slot::Torn => files.slots[slot] = None,
            }
            let count = usize::from(cut.halves[slot]);
            files.halves[slot] = files.halves[slot].partly(&self.cached.halves[slot], count).0;
        }
        self.set(&files);
    }

    pub(super) fn set(&mut self, files: &Files) {
        self.cached = *files;
        self.durable = *files;
    }
}

impl Files {
    /// The slot with the newest superblock.
    pub(super) fn newest(&self) -> Option<usize> {
        let generation = |slot: &usize| self.slots[*slot].map(|superblock| superblock.generation);
        (0..2).max_by_key(generation).filter(|slot| self.slots[*slot].is_some())
    }
}

/// What the node of a collection's tree holds.
pub(super) fn node(collection: usize, records: &[Value]) -> u16 {
    let mut hasher = Fingerprint::default();
    (collection, records).hash(&mut hasher);
    hasher.finish() as u16 | 0x8000
}

/// A fast hash of many small fields.
#[derive(Default)]
pub(super) struct Fingerprint {
    state: u64,
    pending: u64,
    bytes: u32,
}

impl Fingerprint {
    fn mix(&mut self) {
        let word = (self.state.rotate_left(23) ^ self.pending).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.state = word ^ word >> 32;
        (self.pending, self.bytes) = (0, 0);
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.pending = self.pending << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes == 8 {
            self.mix();
        }
    }

    fn write_isize(&mut self, discriminant: isize) {
        self.write_u8(discriminant.unsigned_abs() as u8);
    }

    fn write_usize(&mut self, len: usize) {
        self.write_u8(len as u8);
    }

    fn finish(&self) -> u64 {
        let word = (self.state ^ self.pending ^ u64::from(self.bytes) << 56).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word ^ word >> 29
    }
}

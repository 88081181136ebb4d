//! What a recovery says about itself.

use crate::error::Error;

/// What the recovery is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RecoverPhase {
    /// It reads the whole file, because references alone do not lead to everything.
    Scanning,
    /// It copies records.
    Copying,
    /// It verifies the new database.
    Verifying,
}

/// How far the recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecoverProgress {
    /// What it is doing.
    pub phase: RecoverPhase,
    /// Bytes of the file that were scanned. An undamaged file is not scanned.
    pub scanned_bytes: u64,
    /// Length of the file.
    pub total_bytes: u64,
    /// Records copied. Older forms of a record that are replaced later count too.
    pub records: u64,
}

/// How good the result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completeness {
    /// Exactly the newest state.
    Exact,
    /// Exactly one state, the newest that was found. A superblock or the log is lost, so newer commits may have been lost as a whole.
    /// One case looks like it and cannot be told from it: a power cut took commits that were not flushed out of the log, a checkpoint has
    /// them, and its superblock is lost. Then records that these commits changed can be as the log before them says.
    Reconstructed,
    /// Something, or a part of the log, could not be read. Records that were lost may be missing, or stand there as an earlier checkpoint had them.
    Salvage,
    /// The callback asked to stop. The target was emptied again.
    Cancelled,
}

/// What led to the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveredRoot {
    /// The superblock of this checkpoint.
    Superblock {
        /// Number of the checkpoint.
        generation: u64,
        /// Its commit sequence number.
        version: u64,
    },
    /// The root of a catalog that was found by scanning.
    Catalog {
        /// The checkpoint that wrote it.
        generation: u64,
    },
    /// Nothing: the records were put together from single blocks.
    None,
}

/// What became of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogState {
    /// There is none, and nothing says that there should be one.
    Absent,
    /// There is none although the database was not closed: the commits since its last checkpoint are lost.
    Missing,
    /// It was read to its end.
    Intact,
    /// Part of it could not be read.
    Damaged,
}

/// What the log gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredLog {
    /// What became of it.
    pub state: LogState,
    /// Records that were applied, each of one commit or more.
    pub applied_records: u64,
    /// Commits that are missing between them. Where the end of the log is lost nobody knows how many there were.
    pub lost_commits: u64,
}

/// A collection of the new database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredCollection {
    /// Its name in the new database.
    pub name: String,
    /// Its id in the old one.
    pub id: u32,
    /// Whether the name is its own. Otherwise it was lost, and the codec ids with it.
    pub is_named: bool,
    /// Number of records.
    pub count: u64,
}

/// Keys whose newest node could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The collection in the new database; `None`: the catalog, whose keys are names of collections.
    pub collection: Option<String>,
    /// First key of the range.
    pub lower: Vec<u8>,
    /// The first key after it; `None`: it has no end.
    pub upper: Option<Vec<u8>>,
    /// How many records there should be, where that is known.
    pub expected: Option<u64>,
    /// How many are there, found in blocks that are readable.
    pub recovered: u64,
}

/// A record whose key was found and whose value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// The collection in the new database; `None`: the catalog.
    pub collection: Option<String>,
    /// Its key.
    pub key: Vec<u8>,
}

/// What a recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
    /// How good the result is.
    pub completeness: Completeness,
    /// What led to the records.
    pub root: RecoveredRoot,
    /// What the log added to that.
    pub log: RecoveredLog,
    /// Collections of the new database, in the order of their names.
    pub collections: Vec<RecoveredCollection>,
    /// Keys whose newest node could not be reached, the first thousand ranges.
    pub damaged_ranges: Vec<DamagedRange>,
    /// All of them.
    pub damaged_range_count: u64,
    /// Records whose value could not be read, the first ten thousand.
    pub lost_records: Vec<LostRecord>,
    /// All of them. Where keys did not fit in the list it is an upper bound.
    pub lost_record_count: u64,
    /// Blocks that something refers to and that could not be read, and sectors that the storage could not read in the scan.
    pub unreadable_blocks: u64,
    /// What was wrong with the first hundred of these blocks.
    pub problems: Vec<Error>,
}

/// Longest list of damaged ranges.
const MAX_RANGES: usize = 1000;
/// Longest list of lost records.
pub(super) const MAX_LOST: usize = 10_000;
/// Longest list of problems.
const MAX_PROBLEMS: usize = 100;

impl RecoverReport {
    pub(super) fn new() -> Self {
        Self {
            completeness: Completeness::Exact,
            root: RecoveredRoot::None,
            log: RecoveredLog {
                state: LogState::Absent,
                applied_records: 0,
                lost_commits: 0,
            },
            collections: Vec::new(),
            damaged_ranges: Vec::new(),
            damaged_range_count: 0,
            lost_records: Vec::new(),
            lost_record_count: 0,
            unreadable_blocks: 0,
            problems: Vec::new(),
        }
    }

    /// Records of all collections.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.collections.iter().map(|collection| collection.count).sum()
    }

    pub(super) fn add_range(&mut self, range: DamagedRange) {
        self.damaged_range_count += 1;
        if self.damaged_ranges.len() < MAX_RANGES {
            self.damaged_ranges.push(range);
        }
    }

    /// A collection got another name in the end.
    pub(super) fn rename_collection(&mut self, from: &str, to: &str) {
        let names = self.collections.iter_mut().map(|found| &mut found.name);
        let ranges = self
            .damaged_ranges
            .iter_mut()
            .filter_map(|range| range.collection.as_mut());
        for name in names.chain(ranges).filter(|name| *name == from) {
            to.clone_into(name);
        }
    }

    /// A collection was dropped in the end.
    pub(super) fn forget_collection(&mut self, name: &str) {
        self.collections.retain(|found| found.name != name);
        let before = self.damaged_ranges.len();
        self.damaged_ranges
            .retain(|range| range.collection.as_deref() != Some(name));
        self.damaged_range_count -= (before - self.damaged_ranges.len()) as u64;
    }

    pub(super) fn add_problem(&mut self, problem: Error) {
        self.unreadable_blocks += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

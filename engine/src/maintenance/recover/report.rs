//! The report of a recovery.

use crate::error::Error;

/// Phase of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RecoverPhase {
    /// Reads the whole file, because references alone do not lead to everything.
    Scanning,
    /// Copies records.
    Copying,
    /// Verifies the new database.
    Verifying,
}

/// Progress of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecoverProgress {
    /// Current phase.
    pub phase: RecoverPhase,
    /// Bytes of the file scanned. An undamaged file is not scanned.
    pub scanned_bytes: u64,
    /// Length of the file.
    pub total_bytes: u64,
    /// Records copied, including older versions of a record that are replaced later.
    pub records: u64,
}

/// Quality of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completeness {
    /// Exactly the newest state.
    Exact,
    /// Exactly one state, the newest found. A superblock or the log is lost, so newer commits may
    /// be missing entirely.
    ///
    /// One other case is indistinguishable: a power failure removed unflushed commits from the log,
    /// a checkpoint contains them, and its superblock is lost. Records that these commits changed
    /// may then be as the log before them says.
    Reconstructed,
    /// Some blocks or part of the log could not be read. Lost records may be missing, or appear as
    /// of an earlier checkpoint.
    Salvage,
    /// The callback asked to stop. The target was emptied again.
    Cancelled,
}

/// The source of recovered records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveredRoot {
    /// The superblock of this checkpoint.
    Superblock {
        /// Number of the checkpoint.
        generation: u64,
        /// Its commit sequence number.
        version: u64,
    },
    /// The root of a catalog found by the scan.
    Catalog {
        /// Number of the checkpoint that wrote it.
        generation: u64,
    },
    /// None: the records were put together from single blocks.
    None,
}

/// Condition of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogState {
    /// There is none, and none is expected.
    Absent,
    /// There is none, although the database was not closed: commits since its last checkpoint are
    /// lost.
    Missing,
    /// It was read to its end.
    Intact,
    /// Part of it could not be read.
    Damaged,
}

/// The log's part in a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredLog {
    /// Condition of the log.
    pub state: LogState,
    /// Records applied, each of one or more commits.
    pub applied_records: u64,
    /// Commits missing between the applied records. If the end of the log is lost, the number lost
    /// there is unknown.
    pub lost_commits: u64,
}

/// A collection of the new database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredCollection {
    /// Its name in the new database.
    pub name: String,
    /// Its id in the old one.
    pub id: u32,
    /// Whether the name is its own. Otherwise the name is lost, and the codec ids with it.
    pub is_named: bool,
    /// Number of records.
    pub count: u64,
}

/// Keys whose newest node could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The collection in the new database; `None`: the catalog, whose keys are names of
    /// collections.
    pub collection: Option<String>,
    /// First key of the range.
    pub lower: Vec<u8>,
    /// First key after the range; `None` if it is unbounded.
    pub upper: Option<Vec<u8>>,
    /// Number of records that should be there, if known.
    pub expected: Option<u64>,
    /// Number of records there, found in readable blocks.
    pub recovered: u64,
}

/// A record whose key was found, but whose value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// The collection in the new database; `None`: the catalog.
    pub collection: Option<String>,
    /// Its key.
    pub key: Vec<u8>,
}

/// Result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
    /// Quality of the result.
    pub completeness: Completeness,
    /// The source of the records.
    pub root: RecoveredRoot,
    /// The log's part in it.
    pub log: RecoveredLog,
    /// Collections of the new database, ordered by name.
    pub collections: Vec<RecoveredCollection>,
    /// Keys whose newest node could not be reached: the first thousand ranges.
    pub damaged_ranges: Vec<DamagedRange>,
    /// Total number of such ranges.
    pub damaged_range_count: u64,
    /// Records whose value could not be read: the first ten thousand.
    pub lost_records: Vec<LostRecord>,
    /// Total number of such records; an upper bound if some keys did not fit in the list.
    pub lost_record_count: u64,
    /// Referenced blocks that could not be read, and sectors that the storage could not read in the
    /// scan.
    pub unreadable_blocks: u64,
    /// The faults of the first hundred of these blocks.
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

    /// Total number of records in all collections.
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

    /// Applies a rename from the log.
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

    /// Removes a collection that the log drops.
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

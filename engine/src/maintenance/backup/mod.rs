//! Backups: writing a snapshot as a stream of bytes, and restoring it.
//!
//! A stream is a header, data frames and an end frame. All numbers are little endian.
//!
//! ```text
//! header
//!  0  [8] magic "MANGRBAK"
//!  8  u16 format version: 1, or 2 if the database is encrypted
//! 10  u16 0
//! 12  u32 node size of the database, 256 to 65536
//! 16  [16] database id
//! 32  u64 version that the database has once this is restored
//! 40  u64 version that it has to have before; 0: a full backup, else an incremental one
//! 48  u64 full: number of records of all collections; incremental: 0
//! 56  u32 full: number of collections; incremental: 0
//! 60  u32 CRC32 of bytes 0..60; the header has this length and ends with this in all format versions
//!
//! follows the header of version 2
//!  0  u8  length of the envelope; 1 u16 0
//!  3  [72] the data key, sealed under the user's key (see `cipher`)
//! 75  [128] envelope, then zeros; 203 u8 0
//! 204 u32 CRC32 of bytes 0..204
//!
//! frame
//!  0  u8  1 data, 2 end
//!  1  u8  codec: 0 plain, 1 LZ4 block format, used where it is shorter; 2 and 3 the same, sealed
//!         (see `cipher`); associated data are the stream's header, the number of data frames up to
//!         and with this one, u64, and bytes 0..12
//!  2  u16 0
//!  4  u32 stored length
//!  8  u32 raw length, 1 to 262144
//! 12  u32 CRC32 of: CRC of the frame before it (of the header for the first one), bytes 0..12, stored data
//! 16      stored data
//!
//! raw data of the end frame
//!  0  u64 number of data frames
//!  8  u64 sum of their raw lengths
//! 16  u64 records of a full backup, commits of an incremental one
//! ```
//!
//! The content is the concatenated raw data of the data frames; frame boundaries carry no meaning.
//! Lengths, counts and versions in it are unsigned LEB128 numbers.
//!
//! ```text
//! full, per collection in the order of their names
//!     length, name; length, key codec id; length, value codec id
//!     number of records
//!     per record in the order of their keys: length, key; length of the value << 1 | whether it expires; if so, expiry in
//!         milliseconds since 1970, not 0; value
//!
//! incremental, per commit in the order of their versions
//!     version
//!     length, changes of the commit, see changes.rs
//! ```
//!
//! Each frame's checksum covers the previous frame's, so a missing, repeated or misplaced frame is
//! detected like a damaged one.

use std::ops::ControlFlow;

use crate::error::Error;

mod changes;
mod commits;
mod encrypted;
mod frame;
mod header;
mod incremental;
mod read;
mod restore;
mod save;
mod write;

pub use restore::restore;
pub use save::BackupPieces;

/// Progress of a backup or a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Records, or commits of an incremental backup, processed so far.
    pub records: u64,
    /// Total number of records or commits in the backup.
    pub total_records: u64,
    /// Bytes of the stream written or read.
    pub bytes: u64,
}

/// How a backup or a restore ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupOutcome {
    /// All records were processed.
    Complete,
    /// The callback asked to stop. A cancelled backup lacks its end and cannot be restored; the
    /// target of a cancelled restore was emptied again.
    Cancelled,
}

/// Result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// How it ended. The other figures cover what was done until then.
    pub outcome: BackupOutcome,
    /// Id of the database.
    pub database_id: u128,
    /// Version that an incremental backup builds on; 0 for a full backup.
    pub base: u64,
    /// Commit sequence number of the snapshot.
    pub version: u64,
    /// Number of collections of a full backup.
    pub collections: u64,
    /// Number of records of a full backup.
    pub records: u64,
    /// Number of commits of an incremental backup.
    pub commits: u64,
    /// Number of changes in those commits.
    pub changes: u64,
    /// Length of the stream.
    pub bytes: u64,
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// How it ended. The other figures cover what was done until then.
    pub outcome: BackupOutcome,
    /// Id of the database that was backed up.
    pub database_id: u128,
    /// Commit sequence number of the new database, equal to the snapshot's.
    pub version: u64,
    /// Number of collections of a full backup.
    pub collections: u64,
    /// Number of records of a full backup.
    pub records: u64,
    /// Number of commits of an incremental backup.
    pub commits: u64,
    /// Number of changes in those commits.
    pub changes: u64,
    /// Length of the stream.
    pub bytes: u64,
    /// Blocks of the new database that were verified; 0 for an incremental backup.
    pub blocks: u64,
}

/// Why the work ends early.
enum Stop {
    Cancelled,
    Failed(Error),
}

type Flow<T> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Counts progress and reports it after each new frame.
struct Control<'a> {
    callback: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    state: BackupProgress,
    collections: u64,
    frames: u64,
}

impl<'a> Control<'a> {
    fn new(callback: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>, total_records: u64) -> Self {
        Self {
            callback,
            state: BackupProgress {
                records: 0,
                total_records,
                bytes: 0,
            },
            collections: 0,
            frames: 0,
        }
    }

    /// Notes how many frames, with how many bytes in total, were written or read.
    fn at(&mut self, frames: u64, bytes: u64) -> Flow<()> {
        if frames == self.frames {
            return Ok(());
        }
        self.frames = frames;
        self.state.bytes = bytes;
        self.report()
    }

    fn report(&mut self) -> Flow<()> {
        match (self.callback)(self.state) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Cancelled),
        }
    }
}

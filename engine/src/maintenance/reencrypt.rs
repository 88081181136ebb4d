//! Re-encryption: another data key, under which every block is written anew while the database is in
//! use.
//!
//! ```text
//! begin    empty the log; both superblocks get the new data key, and the previous one sealed under it
//! move     slices, each one checkpoint, move blocks of earlier generations (see `slice`)
//! end      a pass over all blocks has found none to move: both superblocks lose the previous key
//! ```
//! A block's generation, which its header states and its tag covers, tells its key, for readers and
//! writers alike. Blocks written since the beginning have later generations, so a pass that finds
//! nothing to move proves that the previous key is not needed any more. Only a value that was being
//! staged then could still bring an older block; passes count once those are stored or dropped
//! (invariant I33).
//!
//! The log is empty when the key changes, so no superblock's part of it is under two keys. Nothing is
//! undone by a crash: the superblock says that a re-encryption is under way, and from which generation
//! on, and the next call continues it.

use std::ops::ControlFlow;

use super::slice;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::state::{Credentials, PassPosition, Reencryption, Shared, Writer};
use crate::tree::relocate::Aim;

/// Options of [`reencrypt`](Database::reencrypt).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReencryptOptions {
    /// Bytes of blocks moved per slice, while other writers wait. A block and the nodes above it
    /// always move together. Default 1 MiB.
    pub slice_bytes: u64,
    /// Continue a re-encryption that is under way, but do not begin one. Default `false`.
    pub continues_only: bool,
}

impl Default for ReencryptOptions {
    fn default() -> Self {
        Self {
            slice_bytes: 1 << 20,
            continues_only: false,
        }
    }
}

/// Progress of a re-encryption, reported between slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReencryptProgress {
    /// Bytes of the blocks encrypted anew since the database was opened.
    pub moved_bytes: u64,
    /// Bytes of the file in use.
    pub used_bytes: u64,
}

/// Why a call of [`reencrypt`](Database::reencrypt) ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReencryptEnd {
    /// Everything is under the new data key, and the previous one is gone.
    Done,
    /// The caller broke off; the next call continues there.
    Cancelled,
    /// Everything is under the new data key, except for a value that was being staged
    /// ([`StagedValue`](crate::StagedValue)) when the re-encryption began, and is still. Store or drop
    /// it, and call again.
    Staged,
}

impl Database {
    /// Encrypts everything anew under another data key, while the database is in use. With the old
    /// data key, which older copies of the files and backups hold, nothing of the new files can be
    /// read, once it is done.
    ///
    /// The user's key stays as it is; [`change_key`](Self::change_key) changes it. Other threads read
    /// and write between slices; `progress` is called there without a lock held, and can break off.
    /// The file grows by a few slices, and by everything that snapshots keep. After a crash, a failure
    /// or a break, the next call continues; until then the user's key alone opens the database, as
    /// always. O(size of the database).
    ///
    /// # Errors
    /// [`Error::NotEncrypted`], [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`] if a block
    /// is damaged: the previous data key stays then; [`Error::StorageFull`] and [`Error::Io`].
    pub fn reencrypt(
        &self,
        options: ReencryptOptions,
        progress: &mut dyn FnMut(ReencryptProgress) -> ControlFlow<()>,
    ) -> Result<ReencryptEnd> {
        let shared = &*self.shared;
        if !begin(shared, options.continues_only)? {
            return Ok(ReencryptEnd::Done);
        }
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let mut units = (options.slice_bytes / unit_bytes).max(1);
        let most = units;
        loop {
            let (moved, used) = match advance(shared, units) {
                Ok(Step::Moved { moved, used }) => (moved, used),
                Ok(Step::End(end)) => return Ok(end),
                // Smaller slices need less space for the blocks that they replace.
                Err(Error::StorageFull { .. }) if units > 1 => {
                    units /= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            units = most.min(units * 2);
            let told = ReencryptProgress {
                moved_bytes: moved * unit_bytes,
                used_bytes: used * unit_bytes,
            };
            if progress(told).is_break() {
                return Ok(ReencryptEnd::Cancelled);
            }
        }
    }

    /// Whether a re-encryption has begun and not ended. [`reencrypt`](Self::reencrypt) continues it.
    /// O(1).
    #[must_use]
    pub fn is_reencrypting(&self) -> bool {
        let credentials = self.shared.credentials();
        credentials.is_some_and(|credentials| credentials.encryption.renewed_from().is_some())
    }
}

/// Outcome of a slice.
enum Step {
    /// There is more to do; units moved so far, and in use.
    Moved {
        moved: u64,
        used: u64,
    },
    End(ReencryptEnd),
}

/// Gives the database another data key, unless it has just got one. Returns `false` if nothing is
/// under way, nor shall be.
fn begin(shared: &Shared, continues_only: bool) -> Result<bool> {
    let mut work = shared.reencryption();
    let mut writer = shared.writable()?;
    let encryption = writer.superblock.encryption.as_ref().ok_or(Error::NotEncrypted)?;
    if encryption.renewed_from().is_some() {
        return Ok(true);
    }
    if continues_only {
        return Ok(false);
    }
    let credentials = shared.credentials().ok_or(Error::NotEncrypted)?;
    writer.empty_log(shared)?;
    let from = writer.superblock.generation + 1;
    let encryption = credentials
        .encryption
        .renewed(&credentials.key, shared.config.database_id, from)?;
    let cipher = encryption.cipher();
    let credentials = Credentials {
        encryption,
        ..credentials
    };
    // Until the second superblock is written, the other one stands for the same data and an empty log.
    writer.replace_encryption(shared, credentials, |writer| {
        // No block of generation `from` or later, and no record, was written yet.
        shared.pager.blocks.set_cipher(cipher.clone());
        if let Some(log) = &mut writer.log {
            log.set_cipher(cipher);
        }
        *work = Reencryption {
            staged: writer.space.free.staged(),
            ..Reencryption::default()
        };
    })?;
    Ok(true)
}

fn begin_pass(work: &mut Reencryption, writer: &Writer) {
    let staged = writer.space.free.staged();
    work.staged.retain(|extent| staged.contains(extent));
    work.counts = work.staged.is_empty();
    work.has_found = false;
}

fn advance(shared: &Shared, units: u64) -> Result<Step> {
    let mut work = shared.reencryption();
    let mut writer = shared.writable()?;
    let encryption = writer.superblock.encryption.as_ref().ok_or(Error::NotEncrypted)?;
    let Some(generation) = encryption.renewed_from() else {
        return Ok(Step::End(ReencryptEnd::Done));
    };
    if work.position == PassPosition::default() {
        begin_pass(&mut work, &writer);
    }
    writer.checkpoint_if_behind(shared)?;
    let aim = Aim::Renew { generation };
    let slice = slice::run(shared, &mut writer, &aim, &work.position, units)?;
    work.moved += slice.moved;
    work.has_found |= slice.has_found;
    let is_over = slice.next.is_none();
    work.position = slice.next.unwrap_or_default();
    if is_over && !work.has_found {
        if work.counts {
            return end(shared, &mut writer).map(|()| Step::End(ReencryptEnd::Done));
        }
        begin_pass(&mut work, &writer);
        if !work.counts {
            return Ok(Step::End(ReencryptEnd::Staged));
        }
    }
    Ok(Step::Moved {
        moved: work.moved,
        used: writer.space.used_units(),
    })
}

/// Drops the previous data key.
fn end(shared: &Shared, writer: &mut Writer) -> Result<()> {
    let mut credentials = shared.credentials().ok_or(Error::NotEncrypted)?;
    credentials.encryption = credentials.encryption.without_previous();
    // The free map may be older. The superblock before this one may still reach blocks under the
    // previous key, and is the first to be replaced.
    slice::checkpoint(shared, writer)?;
    writer.replace_encryption(shared, credentials, |_| ())
}

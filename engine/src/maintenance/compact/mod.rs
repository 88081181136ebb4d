//! Giving space back to the file system: blocks at the end of the file move to free extents below, and the tail is cut off.
//!
//! One pass moves what lies above a bound, in slices; each is one checkpoint under the writer lock, which is free in between. A moved block's old
//! extent is free after the next checkpoint (invariant I1), so a pass ends with checkpoints that move nothing. What readers see does not change, so
//! the version stays and the log gets no record; the state's [`Age`](crate::pages::Age) tells snapshots that need the old extents.

use std::ops::ControlFlow;

use super::compact::slice::{Place, Slice};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::pages::{Draft, cut_whole_tail, is_limit_error};
use crate::state::{Shared, Writer};
use crate::tree::relocate::Aim;

mod slice;

/// Passes after which writers that fill the file again are left alone.
const MAX_PASSES: u32 = 64;
/// A pass covers this part of what has to move, so that a compaction that is cut short has given something back.
const PASSES: u64 = 8;
/// Passes, with lower and lower bounds, for the case that nothing from the end of the file fits below the bound.
const DENSE_PASSES: u64 = 4;
/// A pass is at least this many slices.
const PASS_SLICES: u64 = 8;
/// Slices whose old extents snapshots may hold before the pass gives up.
const HELD_SLICES: u64 = 16;
/// Checkpoints at the end of a pass. Two are needed; snapshots of readers that come and go may take more.
const SETTLE_ROUNDS: u32 = 5;

/// How to [`compact`](Database::compact).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactOptions {
    /// Bytes of blocks that are moved at once, while other writers wait. A block, and the nodes above it, are moved whole. Default 1 MiB.
    pub slice_bytes: u64,
    /// Nothing is done while the file is longer than its used size by no more than this. Default 1 MiB.
    pub threshold_bytes: u64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            slice_bytes: 1 << 20,
            threshold_bytes: 1 << 20,
        }
    }
}

/// How far a compaction went, told between two slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompactProgress {
    /// Bytes of the blocks that were moved so far.
    pub moved_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of it in use: the length that it can come down to at best.
    pub used_bytes: u64,
}

/// Why a compaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactEnd {
    /// The file is as short as the threshold asks for.
    Done,
    /// The caller broke it off.
    Cancelled,
    /// What lies at the end of the file fits into no free extent below: the free space is in pieces that are shorter than the blocks.
    NoRoom,
    /// Open snapshots hold the extents that would become free.
    Snapshots,
}

/// What a compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompactReport {
    /// Why it ended.
    pub end: CompactEnd,
    /// Length of the file before.
    pub file_bytes_before: u64,
    /// Length of the file after.
    pub file_bytes_after: u64,
    /// Bytes of the blocks that were moved.
    pub moved_bytes: u64,
    /// Slices in which something was moved.
    pub slices: u64,
    /// Bytes that only open snapshots keep.
    pub held_bytes: u64,
}

impl Database {
    /// Gives the free space inside the data file back to the file system, in place. Memtables are merged first; the file grows only
    /// where that needs room. Other threads read and write in between; `progress` is called between two slices, with no lock held, and can break
    /// the compaction off.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`] if a block that has to move is damaged, [`Error::StorageFull`] and
    /// [`Error::Io`]. The database stays as usable as after a failed commit, and what was moved before stays moved.
    pub fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        let mut compaction = Compaction::new(&self.shared, options)?;
        let end = compaction.run(progress)?;
        compaction.report(end)
    }
}

struct Compaction<'a> {
    shared: &'a Shared,
    unit_bytes: u64,
    slice_units: u64,
    threshold_units: u64,
    file_bytes_before: u64,
    moved: u64,
    slices: u64,
    /// Units that only snapshots kept after the last checkpoint.
    held: u64,
}

impl<'a> Compaction<'a> {
    fn new(shared: &'a Shared, options: CompactOptions) -> Result<Self> {
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        Ok(Self {
            shared,
            unit_bytes,
            slice_units: (options.slice_bytes / unit_bytes).max(1),
            threshold_units: options.threshold_bytes / unit_bytes,
            file_bytes_before: shared.pager.blocks.file().len()?,
            moved: 0,
            slices: 0,
            held: 0,
        })
    }

    fn report(&self, end: CompactEnd) -> Result<CompactReport> {
        Ok(CompactReport {
            end,
            file_bytes_before: self.file_bytes_before,
            file_bytes_after: self.shared.pager.blocks.file().len()?,
            moved_bytes: self.moved * self.unit_bytes,
            slices: self.slices,
            held_bytes: self.held * self.unit_bytes,
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>) -> Result<CompactEnd> {
        if !self.merge()? && self.goal()?.is_none() {
            return Ok(CompactEnd::Done);
        }
        // What the merge and earlier checkpoints left behind may be all that there is to gain.
        let mut end = self.settle()?;
        let mut step = None;
        let mut dense = 0;
        let mut is_stuck = false;
        for _ in 0..MAX_PASSES {
            let Some(goal) = self.goal()? else {
                return Ok(CompactEnd::Done);
            };
            let bound = if is_stuck {
                // Small blocks from the middle fill small holes further down, which makes larger ones in the middle.
                let bound = goal - goal * dense / DENSE_PASSES;
                dense += 1;
                bound
            } else {
                let free = &self.shared.writable()?.space.free;
                let least = PASS_SLICES * self.slice_units;
                let step = step.get_or_insert_with(|| (free.used_above(goal) / PASSES).max(least));
                free.bound_above(goal, *step)
            };
            let before = self.moved;
            let broken_off = self.pass(
                &Aim {
                    bound,
                    is_dense: is_stuck,
                },
                progress,
            )?;
            if broken_off == Some(CompactEnd::Cancelled) {
                return Ok(CompactEnd::Cancelled);
            }
            let longer = std::mem::replace(&mut end, self.settle()?);
            is_stuck = broken_off.is_none() && self.moved == before && end >= longer;
            let is_over = broken_off == Some(CompactEnd::NoRoom) || (is_stuck && dense == DENSE_PASSES);
            if is_over || self.holds_much() {
                let held = self.held > 0;
                return Ok(match self.goal()? {
                    None => CompactEnd::Done,
                    Some(_) if held => CompactEnd::Snapshots,
                    Some(_) => CompactEnd::NoRoom,
                });
            }
        }
        Ok(CompactEnd::NoRoom)
    }

    fn holds_much(&self) -> bool {
        self.held > HELD_SLICES * self.slice_units
    }

    /// Merges the memtables: what they remove or replace is free only then. The file grows where that lacks room; where it cannot, they stay.
    /// Says whether there was anything to merge.
    fn merge(&self) -> Result<bool> {
        let mut writer = self.shared.writable()?;
        if writer.durable.version == self.shared.newest().version {
            return Ok(false);
        }
        match slice::checkpoint(self.shared, &mut writer) {
            Err(Error::StorageFull { .. }) => Ok(true),
            made => made.map(|()| true),
        }
    }

    /// The unit at which the file should end; `None` if that is near enough.
    fn goal(&self) -> Result<Option<u64>> {
        let writer = self.shared.writable()?;
        let used = writer.space.used_units();
        let reserve_bytes = u64::from(self.shared.config.reserve_bytes);
        let file_bytes = self.shared.pager.blocks.file().len()?.saturating_sub(reserve_bytes);
        let file_units = file_bytes / self.unit_bytes;
        let is_long = file_units.max(writer.space.free.end()) > used + self.threshold_units;
        // Half of the threshold is for the free map and the nodes that every checkpoint writes.
        Ok(is_long.then_some(used + self.threshold_units / 2))
    }

    /// Moves what lies above the bound. Says why if it ends early.
    fn pass(
        &mut self,
        aim: &Aim,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<Option<CompactEnd>> {
        let mut place = Place::default();
        let mut units = self.slice_units;
        loop {
            let slice = match self.slice(aim, &place, units) {
                Ok(slice) => slice,
                Err(Error::StorageFull { .. }) if units > 1 => {
                    units /= 2;
                    continue;
                }
                Err(error) if is_limit_error(&error) => return Ok(Some(CompactEnd::NoRoom)),
                Err(error) => return Err(error),
            };
            units = self.slice_units.min(units * 2);
            self.moved += slice.moved;
            self.slices += u64::from(slice.moved > 0);
            if progress(self.progress()?).is_break() {
                return Ok(Some(CompactEnd::Cancelled));
            }
            match slice.next {
                None => return Ok(None),
                Some(_) if self.holds_much() => return Ok(Some(CompactEnd::Snapshots)),
                Some(next) => place = next,
            }
        }
    }

    fn progress(&self) -> Result<CompactProgress> {
        Ok(CompactProgress {
            moved_bytes: self.moved * self.unit_bytes,
            file_bytes: self.shared.pager.blocks.file().len()?,
            used_bytes: self.shared.lock_writer().space.used_units() * self.unit_bytes,
        })
    }

    /// Moves some blocks, from `place` on, and makes a checkpoint if there were any.
    fn slice(&mut self, aim: &Aim, place: &Place, units: u64) -> Result<Slice> {
        let shared = self.shared;
        let mut writer = shared.writable()?;
        // A record in the log names blocks of values by their place: those stay where they are until a checkpoint has the record.
        if writer.durable.version != shared.newest().version {
            slice::checkpoint(shared, &mut writer)?;
        }
        limit_growth(shared, &mut writer)?;
        let mut draft = Draft::default();
        let result = slice::run(shared, &mut writer, &mut draft, aim, place, units);
        writer.space.free.set_limit(None);
        writer.rewritten_entries.clear();
        if result.is_err() {
            let unpublished = draft.take_unpublished();
            writer.give_back(shared, unpublished);
        }
        self.held = held_units(&writer);
        result
    }

    /// Makes the checkpoints after which old extents are free, and cuts them off; returns where the file ends.
    fn settle(&mut self) -> Result<u64> {
        let mut best = u64::MAX;
        for round in 0..SETTLE_ROUNDS {
            let mut writer = self.shared.writable()?;
            // Where almost nothing is free yet, a free map behind the end is what makes the rest free.
            let kept: u64 = writer.space.kept().map(|extent| extent.units).sum();
            let may_grow = kept > writer.space.free.free_units();
            if !may_grow {
                limit_growth(self.shared, &mut writer)?;
            }
            let made = slice::checkpoint(self.shared, &mut writer);
            writer.space.free.set_limit(None);
            match made {
                Err(error) if is_limit_error(&error) => return Ok(best.min(writer.space.free.end())),
                made => made?,
            }
            // Under the lock: what a transaction has written behind the checkpoint's end would be cut off.
            let reserve_bytes = self.shared.config.reserve_bytes;
            cut_whole_tail(self.shared.pager.blocks.file(), &writer.superblock, reserve_bytes);
            self.held = held_units(&writer);
            let end = writer.superblock.file_units;
            if round > 1 && self.held == 0 && end >= best {
                break;
            }
            best = best.min(end);
        }
        Ok(best)
    }
}

/// Units that would be free but for snapshots.
fn held_units(writer: &Writer) -> u64 {
    let groups = writer.space.quarantine.iter();
    let held = groups.filter(|group| group.generation < writer.superblock.generation);
    held.flat_map(|group| &group.extents).map(|extent| extent.units).sum()
}

/// Keeps the file as long as it is at most, until the limit is taken away.
fn limit_growth(shared: &Shared, writer: &mut Writer) -> Result<()> {
    let file_units = shared.pager.blocks.file().len()? / shared.pager.blocks.unit_bytes() as u64;
    let free = &writer.space.free;
    free.trim_end();
    free.set_limit(Some(file_units.max(free.end())));
    Ok(())
}

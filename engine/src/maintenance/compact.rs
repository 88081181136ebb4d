//! Compaction: moves blocks from the end of the file to free extents below, and truncates the file.
//!
//! One pass moves the blocks above a bound, in [slices](super::slice). Each slice is one checkpoint
//! under the writer lock, which is released between slices. A moved block's old extent is free only
//! after the next checkpoint (invariant I1), so a pass ends with checkpoints that move nothing.

use std::ops::ControlFlow;

use super::slice::{self, Slice};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::pages::{cut_whole_tail, is_limit_error};
use crate::state::{PassPosition, Shared, Writer};
use crate::tree::relocate::Aim;

/// Passes after which the compaction gives up if writers keep refilling the file.
const MAX_PASSES: u32 = 64;
/// Passes over which the blocks to move are spread, so that an interrupted compaction has given
/// back some space.
const PASSES: u64 = 8;
/// Passes with ever lower bounds, in case nothing from the end of the file fits below the bound.
const DENSE_PASSES: u64 = 4;
/// Smallest pass, in slices.
const PASS_SLICES: u64 = 8;
/// Slices whose old extents snapshots may hold before a pass gives up.
const HELD_SLICES: u64 = 16;
/// Limit on checkpoints at the end of a pass. Two are required; short-lived snapshots may require
/// more.
const FREE_ROUNDS: u32 = 5;

/// Options of [`compact`](Database::compact).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactOptions {
    /// Bytes of blocks moved per slice, while other writers wait. A block and the nodes above it
    /// always move together. Default 1 MiB.
    pub slice_bytes: u64,
    /// Unused bytes of the file that are tolerated without compaction. Default 1 MiB.
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

/// Progress of a compaction, reported between slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompactProgress {
    /// Bytes of the blocks moved so far.
    pub moved_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the file in use: the shortest length it can reach.
    pub used_bytes: u64,
}

/// Why a compaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactEnd {
    /// The file is as short as the threshold requires.
    Done,
    /// The caller cancelled it.
    Cancelled,
    /// No free extent below can take the blocks at the end of the file: the free space is too
    /// fragmented, or staged values ([`StagedValue`](crate::StagedValue)) hold the end, as they do
    /// not move.
    NoRoom,
    /// Open snapshots hold the extents that would become free.
    Snapshots,
}

/// Result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompactReport {
    /// Why it ended.
    pub end: CompactEnd,
    /// Length of the file before the compaction.
    pub file_bytes_before: u64,
    /// Length of the file after it.
    pub file_bytes_after: u64,
    /// Bytes of the blocks moved.
    pub moved_bytes: u64,
    /// Slices that moved a block.
    pub slices: u64,
    /// Bytes that only open snapshots keep.
    pub held_bytes: u64,
}

impl Database {
    /// Returns the free space inside the data file to the file system, in position.
    ///
    /// Memtables are merged first; the file grows only if the merge needs space. Other threads read
    /// and write between slices. `progress` is called there without a lock held, and can cancel the
    /// compaction.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`] if a block that has to move is
    /// damaged, [`Error::StorageFull`] and [`Error::Io`]. The database stays as usable as after a
    /// failed commit, and blocks already moved stay moved.
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
    /// Units that only snapshots still reached after the last checkpoint.
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
        // That alone may free enough of the extents that the merge and earlier checkpoints retired.
        let mut end = self.free_moved()?;
        let mut step = None;
        let mut dense = 0;
        let mut is_stuck = false;
        for _ in 0..MAX_PASSES {
            let Some(goal) = self.goal()? else {
                return Ok(CompactEnd::Done);
            };
            let bound = if is_stuck {
                // Moving small blocks from the middle to small holes further down leaves larger
                // holes in the middle.
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
                &Aim::Below {
                    bound,
                    is_dense: is_stuck,
                },
                progress,
            )?;
            if broken_off == Some(CompactEnd::Cancelled) {
                return Ok(CompactEnd::Cancelled);
            }
            let longer = std::mem::replace(&mut end, self.free_moved()?);
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

    /// Merges the memtables, because replaced and removed values are free only then. Lets the file
    /// grow if the merge needs space; if it cannot grow, the memtables stay. Returns whether there
    /// was anything to merge.
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

    /// The unit at which the file should end; `None` if the file is short enough already.
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

    /// Moves the blocks above the bound; returns why if it ends early.
    fn pass(
        &mut self,
        aim: &Aim,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<Option<CompactEnd>> {
        let mut position = PassPosition::default();
        let mut units = self.slice_units;
        loop {
            let slice = match self.slice(aim, &position, units) {
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
                Some(next) => position = next,
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

    /// Moves some blocks, starting at `position`, and makes a checkpoint if any moved.
    fn slice(&mut self, aim: &Aim, position: &PassPosition, units: u64) -> Result<Slice> {
        let shared = self.shared;
        let mut writer = shared.writable()?;
        writer.checkpoint_if_behind(shared)?;
        limit_growth(shared, &mut writer)?;
        let result = slice::run(shared, &mut writer, aim, position, units);
        writer.space.free.set_limit(None);
        self.held = held_units(&writer);
        result
    }

    /// Makes the checkpoints that free the old extents, and truncates the file; returns where it
    /// ends.
    fn free_moved(&mut self) -> Result<u64> {
        let mut best = u64::MAX;
        for round in 0..FREE_ROUNDS {
            let mut writer = self.shared.writable()?;
            // If almost nothing is free yet, a free map past the end lets the other extents become free.
            let unreleased: u64 = writer.space.unreleased().map(|extent| extent.units).sum();
            let may_grow = unreleased > writer.space.free.free_units();
            if !may_grow {
                limit_growth(self.shared, &mut writer)?;
            }
            let made = slice::checkpoint(self.shared, &mut writer);
            writer.space.free.set_limit(None);
            match made {
                Err(error) if is_limit_error(&error) => return Ok(best.min(writer.space.free.end())),
                made => made?,
            }
            // Under the lock, because truncation would remove blocks that a transaction has written past
            // the checkpoint's end.
            let reserve_bytes = self.shared.config.reserve_bytes;
            let end = writer.superblock.file_units;
            let file = self.shared.pager.blocks.file();
            cut_whole_tail(file, end << writer.superblock.unit_shift, reserve_bytes);
            self.held = held_units(&writer);
            if round > 1 && self.held == 0 && end >= best {
                break;
            }
            best = best.min(end);
        }
        Ok(best)
    }
}

/// Units that only snapshots keep from being free.
fn held_units(writer: &Writer) -> u64 {
    let groups = writer.space.quarantine.iter();
    let held = groups.filter(|group| group.generation < writer.superblock.generation);
    held.flat_map(|group| &group.extents).map(|extent| extent.units).sum()
}

/// Keeps the file from growing until the limit is lifted.
fn limit_growth(shared: &Shared, writer: &mut Writer) -> Result<()> {
    let file_units = shared.pager.blocks.file().len()? / shared.pager.blocks.unit_bytes() as u64;
    let free = &writer.space.free;
    free.trim_end();
    free.set_limit(Some(file_units.max(free.end())));
    Ok(())
}

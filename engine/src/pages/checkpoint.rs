//! Checkpoints: a superblock makes the nodes that merges wrote to free extents part of the
//! database.
//!
//! A checkpoint writes the catalog's nodes and the free map, flushes, writes the superblock into
//! the slot of the older one, and flushes again. Until the second flush returns, everything that
//! the previous superblock reaches is untouched (invariant I1).

use std::collections::{BinaryHeap, VecDeque};

use super::{Access, Expected, Pager};
use super::{Extent, FreeSpace, Quarantine, Superblock, free_map};
use crate::block::{self, BlockInfo, BlockRef, Compression, Kind};
use crate::error::{Error, Result};
use crate::log::{GroupFlush, in_doubt};
use crate::node::Child;
use crate::storage::StorageFile;

/// Adjacent blocks are written together, up to this many bytes.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// The file is truncated if at least this many bytes, and an eighth of it, are free at its end.
const CUT_BYTES: u64 = 1 << 20;

/// Writer of a checkpoint's free map.
pub(crate) struct FreeMapWriter<'a> {
    pub pager: &'a Pager,
    pub free: &'a FreeSpace,
    pub generation: u64,
    /// Receives the extent allocated for the free map.
    pub allocated: &'a mut Vec<Extent>,
}

impl FreeMapWriter<'_> {
    /// Writes the free map; returns no reference if both of its lists are empty. The first list
    /// holds what is free once this checkpoint is durable, including the quarantine and `coming`,
    /// which only later versions reach, and what is staged for them. The second list is `leaving`, which the previous checkpoint
    /// still reaches.
    pub(crate) fn write(
        &mut self,
        quarantine: &VecDeque<Quarantine>,
        coming: &[Extent],
        leaving: &[Extent],
    ) -> Result<Option<BlockRef>> {
        let older = quarantine.iter().map(|group| group.extents.len()).sum::<usize>();
        if self.free.unreferenced().len() + older + coming.len() + leaving.len() == 0 {
            return Ok(None);
        }
        let leaving = sorted(leaving.to_vec());
        let encode = |free: &FreeSpace| {
            let groups = quarantine.iter().flat_map(|group| &group.extents);
            let unreached = groups.chain(coming).copied();
            free_map::encode(
                &sorted(free.unreferenced().into_iter().chain(unreached).collect()),
                &leaving,
            )
        };
        // The block's own extent is allocated before the final list is built, so the list stays
        // valid.
        let most = encode(self.free).len() + free_map::MAX_GROWTH;
        let blocks = &self.pager.blocks;
        let units = blocks.units_for(blocks.overhead() + most);
        if units > block::MAX_BLOCK_UNITS {
            return Err(Error::InvalidArgument {
                what: "the free space is in too many pieces for one free map; use a larger unit size".into(),
            });
        }
        let extent = self.free.allocate(units)?;
        self.allocated.push(extent);
        self.free.trim_end();
        let bytes = encode(self.free);
        let info = BlockInfo {
            kind: Kind::FreeMap,
            level: 0,
            owner: 0,
            generation: self.generation,
        };
        let mut block_bytes = Vec::new();
        let mut reference = blocks.encode(info, &[&bytes], Compression::None, &mut block_bytes);
        blocks.place(&mut block_bytes, &mut reference, extent.start);
        block_bytes.resize(units as usize * blocks.unit_bytes(), 0);
        reference.units = units as u16;
        blocks.write_units(extent.start, &block_bytes)?;
        Ok(Some(reference))
    }
}

/// Sorts by address, with a heap: in WebAssembly the standard library's sort is ten times the code.
pub(crate) fn by_address(extents: Vec<Extent>) -> Vec<Extent> {
    BinaryHeap::from(extents).into_sorted_vec()
}

/// Sorts by address and merges adjacent extents.
fn sorted(extents: Vec<Extent>) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in by_address(extents) {
        match merged.last_mut() {
            Some(last) if last.start + last.units == extent.start => last.units += extent.units,
            _ => merged.push(extent),
        }
    }
    merged
}

/// Makes everything written so far durable, then the superblock as the newest one.
pub(crate) fn seal(file: &dyn StorageFile, flush: &GroupFlush, superblock: &Superblock) -> Result<()> {
    // After a failed flush the system may have dropped the written pages, so nothing later can be
    // trusted (I10).
    flush.flush_alone(file)?;
    superblock.write(file).map_err(in_doubt)?;
    flush.flush_alone(file)
}

/// Returns the file's free tail, from byte `end` on, to the file system if it is long. A failure is harmless: the tail
/// is free either way.
pub(crate) fn cut_tail(file: &dyn StorageFile, end: u64, reserve_bytes: u32) {
    cut_tail_from(file, end, reserve_bytes, |len| CUT_BYTES.max(len / 8));
}

/// As [`cut_tail`], however short the tail is.
pub(crate) fn cut_whole_tail(file: &dyn StorageFile, end: u64, reserve_bytes: u32) {
    cut_tail_from(file, end, reserve_bytes, |_| 0);
}

fn cut_tail_from(file: &dyn StorageFile, end: u64, reserve_bytes: u32, least: impl Fn(u64) -> u64) {
    let needed = end + u64::from(reserve_bytes);
    if let Ok(len) = file.len()
        && len > needed
        && len - needed >= least(len)
    {
        // The result does not matter; see above.
        let _ = file.set_len(needed);
    }
}

/// Checks that a root's block can be read and is what its reference states.
pub(crate) fn probe_root(pager: &Pager, root: &Child, owner: u32) -> Result<()> {
    let expected = Expected::root(owner, root.count);
    pager.load(&root.pointer, &expected, Access::Point).map(|_| ())
}

//! Free space of the data file: what can be allocated, and what only waits until nobody can reach it.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::{Extent, FreeExtents, Pager, Superblock, free_map};
use crate::block::{self, Kind};
use crate::error::{Error, Result};

/// When a state was published. Moving blocks publishes a state of the same version again, with the blocks elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Age {
    pub version: u64,
    /// Times that blocks were moved since the database was opened.
    pub moves: u64,
}

/// Extents that a checkpoint made unreachable.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    /// The checkpoint that no longer reaches them. The one before it still does, so they stay until the next is durable.
    pub generation: u64,
    /// Snapshots older than this still reach them.
    pub age: Age,
    pub extents: Vec<Extent>,
}

/// Free space of the data file, as the writer sees it.
#[derive(Debug)]
pub(crate) struct Space {
    pub free: FreeExtents,
    pub quarantine: VecDeque<Quarantine>,
    /// Made unreachable since the last checkpoint, which still reaches them.
    retired: Vec<Extent>,
    /// Starts of the blocks of pages that were written since the last checkpoint: no superblock reaches them.
    ahead: FxHashSet<u64>,
    /// Those of them that the newest version does not reach either.
    retired_ahead: Vec<Extent>,
}

impl Space {
    /// Space of a database that has just been opened: no snapshot reaches back beyond the last checkpoint.
    pub(crate) fn load(pager: &Pager, superblock: &Superblock) -> Result<Self> {
        let mut space = Self {
            free: FreeExtents::new(superblock.file_units),
            quarantine: VecDeque::new(),
            retired: Vec::new(),
            ahead: FxHashSet::default(),
            retired_ahead: Vec::new(),
        };
        if let Some(reference) = &superblock.free_map {
            let bytes = pager.blocks.read(reference, &[Kind::FreeMap], 0)?;
            let first = Superblock::first_data_unit(superblock.unit_shift);
            let (free, extents) = free_map::decode(&bytes, first, superblock.file_units)?;
            for extent in free {
                space.free.free(extent)?;
            }
            if space.free.overlaps(&extents) {
                return Err(Error::corrupt("the free map has an extent in both lists"));
            }
            space.quarantine.push_back(Quarantine {
                generation: superblock.generation,
                age: Age {
                    version: superblock.version,
                    moves: 0,
                },
                extents,
            });
        }
        Ok(space)
    }

    /// Extents that are neither free nor reachable from the newest state.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Extent> + '_ {
        let groups = self.quarantine.iter().flat_map(|group| group.extents.iter());
        groups.chain(self.retired()).copied()
    }

    /// Extents that were made unreachable since the last checkpoint.
    pub(crate) fn retired(&self) -> impl Iterator<Item = &Extent> {
        self.retired.iter().chain(&self.retired_ahead)
    }

    /// Takes note of blocks of pages that were written before the checkpoint that needs them.
    pub(crate) fn written_ahead(&mut self, extents: &[Extent]) {
        self.ahead.extend(extents.iter().map(|extent| extent.start));
    }

    /// Takes note of extents that the version that is about to be published no longer reaches.
    pub(crate) fn retire(&mut self, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            if self.ahead.remove(&extent.start) {
                self.retired_ahead.push(extent);
            } else {
                self.retired.push(extent);
            }
        }
    }

    /// Frees blocks that were written ahead and given up again before any superblock named them: without that, pages that change often would be
    /// written to new places until the next checkpoint. Only while nobody can see another version than the newest.
    pub(crate) fn release_ahead(&mut self, pager: &Pager) {
        for extent in self.retired_ahead.drain(..) {
            pager.remove(block::PageId::disk(extent.start));
            let freed = self.free.free(extent);
            debug_assert!(freed.is_ok(), "an extent that was allocated can be freed");
        }
    }

    /// A checkpoint is durable; what was retired before it is in quarantine now.
    pub(crate) fn checkpointed(&mut self, quarantine: Quarantine) {
        self.retired.clear();
        self.ahead.clear();
        self.retired_ahead.clear();
        self.quarantine.push_back(quarantine);
    }

    /// Frees all extents that wait for the next checkpoint; `false` if there are none. For recovery only, when that checkpoint is known to
    /// have been durable.
    pub(crate) fn release_all(&mut self) -> Result<bool> {
        let groups = std::mem::take(&mut self.quarantine);
        let any = !groups.is_empty();
        for extent in groups.into_iter().flat_map(|group| group.extents) {
            self.free.free(extent)?;
        }
        Ok(any)
    }

    /// Frees the extents that neither superblock nor any snapshot reaches. `oldest` is the oldest living snapshot's age.
    pub(crate) fn release(&mut self, pager: &Pager, durable: u64, oldest: Option<Age>) -> Result<()> {
        while let Some(group) = self.quarantine.front() {
            let unreachable = group.generation < durable && oldest.is_none_or(|oldest| oldest >= group.age);
            if !unreachable {
                break;
            }
            let group = self.quarantine.pop_front().expect("it has a front");
            for extent in group.extents {
                pager.remove(block::PageId::disk(extent.start));
                self.free.free(extent)?;
            }
        }
        Ok(())
    }
}

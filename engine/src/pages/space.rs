//! Free space of the data file: what can be allocated, and what only waits until nobody can reach it.

use std::collections::VecDeque;

use super::{Extent, FreeSpace, Pager, Superblock, free_map};
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
    pub free: FreeSpace,
    pub quarantine: VecDeque<Quarantine>,
    /// Made unreachable since the last checkpoint, which still reaches them, or since the version that the next one writes was frozen.
    retired: Vec<Extent>,
    /// While a frozen version waits for its checkpoint.
    frozen: Option<FrozenSpace>,
    /// Taken by the transaction that is running.
    pub in_flight: Vec<Extent>,
}

/// What tells the space of a frozen version from that of the newest one.
#[derive(Debug, Default)]
struct FrozenSpace {
    /// Made unreachable between the last checkpoint and the frozen version.
    retired: Vec<Extent>,
    /// Taken by later commits: the frozen version does not reach them.
    taken: Vec<Extent>,
}

impl Space {
    /// Space of a database that has just been opened: no snapshot reaches back beyond the last checkpoint.
    pub(crate) fn load(pager: &Pager, superblock: &Superblock) -> Result<Self> {
        let mut space = Self {
            free: FreeSpace::new(superblock.file_units),
            quarantine: VecDeque::new(),
            retired: Vec::new(),
            frozen: None,
            in_flight: Vec::new(),
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
        let before = self.frozen.iter().flat_map(|frozen| &frozen.retired);
        before.chain(&self.retired)
    }

    /// What the version of the next checkpoint no longer reaches, and what it does not reach yet. What a partial one reaches in place of the frozen
    /// version stays.
    pub(crate) fn around_checkpoint(&self, is_partial: bool) -> (Vec<Extent>, Vec<Extent>) {
        let (left, taken) = match &self.frozen {
            Some(frozen) if is_partial => ([].as_slice(), frozen.taken.as_slice()),
            Some(frozen) => (frozen.retired.as_slice(), frozen.taken.as_slice()),
            None => (self.retired.as_slice(), [].as_slice()),
        };
        (left.to_vec(), taken.iter().chain(&self.in_flight).copied().collect())
    }

    /// Units that are neither free nor kept.
    pub(crate) fn used_units(&self) -> u64 {
        let kept: u64 = self.kept().map(|extent| extent.units).sum();
        self.free.end() - self.free.free_units() - kept
    }

    /// The next checkpoint is of the newest version, which others follow before it is durable.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(FrozenSpace {
            retired: std::mem::take(&mut self.retired),
            taken: Vec::new(),
        });
    }

    /// No version is frozen any more.
    pub(crate) fn thaw(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.retired.extend(frozen.retired);
        }
    }

    /// Takes note of extents that the version that is about to be published reaches first, and of those it no longer reaches.
    pub(crate) fn commit(&mut self, taken: impl Iterator<Item = Extent>, retired: impl Iterator<Item = Extent>) {
        if let Some(frozen) = &mut self.frozen {
            frozen.taken.extend(taken);
        }
        self.retired.extend(retired);
    }

    /// A checkpoint is durable; what was retired before it is in quarantine now.
    pub(crate) fn checkpointed(&mut self, quarantine: Quarantine, is_partial: bool) {
        if !is_partial && self.frozen.take().is_none() {
            self.retired.clear();
        }
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

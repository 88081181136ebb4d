//! Space of the data file: free extents, and extents in quarantine until nothing can reach them.

use std::collections::VecDeque;

use super::{Extent, FreeSpace, Pager, Superblock, free_map};
use crate::block::{self, Kind};
use crate::error::{Error, Result};

/// When a state was published. Moving blocks republishes the same version with its blocks
/// elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Age {
    pub version: u64,
    /// How often blocks were moved since the database was opened.
    pub moves: u64,
}

/// Extents that a checkpoint made unreachable.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    /// The checkpoint that no longer reaches the extents. The previous one still does, so they stay
    /// until the next one is durable.
    pub generation: u64,
    /// Snapshots older than this still reach the extents.
    pub age: Age,
    pub extents: Vec<Extent>,
}

/// Space of the data file as seen by the writer.
#[derive(Debug)]
pub(crate) struct Space {
    pub free: FreeSpace,
    pub quarantine: VecDeque<Quarantine>,
    /// Extents made unreachable since the last checkpoint, which still reaches them. While a
    /// version is frozen, only those made unreachable since the freeze.
    retired: Vec<Extent>,
    /// Units that the next checkpoint will retire, for the commits since then.
    waiting: Waiting,
    /// Set while a frozen version waits for its checkpoint.
    frozen: Option<FrozenSpace>,
    /// Extents allocated by the running transaction, during a checkpoint that it makes.
    pub in_flight: Vec<Extent>,
}

/// Units that commits made, or will make, unreachable.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    retired: u64,
    /// Units allocated for values. Whatever these replaced in a tree becomes unreachable only when
    /// it is merged, and is about as long.
    taken: u64,
    /// Units of values in trees that were removed.
    removed: u64,
}

/// Difference between the space of a frozen version and that of the newest one.
#[derive(Debug, Default)]
struct FrozenSpace {
    /// Extents made unreachable between the last checkpoint and the frozen version.
    retired: Vec<Extent>,
    /// Extents allocated by later commits; the frozen version does not reach them.
    taken: Vec<Extent>,
    waiting: Waiting,
}

impl Space {
    /// Loads the space of a newly opened database: no snapshot is older than the last checkpoint.
    pub(crate) fn load(pager: &Pager, superblock: &Superblock) -> Result<Self> {
        let mut space = Self {
            free: FreeSpace::new(superblock.file_units),
            quarantine: VecDeque::new(),
            retired: Vec::new(),
            waiting: Waiting::default(),
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
    pub(crate) fn unreleased(&self) -> impl Iterator<Item = Extent> + '_ {
        let groups = self.quarantine.iter().flat_map(|group| group.extents.iter());
        groups.chain(self.retired()).copied()
    }

    /// Extents made unreachable since the last checkpoint.
    pub(crate) fn retired(&self) -> impl Iterator<Item = &Extent> {
        let before = self.frozen.iter().flat_map(|frozen| &frozen.retired);
        before.chain(&self.retired)
    }

    /// Extents that the next checkpoint's version no longer reaches, and those not reached yet. A
    /// partial checkpoint may still reach what was made unreachable before the freeze, so all of
    /// that stays.
    pub(crate) fn around_checkpoint(&self, is_partial: bool) -> (Vec<Extent>, Vec<Extent>) {
        let (left, taken) = match &self.frozen {
            Some(frozen) if is_partial => ([].as_slice(), frozen.taken.as_slice()),
            Some(frozen) => (frozen.retired.as_slice(), frozen.taken.as_slice()),
            None => (self.retired.as_slice(), [].as_slice()),
        };
        (left.to_vec(), taken.iter().chain(&self.in_flight).copied().collect())
    }

    /// Number of units that are neither free nor in quarantine.
    pub(crate) fn used_units(&self) -> u64 {
        let unreleased: u64 = self.unreleased().map(|extent| extent.units).sum();
        self.free.end() - self.free.free_units() - unreleased
    }

    /// Units that a checkpoint of the newest version would make unreachable, at least or about. While a
    /// version is frozen, without those that its own checkpoint will.
    pub(crate) fn waiting_units(&self) -> u64 {
        self.waiting.retired.max(self.waiting.taken + self.waiting.removed)
    }

    /// Notes that values of so many units in trees were removed.
    pub(crate) fn remove_values(&mut self, units: u64) {
        self.waiting.removed += units;
    }

    /// Units that only the checkpoint before the newest one, with this generation, still reaches.
    pub(crate) fn reclaimable_units(&self, newest: u64, oldest: Option<Age>) -> u64 {
        let groups = self.quarantine.iter();
        let waiting =
            groups.filter(|group| group.generation == newest && oldest.is_none_or(|oldest| oldest >= group.age));
        waiting
            .flat_map(|group| &group.extents)
            .map(|extent| extent.units)
            .sum()
    }

    /// Freezes the newest version for the next checkpoint. Later versions may follow before it is
    /// durable.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(FrozenSpace {
            retired: std::mem::take(&mut self.retired),
            taken: Vec::new(),
            waiting: std::mem::take(&mut self.waiting),
        });
    }

    /// Ends the freeze, if there is one.
    pub(crate) fn thaw(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.retired.extend(frozen.retired);
            self.waiting.retired += frozen.waiting.retired;
            self.waiting.taken += frozen.waiting.taken;
            self.waiting.removed += frozen.waiting.removed;
        }
    }

    /// Records extents that the version about to be published is first to reach, or no longer
    /// reaches.
    pub(crate) fn commit(&mut self, taken: impl Iterator<Item = Extent>, retired: impl Iterator<Item = Extent>) {
        for extent in taken {
            self.waiting.taken += extent.units;
            if let Some(frozen) = &mut self.frozen {
                frozen.taken.push(extent);
            }
        }
        for extent in retired {
            self.waiting.retired += extent.units;
            self.retired.push(extent);
        }
    }

    /// Called when a checkpoint is durable; `quarantine` holds the extents that were retired before it.
    pub(crate) fn checkpointed(&mut self, quarantine: Quarantine) {
        if self.frozen.take().is_none() {
            self.retired.clear();
            self.waiting = Waiting::default();
        }
        self.quarantine.push_back(quarantine);
    }

    /// Called when a partial checkpoint is durable. `logged` holds values that it no longer
    /// reaches, but that its log names: they stay until the whole version is checkpointed.
    pub(crate) fn partly_checkpointed(&mut self, quarantine: Quarantine, logged: Vec<Extent>) {
        self.quarantine.push_back(quarantine);
        self.frozen.get_or_insert_default().retired.extend(logged);
    }

    /// Frees the extents that only the checkpoint before the loaded one reaches. For recovery, if that has no
    /// superblock any more.
    pub(crate) fn release_all(&mut self) -> Result<()> {
        for extent in std::mem::take(&mut self.quarantine)
            .into_iter()
            .flat_map(|group| group.extents)
        {
            self.free.free(extent)?;
        }
        Ok(())
    }

    /// Frees the extents that neither superblock nor any snapshot reaches. `oldest` is the age of
    /// the oldest live snapshot.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, units: u64) -> Extent {
        Extent { start, units }
    }

    fn space() -> Space {
        Space {
            free: FreeSpace::new(1000),
            quarantine: VecDeque::new(),
            retired: Vec::new(),
            waiting: Waiting::default(),
            frozen: None,
            in_flight: Vec::new(),
        }
    }

    fn checkpoint(generation: u64) -> Quarantine {
        Quarantine {
            generation,
            age: Age::default(),
            extents: Vec::new(),
        }
    }

    /// Replaced blocks wait, and so does what commits allocate and remove, of which the next checkpoint
    /// frees about as much. Giving a merge up frees nothing; a checkpoint does, but not what later
    /// commits left.
    #[test]
    fn units_wait_until_the_checkpoint_that_frees_them() {
        let retire = |space: &mut Space, units| space.commit([].into_iter(), [extent(10, units)].into_iter());
        let take = |space: &mut Space, units| space.commit([extent(500, units)].into_iter(), [].into_iter());
        let remove = |space: &mut Space, units| space.remove_values(units);
        for wait in [retire, take, remove] as [fn(&mut Space, u64); 3] {
            let mut space = space();
            wait(&mut space, 7);
            assert_eq!(space.waiting_units(), 7);
            space.freeze();
            assert_eq!(space.waiting_units(), 0, "the merge will free them");
            wait(&mut space, 2);
            space.thaw();
            assert_eq!(space.waiting_units(), 9, "the merge was given up");
            space.freeze();
            wait(&mut space, 3);
            space.checkpointed(checkpoint(2));
            assert_eq!(space.waiting_units(), 3, "those of later commits");
            space.checkpointed(checkpoint(3));
            assert_eq!(space.waiting_units(), 0);
        }
    }

    /// Values take about as much as those that they replace, and removed ones add to that.
    #[test]
    fn values_that_are_taken_and_removed_wait_together() {
        let mut space = space();
        space.commit([extent(500, 5)].into_iter(), [extent(10, 6)].into_iter());
        assert_eq!(space.waiting_units(), 6);
        space.remove_values(4);
        assert_eq!(space.waiting_units(), 9);
    }
}

//! Free extents of the data file, in units: first fit by address, so that the tail of the file
//! becomes free and can be truncated.

use std::collections::BTreeMap;

use crate::block::BlockRef;
use crate::error::{Error, Result};

/// A run of allocation units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Extent {
    pub start: u64,
    pub units: u64,
}

impl Extent {
    /// The units of a block.
    pub(crate) fn of(reference: &BlockRef) -> Self {
        Self {
            start: reference.unit,
            units: u64::from(reference.units),
        }
    }
}

/// Free extents by address and by size class.
#[derive(Clone, Default, Debug)]
pub(crate) struct FreeExtents {
    by_start: BTreeMap<u64, u64>,
    /// The extents of each class, by address. Up to 16 units a class is one length, above that a
    /// power of two.
    classes: Vec<BTreeMap<u64, u64>>,
    units: u64,
    /// Units in extents shorter than [`SHORT_UNITS`].
    short: u64,
    /// First unit after the file; all units from here on are free without being listed.
    end: u64,
    /// Maximum value of `end`.
    limit: Option<u64>,
    /// No extent is allocated below this unit.
    floor: u64,
    /// Extents written for values that no record refers to yet. Nothing durable refers to them
    /// either, so for a checkpoint they are free.
    staged: Vec<Extent>,
    /// The database was closed, so nothing is staged any more.
    refuses_staging: bool,
}

/// Context of the error of [`FreeExtents::allocate`] when the file must not grow.
const LIMIT_REACHED: &str = "the file must not grow, and no free extent in it is long enough";

/// Whether an error comes from the limit on the file's growth rather than from the storage.
pub(crate) fn is_limit_error(error: &Error) -> bool {
    matches!(error, Error::StorageFull { context } if context == LIMIT_REACHED)
}

const EXACT_CLASSES: u64 = 16;
/// Not every block fits into shorter extents.
const SHORT_UNITS: u64 = 4;

fn class_of(units: u64) -> usize {
    if units <= EXACT_CLASSES {
        units as usize - 1
    } else {
        // 17..=31 -> 16, 32..=63 -> 17, ...
        EXACT_CLASSES as usize + (units.ilog2() as usize - 4)
    }
}

impl FreeExtents {
    /// Creates a list without free extents: everything below `end` is in use.
    pub(crate) fn new(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn free_units(&self) -> u64 {
        self.units
    }

    /// Free units, with short extents at half weight: blocks of a few units may not fit into them.
    pub(crate) fn usable_units(&self) -> u64 {
        self.units - self.short / 2
    }

    /// Lowest unit that may be allocated.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Allocates only from this unit on. 0 ends that.
    pub(crate) fn set_floor(&mut self, floor: u64) {
        self.floor = floor;
    }

    /// Sets or removes the limit on the growth of the file.
    pub(crate) fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        self.by_start.iter().map(|(&start, &units)| Extent { start, units })
    }

    /// Takes `units` from the lowest free extent that is long enough, otherwise extends the file.
    ///
    /// # Errors
    /// [`Error::StorageFull`] if the limit keeps the file from growing.
    pub(crate) fn allocate(&mut self, units: u64) -> Result<Extent> {
        match self.find(units) {
            Some(start) => Ok(self.take_front(start, units)),
            None => self.extend(units),
        }
    }

    /// As [`allocate`](Self::allocate), but only if the extent ends at or below `bound`.
    pub(crate) fn allocate_below(&mut self, units: u64, bound: u64) -> Option<Extent> {
        let start = self.find(units).filter(|start| start + units <= bound)?;
        Some(self.take_front(start, units))
    }

    fn take_front(&mut self, start: u64, units: u64) -> Extent {
        let len = self.take(start);
        if len > units {
            self.insert(start + units, len - units);
        }
        Extent { start, units }
    }

    /// Notes that an allocated extent is for a value that no record refers to yet; `false` once the
    /// database was closed.
    pub(crate) fn stage(&mut self, extent: Extent) -> bool {
        if !self.refuses_staging {
            self.staged.push(extent);
        }
        !self.refuses_staging
    }

    /// Hands a staged extent over to a transaction; `false` if it is not staged any more.
    pub(crate) fn unstage(&mut self, extent: Extent) -> bool {
        let found = self.staged.iter().position(|staged| *staged == extent);
        found.map(|index| self.staged.swap_remove(index)).is_some()
    }

    /// Frees a staged extent, unless that has happened.
    pub(crate) fn free_staged(&mut self, extent: Extent) {
        if self.unstage(extent) {
            let freed = self.free(extent);
            debug_assert!(freed.is_ok(), "a staged extent can be freed");
        }
    }

    /// Frees all staged extents, and stages no more.
    pub(crate) fn end_staging(&mut self) {
        self.refuses_staging = true;
        while let Some(&extent) = self.staged.last() {
            self.free_staged(extent);
        }
    }

    /// Staged extents.
    pub(crate) fn staged(&self) -> &[Extent] {
        &self.staged
    }

    /// Whether any of these extents, which are sorted, contains a free unit.
    pub(crate) fn overlaps(&self, sorted: &[Extent]) -> bool {
        let mut free = self.iter().peekable();
        sorted.iter().any(|extent| {
            while free.next_if(|free| free.start + free.units <= extent.start).is_some() {}
            free.peek().is_some_and(|free| free.start < extent.start + extent.units)
        })
    }

    /// First unit of the free tail, or the end if there is none.
    pub(crate) fn used_end(&self) -> u64 {
        let last = self.by_start.last_key_value();
        last.map_or(
            self.end,
            |(&start, &units)| if start + units == self.end { start } else { self.end },
        )
    }

    /// Number of units from `bound` on that are not free.
    pub(crate) fn used_above(&self, bound: u64) -> u64 {
        let tail = self
            .iter()
            .rev()
            .take_while(|extent| extent.start + extent.units > bound);
        let free: u64 = tail
            .map(|extent| extent.start + extent.units - extent.start.max(bound))
            .sum();
        self.end.saturating_sub(bound) - free
    }

    /// Lowest unit, not below `least`, with at most `used` units in use from there on.
    pub(crate) fn bound_above(&self, least: u64, mut used: u64) -> u64 {
        let mut at = self.end;
        for extent in self.iter().rev() {
            let between = at - (extent.start + extent.units);
            if between > used {
                break;
            }
            used -= between;
            at = extent.start;
            if at <= least {
                return least;
            }
        }
        at.saturating_sub(used).max(least)
    }

    fn find(&self, units: u64) -> Option<u64> {
        let class = class_of(units);
        let mut best = None;
        for extents in self.classes.iter().skip(class) {
            // Only in a class of several lengths may the first extent be too short.
            let mut fitting = extents.range(self.floor..).filter(|(_, len)| **len >= units);
            if let Some((&start, _)) = fitting.next()
                && best.is_none_or(|best| start < best)
            {
                best = Some(start);
            }
        }
        best
    }

    /// Grows the file, using up a free extent at its end.
    fn extend(&mut self, units: u64) -> Result<Extent> {
        let tail = self.by_start.last_key_value().map(|(&start, &len)| (start, len));
        let tail = tail.filter(|(start, len)| start + len == self.end);
        let from = tail.map_or(self.end, |(start, _)| start);
        let start = from.max(self.floor);
        if self.limit.is_some_and(|limit| start + units > limit) {
            return Err(Error::StorageFull {
                context: LIMIT_REACHED.into(),
            });
        }
        if tail.is_some() {
            self.take(from);
        }
        if from < start {
            self.insert(from, start - from);
        }
        self.end = start + units;
        Ok(Extent { start, units })
    }

    /// Frees an extent. Overlap with a free extent or the file's end means wrong bookkeeping (I8).
    pub(crate) fn free(&mut self, extent: Extent) -> Result<()> {
        let Extent { mut start, mut units } = extent;
        let wrong = || Error::corrupt_at(extent.start, "an extent is freed twice or lies outside the file");
        if units == 0 || start.checked_add(units).is_none_or(|end| end > self.end) {
            return Err(wrong());
        }
        let next = self.by_start.range(start..).next().map(|(&at, &len)| (at, len));
        let previous = self.by_start.range(..start).next_back().map(|(&at, &len)| (at, len));
        if next.is_some_and(|(at, _)| at < start + units) || previous.is_some_and(|(at, len)| at + len > start) {
            return Err(wrong());
        }
        if let Some((at, len)) = next
            && at == start + units
        {
            self.take(at);
            units += len;
        }
        if let Some((at, len)) = previous
            && at + len == start
        {
            self.take(at);
            start = at;
            units += len;
        }
        self.insert(start, units);
        Ok(())
    }

    /// Takes exactly this extent; `false`, with nothing taken, if it was not free.
    pub(crate) fn reserve(&mut self, extent: Extent) -> bool {
        let Some(end) = extent.start.checked_add(extent.units).filter(|_| extent.units > 0) else {
            return false;
        };
        if extent.start >= self.end {
            let gap = Extent {
                start: self.end,
                units: extent.start - self.end,
            };
            self.end = end;
            return gap.units == 0 || self.free(gap).is_ok();
        }
        let Some((&start, &len)) = self.by_start.range(..=extent.start).next_back() else {
            return false;
        };
        // What begins below the end and is not covered by an extent that reaches it is in use.
        let reaches_end = start + len == self.end;
        if start + len < end && !reaches_end {
            return false;
        }
        self.take(start);
        if extent.start > start {
            self.insert(start, extent.start - start);
        }
        if start + len > end {
            self.insert(end, start + len - end);
        }
        self.end = self.end.max(end);
        true
    }

    /// Moves the end of the file down over a free tail.
    pub(crate) fn trim_end(&mut self) {
        if let Some((&start, &len)) = self.by_start.last_key_value()
            && start + len == self.end
        {
            self.take(start);
            self.end = start;
        }
    }

    fn insert(&mut self, start: u64, units: u64) {
        let class = class_of(units);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, BTreeMap::new);
        }
        self.classes[class].insert(start, units);
        self.by_start.insert(start, units);
        self.units += units;
        if units < SHORT_UNITS {
            self.short += units;
        }
    }

    fn take(&mut self, start: u64) -> u64 {
        let units = self.by_start.remove(&start).expect("the extent was found in this map");
        self.classes[class_of(units)].remove(&start);
        self.units -= units;
        if units < SHORT_UNITS {
            self.short -= units;
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file that must not grow is used up to its last unit, and no further.
    #[test]
    fn the_limit_is_exact() {
        let mut free = FreeExtents::new(2);
        free.set_limit(Some(10));
        assert_eq!(free.allocate(8).unwrap(), Extent { start: 2, units: 8 });
        free.free(Extent { start: 7, units: 3 }).unwrap();
        let error = free.allocate(4).unwrap_err();
        assert!(is_limit_error(&error), "{error}");
        assert_eq!((free.end(), free.free_units()), (10, 3));
        assert_eq!(free.allocate(3).unwrap(), Extent { start: 7, units: 3 });
    }

    /// Whatever part of an extent is in use, none of it is taken.
    #[test]
    fn what_is_in_use_is_not_reserved() {
        let mut free = FreeExtents::new(12);
        free.free(Extent { start: 2, units: 2 }).unwrap();
        free.free(Extent { start: 8, units: 4 }).unwrap();
        for (start, units) in [(0, 2), (1, 3), (3, 2), (4, 1), (5, 3), (6, 8), (2, 10), (7, 1), (7, 20)] {
            assert!(!free.reserve(Extent { start, units }), "{units} units from {start}");
        }
        assert_eq!((free.end(), free.free_units()), (12, 6));
        assert!(
            free.reserve(Extent { start: 10, units: 6 }),
            "the end of the file is free"
        );
        assert_eq!((free.end(), free.free_units()), (16, 4));
    }

    proptest! {
        /// Compares with a plain list of extents: no overlap, no leak, adjacent free extents are
        /// merged.
        #[test]
        fn allocator_matches_a_bitmap(ops in prop::collection::vec((any::<bool>(), 1u64..70, any::<prop::sample::Index>()), 1..200)) {
            let mut free = FreeExtents::new(2);
            let mut live: Vec<Extent> = Vec::new();
            for (allocate, units, pick) in ops {
                if allocate || live.is_empty() {
                    let extent = free.allocate(units).unwrap();
                    prop_assert_eq!(extent.units, units);
                    prop_assert!(extent.start >= 2 && extent.start + units <= free.end());
                    prop_assert!(live.iter().all(|other| other.start + other.units <= extent.start || extent.start + units <= other.start));
                    live.push(extent);
                } else {
                    let extent = live.swap_remove(pick.index(live.len()));
                    free.free(extent).unwrap();
                    prop_assert!(free.free(extent).is_err());
                }
                let used: u64 = live.iter().map(|extent| extent.units).sum();
                prop_assert_eq!(used + free.free_units() + 2, free.end());
                let bound = free.end().div_ceil(2).max(2);
                let above: u64 = live.iter().map(|extent| (extent.start + extent.units).saturating_sub(extent.start.max(bound))).sum();
                prop_assert_eq!(free.used_above(bound), above);
                let found = free.bound_above(bound, units);
                prop_assert!(found >= bound && free.used_above(found) <= units);
                prop_assert!(found == bound || free.used_above(found - 1) > units);
                live.sort_by_key(|extent| extent.start);
                prop_assert!(!free.overlaps(&live));
                let last = live.last().map_or(2, |extent| extent.start + extent.units);
                prop_assert_eq!(free.used_end(), last);
                let list: Vec<_> = free.iter().collect();
                for extent in &list {
                    let last_unit = Extent { start: extent.start + extent.units - 1, units: 1 };
                    let with: Vec<_> = live.iter().filter(|other| other.start < extent.start).copied().chain([last_unit]).collect();
                    prop_assert!(free.overlaps(&with));
                    let up_to_it = Extent { start: 0, units: extent.start + 1 };
                    prop_assert!(free.overlaps(&[up_to_it]));
                }
                prop_assert!(list.windows(2).all(|pair| pair[0].start + pair[0].units < pair[1].start));
            }
        }

        /// What is staged is neither free nor lost, whatever is allocated and freed beside it.
        #[test]
        fn staged_extents_are_apart(ops in prop::collection::vec((0_u8..5, 1u64..70, any::<prop::sample::Index>()), 1..200)) {
            let mut free = FreeExtents::new(2);
            let (mut live, mut staged): (Vec<Extent>, Vec<Extent>) = (Vec::new(), Vec::new());
            for (operation, units, pick) in ops {
                match operation {
                    0 => live.push(free.allocate(units).unwrap()),
                    1 => {
                        let extent = free.allocate(units).unwrap();
                        prop_assert!(free.stage(extent));
                        staged.push(extent);
                    }
                    2 if !live.is_empty() => free.free(live.swap_remove(pick.index(live.len()))).unwrap(),
                    3 if !staged.is_empty() => {
                        let extent = staged.swap_remove(pick.index(staged.len()));
                        free.free_staged(extent);
                        prop_assert!(!free.unstage(extent));
                    }
                    4 if !staged.is_empty() => {
                        let extent = staged.swap_remove(pick.index(staged.len()));
                        prop_assert!(free.unstage(extent));
                        live.push(extent);
                    }
                    _ => {}
                }
                let mut found = free.staged().to_vec();
                found.sort_unstable();
                staged.sort_unstable();
                prop_assert_eq!(&found, &staged);
                let mut all: Vec<_> = live.iter().chain(&staged).copied().chain(free.iter()).collect();
                all.sort_unstable();
                let end = all.iter().try_fold(2, |end, extent| (extent.start == end).then_some(end + extent.units));
                prop_assert_eq!(end, Some(free.end()));
            }
            free.end_staging();
            prop_assert_eq!(free.staged().len(), 0);
            let refused = !free.stage(Extent { start: 2, units: 1 });
            prop_assert!(refused);
            let used: u64 = live.iter().map(|extent| extent.units).sum();
            prop_assert_eq!(used + free.free_units() + 2, free.end());
        }

        /// Nothing is allocated below the floor, and what lies below stays as it was.
        #[test]
        fn a_floor_keeps_what_lies_below(sizes in prop::collection::vec(1u64..40, 1..60), holes in prop::collection::vec(any::<bool>(), 60), above in 0u64..100) {
            let mut free = FreeExtents::new(2);
            let live: Vec<Extent> = sizes.iter().map(|units| free.allocate(*units).unwrap()).collect();
            for (extent, _) in live.iter().zip(&holes).filter(|(_, hole)| **hole) {
                free.free(*extent).unwrap();
            }
            let before = free.clone();
            let floor = free.end() - above.min(free.end()) + above / 2;
            free.set_floor(floor);
            let mut taken: Vec<Extent> = sizes.iter().map(|units| free.allocate(*units).unwrap()).collect();
            taken.sort_unstable();
            prop_assert!(taken.iter().all(|extent| extent.start >= floor));
            prop_assert!(taken.windows(2).all(|pair| pair[0].start + pair[0].units <= pair[1].start));
            prop_assert!(!free.overlaps(&taken));
            let below = |free: &FreeExtents| free.iter().filter(|extent| extent.start < floor).map(|extent| extent.units.min(floor - extent.start)).sum::<u64>();
            prop_assert_eq!(below(&free), below(&before) + floor.saturating_sub(before.end()));
            for extent in taken {
                free.free(extent).unwrap();
            }
            prop_assert_eq!(free.used_above(2), before.used_above(2));
        }

        /// An identical allocator can reserve the same extents that the first one allocated.
        #[test]
        fn reservation_repeats_allocation(sizes in prop::collection::vec(1u64..40, 1..60), holes in prop::collection::vec(any::<bool>(), 60)) {
            let mut first = FreeExtents::new(2);
            let live: Vec<Extent> = sizes.iter().map(|units| first.allocate(*units).unwrap()).collect();
            for (extent, _) in live.iter().zip(&holes).filter(|(_, hole)| **hole) {
                first.free(*extent).unwrap();
            }
            let mut second = first.clone();
            for units in sizes {
                let extent = first.allocate(units).unwrap();
                prop_assert!(second.reserve(extent));
                prop_assert!(!second.reserve(extent));
            }
            prop_assert_eq!(first.free_units(), second.free_units());
            prop_assert_eq!(first.end(), second.end());
        }
    }
}

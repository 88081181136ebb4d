//! Free extents of a file, shared by the thread that commits and the one that merges concurrently.

use std::sync::{Arc, PoisonError};

use super::{Extent, FreeExtents};
use crate::error::Result;
use crate::locks::{Mutex, MutexGuard};

/// A shared [`FreeExtents`] with the same methods. Its lock is acquired last.
#[derive(Clone, Debug)]
pub(crate) struct FreeSpace(Arc<Mutex<FreeExtents>>);

impl FreeSpace {
    pub(crate) fn new(end: u64) -> Self {
        Self(Arc::new(Mutex::new(FreeExtents::new(end))))
    }

    /// Ignores poisoning: no change of the extents stops halfway.
    fn lock(&self) -> MutexGuard<'_, FreeExtents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self) -> u64 {
        self.lock().end()
    }

    pub(crate) fn free_units(&self) -> u64 {
        self.lock().free_units()
    }

    pub(crate) fn usable_units(&self) -> u64 {
        self.lock().usable_units()
    }

    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.lock().set_limit(limit);
    }

    pub(crate) fn floor(&self) -> u64 {
        self.lock().floor()
    }

    pub(crate) fn set_floor(&self, floor: u64) {
        self.lock().set_floor(floor);
    }

    /// All free extents, by address.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        self.lock().iter().collect()
    }

    /// Extents of values that no record refers to yet.
    pub(crate) fn staged(&self) -> Vec<Extent> {
        self.lock().staged().to_vec()
    }

    /// All extents that nothing durable refers to: the free and the staged ones. One that moves from
    /// the staged to the free ones meanwhile is among them once.
    pub(crate) fn unreferenced(&self) -> Vec<Extent> {
        let free = self.lock();
        let mut all: Vec<Extent> = free.iter().collect();
        all.extend_from_slice(free.staged());
        all
    }

    pub(crate) fn stage(&self, extent: Extent) -> bool {
        self.lock().stage(extent)
    }

    pub(crate) fn unstage(&self, extent: Extent) -> bool {
        self.lock().unstage(extent)
    }

    pub(crate) fn free_staged(&self, extent: Extent) {
        self.lock().free_staged(extent);
    }

    pub(crate) fn end_staging(&self) {
        self.lock().end_staging();
    }

    pub(crate) fn allocate(&self, units: u64) -> Result<Extent> {
        self.lock().allocate(units)
    }

    pub(crate) fn allocate_below(&self, units: u64, bound: u64) -> Option<Extent> {
        self.lock().allocate_below(units, bound)
    }

    pub(crate) fn overlaps(&self, sorted: &[Extent]) -> bool {
        self.lock().overlaps(sorted)
    }

    pub(crate) fn used_end(&self) -> u64 {
        self.lock().used_end()
    }

    pub(crate) fn used_above(&self, bound: u64) -> u64 {
        self.lock().used_above(bound)
    }

    pub(crate) fn bound_above(&self, least: u64, used: u64) -> u64 {
        self.lock().bound_above(least, used)
    }

    pub(crate) fn free(&self, extent: Extent) -> Result<()> {
        self.lock().free(extent)
    }

    pub(crate) fn reserve(&self, extent: Extent) -> bool {
        self.lock().reserve(extent)
    }

    pub(crate) fn trim_end(&self) {
        self.lock().trim_end();
    }
}

//! A map by ids that the client assigns, mostly in ascending order.

use mangrove_engine::{Error, Result};

/// Limit per client on open things that take little memory.
pub(crate) const MAX_OPEN: usize = 1 << 16;
/// Limit per client on open things that take a quarter of a megabyte each.
pub(crate) const MAX_OPEN_LARGE: usize = 1 << 8;

/// A map of few entries, for which a tree or hash table would take several times the code.
#[derive(Clone)]
pub(crate) struct Table<T> {
    /// Sorted by id.
    entries: Vec<(u64, Box<T>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Table<T> {
    fn find(&self, id: u64) -> std::result::Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.0)
    }

    /// Fails if `limit` is reached; `what` completes "there may be no more than 256 …".
    pub(crate) fn check_room(&self, limit: usize, what: &'static str) -> Result<()> {
        if self.entries.len() < limit {
            return Ok(());
        }
        Err(Error::too_many_open(what, limit))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        let index = self.find(id).ok()?;
        Some(&self.entries[index].1)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let index = self.find(id).ok()?;
        Some(&mut self.entries[index].1)
    }

    /// Inserts or replaces.
    pub(crate) fn insert(&mut self, id: u64, thing: T) {
        let entry = (id, Box::new(thing));
        match self.find(id) {
            Ok(index) => self.entries[index] = entry,
            Err(index) => self.entries.insert(index, entry),
        }
    }

    /// Iterates in the order of the ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(id, thing)| (*id, &**thing))
    }

    /// Iterates in the order of the ids.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.entries.iter_mut().map(|(id, thing)| (*id, &mut **thing))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, thing)| &mut **thing)
    }

    pub(crate) fn take(&mut self, id: u64) -> Option<T> {
        let index = self.find(id).ok()?;
        Some(*self.entries.remove(index).1)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Ok(index) = self.find(id) {
            self.entries.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_last_under_a_number() {
        let mut table = Table::default();
        for id in [5, 1, u64::MAX, 0, 3, 5] {
            table.insert(id, id.wrapping_mul(2));
        }
        for id in [0, 1, 3, 5, u64::MAX] {
            assert_eq!(table.get_mut(id).copied(), Some(id.wrapping_mul(2)));
        }
        table.insert(3, 7);
        assert_eq!(table.get_mut(3).copied(), Some(7));
        table.remove(3);
        table.remove(4);
        assert_eq!(table.get_mut(3), None);
        assert_eq!(table.entries.len(), 4);
    }
}

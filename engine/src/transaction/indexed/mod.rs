//! Indexes under the exclusive write transaction: their [declaration](declaring), and writes to
//! indexed collections.
//!
//! In browsers this is part of a module that only databases with indexes load. The build finds the
//! functions through which the other parts of the engine reach it by name, so they are never inlined.
//!
//! Every change of a record changes its entries in the indexes in the same commit. Which entries a
//! record has is stored with it, so removing them calls no function of the program.

use std::ops::Bound;

use super::write::stored_expiry;
use super::{ExclusiveTransaction, OptimisticTransaction};
use crate::error::Result;
use crate::range::{Direction, KeyRange};
use crate::state::index::{EntryRange, entry_key_len, index_keys_of, index_of};
use crate::state::{Index, IndexKeys};
use entries::{Before, not_unique};

mod declaring;
mod entries;

pub use declaring::SliceRecord;
pub(crate) use entries::{Entries, StoredKeys};
pub(super) use entries::{Indexed, lacking};

/// Index keys removed between two searches, when a range of records is removed.
const REMOVED_AT_ONCE: usize = 1000;

/// Transactions that write to indexed collections.
pub trait WriteIndexed {
    /// Stores a record that expires at `expires_at` milliseconds since 1970, or never, with its
    /// keys in the collection's indexes; returns whether the key existed.
    ///
    /// # Errors
    /// See [`ExclusiveTransaction::set_indexed`].
    fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool>;
}

impl WriteIndexed for ExclusiveTransaction<'_> {
    fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool> {
        Self::set_indexed(self, collection, key, value, expires_at, keys)
    }
}

impl WriteIndexed for OptimisticTransaction {
    fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool> {
        Self::set_indexed(self, collection, key, value, expires_at, keys)
    }
}

impl ExclusiveTransaction<'_> {
    /// Indexes of a collection, those that are being built included, ascending by id.
    #[must_use]
    pub fn indexes(&self, collection: &str) -> &[Index] {
        self.state
            .collections
            .get(collection)
            .map_or(&[], |entry| entry.indexes())
    }

    /// Stores a record that expires at `expires_at` milliseconds since 1970, or never, with its
    /// keys in the collection's indexes; returns whether the key existed.
    ///
    /// # Errors
    /// As [`set`](Self::set). [`Error::IndexMismatch`](crate::Error::IndexMismatch) if `keys` does not state the keys of every
    /// index, [`Error::NotUnique`](crate::Error::NotUnique) if another record has one of them in a unique index, and
    /// [`Error::KeyTooLarge`](crate::Error::KeyTooLarge) if an index key, with its zeros doubled, and the key are too long
    /// together; none of these changes the transaction.
    pub fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool> {
        let expires = stored_expiry(expires_at);
        self.shared.check_lengths(key, value.len(), expires != 0)?;
        let Some(entry) = self.state.collections.get(collection) else {
            Indexed { id: 0, indexes: &[] }.check_stated(collection, keys)?;
            return self.replace(collection, key, value, expires);
        };
        let (id, indexes) = (entry.id, entry.indexes.clone());
        let indexed = Indexed {
            id,
            indexes: indexes.as_deref().unwrap_or_default(),
        };
        indexed.check(self.shared, collection, keys, key, expires)?;
        for index in indexed.indexes.iter().filter(|index| index.definition.unique) {
            for index_key in keys.get(index.id) {
                self.check_unique(collection, index, index_key, Some(key))?;
            }
        }
        let found = self.find(collection, key)?;
        let is_visible = found.as_ref().is_some_and(|found| !found.record().is_expired(self.now));
        let below = self.is_below(collection, key, found.is_some());
        // A new record keeps nothing apart either.
        let before = match found {
            Some(found) => {
                let record = found.record();
                let apart = self.keys_apart(id, key)?;
                indexed.before(key, record.index_keys, &apart, record.expires)?
            }
            None => Before::default(),
        };
        self.together(|transaction| {
            Indexed::replace_entries(transaction, key, &before, keys, expires)?;
            transaction.store_with_keys((collection, id), key, value, expires, keys, below)?;
            Ok(is_visible)
        })
    }

    /// Fails if records other than `own` have a key in a unique index, or, without `own`, if more
    /// than one has it.
    pub(super) fn check_unique(
        &self,
        collection: &str,
        index: &Index,
        index_key: &[u8],
        own: Option<&[u8]>,
    ) -> Result<()> {
        let Some(entry) = self.state.collections.get(&index_of(index.id)) else {
            return Ok(());
        };
        let range = EntryRange::only(index_key);
        let range = range.borrow();
        let mut cursor = entry.cursor(&range, Direction::Forward);
        let mut first: Option<Vec<u8>> = own.map(<[u8]>::to_vec);
        let prefix_bytes = entry_key_len(index_key, &[]);
        while cursor.advance(&entry.records(&self.shared.pager))? {
            if cursor.record().is_some_and(|record| record.is_expired(self.now)) {
                continue;
            }
            let key = &cursor.key()[prefix_bytes..];
            match &first {
                Some(first) if *first == key => {}
                Some(first) if own.is_some() => return Err(not_unique(collection, index, index_key, key, first)),
                Some(first) => return Err(not_unique(collection, index, index_key, first, key)),
                None => first = Some(key.to_vec()),
            }
        }
        Ok(())
    }

    /// Fails if a collection has indexes: a write to it must state the record's keys in them.
    pub(super) fn check_unindexed(&self, collection: &str) -> Result<()> {
        let index = self.indexes(collection).first();
        index.map_or(Ok(()), |index| Err(lacking(collection, index)))
    }

    /// As [`delete`](Self::delete), for a collection with indexes.
    // Lazy root.
    #[inline(never)]
    pub(super) fn delete_indexed(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        self.together(|transaction| {
            transaction.unindex(collection, key)?;
            transaction.delete_record(collection, key)
        })
    }

    /// As [`clear`](Self::clear), for a collection with indexes.
    // Lazy root.
    #[inline(never)]
    pub(super) fn clear_indexed(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        self.together(|transaction| {
            transaction.unindex_range(collection, &range)?;
            transaction.clear_records(collection, range)
        })
    }

    /// Removes a record's entries from the indexes.
    fn unindex(&mut self, collection: &str, key: &[u8]) -> Result<()> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(());
        };
        let (id, Some(indexes)) = (entry.id, entry.indexes.clone()) else {
            return Ok(());
        };
        let indexed = Indexed { id, indexes: &indexes };
        indexed.remove_entries(self, collection, key)?;
        self.set_apart(id, key, &[], 0)
    }

    /// As [`unindex`](Self::unindex), for all records of a range.
    fn unindex_range(&mut self, collection: &str, range: &KeyRange<'_>) -> Result<()> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(());
        };
        let (id, Some(indexes)) = (entry.id, entry.indexes.clone()) else {
            return Ok(());
        };
        let keys_name = index_keys_of(id);
        if range.is_all() {
            for index in &*indexes {
                self.clear(&index_of(index.id), *range)?;
            }
            return self.clear(&keys_name, *range).map(drop);
        }
        let mut lower = range.lower.map(<[u8]>::to_vec);
        loop {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            if let Some(entry) = self.state.collections.get(collection) {
                let rest = KeyRange {
                    lower: lower.as_ref().map(Vec::as_slice),
                    upper: range.upper,
                };
                let mut cursor = entry.cursor(&rest, Direction::Forward);
                while keys.len() < REMOVED_AT_ONCE && cursor.advance(&entry.records(&self.shared.pager))? {
                    keys.push(cursor.key().to_vec());
                }
            }
            for key in &keys {
                self.unindex(collection, key)?;
            }
            match keys.pop() {
                Some(last) if keys.len() + 1 == REMOVED_AT_ONCE => lower = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }
}

/// Damages indexes, for tests.
#[cfg(feature = "testing")]
impl ExclusiveTransaction<'_> {
    /// Id of a collection, its first index, and the key of its first record with index keys.
    #[allow(clippy::type_complexity, reason = "only tests call it")]
    pub(crate) fn first_indexed(&self, collection: &str) -> Result<Option<(u32, Index, Vec<u8>)>> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(None);
        };
        let Some(index) = entry.indexes().first() else {
            return Ok(None);
        };
        let mut cursor = entry.cursor(&KeyRange::all(), Direction::Forward);
        while cursor.advance(&entry.records(&self.shared.pager))? {
            let has_own = cursor.record().is_some_and(|record| !record.index_keys.is_empty());
            if has_own || !self.keys_apart(entry.id, cursor.key())?.is_empty() {
                return Ok(Some((entry.id, index.clone(), cursor.key().to_vec())));
            }
        }
        Ok(None)
    }

    /// Takes a record's index keys away and leaves its entries in the indexes.
    pub(crate) fn lose_keys(&mut self, collection: &str, id: u32, key: &[u8]) -> Result<()> {
        let value = self.get(collection, key)?.unwrap_or_default();
        self.set_apart(id, key, &[], 0)?;
        self.store(collection, key, &value, 0, &[], None)
    }

    /// Stores index keys apart, whatever the record has.
    pub(crate) fn keep_apart(&mut self, id: u32, key: &[u8], keys: &IndexKeys) -> Result<()> {
        self.set_apart(id, key, &keys.encode(), 0)
    }
}

//! Operations on single records, common to all kinds of transactions.

use super::write::stored_expiry;
use crate::error::Result;
use crate::state::Entry;

/// The change that [`ReadWrite::update`] makes to a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// Leave the record as it is, or absent.
    Keep,
    /// Remove it.
    Delete,
    /// Store this value and keep the expiry of the previous one.
    Set(Vec<u8>),
    /// Store this value, which expires at this many milliseconds since 1970, or never.
    SetUntil(Vec<u8>, Option<u64>),
}

/// Reads and writes of a transaction. Each takes O(log n).
///
/// # Errors
/// Those of [`ExclusiveTransaction::set`](crate::ExclusiveTransaction::set) for writes; storage errors and
/// corruption for reads.
pub trait ReadWrite {
    /// Returns a record with version and expiry, as this transaction sees it.
    ///
    /// # Errors
    /// Storage errors and corruption.
    fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>>;

    /// Stores a record that expires at `expires_at` milliseconds since 1970, or never; returns
    /// whether the key existed. An expired record is invisible at once, and
    /// [`Database::purge_expired`](crate::Database::purge_expired) reclaims its space.
    ///
    /// # Errors
    /// See [`ExclusiveTransaction::set`](crate::ExclusiveTransaction::set). The maximum key length is 8
    /// bytes less if the record expires.
    fn set_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool>;

    /// Removes a record; returns whether it existed.
    ///
    /// # Errors
    /// Storage errors and corruption.
    fn remove(&mut self, collection: &str, key: &[u8]) -> Result<bool>;

    /// Stores a record if the key does not exist; returns the value that the key then has.
    ///
    /// # Errors
    /// See [`set_until`](Self::set_until).
    fn get_or_insert(&mut self, collection: &str, key: &[u8], value: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>> {
        if let Some(entry) = self.entry(collection, key)? {
            return Ok(entry.value);
        }
        let value = value();
        self.set_until(collection, key, &value, None)?;
        Ok(value)
    }

    /// Stores a record if the existing one was written by the commit `version`, or, with `None`, if
    /// there is none; returns whether it did.
    ///
    /// # Errors
    /// See [`set_until`](Self::set_until).
    fn compare_and_set(&mut self, collection: &str, key: &[u8], version: Option<u64>, value: &[u8]) -> Result<bool> {
        let found = self.entry(collection, key)?.map(|entry| entry.version);
        if found == version {
            self.set_until(collection, key, value, None)?;
        }
        Ok(found == version)
    }

    /// Changes a record by a function of its current state; returns the value that the key then
    /// has.
    ///
    /// # Errors
    /// See [`set_until`](Self::set_until).
    fn update(
        &mut self,
        collection: &str,
        key: &[u8],
        change: impl FnOnce(Option<&Entry>) -> Update,
    ) -> Result<Option<Vec<u8>>> {
        let before = self.entry(collection, key)?;
        let (value, expires_at) = match change(before.as_ref()) {
            Update::Keep => return Ok(before.map(|entry| entry.value)),
            Update::Delete => return self.remove(collection, key).map(|_| None),
            Update::Set(value) => (value, before.and_then(|entry| entry.expires_at)),
            Update::SetUntil(value, expires_at) => (value, expires_at),
        };
        self.set_until(collection, key, &value, expires_at)?;
        Ok(Some(value))
    }

    /// Removes a record and returns its value.
    ///
    /// # Errors
    /// Storage errors and corruption.
    fn take(&mut self, collection: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let before = self.entry(collection, key)?.map(|entry| entry.value);
        if before.is_some() {
            self.remove(collection, key)?;
        }
        Ok(before)
    }
}

impl ReadWrite for super::ExclusiveTransaction<'_> {
    fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        Self::entry(self, collection, key)
    }

    fn set_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool> {
        self.replace(collection, key, value, stored_expiry(expires_at))
    }

    fn remove(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        self.delete(collection, key)
    }
}

//! The entries that a record has in the indexes, and how a change of the record changes them.

use crate::error::{Error, NotUnique, Result};
use crate::state::expiry::HINT_BYTES;
use crate::state::index::{entry_key, entry_key_len, index_of};
use crate::state::{Index, IndexKeys, Shared};
use crate::transaction::WriteTransaction;

/// Index keys of a record as they are stored.
pub(crate) struct StoredKeys {
    /// In the record's cell.
    pub own: Vec<u8>,
    /// Apart from it.
    pub apart: Vec<u8>,
    /// The record's expiry.
    pub expires: u64,
}

/// Where records, and the entries of indexes, are stored.
pub(crate) trait Entries {
    /// Index keys of a record of the collection with this name and id; `None` if there is no record.
    /// A record that has expired and was not purged is one.
    fn stored_keys(&self, collection: &str, id: u32, key: &[u8]) -> Result<Option<StoredKeys>>;
    /// Stores an entry of an index.
    fn put_entry(&mut self, index: &str, key: &[u8], expires: u64) -> Result<()>;
    /// Removes an entry of an index.
    fn remove_entry(&mut self, index: &str, key: &[u8]) -> Result<()>;
}

/// The index keys that a record has before a change.
#[derive(Default)]
pub(in crate::transaction) struct Before {
    pub(super) keys: IndexKeys,
    expires: u64,
}

/// An indexed collection.
#[derive(Clone, Copy)]
pub(in crate::transaction) struct Indexed<'a> {
    pub id: u32,
    pub indexes: &'a [Index],
}

impl Indexed<'_> {
    /// Decodes stored index keys. Those of indexes that no longer exist are left out.
    pub(super) fn before(&self, key: &[u8], own: &[u8], apart: &[u8], expires: u64) -> Result<Before> {
        let decode = |bytes: &[u8]| {
            let malformed = || Error::corrupt("the index keys of a record are malformed").covering(key, Some(key));
            IndexKeys::decode(bytes).ok_or_else(malformed)
        };
        let mut keys = decode(own)?;
        if !apart.is_empty() {
            keys.merge(decode(apart)?);
        }
        keys.retain(|id| self.indexes.iter().any(|index| index.id == id));
        Ok(Before { keys, expires })
    }

    /// Index keys of a record as stored; none if there is no record.
    pub(in crate::transaction) fn keys_of(
        &self,
        entries: &impl Entries,
        collection: &str,
        key: &[u8],
    ) -> Result<Before> {
        match entries.stored_keys(collection, self.id, key)? {
            Some(StoredKeys { own, apart, expires }) => self.before(key, &own, &apart, expires),
            None => Ok(Before::default()),
        }
    }

    /// Gives a record these entries in the indexes, instead of those that it had.
    pub(in crate::transaction) fn replace_entries(
        entries: &mut impl Entries,
        key: &[u8],
        before: &Before,
        keys: &IndexKeys,
        expires: u64,
    ) -> Result<()> {
        for (id, list) in before.keys.lists() {
            let now = keys.get(id);
            for index_key in list.iter().filter(|index_key| !now.contains(index_key)) {
                entries.remove_entry(&index_of(id), &entry_key(index_key, key))?;
            }
        }
        for (id, list) in keys.lists() {
            let kept = if expires == before.expires {
                before.keys.get(id)
            } else {
                &[]
            };
            for index_key in list.iter().filter(|index_key| !kept.contains(index_key)) {
                entries.put_entry(&index_of(id), &entry_key(index_key, key), expires)?;
            }
        }
        Ok(())
    }

    /// Removes the entries of a record from the indexes.
    pub(in crate::transaction) fn remove_entries(
        &self,
        entries: &mut impl Entries,
        collection: &str,
        key: &[u8],
    ) -> Result<()> {
        let before = self.keys_of(entries, collection, key)?;
        Self::replace_entries(entries, key, &before, &IndexKeys::new(), 0)
    }

    /// Checks that a write states the keys of every index and of no other.
    pub(super) fn check_stated(&self, collection: &str, keys: &IndexKeys) -> Result<()> {
        for index in self.indexes {
            if !keys.states(index.id) {
                return Err(lacking(collection, index));
            }
        }
        if keys.lists().count() > self.indexes.len() {
            return Err(Error::index_mismatch(
                collection,
                "",
                "the write has keys of an index that does not exist any more; declare the indexes again",
            ));
        }
        Ok(())
    }

    /// Checks that a record's keys fit into the indexes, and so do its hints there if it expires.
    pub(super) fn check_lengths(shared: &Shared, keys: &IndexKeys, key: &[u8], expires: u64) -> Result<()> {
        let hint_bytes = if expires == 0 { 0 } else { HINT_BYTES };
        let lists = keys.lists().flat_map(|(_, list)| list);
        let longest = lists.map(|index_key| entry_key_len(index_key, key)).max();
        shared.check_key_len(longest.unwrap_or(0) + hint_bytes)
    }

    /// Checks the index keys of a write before anything changes.
    pub(in crate::transaction) fn check(
        &self,
        shared: &Shared,
        collection: &str,
        keys: &IndexKeys,
        key: &[u8],
        expires: u64,
    ) -> Result<()> {
        self.check_stated(collection, keys)?;
        Self::check_lengths(shared, keys, key, expires)
    }
}

// Lazy root.
#[inline(never)]
pub(in crate::transaction) fn lacking(collection: &str, index: &Index) -> Error {
    Error::index_mismatch(
        collection,
        &index.definition.name,
        "the write does not state the record's keys in it; declare the index as it is stored, or drop it",
    )
}

/// The error of a second record with the same key in a unique index.
pub(in crate::transaction) fn not_unique(
    collection: &str,
    index: &Index,
    index_key: &[u8],
    stored: &[u8],
    other: &[u8],
) -> Error {
    Error::NotUnique(Box::new(NotUnique {
        collection: collection.into(),
        index: index.definition.name.as_str().into(),
        index_key: index_key.into(),
        keys: [stored.into(), other.into()],
    }))
}

impl Entries for WriteTransaction<'_> {
    fn stored_keys(&self, collection: &str, id: u32, key: &[u8]) -> Result<Option<StoredKeys>> {
        let Some(found) = self.find(collection, key)? else {
            return Ok(None);
        };
        let record = found.record();
        Ok(Some(StoredKeys {
            own: record.index_keys.to_vec(),
            apart: self.keys_apart(id, key)?,
            expires: record.expires,
        }))
    }

    fn put_entry(&mut self, index: &str, key: &[u8], expires: u64) -> Result<()> {
        self.create_unchecked(index)?;
        self.store(index, key, &[], expires, &[], None)
    }

    fn remove_entry(&mut self, index: &str, key: &[u8]) -> Result<()> {
        self.discard_record(index, key)
    }
}

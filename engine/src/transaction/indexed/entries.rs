//! The entries that a record has in the indexes, and how a change of the record changes them.
//!
//! Index keys that do not fit into a record's leaf cell are stored apart from it. Only here is it known which those
//! are: a build may have added some since an optimistic transaction began.

use crate::block::REF_BYTES;
use crate::error::{Error, NotUnique, Result};
use crate::range::{Direction, KeyRange};
use crate::state::expiry::HINT_BYTES;
use crate::state::index::{entry_key, entry_key_len, index_keys_of, index_of};
use crate::state::{Index, IndexKeys, Shared};
use crate::transaction::ExclusiveTransaction;
use crate::transaction::optimistic::{Overlay, index_keys, record};
use crate::transaction::write::stored_expiry;
use crate::tree::value;

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

impl Entries for ExclusiveTransaction<'_> {
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

// Index keys that are stored apart.
impl ExclusiveTransaction<'_> {
    /// Name of the collection with the index keys that records of collection `id` keep apart, if it
    /// has any.
    fn apart(&self, id: u32) -> Option<String> {
        let name = index_keys_of(id);
        let entry = self.state.collections.get(&name)?;
        (entry.root.is_some() || !entry.layers.is_empty()).then_some(name)
    }

    /// Index keys that a record keeps apart; empty if there are none.
    pub(super) fn keys_apart(&self, id: u32, key: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(name) = self.apart(id)
            && let Some(found) = self.find(&name, key)?
        {
            let id = self.state.collections.get(&name).map_or(0, |entry| entry.id);
            value::read(&self.shared.pager.blocks, id, &found.record(), &mut bytes)
                .map_err(|error: Error| error.in_collection(&name))?;
        }
        Ok(bytes)
    }

    /// Replaces the index keys that a record keeps apart.
    pub(super) fn set_apart(&mut self, id: u32, key: &[u8], keys: &[u8], expires: u64) -> Result<()> {
        if !keys.is_empty() {
            let name = index_keys_of(id);
            self.create_unchecked(&name)?;
            return self.store(&name, key, keys, expires, &[], None);
        }
        match self.apart(id) {
            Some(name) if self.find(&name, key)?.is_some() => self.discard_record(&name, key),
            _ => Ok(()),
        }
    }

    /// Removes from the indexes what a record keeps apart and will not have any more.
    fn remove_entries_apart(&mut self, id: u32, key: &[u8], keys: &IndexKeys) -> Result<()> {
        let bytes = self.keys_apart(id, key)?;
        for (index, list) in IndexKeys::decode(&bytes).unwrap_or_default().lists() {
            for index_key in list.iter().filter(|index_key| !keys.get(index).contains(index_key)) {
                self.remove_entry(&index_of(index), &entry_key(index_key, key))?;
            }
        }
        Ok(())
    }

    /// Stores a record with its index keys, in its cell or apart. `below` is as for
    /// [`store`](Self::store).
    pub(super) fn store_with_keys(
        &mut self,
        (collection, id): (&str, u32),
        key: &[u8],
        value: &[u8],
        expires: u64,
        keys: &IndexKeys,
        below: Option<bool>,
    ) -> Result<()> {
        let bytes = keys.encode();
        let limits = &self.shared.config.limits;
        let stored_len = if limits.is_inline(key.len(), value.len()) {
            value.len()
        } else {
            REF_BYTES
        };
        let (own, apart): (&[u8], &[u8]) = if limits.fits_index_keys(key.len(), bytes.len(), stored_len) {
            (&bytes, &[])
        } else {
            (&[], &bytes)
        };
        self.set_apart(id, key, apart, expires)?;
        self.store(collection, key, value, expires, own, below)
    }

    /// Makes the changes of an optimistic transaction to a collection with indexes. Those of the
    /// entries in the indexes are made elsewhere, except for those of what records keep apart.
    // Lazy root.
    #[inline(never)]
    pub(in crate::transaction) fn apply_indexed(&mut self, collection: &str, overlay: &Overlay) -> Result<()> {
        let Some(id) = self.state.collections.get(collection).map(|entry| entry.id) else {
            return Ok(());
        };
        if overlay.emptied {
            self.clear_records(&index_keys_of(id), KeyRange::all())?;
        }
        for range in &overlay.cleared {
            for key in self.keys_in_apart(id, &range.borrow())? {
                // What the transaction has written since is applied below, with its final keys.
                if overlay.writes.get(&key).is_none() {
                    self.remove_entries_apart(id, &key, &IndexKeys::new())?;
                    self.set_apart(id, &key, &[], 0)?;
                }
            }
        }
        overlay.clear_in(self, collection)?;
        for written in overlay.writes.entries() {
            let key = written.key;
            let Some((value, expires_at)) = record(written) else {
                self.remove_entries_apart(id, key, &IndexKeys::new())?;
                self.set_apart(id, key, &[], 0)?;
                self.delete_record(collection, key)?;
                continue;
            };
            let keys = IndexKeys::decode(index_keys(written)).unwrap_or_default();
            self.remove_entries_apart(id, key, &keys)?;
            self.store_with_keys((collection, id), key, value, stored_expiry(expires_at), &keys, None)?;
        }
        Ok(())
    }

    /// Keys in a range of records that keep index keys apart.
    fn keys_in_apart(&self, id: u32, range: &KeyRange<'_>) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        if let Some(entry) = self.state.collections.get(&index_keys_of(id)) {
            let mut cursor = entry.cursor(range, Direction::Forward);
            while cursor.advance(&entry.records(&self.shared.pager))? {
                keys.push(cursor.key().to_vec());
            }
        }
        Ok(keys)
    }
}

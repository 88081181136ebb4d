//! Index keys that records keep apart from their leaf cells, where they do not fit.
//!
//! Only here is it known which those are: a build may have added some since an optimistic
//! transaction began.

use super::Entries;
use crate::block::REF_BYTES;
use crate::error::{Error, Result};
use crate::range::{Direction, KeyRange};
use crate::state::IndexKeys;
use crate::state::index::{entry_key, index_keys_of, index_of};
use crate::transaction::WriteTransaction;
use crate::transaction::optimistic::{Overlay, index_keys, record};
use crate::transaction::write::stored_expiry;
use crate::tree::value;

impl WriteTransaction<'_> {
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

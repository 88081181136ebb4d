//! Indexes under the exclusive write transaction: their declaration, and writes to indexed
//! collections.
//!
//! In browsers this is part of a module that only databases with indexes load. The build finds the
//! functions through which the rest of the engine reaches it by name, so they are never inlined.
//!
//! Every change of a record changes its entries in the indexes in the same commit. Which entries a
//! record has is stored with it, so removing them calls no function of the program.

use std::ops::Bound;

use super::optimistic::{Overlay, index_keys, record};
use super::write::stored_expiry;
use super::{Transaction, WriteTransaction};
use crate::block::REF_BYTES;
use crate::error::{Error, Message, NotUnique, Result};
use crate::log::Operation;
use crate::range::{Direction, KeyRange};
use crate::state::expiry::HINT_BYTES;
use crate::state::index::{
    EntryRange, MAX_INDEX_NAME_BYTES, encode_indexes, entry_key, entry_key_len, index_keys_of, index_of,
};
use crate::state::{Index, IndexDefinition, IndexKeys, IndexProgress, Shared};
use crate::tree::value;

/// Index keys removed between two searches, when a range of records is removed.
const REMOVED_AT_ONCE: usize = 1000;

/// Transactions that write to indexed collections.
pub trait WriteIndexed {
    /// Stores a record that expires at `expires_at` milliseconds since 1970, or never, with its
    /// keys in the collection's indexes; returns whether the key existed.
    ///
    /// # Errors
    /// See [`WriteTransaction::set_indexed`].
    fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool>;
}

impl WriteIndexed for WriteTransaction<'_> {
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

impl WriteIndexed for Transaction {
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

/// A record that [`WriteTransaction::index_slice`] adds to an index.
#[derive(Clone, Debug)]
pub struct SliceRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Its version as read.
    pub version: u64,
    /// Its keys in the index.
    pub index_keys: Vec<Vec<u8>>,
}

/// Index keys of a record as they are stored.
pub(crate) struct StoredKeys {
    /// In the record's cell.
    pub own: Vec<u8>,
    /// Apart from it.
    pub apart: Vec<u8>,
    /// The record's expiry.
    pub expires: u64,
}

/// Where records, and the entries of indexes, are kept.
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
pub(super) struct Before {
    keys: IndexKeys,
    expires: u64,
}

/// An indexed collection.
#[derive(Clone, Copy)]
pub(super) struct Indexed<'a> {
    pub id: u32,
    pub indexes: &'a [Index],
}

impl Indexed<'_> {
    /// Decodes stored index keys. Those of indexes that no longer exist are left out.
    fn before(&self, key: &[u8], own: &[u8], apart: &[u8], expires: u64) -> Result<Before> {
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
    pub(super) fn keys_of(&self, entries: &impl Entries, collection: &str, key: &[u8]) -> Result<Before> {
        match entries.stored_keys(collection, self.id, key)? {
            Some(StoredKeys { own, apart, expires }) => self.before(key, &own, &apart, expires),
            None => Ok(Before::default()),
        }
    }

    /// Gives a record these entries in the indexes, instead of those that it had.
    pub(super) fn replace_entries(
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
    pub(super) fn remove_entries(&self, entries: &mut impl Entries, collection: &str, key: &[u8]) -> Result<()> {
        let before = self.keys_of(entries, collection, key)?;
        Self::replace_entries(entries, key, &before, &IndexKeys::new(), 0)
    }

    /// Checks that a write states the keys of every index and of no other.
    fn check_stated(&self, collection: &str, keys: &IndexKeys) -> Result<()> {
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
    fn check_lengths(shared: &Shared, keys: &IndexKeys, key: &[u8], expires: u64) -> Result<()> {
        let hint_bytes = if expires == 0 { 0 } else { HINT_BYTES };
        let lists = keys.lists().flat_map(|(_, list)| list);
        let longest = lists.map(|index_key| entry_key_len(index_key, key)).max();
        shared.check_key_len(longest.unwrap_or(0) + hint_bytes)
    }

    /// Checks the index keys of a write before anything changes.
    pub(super) fn check(
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

#[inline(never)]
pub(super) fn lacking(collection: &str, index: &Index) -> Error {
    Error::index_mismatch(
        collection,
        &index.definition.name,
        "the write does not state the record's keys in it; declare the index as it is stored, or drop it",
    )
}

/// The error of a second record with the same key in a unique index.
pub(super) fn not_unique(collection: &str, index: &Index, index_key: &[u8], stored: &[u8], other: &[u8]) -> Error {
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

/// Index keys that records keep apart from their leaf cells.
///
/// Only here is it known which those are: a build may have added some since an optimistic
/// transaction began.
impl WriteTransaction<'_> {
    /// Name of the collection with the index keys that records of collection `id` keep apart, if it
    /// has any.
    fn apart(&self, id: u32) -> Option<String> {
        let name = index_keys_of(id);
        let entry = self.state.collections.get(&name)?;
        (entry.root.is_some() || !entry.layers.is_empty()).then_some(name)
    }

    /// Index keys that a record keeps apart; empty if there are none.
    fn keys_apart(&self, id: u32, key: &[u8]) -> Result<Vec<u8>> {
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
    fn set_apart(&mut self, id: u32, key: &[u8], keys: &[u8], expires: u64) -> Result<()> {
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
    fn store_with_keys(
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
        let (own, apart): (&[u8], &[u8]) = if limits.has_room_for_index_keys(key.len(), bytes.len(), stored_len) {
            (&bytes, &[])
        } else {
            (&[], &bytes)
        };
        self.set_apart(id, key, apart, expires)?;
        self.store(collection, key, value, expires, own, below)
    }

    /// Makes the changes of an optimistic transaction to a collection with indexes. Those of the
    /// entries in the indexes are made elsewhere, except for those of what records keep apart.
    #[inline(never)]
    pub(super) fn apply_indexed(&mut self, collection: &str, overlay: &Overlay) -> Result<()> {
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
            while cursor.advance(&self.shared.pager)? {
                keys.push(cursor.key().to_vec());
            }
        }
        Ok(keys)
    }
}

impl WriteTransaction<'_> {
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
    /// As [`set`](Self::set). [`Error::IndexMismatch`] if `keys` does not state the keys of every
    /// index, [`Error::NotUnique`] if another record has one of them in a unique index, and
    /// [`Error::KeyTooLarge`] if an index key, with its zeros doubled, and the key are too long
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
        self.check_lengths(key, value.len(), expires)?;
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
        while cursor.advance(&self.shared.pager)? {
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
    #[inline(never)]
    pub(super) fn delete_indexed(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        self.together(|transaction| {
            transaction.unindex(collection, key)?;
            transaction.delete_record(collection, key)
        })
    }

    /// As [`clear`](Self::clear), for a collection with indexes.
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
                while keys.len() < REMOVED_AT_ONCE && cursor.advance(&self.shared.pager)? {
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

    /// Declares indexes of a collection, which is created if necessary. Those that exist in the
    /// declared version stay, newer versions replace older ones. Returns all indexes of the
    /// collection, undeclared ones included, ascending by id.
    ///
    /// A new index of a collection with records is not complete:
    /// [`index_slice`](Self::index_slice) builds it. From this commit on every write states its
    /// keys.
    ///
    /// # Errors
    /// [`Error::IndexMismatch`] if an index is stored in a newer version, or is unique in one and
    /// not in the other declaration of the same version; [`Error::InvalidArgument`] for bad names.
    pub fn declare_indexes(&mut self, collection: &str, declared: &[IndexDefinition]) -> Result<Vec<Index>> {
        for (at, definition) in declared.iter().enumerate() {
            if definition.name.len() > MAX_INDEX_NAME_BYTES {
                return Err(Error::InvalidArgument {
                    what: Message::default()
                        .text("an index's name has at most ")
                        .number(MAX_INDEX_NAME_BYTES as u64)
                        .text(" bytes")
                        .end()
                        .into(),
                });
            }
            if declared[..at].iter().any(|other| other.name == definition.name) {
                return Err(Error::InvalidArgument {
                    what: ["the index ", &definition.name, " is declared twice"].concat().into(),
                });
            }
            let stored = self.indexes(collection).iter().map(|index| &index.definition);
            for stored in stored.filter(|stored| stored.name == definition.name) {
                if stored.version > definition.version {
                    return Err(Error::index_mismatch(
                        collection,
                        &stored.name,
                        "it is stored in a newer version than the declared one; update the program",
                    ));
                }
                if stored.version == definition.version && stored.unique != definition.unique {
                    return Err(Error::index_mismatch(
                        collection,
                        &stored.name,
                        "it is stored with another value of unique; declare a newer version",
                    ));
                }
            }
        }
        self.create(collection)?;
        self.together(|transaction| transaction.declare_checked(collection, declared))
    }

    fn declare_checked(&mut self, collection: &str, declared: &[IndexDefinition]) -> Result<Vec<Index>> {
        let mut indexes = self.indexes(collection).to_vec();
        let mut is_changed = false;
        for definition in declared {
            let stored = indexes
                .iter()
                .position(|index| index.definition.name == definition.name);
            if let Some(at) = stored {
                if indexes[at].definition.version == definition.version {
                    continue;
                }
                self.drop_entries(indexes.remove(at).id)?;
            }
            let id = self.writer.take_collection_id()?;
            let name = index_of(id);
            self.add_collection(id, &name);
            self.log(&name, |collection| Operation::Create {
                collection,
                name: &name,
            });
            let is_empty = match self.state.collections.get(collection) {
                Some(entry) => entry.records(&self.shared.pager).len()? == 0,
                None => true,
            };
            indexes.push(Index {
                id,
                definition: definition.clone(),
                progress: if is_empty {
                    IndexProgress::Complete
                } else {
                    IndexProgress::Building(None)
                },
            });
            is_changed = true;
        }
        if is_changed {
            self.set_indexes(collection, &indexes);
        }
        Ok(indexes)
    }

    /// Drops an index; returns whether it existed. Writes need not state its keys any more.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn drop_index(&mut self, collection: &str, name: &str) -> Result<bool> {
        self.check_usable()?;
        let mut indexes = self.indexes(collection).to_vec();
        let Some(at) = indexes.iter().position(|index| index.definition.name == name) else {
            return Ok(false);
        };
        self.together(|transaction| {
            transaction.drop_entries(indexes.remove(at).id)?;
            transaction.set_indexes(collection, &indexes);
            if indexes.is_empty() {
                let id = transaction
                    .state
                    .collections
                    .get(collection)
                    .map_or(0, |entry| entry.id);
                transaction.drop_collection(&index_keys_of(id))?;
            }
            Ok(true)
        })
    }

    /// Removes the entries of an index. Keys that records still state for it are ignored from now
    /// on.
    fn drop_entries(&mut self, id: u32) -> Result<()> {
        self.drop_collection(&index_of(id)).map(drop)
    }

    /// Drops all indexes of a collection, with their hidden collections.
    #[inline(never)]
    pub(super) fn drop_indexes(&mut self, collection: &str) -> Result<()> {
        let ids: Vec<u32> = self.indexes(collection).iter().map(|index| index.id).collect();
        for id in &ids {
            self.drop_entries(*id)?;
        }
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        if !ids.is_empty() {
            self.drop_collection(&index_keys_of(id))?;
        }
        Ok(())
    }

    fn set_indexes(&mut self, collection: &str, indexes: &[Index]) {
        if let Some(entry) = self.state.collections.get_mut(collection) {
            entry.indexes = (!indexes.is_empty()).then(|| indexes.into());
            let list = encode_indexes(indexes);
            self.log(collection, |collection| Operation::Indexes {
                collection,
                list: &list,
            });
        }
    }

    /// Adds the records after `from`, up to and including `to`, to an index that is being built.
    /// `from` is the key up to which it covers the collection so far; `to: None` completes it.
    ///
    /// `records` are those of the range, as a snapshot taken after the declaration has them.
    /// Records that have changed since were written with their index keys, and are skipped.
    ///
    /// Returns whether the slice was added; `false` if the index no longer exists, or is not at
    /// `from` because another program builds it too.
    ///
    /// # Errors
    /// [`Error::NotUnique`] if a unique index cannot be built; [`Error::KeyTooLarge`]; storage
    /// errors. All end the transaction if part of the slice was added.
    pub fn index_slice(
        &mut self,
        collection: &str,
        id: u32,
        from: Option<&[u8]>,
        records: &[SliceRecord],
        to: Option<&[u8]>,
    ) -> Result<bool> {
        self.check_usable()?;
        let mut indexes = self.indexes(collection).to_vec();
        let Some(at) = indexes.iter().position(|index| index.id == id) else {
            return Ok(false);
        };
        if indexes[at].progress != IndexProgress::Building(from.map(<[u8]>::to_vec)) {
            return Ok(false);
        }
        self.together(|transaction| {
            for record in records {
                transaction.index_record(collection, &indexes, at, record)?;
            }
            indexes[at].progress = match to {
                Some(key) => IndexProgress::Building(Some(key.to_vec())),
                None => IndexProgress::Complete,
            };
            transaction.set_indexes(collection, &indexes);
            Ok(true)
        })
    }

    fn index_record(
        &mut self,
        collection: &str,
        indexes: &[Index],
        at: usize,
        SliceRecord {
            key,
            version,
            index_keys,
        }: &SliceRecord,
    ) -> Result<()> {
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let indexed = Indexed { id, indexes };
        let Some(found) = self.find(collection, key)? else {
            return Ok(());
        };
        let record = found.record();
        if record.version != *version {
            return Ok(());
        }
        let expires = record.expires;
        let apart = self.keys_apart(id, key)?;
        let before = indexed.before(key, record.index_keys, &apart, expires)?;
        let mut keys = before.keys.clone();
        let index = &indexes[at];
        keys.set(index.id, index_keys.iter().cloned());
        Indexed::check_lengths(self.shared, &keys, key, expires)?;
        if index.definition.unique {
            for index_key in index_keys {
                self.check_unique(collection, index, index_key, Some(key))?;
            }
        }
        Indexed::replace_entries(self, key, &before, &keys, expires)?;
        let mut apart = IndexKeys::decode(&apart).unwrap_or_default();
        apart.set(index.id, index_keys.iter().cloned());
        self.set_apart(id, key, &apart.encode(), expires)
    }
}

#[cfg(feature = "testing")]
impl WriteTransaction<'_> {
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
        while cursor.advance(&self.shared.pager)? {
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

//! The exclusive write transaction.

use std::sync::MutexGuard;

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{CommitInfo, Entry, KeyRange, ReadWrite, Result, WriteBatch};

use super::draft::{Draft, check_key, check_name};
use super::state::{Record, State};
use super::{MemoryTree, Shared, lock};

/// An exclusive write transaction over any collections. Dropping it rolls it back.
pub struct MemoryWriteTransaction<'a, I: OrderedIndex<Record> = BTree<Record>> {
    shared: &'a Shared<I>,
    /// Version that the commit gets.
    version: u64,
    pub(super) draft: Draft<I>,
    /// Released last: dropping the draft may free much memory, and the next writer must start from
    /// what was published.
    _turn: MutexGuard<'a, ()>,
}

impl<'a, I: OrderedIndex<Record>> MemoryWriteTransaction<'a, I> {
    pub(super) fn new(shared: &'a Shared<I>) -> Self {
        let turn = lock(&shared.turn);
        let state = shared.current();
        let version = state.version + 1;
        Self {
            shared,
            version,
            draft: Draft::new(&state, version, shared.clock.now()),
            _turn: turn,
        }
    }

    /// Returns the newest version, on which this transaction builds.
    pub(super) fn base(&self) -> std::sync::Arc<State<I>> {
        self.shared.current()
    }

    /// Stores a record, creating the collection if needed; returns whether the key existed.
    /// O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`](mangrove_engine::Error::KeyTooLarge) and
    /// [`Error::InvalidArgument`](mangrove_engine::Error::InvalidArgument) for bad names; the
    /// transaction is unchanged.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.draft.put(collection, key, value.into(), 0)
    }

    /// Removes a record; returns whether it existed. O(log n).
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> bool {
        self.draft.delete(collection, key)
    }

    /// Removes all records of a range; returns how many there were, including expired ones. O(1)
    /// for a whole collection, O(log n) for each record of a part.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> u64 {
        self.draft.clear(collection, &range) as u64
    }

    /// Returns the value of a key, including this transaction's own writes. O(log n).
    #[must_use]
    pub fn get(&self, collection: &str, key: &[u8]) -> Option<&[u8]> {
        let record = self.draft.find(collection, key)?;
        Some(&record.value)
    }

    /// As [`get`](Self::get), with version and expiry.
    #[must_use]
    pub fn entry(&self, collection: &str, key: &[u8]) -> Option<Entry> {
        self.draft.find(collection, key).map(Record::entry)
    }

    /// Returns a collection as it is now, without later writes. O(1), but while it exists, nodes
    /// are copied before they change.
    #[must_use]
    pub fn collection(&self, name: &str) -> Option<MemoryTree<I>> {
        self.draft.tree(name)
    }

    /// Applies a batch; returns how many of the keys it deletes existed.
    ///
    /// # Errors
    /// As [`set`](Self::set). Everything is checked before anything is changed.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<u64> {
        for operation in batch.operations() {
            check_key(&operation.key)?;
            check_name(&operation.collection)?;
        }
        let mut removed = 0;
        for operation in batch.operations() {
            match &operation.value {
                Some(value) => {
                    self.set(&operation.collection, &operation.key, value)?;
                }
                None => removed += u64::from(self.delete(&operation.collection, &operation.key)),
            }
        }
        Ok(removed)
    }

    /// Records the codec ids of a collection, creating it if needed.
    ///
    /// # Errors
    /// [`Error::CodecMismatch`](mangrove_engine::Error::CodecMismatch) if it already has others,
    /// [`Error::InvalidArgument`](mangrove_engine::Error::InvalidArgument) for bad names or ids.
    pub fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        self.draft.set_codecs(collection, key_codec, value_codec)
    }

    /// Removes a collection with all its records; returns whether it existed.
    pub fn drop_collection(&mut self, name: &str) -> bool {
        self.draft.drop_collection(name)
    }

    /// Renames a collection; returns whether it existed.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`](mangrove_engine::Error::AlreadyExists) if the new name is taken,
    /// [`Error::InvalidArgument`](mangrove_engine::Error::InvalidArgument) for bad names.
    pub fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        self.draft.rename_collection(from, to)
    }

    /// Makes the changes visible as one commit, O(1). Without changes the version stays the same.
    pub fn commit(self) -> CommitInfo {
        let Self {
            shared,
            version,
            draft,
            _turn,
        } = self;
        if !draft.changed {
            return CommitInfo { version: version - 1 };
        }
        shared.publish(draft.into_state(version));
        CommitInfo { version }
    }
}

impl<I: OrderedIndex<Record>> ReadWrite for MemoryWriteTransaction<'_, I> {
    fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        Ok(Self::entry(self, collection, key))
    }

    fn set_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool> {
        // 0 would mean no expiry, and 1 is just as expired.
        let expires = expires_at.map_or(0, |expires| expires.max(1));
        self.draft.put(collection, key, value.into(), expires)
    }

    fn remove(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        Ok(self.delete(collection, key))
    }
}

impl<I: OrderedIndex<Record>> std::fmt::Debug for MemoryWriteTransaction<'_, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryWriteTransaction")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

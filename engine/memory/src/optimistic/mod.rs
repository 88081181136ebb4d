//! Optimistic transactions: each has its own draft, and a list of changes to replay at commit.
//!
//! Nothing is logged for them. Every record carries the version that wrote it, so a commit compares
//! what the transaction read in its snapshot with the newest version.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{CommitInfo, Direction, Entry, Isolation, KeyRange, ReadWrite, Result};

use super::draft::Draft;
use super::state::{Record, State};
use super::{MemoryCursor, MemorySnapshot, MemoryWriteTransaction, Shared};

mod change;
mod cursor;
mod validate;

use change::Change;
pub use cursor::MemoryTransactionCursor;
use validate::{compare, conflict};

type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn owned(range: &KeyRange<'_>) -> OwnedRange {
    (range.lower.map(<[u8]>::to_vec), range.upper.map(<[u8]>::to_vec))
}

fn borrowed(range: &OwnedRange) -> KeyRange<'_> {
    KeyRange {
        lower: range.0.as_ref().map(Vec::as_slice),
        upper: range.1.as_ref().map(Vec::as_slice),
    }
}

/// Keys and ranges of one collection.
#[derive(Default)]
struct Footprint {
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<OwnedRange>,
}

#[derive(Default)]
struct Reads {
    /// What was read, by the names of the collections in the snapshot.
    footprints: BTreeMap<Arc<str>, Footprint>,
    /// Collections that were used by name.
    names: BTreeSet<Arc<str>>,
}

/// A state that a transaction can roll back to.
#[derive(Clone)]
pub struct MemorySavepoint<I: OrderedIndex<Record> = BTree<Record>> {
    draft: Draft<I>,
    changes: usize,
}

/// A transaction that reads a snapshot and keeps its writes private until [`commit`](Self::commit).
///
/// Dropping it rolls it back. Any number can be active at once, beside other writers.
pub struct MemoryTransaction<I: OrderedIndex<Record> = BTree<Record>> {
    shared: Arc<Shared<I>>,
    snapshot: MemorySnapshot<I>,
    isolation: Isolation,
    draft: Draft<I>,
    changes: Vec<Change>,
    reads: Mutex<Reads>,
}

impl<I: OrderedIndex<Record>> MemoryTransaction<I> {
    pub(super) fn new(shared: &Arc<Shared<I>>, isolation: Isolation) -> Self {
        let snapshot = MemorySnapshot::new(shared.current(), shared.clock.now());
        Self {
            shared: Arc::clone(shared),
            draft: Draft::new(snapshot.state(), 0, snapshot.now()),
            snapshot,
            isolation,
            changes: Vec::new(),
            reads: Mutex::default(),
        }
    }

    /// Version that the transaction reads.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the use of a collection; returns its name.
    fn name(&self, name: &str) -> Arc<str> {
        let mut reads = self.reads();
        if let Some(known) = reads.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        reads.names.insert(Arc::clone(&name));
        name
    }

    /// Returns the snapshot's name of a collection that may have been renamed here; `None` if the
    /// snapshot lacks it.
    fn base_name(&self, collection: &str) -> Option<Arc<str>> {
        let id = self.draft.collection(collection)?.id;
        let base = &self.snapshot.state().collections;
        if base.get(collection).is_some_and(|base| base.id == id) {
            return Some(collection.into());
        }
        // The id of a collection created here may also occur in later versions, but not in the
        // snapshot.
        let renamed = base.iter().find(|(_, collection)| collection.id == id);
        renamed.map(|(name, _)| Arc::clone(name))
    }

    /// Records a read, if the isolation level requires it.
    fn note<T>(&self, collection: &str, add: impl FnOnce(&mut Footprint) -> T) -> Option<T> {
        self.name(collection);
        if self.isolation == Isolation::Snapshot {
            return None;
        }
        let base = self.base_name(collection)?;
        Some(add(self.reads().footprints.entry(base).or_default()))
    }

    /// Returns the value of a key, including this transaction's own writes. O(log n).
    #[must_use]
    pub fn get(&self, collection: &str, key: &[u8]) -> Option<&[u8]> {
        self.find(collection, key).map(|record| &*record.value)
    }

    /// As [`get`](Self::get), with version and expiry. A record that this transaction wrote has
    /// version 0.
    #[must_use]
    pub fn entry(&self, collection: &str, key: &[u8]) -> Option<Entry> {
        self.find(collection, key).map(Record::entry)
    }

    fn find(&self, collection: &str, key: &[u8]) -> Option<&Record> {
        let found = self.draft.find(collection, key);
        if found.is_none_or(|record| record.version != 0) {
            self.note(collection, |footprint| {
                if !footprint.keys.contains(key) {
                    footprint.keys.insert(key.to_vec());
                }
            });
        }
        found
    }

    /// Whether a collection exists.
    #[must_use]
    pub fn has_collection(&self, name: &str) -> bool {
        self.name(name);
        self.draft.collection(name).is_some()
    }

    /// Number of records in a range, O(log n).
    #[must_use]
    pub fn count(&self, collection: &str, range: KeyRange<'_>) -> u64 {
        self.note(collection, |footprint| footprint.ranges.push(owned(&range)));
        self.draft.tree(collection).map_or(0, |tree| tree.count(range))
    }

    /// Returns a cursor over a range, including this transaction's own writes. What it passes over
    /// counts as read.
    #[must_use]
    pub fn cursor(
        &self,
        collection: &str,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> MemoryTransactionCursor<'_, I> {
        // The whole range; the cursor limits it when dropped early.
        let noted = self.note(collection, |footprint| {
            footprint.ranges.push(owned(&range));
            footprint.ranges.len() - 1
        });
        let noted = noted.and_then(|at| Some((self.base_name(collection)?, at)));
        let inner = MemoryCursor::new(self.draft.collection(collection), self.draft.now, &range, direction);
        MemoryTransactionCursor {
            transaction: self,
            inner,
            direction,
            noted,
            is_done: false,
        }
    }

    fn put_record(&mut self, collection: &str, key: &[u8], value: &[u8], expires: u64) -> Result<()> {
        let value: Arc<[u8]> = value.into();
        self.draft.put(collection, key, Arc::clone(&value), expires)?;
        self.changes.push(Change::Put {
            collection: self.name(collection),
            key: key.to_vec(),
            value,
            expires,
        });
        Ok(())
    }

    /// Stores a record, creating the collection if needed; returns whether the key existed.
    /// O(log n).
    ///
    /// # Errors
    /// As [`MemoryWriteTransaction::set`].
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.set_until(collection, key, value, None)
    }

    /// Stores a record without checking whether the key exists, so that nothing counts as read.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn put(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_record(collection, key, value, 0)
    }

    /// Removes a record; returns whether it existed. O(log n).
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> bool {
        let found = self.find(collection, key).is_some();
        if found {
            self.draft.delete(collection, key);
            let change = Change::Delete(self.name(collection), key.to_vec());
            self.changes.push(change);
        }
        found
    }

    /// Removes all records of a range; costs as much as in an exclusive transaction, now and once
    /// more at commit.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) {
        if self.has_collection(collection) {
            self.draft.clear(collection, &range);
            let change = Change::Clear(self.name(collection), owned(&range));
            self.changes.push(change);
        }
    }

    /// Records the codec ids of a collection, creating it if needed.
    ///
    /// # Errors
    /// As [`MemoryWriteTransaction::set_codecs`].
    pub fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        self.draft.set_codecs(collection, key_codec, value_codec)?;
        let change = Change::Codecs(self.name(collection), key_codec.to_owned(), value_codec.to_owned());
        self.changes.push(change);
        Ok(())
    }

    /// Removes a collection with all its records; returns whether it existed.
    pub fn drop_collection(&mut self, name: &str) -> bool {
        let name = self.name(name);
        let dropped = self.draft.drop_collection(&name);
        if dropped {
            self.changes.push(Change::Drop(name));
        }
        dropped
    }

    /// Renames a collection; returns whether it existed.
    ///
    /// # Errors
    /// As [`MemoryWriteTransaction::rename_collection`].
    pub fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        let (from, to) = (self.name(from), self.name(to));
        let renamed = self.draft.rename_collection(&from, &to)?;
        if renamed {
            self.changes.push(Change::Rename(from, to));
        }
        Ok(renamed)
    }

    /// Returns a state to roll back to. O(number of collections).
    #[must_use]
    pub fn savepoint(&self) -> MemorySavepoint<I> {
        MemorySavepoint {
            draft: self.draft.clone(),
            changes: self.changes.len(),
        }
    }

    /// Discards all writes since a savepoint of this transaction. What was read since then still
    /// counts as read.
    pub fn rollback_to(&mut self, savepoint: &MemorySavepoint<I>) {
        self.draft = savepoint.draft.clone();
        self.changes.truncate(savepoint.changes);
    }

    /// Rolls the transaction back, as dropping it does.
    pub fn rollback(self) {}

    /// Makes the changes visible as one commit. A transaction that wrote nothing always succeeds.
    ///
    /// Costs O(log n) for each change. If others committed meanwhile, it also costs O(log n) for
    /// each key read, and the length of each range read in a collection that they changed.
    ///
    /// # Errors
    /// [`Error::Conflict`](mangrove_engine::Error::Conflict) if a later commit changed what this
    /// transaction depends on: run it again. None of its changes are visible then.
    pub fn commit(self) -> Result<CommitInfo> {
        if self.changes.is_empty() {
            return Ok(CommitInfo {
                version: self.version(),
            });
        }
        let mut transaction = MemoryWriteTransaction::new(&*self.shared);
        self.validate(&transaction.base())?;
        for change in &self.changes {
            change.apply(&mut transaction.draft)?;
        }
        Ok(transaction.commit())
    }

    fn validate(&self, now: &State<I>) -> Result<()> {
        let base = self.snapshot.state();
        if now.version == base.version {
            return Ok(());
        }
        let mut reads = self.reads();
        let id_in = |state: &State<I>, name: &str| state.collections.get(name).map(|collection| collection.id);
        for name in &reads.names {
            if id_in(base, name) != id_in(now, name) {
                return Err(conflict(name, None));
            }
        }
        if self.isolation == Isolation::Snapshot {
            reads.footprints = change::written(&self.changes, base);
        }
        for (name, footprint) in &reads.footprints {
            let (Some(before), Some(after)) = (base.collections.get(name), now.collections.get(name)) else {
                return Err(conflict(name, None));
            };
            if !Arc::ptr_eq(before, after) {
                compare(name, before, after, footprint)?;
            }
        }
        Ok(())
    }
}

impl<I: OrderedIndex<Record>> ReadWrite for MemoryTransaction<I> {
    fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        Ok(Self::entry(self, collection, key))
    }

    fn set_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool> {
        let found = self.find(collection, key).is_some();
        let expires = expires_at.map_or(0, |expires| expires.max(1));
        self.put_record(collection, key, value, expires)?;
        Ok(found)
    }

    fn remove(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        Ok(self.delete(collection, key))
    }
}

impl<I: OrderedIndex<Record>> std::fmt::Debug for MemoryTransaction<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryTransaction")
            .field("version", &self.version())
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

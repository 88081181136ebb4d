//! Optimistic transactions: they take no locks, read a snapshot and their own writes, and check at
//! commit whether a later commit changed what they saw (Kung and Robinson, "On Optimistic Methods
//! for Concurrency Control", 1981).

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{CommitInfo, Durability, ExclusiveTransaction, ReadWrite, Submission};
use crate::error::{ConflictReason, Error, Result};
use crate::range::KeyRange;
use crate::small_map::SmallMap;
use crate::snapshot::{Snapshot, SnapshotCollection};
use crate::state::expiry::HIDDEN;
use crate::state::{Entry, Shared};
use crate::tree::value::ValuePart;

mod cursor;
mod indexed;
mod overlay;
mod reads;

pub use cursor::{TransactionCursor, TransactionScan};
pub use indexed::IndexScan;

use indexed::UniqueKey;

pub(super) use overlay::{Overlay, index_keys, record};
use overlay::{OwnedRange, visible};
use reads::{Footprint, Footprints};

/// Isolation level: the anomalies that an optimistic transaction is protected from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// The result is as if transactions ran one after the other: a commit fails if a later commit
    /// wrote a key, an absent key or a range that this transaction read.
    #[default]
    Serializable,
    /// A commit fails only if a later commit wrote a key that this transaction wrote. Two
    /// transactions may each read what the other writes.
    Snapshot,
}

/// Changes to the set of collections, in order. They are applied before all other changes.
#[derive(Clone, Debug)]
enum Structure {
    Drop(String),
    Rename(String, String),
}

/// A state to roll back to. Its cost does not depend on the number of written records.
#[derive(Clone)]
pub struct Savepoint {
    overlays: SmallMap<String, Overlay>,
    structure: Vec<Structure>,
}

/// A transaction that reads a snapshot and keeps its writes private until [`commit`](Self::commit).
/// Dropping it undoes everything. Any number can be active at once, alongside other writers; a
/// transaction may wait for anything between its calls.
pub struct OptimisticTransaction {
    shared: Arc<Shared>,
    snapshot: Snapshot,
    isolation: Isolation,
    overlays: SmallMap<String, Overlay>,
    structure: Vec<Structure>,
    /// Keys written to unique indexes, and perhaps rolled back.
    unique: Vec<UniqueKey>,
    /// Number of provisional ids.
    provisional: u32,
    reads: Mutex<Reads>,
}

/// The read set. Behind a lock, since the reading methods take `&self`.
#[derive(Default)]
struct Reads {
    footprints: Footprints,
    /// Collections used by name, with their ids in the snapshot.
    names: SmallMap<String, Option<u32>>,
}

impl OptimisticTransaction {
    pub(crate) fn new(shared: &Arc<Shared>, isolation: Isolation) -> Result<Self> {
        if shared.config.read_only {
            return Err(Error::ReadOnly);
        }
        let snapshot = Snapshot::for_transaction(shared);
        Ok(Self {
            shared: Arc::clone(shared),
            snapshot,
            isolation,
            overlays: SmallMap::default(),
            structure: Vec::new(),
            unique: Vec::new(),
            provisional: 0,
            reads: Mutex::default(),
        })
    }

    /// Version that it reads.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn base(&self, name: &str) -> Option<SnapshotCollection> {
        let base = self.snapshot.collection(name);
        let mut reads = self.reads();
        if !reads.names.contains_key(name) {
            reads
                .names
                .insert(name.to_owned(), base.as_ref().map(SnapshotCollection::id));
        }
        base
    }

    /// Records a read, if the isolation level counts reads.
    fn note(&self, tree: &SnapshotCollection, add: impl FnOnce(&mut Footprint)) {
        if self.isolation == Isolation::Serializable {
            add(self
                .reads()
                .footprints
                .get_or_insert_with(tree.id(), Footprint::default));
        }
    }

    fn overlay(&mut self, name: &str) -> &mut Overlay {
        if !self.overlays.contains_key(name) {
            let base = self.base(name);
            self.overlays.insert(name.to_owned(), Overlay::new(base));
        }
        self.overlays.get_mut(name).expect("it was inserted just now")
    }

    /// A collection's writes, if any, and its tree in the snapshot.
    fn view(&self, name: &str) -> (Option<&Overlay>, Option<SnapshotCollection>) {
        match self.overlays.get(name) {
            Some(overlay) => (Some(overlay), overlay.base.clone()),
            None => (None, self.base(name)),
        }
    }

    /// Value of a key, including this transaction's own writes. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get(&self, collection: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.entry(collection, key)?.map(|entry| entry.value))
    }

    /// As [`get`](Self::get), with version and expiry. A record that this transaction wrote has
    /// version 0.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        let (overlay, base) = self.view(collection);
        if let Some(overlay) = overlay {
            if let Some(written) = overlay.writes.get(key) {
                return Ok(visible(written, self.snapshot.now()).map(|(value, expires_at)| Entry {
                    value: value.to_vec(),
                    version: 0,
                    expires_at,
                }));
            }
            if overlay.is_cleared(key) {
                return Ok(None);
            }
        }
        let Some(base) = base else { return Ok(None) };
        self.note(&base, |footprint| footprint.add_key(key));
        base.entry(key)
    }

    /// Returns part of a value, from this transaction's own writes as well; see
    /// [`SnapshotCollection::get_range`](crate::SnapshotCollection::get_range).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get_range(&self, collection: &str, key: &[u8], range: Range<u64>) -> Result<Option<ValuePart>> {
        let (overlay, base) = self.view(collection);
        if let Some(overlay) = overlay {
            if let Some(written) = overlay.writes.get(key) {
                let found = visible(written, self.snapshot.now());
                return Ok(found.map(|(value, _)| ValuePart::of(value, 0, &range)));
            }
            if overlay.is_cleared(key) {
                return Ok(None);
            }
        }
        let Some(base) = base else { return Ok(None) };
        self.note(&base, |footprint| footprint.add_key(key));
        base.get_range(key, range)
    }

    /// Whether a collection exists.
    #[must_use]
    pub fn has_collection(&self, name: &str) -> bool {
        match self.view(name) {
            (Some(overlay), _) => overlay.exists,
            (None, base) => base.is_some(),
        }
    }

    /// Number of records in a range. O(log n) if this transaction has no writes to the collection,
    /// otherwise it visits every record of the range.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn count(&self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        let mut cursor = self.cursor(collection, range, crate::range::Direction::Forward);
        if self
            .overlays
            .get(collection)
            .is_none_or(|overlay| overlay.writes.is_empty() && overlay.cleared.is_empty())
        {
            let (_, base) = self.view(collection);
            let Some(base) = base else { return Ok(0) };
            self.note(&base, |footprint| footprint.add_range(&range));
            return base.count(range);
        }
        let mut count = 0;
        while cursor.advance()? {
            count += 1;
        }
        Ok(count)
    }

    /// Opens a cursor over a range, including this transaction's own writes. What it passes counts
    /// as read.
    #[must_use]
    pub fn cursor(
        &self,
        collection: &str,
        range: KeyRange<'_>,
        direction: crate::range::Direction,
    ) -> TransactionCursor<'_> {
        TransactionCursor::new(self, self.scan(collection, range, direction))
    }

    /// As [`cursor`](Self::cursor), but separate from the transaction instead of borrowing it:
    /// later writes are not seen.
    #[must_use]
    pub fn scan(&self, collection: &str, range: KeyRange<'_>, direction: crate::range::Direction) -> TransactionScan {
        TransactionScan::new(self, collection, &range, direction)
    }

    /// Ids of the key codec and the value codec of a collection; `None` if it does not exist.
    #[must_use]
    pub fn codecs(&self, collection: &str) -> Option<(String, String)> {
        let (overlay, _) = self.view(collection);
        if let Some(overlay) = overlay
            && (overlay.codecs.is_some() || !overlay.exists || overlay.base.is_none() && !overlay.emptied)
        {
            let unset = || (String::new(), String::new());
            return overlay.exists.then(|| overlay.codecs.clone().unwrap_or_else(unset));
        }
        let mut name = collection;
        for change in self.structure.iter().rev() {
            match change {
                Structure::Rename(from, to) if to == name => name = from,
                Structure::Rename(..) | Structure::Drop(_) => {}
            }
        }
        let (key_codec, value_codec) = self.snapshot.codecs(name)?;
        Some((key_codec.to_owned(), value_codec.to_owned()))
    }

    /// Stores a record, creating the collection if necessary; returns whether the key existed.
    ///
    /// # Errors
    /// As [`ExclusiveTransaction::set`]; the transaction is unchanged.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.set_until(collection, key, value, None)
    }

    /// Stores a record without checking whether the key exists, so nothing counts as read.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn put(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(collection, key, value, None)
    }

    /// As [`put`](Self::put), for a record that expires at `expires_at` milliseconds since 1970, or
    /// never.
    ///
    /// # Errors
    /// As [`ReadWrite::set_until`].
    pub fn put_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
        self.write(collection, key, value, expires_at)
    }

    fn write(&mut self, collection: &str, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.shared.check_record(collection, key, value.len(), expires)?;
        self.check_unindexed(collection)?;
        self.put_unindexed(collection, key, value, expires);
        Ok(())
    }

    /// Stores a record, whether the collection has indexes or not.
    fn put_unindexed(&mut self, collection: &str, key: &[u8], value: &[u8], expires: Option<u64>) {
        let overlay = self.overlay(collection);
        overlay.exists = true;
        overlay.set(key, value, expires, &[]);
    }

    /// Removes a record; returns whether it existed.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        let found = self.entry(collection, key)?.is_some();
        if found || self.is_stored(collection, key)? {
            if self.has_indexes(collection) {
                self.unindex_key(collection, key)?;
            }
            // An earlier write of the key keeps what it knows of the base.
            self.overlay(collection).remove(key, Some(found));
        }
        Ok(found)
    }

    /// Whether there is a record, also one that has expired and was not purged: it would be visible
    /// again if the clock was put back.
    fn is_stored(&self, collection: &str, key: &[u8]) -> Result<bool> {
        let (overlay, base) = self.view(collection);
        if let Some(overlay) = overlay {
            if let Some(written) = overlay.writes.get(key) {
                return Ok(record(written).is_some());
            }
            if overlay.is_cleared(key) {
                return Ok(false);
            }
        }
        let Some(base) = base.filter(SnapshotCollection::has_hints) else {
            return Ok(false);
        };
        Ok(base.stored_index_keys(key)?.is_some())
    }

    /// Removes all records of a range. O(1), plus O(log n) for each own write in it. Where the
    /// collection has indexes and the range is a part of it, it visits every record's index keys.
    ///
    /// # Errors
    /// Storage errors and corruption where it visits records; the commit may fail.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> Result<()> {
        if self.has_collection(collection) {
            if self.has_indexes(collection) {
                self.unindex_keys(collection, &range)?;
            }
            self.overlay(collection).clear(&range);
        }
        Ok(())
    }

    /// Records the codec ids of a collection, creating it if necessary.
    ///
    /// # Errors
    /// At commit, as [`ExclusiveTransaction::set_codecs`]; [`Error::InvalidArgument`] for bad names.
    pub fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        self.shared.check_record(collection, &[], 0, None)?;
        let overlay = self.overlay(collection);
        overlay.exists = true;
        overlay.codecs = Some((key_codec.to_owned(), value_codec.to_owned()));
        Ok(())
    }

    /// Removes a collection with all its records; returns whether it existed.
    ///
    /// # Errors
    /// None now; the commit may fail.
    pub fn drop_collection(&mut self, name: &str) -> Result<bool> {
        let existed = self.has_collection(name);
        if existed {
            if self.has_indexes(name) {
                self.forget_indexes(name);
            }
            self.structure.push(Structure::Drop(name.to_owned()));
            *self.overlay(name) = Overlay::new(None);
        }
        Ok(existed)
    }

    /// Renames a collection; returns whether it existed.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the new name is taken, [`Error::InvalidArgument`] for bad names.
    pub fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        self.shared.check_record(to, &[], 0, None)?;
        if from == to || !self.has_collection(from) {
            return Ok(self.has_collection(from));
        }
        if self.has_collection(to) {
            return Err(Error::AlreadyExists {
                what: format!("the collection {to}").into(),
            });
        }
        self.overlay(from);
        self.overlay(to);
        let moved = self.overlays.insert(from.to_owned(), Overlay::new(None));
        if let Some(moved) = moved {
            // A collection created here has nothing in the database to rename.
            if moved.base.is_some() || moved.emptied {
                self.structure.push(Structure::Rename(from.to_owned(), to.to_owned()));
            }
            self.overlays.insert(to.to_owned(), moved);
        }
        Ok(true)
    }

    /// Returns a state to roll back to.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            overlays: self.overlays.clone(),
            structure: self.structure.clone(),
        }
    }

    /// Discards all writes since a savepoint of this transaction. Reads since then still
    /// counts as read.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.overlays.clone_from(&savepoint.overlays);
        self.structure.clone_from(&savepoint.structure);
    }

    /// Undoes everything, like dropping.
    pub fn rollback(self) {}

    /// Makes the changes visible and durable as one commit. A transaction that wrote nothing always
    /// succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a later commit changed what this transaction depends on: run it
    /// again. Otherwise as [`ExclusiveTransaction::commit`]. After an error none of it is visible.
    pub fn commit(self, durability: Durability) -> Result<CommitInfo> {
        match self.prepare()? {
            Some(transaction) => transaction.commit(durability),
            None => Ok(CommitInfo {
                version: self.version(),
            }),
        }
    }

    /// As [`commit`](Self::commit), without waiting for a flush: see [`ExclusiveTransaction::submit`].
    ///
    /// # Errors
    /// As [`commit`](Self::commit), except for errors of the flush.
    pub fn submit(self, durability: Durability) -> Result<Submission> {
        self.commit_by(|transaction| transaction.submit(durability))
    }

    /// As [`commit`](Self::commit), but passes the changes, made on top of the newest version, to
    /// `commit`, which commits them. It is not called for a transaction that wrote nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`], and those of `commit`.
    pub fn commit_by(self, commit: impl FnOnce(ExclusiveTransaction<'_>) -> Result<Submission>) -> Result<Submission> {
        match self.prepare()? {
            Some(transaction) => commit(transaction),
            None => Ok(Submission {
                info: CommitInfo {
                    version: self.version(),
                },
                awaits_flush: false,
            }),
        }
    }

    /// Applies the changes to the newest version; `None` if there are none.
    fn prepare(&self) -> Result<Option<ExclusiveTransaction<'_>>> {
        if self.structure.is_empty() && self.overlays.values().all(|overlay| !overlay.is_changed()) {
            return Ok(None);
        }
        let mut transaction = ExclusiveTransaction::new(&self.shared)?;
        self.validate(&transaction)?;
        self.apply(&mut transaction)?;
        if !self.unique.is_empty() {
            self.check_unique_keys(&transaction)?;
        }
        Ok(Some(transaction))
    }

    fn validate(&self, transaction: &ExclusiveTransaction<'_>) -> Result<()> {
        let version = self.version();
        if transaction.base == version {
            return Ok(());
        }
        let reads = self.reads();
        for (name, id) in &reads.names {
            let now = transaction.state.collections.get(name).map(|collection| collection.id);
            if now != *id {
                return Err(Error::conflict(Some(name), None, ConflictReason::Changed));
            }
        }
        self.check_indexes(transaction)?;
        let later = self
            .shared
            .history()
            .since(version)
            .ok_or_else(|| Error::conflict(None, None, ConflictReason::TooMany))?;
        let written;
        let footprints = match self.isolation {
            Isolation::Serializable => &reads.footprints,
            Isolation::Snapshot => {
                written = self.written();
                &written
            }
        };
        let name_of = |id: u32| {
            let mut all = reads.names.iter();
            all.find(|(_, known)| **known == Some(id))
                .map(|(name, _)| name.as_str())
        };
        reads::check(footprints, &later, name_of)
    }

    /// Writes of this transaction to collections of its snapshot.
    fn written(&self) -> Footprints {
        let mut footprints = Footprints::default();
        for (name, overlay) in &self.overlays {
            let base = overlay.base.clone().or_else(|| self.snapshot.collection(name));
            let Some(base) = base else { continue };
            let footprint = footprints.get_or_insert_with(base.id(), Footprint::default);
            for written in overlay.writes.entries() {
                footprint.add_key(written.key);
            }
            for range in &overlay.cleared {
                footprint.add_range(&range.borrow());
            }
            if overlay.emptied {
                footprint.add_range(&KeyRange::all());
            }
        }
        footprints
    }

    fn apply(&self, transaction: &mut ExclusiveTransaction<'_>) -> Result<()> {
        for change in &self.structure {
            match change {
                Structure::Drop(name) => {
                    transaction.drop_collection(name)?;
                }
                Structure::Rename(from, to) => {
                    transaction.rename_collection(from, to)?;
                }
            }
        }
        // Changes of the indexes are among the overlays, too.
        for (name, overlay) in &self.overlays {
            if overlay.is_provisional {
                Self::apply_declared(transaction, name, overlay)?;
                continue;
            }
            if name.starts_with(HIDDEN) && overlay.is_changed() {
                transaction.create_unchecked(name)?;
            }
            if let Some((key_codec, value_codec)) = &overlay.codecs {
                transaction.set_codecs(name, key_codec, value_codec)?;
            }
            if overlay.indexed.is_some() {
                transaction.apply_indexed(name, overlay)?;
                continue;
            }
            overlay.clear_in(transaction, name)?;
            for written in overlay.writes.entries() {
                let key = written.key;
                match record(written) {
                    Some((value, expires_at)) => transaction.put_unindexed(name, key, value, expires_at)?,
                    None => {
                        transaction.delete_record(name, key)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Overlay {
    fn is_changed(&self) -> bool {
        !self.writes.is_empty() || !self.cleared.is_empty() || self.emptied || self.codecs.is_some()
    }
}

impl ReadWrite for OptimisticTransaction {
    fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        Self::entry(self, collection, key)
    }

    fn set_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool> {
        self.shared.check_record(collection, key, value.len(), expires_at)?;
        let found = self.entry(collection, key)?.is_some();
        self.write(collection, key, value, expires_at)?;
        Ok(found)
    }

    fn remove(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        self.delete(collection, key)
    }
}

impl Drop for OptimisticTransaction {
    fn drop(&mut self) {
        let visible = self.shared.current().version;
        self.shared.history().leave(self.snapshot.version(), visible);
    }
}

impl std::fmt::Debug for OptimisticTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OptimisticTransaction")
            .field("version", &self.version())
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

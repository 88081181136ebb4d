//! The exclusive write transaction: changes of records, ranges and collections go straight into its own
//! state and draft.

use std::ops::Range;

use super::capture::Capture;
use super::{CommitInfo, WriteBatch};
use crate::block::BlockRef;
use crate::error::{Error, Result};
use crate::locks::MutexGuard;
use crate::log::{Log, Operation};
use crate::memtable::{Found, Layers, Memtable};
use crate::node::{LeafCell, ValuePlace};
use crate::pages::Draft;
use crate::range::{Direction, KeyRange};
use crate::state::expiry::{HINT_BYTES, all_hints, due_hints, hint, hints_of};
use crate::state::feed::{FEED, chunk_version};
use crate::state::{Collection, Entry, MAX_CODEC_BYTES, Shared, Version, Writer, check_name};
use crate::tree::Editor;
use crate::tree::value::{self, ValuePart};

/// Ranges with more records are cut out of the tree, rather than removed record by record.
const MAX_SINGLE_REMOVALS: u64 = 1000;

/// If the removed keys are longer in total, the log names the range instead.
const MAX_LOGGED_KEY_BYTES: usize = 1 << 10;

/// Maximum length of the list of changes retained for other transactions if there is no log.
const MAX_RECORD_BYTES: usize = 4 << 20;

/// Starts capturing changes if somebody needs to learn of them.
fn begin_capture(shared: &Shared, state: &Version) -> Option<Capture> {
    if state.collections.contains_key(FEED) {
        return Some(Capture::default());
    }
    shared.feed().is_wanted().then(Capture::volatile)
}

/// Encodes an expiry. 0 means none, so an expiry of 0 becomes 1: 1970 is past either way.
pub(super) fn stored_expiry(expires_at: Option<u64>) -> u64 {
    expires_at.map_or(0, |expires| expires.max(1))
}

/// An exclusive write transaction over any collections. Dropping it undoes everything.
#[allow(clippy::struct_excessive_bools, reason = "they are independent")]
pub struct ExclusiveTransaction<'a> {
    pub(super) shared: &'a Shared,
    pub(super) writer: MutexGuard<'a, Writer>,
    pub(super) draft: Draft,
    pub(super) state: Version,
    /// Version on which it builds.
    pub(super) base: u64,
    /// Its changes, encoded for the log; `None` once they are too many for a record.
    pub(super) record: Option<Vec<u8>>,
    /// Its changes, encoded for the feed, if there is one.
    pub(super) capture: Option<Capture>,
    /// Time of the transaction in milliseconds since 1970.
    pub(super) now: u64,
    /// Something changed since the transaction began or since the last seal.
    pub(super) changed: bool,
    /// A storage error in the middle of a change made the draft unusable.
    pub(super) failed: Option<Error>,
    pub(super) finished: bool,
    /// It removes only expired records, which are invisible, so it conflicts with no transaction
    /// that read them as absent.
    pub(super) is_purge: bool,
    /// It stores something, so it may not use the reserve.
    pub(super) stores: bool,
    /// Memory used by the memtables of all collections.
    pub(super) memory_bytes: usize,
}

impl<'a> ExclusiveTransaction<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Result<Self> {
        Ok(Self::on(shared, shared.writable()?))
    }

    pub(super) fn on(shared: &'a Shared, writer: MutexGuard<'a, Writer>) -> Self {
        let mut state = (*shared.newest()).clone();
        state.absorb();
        let state_bytes = state.memory_bytes();
        Self {
            shared,
            draft: Draft::new(state.version + 1),
            base: state.version,
            record: (writer.log.is_some() || shared.history().is_wanted()).then(Vec::new),
            capture: begin_capture(shared, &state),
            now: shared.config.clock.now(),
            writer,
            state,
            changed: false,
            failed: None,
            finished: false,
            is_purge: false,
            stores: false,
            memory_bytes: state_bytes,
        }
    }

    /// Stores a record, creating the collection if necessary; returns whether the key existed.
    /// O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`] and [`Error::InvalidArgument`] leave the
    /// transaction unchanged; storage errors end it.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.replace(collection, key, value, 0)
    }

    /// Stores a record without checking whether the key exists, so it reads no page. Creates the
    /// collection if necessary.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn put(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_until(collection, key, value, None)
    }

    /// As [`put`](Self::put), for a record that expires at `expires_at` milliseconds since 1970, or
    /// never.
    ///
    /// # Errors
    /// As [`set`](Self::set). The maximum key length is 8 bytes less if the record expires.
    pub fn put_until(&mut self, collection: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
        self.check_unindexed(collection)?;
        self.put_unindexed(collection, key, value, expires_at)
    }

    /// As [`put_until`](Self::put_until), whether the collection has indexes or not.
    pub(super) fn put_unindexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
    ) -> Result<()> {
        let expires = stored_expiry(expires_at);
        self.shared.check_lengths(key, value.len(), expires != 0)?;
        self.create(collection)?;
        self.store(collection, key, value, expires, &[], None)
    }

    /// Stores a record; returns whether the key existed.
    pub(super) fn replace(&mut self, collection: &str, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        self.check_unindexed(collection)?;
        // Arguments are checked before the collection is created.
        self.shared.check_lengths(key, value.len(), expires != 0)?;
        self.create(collection)?;
        self.put_record(collection, key, value, expires)
    }

    /// Stores a record in an existing collection; returns whether the key existed. The lengths must
    /// already have been checked.
    pub(super) fn put_record(&mut self, collection: &str, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        let found = self.find(collection, key)?;
        let below = self.is_below(collection, key, found.is_some());
        let is_visible = found.as_ref().is_some_and(|found| !found.record().is_expired(self.now));
        let removed = found.map_or(0, |found| self.units_of(&found.record()));
        self.draft.removed_units += removed;
        self.store(collection, key, value, expires, &[], below)?;
        Ok(is_visible)
    }

    /// Units that a record's value takes outside of its leaf, at most.
    fn units_of(&self, record: &LeafCell<'_>) -> u64 {
        match record.place {
            ValuePlace::Inline(_) => 0,
            ValuePlace::OutOfLine(_) => (record.value_len / self.shared.pager.blocks.unit_bytes() + 1) as u64,
        }
    }

    /// What a search for a key revealed about the layers below the fresh memtable.
    pub(super) fn is_below(&self, collection: &str, key: &[u8], is_found: bool) -> Option<bool> {
        let entry = self.state.collections.get(collection)?;
        entry.layers.fresh.get(key).is_none().then_some(is_found)
    }

    /// Stores a record in an existing collection, without a search. `index_keys` must fit into the
    /// leaf; `below` is what is known about the layers below the fresh memtable.
    pub(super) fn store(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires: u64,
        index_keys: &[u8],
        below: Option<bool>,
    ) -> Result<()> {
        self.stores = true;
        // Created before the change is logged, so that replay finds the collection.
        let hints = match expires {
            0 => None,
            _ => Some(self.create_hints(collection)?),
        };
        let is_inline = self.shared.config.limits.is_inline(key.len(), value.len());
        let reference = if is_inline {
            None
        } else {
            self.edit_or_reclaim(collection, |editor| editor.write_value(value))?
        };
        let place = reference.map_or(ValuePlace::Inline(value), ValuePlace::OutOfLine);
        let cell = LeafCell {
            version: self.version_of(collection, key),
            expires,
            index_keys,
            ..LeafCell::new(value.len(), place)
        };
        self.put_cell(collection, key, &cell, below)?;
        self.log(collection, |collection| match reference {
            None => Operation::Set {
                collection,
                key,
                value,
                expires,
                index_keys,
            },
            Some(reference) => Operation::SetOutOfLine {
                collection,
                key,
                value_len: value.len() as u64,
                reference,
                expires,
                index_keys,
            },
        });
        if self.capture.is_some() {
            let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
            let operation = Operation::Set {
                collection: id,
                key,
                value,
                expires,
                index_keys: &[],
            };
            self.capture(id, collection, &operation);
        }
        if let Some(hints) = hints {
            self.add_hint(&hints, key, expires)?;
        }
        self.merge_if_large()
    }

    /// Writes a value to blocks of its own. If the storage is full, reclaims space and tries once
    /// more.
    // Rare: in its callers it would make the compressed WebAssembly module longer.
    #[inline(never)]
    pub(super) fn edit_or_reclaim(
        &mut self,
        collection: &str,
        mut write: impl FnMut(&mut Editor<'_>) -> Result<BlockRef>,
    ) -> Result<Option<BlockRef>> {
        let before = self.draft.allocated.len();
        let written = self.edit(collection, &mut write);
        let Err(error @ Error::StorageFull { .. }) = written else {
            return written;
        };
        let partial = self.draft.allocated.split_off(before);
        self.writer.is_full = true;
        self.writer.give_back(self.shared, partial);
        self.failed = None;
        let reclaimed = self
            .reclaim_space()
            .and_then(|is_freed| if is_freed { Ok(()) } else { Err(error) });
        reclaimed.inspect_err(|error| self.failed = Some(error.clone()))?;
        self.edit(collection, write)
    }

    /// Version of the commit that a record to be stored belongs to. A chunk of the feed is stored once its
    /// commit is sealed, and in the log it follows the commit's end.
    pub(super) fn version_of(&self, collection: &str, key: &[u8]) -> u64 {
        let of_chunk = if collection == FEED { chunk_version(key) } else { None };
        of_chunk.unwrap_or(self.state.version + 1)
    }

    /// Puts a record into the fresh memtable.
    pub(super) fn put_cell(
        &mut self,
        collection: &str,
        key: &[u8],
        cell: &LeafCell<'_>,
        below: Option<bool>,
    ) -> Result<()> {
        let mut payload = std::mem::take(&mut self.draft.payload);
        cell.encode_into(&mut payload);
        let changed = self.change(collection, key, Some(&payload), below);
        self.draft.payload = payload;
        changed
    }

    /// Changes the fresh memtable. Retires the previous value if only the fresh or the active
    /// memtable referred to it.
    pub(super) fn change(
        &mut self,
        collection: &str,
        key: &[u8],
        payload: Option<&[u8]>,
        below: Option<bool>,
    ) -> Result<()> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get_mut(collection) else {
            return Ok(());
        };
        if payload.is_some() {
            entry.cut_gap(key);
        }
        let Layers { fresh, active, .. } = &mut entry.layers;
        let bytes = fresh.bytes();
        if below.is_none() && !active.has_references() && fresh.append(key, payload) {
            self.memory_bytes += fresh.bytes() - bytes;
            return Ok(());
        }
        // The first change of the key already retired the active memtable's value.
        let former = match fresh.put(key, payload, below) {
            Some(former) => former.reference,
            None => active.reference(key).map(<[u8]>::to_vec),
        };
        self.memory_bytes += fresh.bytes();
        self.memory_bytes -= bytes;
        if let Some(former) = former {
            self.edit(collection, |editor| editor.retire_value(&LeafCell::decode(&former)))?;
        }
        Ok(())
    }

    /// Takes a key out of the fresh memtable, and retires a value that only the memtables referred
    /// to.
    pub(super) fn forget(&mut self, collection: &str, key: &[u8]) -> Result<()> {
        // The previous entry says what to retire; the new one, without a payload, refers to
        // nothing.
        self.change(collection, key, None, None)?;
        if let Some(entry) = self.state.collections.get_mut(collection) {
            // A record below may be visible again.
            entry.cut_gap(key);
            let fresh = &mut entry.layers.fresh;
            let bytes = fresh.bytes();
            fresh.remove(key);
            self.memory_bytes += fresh.bytes();
            self.memory_bytes -= bytes;
        }
        Ok(())
    }

    pub(super) fn find(&self, collection: &str, key: &[u8]) -> Result<Option<Found<'_>>> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(None);
        };
        let found = entry.records(&self.shared.pager).find(key);
        found.map_err(|error| error.in_collection(collection))
    }

    /// Removes a record; returns whether it existed. O(log n).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        if self.indexes(collection).is_empty() {
            self.delete_record(collection, key)
        } else {
            self.delete_indexed(collection, key)
        }
    }

    /// As [`delete`](Self::delete), but leaves the indexes as they are.
    pub(super) fn delete_record(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        let Some(found) = self.find(collection, key)? else {
            return Ok(false);
        };
        let is_visible = !found.record().is_expired(self.now);
        let removed = self.units_of(&found.record());
        let below = self.is_below(collection, key, true);
        self.draft.removed_units += removed;
        self.change(collection, key, None, below)?;
        self.log(collection, |collection| Operation::Delete { collection, key });
        self.merge_if_large()?;
        Ok(is_visible)
    }

    /// Removes a record without checking whether it exists, so it reads no page. Watchers and the
    /// feed report a removal either way.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`] leaves the transaction as it was; storage errors end it.
    pub fn discard(&mut self, collection: &str, key: &[u8]) -> Result<()> {
        self.shared.check_key_len(key.len())?;
        if self.indexes(collection).is_empty() {
            self.discard_record(collection, key)
        } else {
            self.delete_indexed(collection, key).map(drop)
        }
    }

    /// As [`discard`](Self::discard), but leaves the indexes as they are.
    pub(super) fn discard_record(&mut self, collection: &str, key: &[u8]) -> Result<()> {
        self.check_usable()?;
        if self.state.collections.contains_key(collection) {
            self.change(collection, key, None, None)?;
            self.log(collection, |collection| Operation::Delete { collection, key });
            self.merge_if_large()?;
        }
        Ok(())
    }

    /// Reads a record, including this transaction's own writes.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get(&self, collection: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.entry(collection, key)?.map(|entry| entry.value))
    }

    /// As [`get`](Self::get), with version and expiry.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn entry(&self, collection: &str, key: &[u8]) -> Result<Option<Entry>> {
        let Some(found) = self.find(collection, key)? else {
            return Ok(None);
        };
        let record = found.record();
        if record.is_expired(self.now) {
            return Ok(None);
        }
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let mut value = Vec::new();
        value::read(&self.shared.pager.blocks, id, &record, &mut value)
            .map_err(|error: Error| error.in_collection(collection))?;
        Ok(Some(Entry {
            value,
            version: record.version,
            expires_at: (record.expires != 0).then_some(record.expires),
        }))
    }

    /// Returns part of a value; see [`SnapshotCollection::get_range`](crate::SnapshotCollection::get_range).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get_range(&self, collection: &str, key: &[u8], range: Range<u64>) -> Result<Option<ValuePart>> {
        let Some(found) = self.find(collection, key)? else {
            return Ok(None);
        };
        let record = found.record();
        if record.is_expired(self.now) {
            return Ok(None);
        }
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let part = value::read_range(&self.shared.pager.blocks, id, &record, &range);
        part.map(Some).map_err(|error: Error| error.in_collection(collection))
    }

    /// Applies a batch; returns how many of the keys it deletes existed.
    ///
    /// # Errors
    /// As the single operations. Names and lengths of the whole batch are checked before anything
    /// changes; an error after that ends the transaction.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<u64> {
        for operation in batch.operations() {
            let value_len = operation.value.as_ref().map_or(0, Vec::len);
            self.shared
                .check_record(&operation.collection, &operation.key, value_len, None)?;
            if operation.value.is_some() {
                self.check_unindexed(&operation.collection)?;
            }
        }
        self.together(|transaction| transaction.apply_checked(batch))
    }

    fn apply_checked(&mut self, batch: &WriteBatch) -> Result<u64> {
        let mut removed = 0;
        for operation in batch.operations() {
            match &operation.value {
                Some(value) => {
                    self.create(&operation.collection)?;
                    self.store(&operation.collection, &operation.key, value, 0, &[], None)?;
                }
                None => removed += u64::from(self.delete(&operation.collection, &operation.key)?),
            }
        }
        Ok(removed)
    }

    /// Runs changes that belong together. If they fail after some of them were made, the
    /// transaction can no longer be committed.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn together<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let changed_before = std::mem::replace(&mut self.changed, false);
        let result = work(self);
        if let Err(error) = &result
            && self.changed
        {
            self.failed.get_or_insert_with(|| error.clone());
        }
        self.changed |= changed_before;
        result
    }

    /// Ends the current commit, which gets its own version, and begins the next one. All
    /// sealed commits become visible and durable together at [`commit`](Self::commit); an error or
    /// drop undoes all of them.
    pub fn seal(&mut self) -> CommitInfo {
        if self.changed {
            self.state.version += 1;
            self.changed = false;
            if let Some(record) = &mut self.record {
                Operation::End.encode(record);
            }
            if let Some(capture) = &mut self.capture {
                capture.seal(self.state.version);
            }
        }
        CommitInfo {
            version: self.state.version,
        }
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records a change that was made.
    pub(super) fn log<'o>(&mut self, name: &str, operation: impl FnOnce(u32) -> Operation<'o>) {
        self.log_as(name, name, operation);
    }

    /// As [`log`](Self::log), for a collection that was named `before`.
    pub(super) fn log_as<'o>(&mut self, name: &str, before: &str, operation: impl FnOnce(u32) -> Operation<'o>) {
        self.changed = true;
        if self.record.is_none() && self.capture.is_none() {
            return;
        }
        let Some(id) = self.state.collections.get(name).map(|entry| entry.id) else {
            return;
        };
        let operation = operation(id);
        // Stored records are captured elsewhere, with their values.
        if !matches!(operation, Operation::Set { .. } | Operation::SetOutOfLine { .. }) {
            self.capture(id, before, &operation);
        }
        self.record(&operation);
    }

    pub(super) fn record(&mut self, operation: &Operation<'_>) {
        let Some(record) = &mut self.record else { return };
        operation.encode(record);
        let max = self.writer.log.as_ref().map_or(MAX_RECORD_BYTES, Log::max_payload);
        if record.len() > max {
            self.record = None;
        }
    }

    /// Edits a collection's tree; `None` if the collection does not exist.
    pub(super) fn edit<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Editor<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.check_usable()?;
        let changed_at = self.state.version + 1;
        let Some(entry) = self.state.collections.get_mut(name) else {
            return Ok(None);
        };
        entry.changed_at = changed_at;
        let config = &self.shared.config;
        let generation = self.writer.superblock.generation + 1;
        let mut editor = Editor {
            pager: &self.shared.pager,
            draft: &mut self.draft,
            free: &self.writer.space.free,
            root: &mut entry.root,
            owner: entry.id,
            generation,
            compression: config.compression,
            limits: config.limits,
        };
        match change(&mut editor) {
            Ok(result) => Ok(Some(result)),
            Err(error) => {
                let error = error.in_collection(name);
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

// Ranges, and all of a collection.
impl ExclusiveTransaction<'_> {
    /// Removes all records of a range; returns how many there were, including expired ones. Copies
    /// O(log n) pages. Of the pages it frees, it reads the inner nodes and those leaves that lead
    /// to out-of-line values. Where the collection has indexes and the range is a part of it, it
    /// visits every record's index keys.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        if self.indexes(collection).is_empty() {
            self.clear_records(collection, range)
        } else {
            self.clear_indexed(collection, range)
        }
    }

    /// As [`clear`](Self::clear), but leaves the indexes as they are.
    pub(super) fn clear_records(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(0);
        };
        let (from, to) = entry.records(&self.shared.pager).positions(&range)?;
        let removed = to - from;
        if removed == 0 {
            return Ok(0);
        }
        let (id, bounds) = (entry.id, range);
        let operation = Operation::Clear {
            collection: id,
            lower: bounds.lower,
            upper: bounds.upper,
        };
        if range.is_all() {
            self.empty(collection)?;
            self.log(collection, |_| operation);
            return Ok(removed);
        }
        if removed <= MAX_SINGLE_REMOVALS {
            let keys = self.remove_one_by_one(collection, &range)?;
            if keys.iter().map(|key| key.len() + 8).sum::<usize>() > MAX_LOGGED_KEY_BYTES {
                self.record(&operation);
            } else {
                // Replay applies these without searching the tree.
                for key in &keys {
                    self.record(&Operation::Delete { collection: id, key });
                }
            }
            self.changed = true;
            self.capture(id, collection, &operation);
            self.merge_if_large()?;
            return Ok(removed);
        }
        // Cuts the range out of the tree; the commit will be a checkpoint.
        self.merge_into_draft()?;
        self.edit(collection, |editor| editor.cut(&range))?;
        self.log(collection, |_| operation);
        self.record = None;
        self.merge_if_large()?;
        Ok(removed)
    }

    /// Removes the records of a range one by one in the fresh memtable; returns their keys.
    pub(super) fn remove_one_by_one(&mut self, collection: &str, range: &KeyRange<'_>) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        if let Some(entry) = self.state.collections.get(collection) {
            let mut cursor = entry.cursor(range, Direction::Forward);
            while cursor.advance(&entry.records(&self.shared.pager))? {
                keys.push(cursor.key().to_vec());
            }
        }
        for key in &keys {
            self.change(collection, key, None, None)?;
        }
        Ok(keys)
    }

    /// Removes all records of a collection.
    pub(super) fn empty(&mut self, collection: &str) -> Result<()> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(());
        };
        if !entry.layers.frozen.is_empty() {
            // Otherwise the tree that it is merged into would have to be given up as well.
            self.thaw()?;
        }
        let Some(entry) = self.entry_mut(collection) else {
            return Ok(());
        };
        let layers = std::mem::take(&mut entry.layers);
        entry.emptied_at = entry.changed_at;
        self.memory_bytes -= layers.bytes();
        self.edit(collection, |editor| {
            let nothing = Memtable::default();
            for (memtable, above) in [(&layers.fresh, &nothing), (&layers.active, &layers.fresh)] {
                for entry in memtable.entries() {
                    if let Some(reference) = entry.reference().filter(|_| above.get(entry.key).is_none()) {
                        editor.retire_value(&LeafCell::decode(reference))?;
                    }
                }
            }
            editor.clear_all()
        })?;
        Ok(())
    }
}

// Collections, and the codecs that they name.
impl ExclusiveTransaction<'_> {
    /// Renames a collection; returns whether it existed.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the new name is taken, [`Error::InvalidArgument`] for bad names.
    pub fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        self.check_usable()?;
        check_name(to, self.shared)?;
        if from == to || !self.state.collections.contains_key(from) {
            return Ok(self.state.collections.contains_key(from));
        }
        if self.state.collections.contains_key(to) {
            return Err(Error::AlreadyExists {
                what: format!("the collection {to}").into(),
            });
        }
        if let Some(collection) = self.state.collections.remove(from) {
            let id = collection.id;
            self.add_renamed(to, collection);
            self.log_as(to, from, |_| Operation::Rename {
                collection: id,
                name: to,
            });
        }
        Ok(true)
    }

    /// Codec ids of a collection's keys and values; empty if none were recorded, `None` if the
    /// collection does not exist.
    #[must_use]
    pub fn codecs(&self, collection: &str) -> Option<(String, String)> {
        let found = self.state.collections.get(collection)?;
        Some((found.key_codec.clone(), found.value_codec.clone()))
    }

    /// Records the codec ids of a collection, creating it if necessary.
    ///
    /// # Errors
    /// [`Error::CodecMismatch`] if it already has others, [`Error::InvalidArgument`] for bad names
    /// or ids.
    pub fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        if key_codec.len().max(value_codec.len()) > MAX_CODEC_BYTES {
            return Err(Error::InvalidArgument {
                what: format!("a codec id has at most {MAX_CODEC_BYTES} bytes").into(),
            });
        }
        self.create(collection)?;
        let entry = self.state.collections.get(collection).expect("it was just created");
        let unset = entry.key_codec.is_empty() && entry.value_codec.is_empty();
        if unset && !(key_codec.is_empty() && value_codec.is_empty()) {
            let entry = self.entry_mut(collection).expect("it was just created");
            key_codec.clone_into(&mut entry.key_codec);
            value_codec.clone_into(&mut entry.value_codec);
            self.log(collection, |collection| Operation::Codecs {
                collection,
                key_codec,
                value_codec,
            });
        } else if entry.key_codec != key_codec || entry.value_codec != value_codec {
            return Err(Error::codec_mismatch(
                collection,
                format!("{}/{}", entry.key_codec, entry.value_codec),
                format!("{key_codec}/{value_codec}"),
            ));
        }
        Ok(())
    }

    /// Removes a collection with all its records; returns whether it existed.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn drop_collection(&mut self, name: &str) -> Result<bool> {
        self.check_usable()?;
        let dropped = self.state.collections.contains_key(name);
        if dropped {
            if !self.indexes(name).is_empty() {
                self.drop_indexes(name)?;
            }
            self.empty(name)?;
            self.log(name, |collection| Operation::Drop { collection });
            self.remove_collection(name)?;
        }
        Ok(dropped)
    }

    /// Removes an emptied collection and the hints for its records.
    pub(super) fn remove_collection(&mut self, name: &str) -> Result<()> {
        if let Some(entry) = self.state.collections.remove(name) {
            let hints = hints_of(entry.id);
            self.empty(&hints)?;
            self.state.collections.remove(&hints);
        }
        Ok(())
    }

    pub(super) fn create(&mut self, name: &str) -> Result<()> {
        self.check_usable()?;
        // About to change, so it is where the next lookups begin.
        if self.state.collections.get_mut(name).is_some() {
            return Ok(());
        }
        check_name(name, self.shared)?;
        self.create_unchecked(name)
    }

    pub(super) fn create_unchecked(&mut self, name: &str) -> Result<()> {
        if self.state.collections.contains_key(name) {
            return Ok(());
        }
        let id = self.writer.take_collection_id()?;
        self.add_collection(id, name);
        self.log(name, |collection| Operation::Create { collection, name });
        Ok(())
    }

    pub(super) fn add_collection(&mut self, id: u32, name: &str) {
        let collection = Collection::new(id, self.state.version + 1);
        self.state.collections.insert(name.to_owned(), collection);
    }

    pub(super) fn add_renamed(&mut self, name: &str, mut collection: Collection) {
        collection.changed_at = self.state.version + 1;
        self.state.collections.insert(name.to_owned(), collection);
    }

    /// A collection, to change its catalog entry.
    pub(super) fn entry_mut(&mut self, name: &str) -> Option<&mut Collection> {
        let entry = self.state.collections.get_mut(name)?;
        entry.changed_at = self.state.version + 1;
        Some(entry)
    }
}

// Hints for records that expire, and the removal of those that have.
impl ExclusiveTransaction<'_> {
    /// Name of the collection with the hints for another one; creates it if necessary.
    pub(super) fn create_hints(&mut self, collection: &str) -> Result<String> {
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let hints = hints_of(id);
        self.create_unchecked(&hints)?;
        Ok(hints)
    }

    pub(super) fn add_hint(&mut self, hints: &str, key: &[u8], expires: u64) -> Result<()> {
        let cell = LeafCell {
            version: self.state.version + 1,
            ..LeafCell::new(0, ValuePlace::Inline(&[]))
        };
        self.put_cell(hints, &hint(expires, key), &cell, None)
    }

    /// Removes up to `limit` expired records from all collections; returns how many hints were due,
    /// whether their records were removed or not. The transaction may have no other changes.
    pub(crate) fn purge(&mut self, limit: usize) -> Result<usize> {
        self.is_purge = true;
        let mut due = 0;
        for (hints, name) in all_hints(&self.state.collections) {
            let Some(entry) = self.state.collections.get(&hints) else {
                continue;
            };
            let entry = entry.clone();
            for hint in due_hints(&self.shared.pager, &entry, self.now, limit - due)? {
                due += 1;
                let key = &hint[HINT_BYTES..];
                if let Some(found) = self.find(&name, key)?
                    && found.record().is_expired(self.now)
                {
                    self.delete(&name, key)?;
                }
                self.delete(&hints, &hint)?;
            }
            if due >= limit {
                break;
            }
        }
        Ok(due)
    }
}

impl Drop for ExclusiveTransaction<'_> {
    fn drop(&mut self) {
        self.shared.pager.reserve(self.shared.newest().memory_bytes());
        if !self.finished {
            let unpublished = self.draft.take_unpublished();
            self.writer.give_back(self.shared, unpublished);
            self.draft = Draft::default();
        }
    }
}

impl std::fmt::Debug for ExclusiveTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExclusiveTransaction")
            .field("version", &self.state.version)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

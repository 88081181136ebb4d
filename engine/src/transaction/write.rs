//! The exclusive write transaction: changes go straight into a draft of the trees.

use super::capture::Capture;
use super::{CommitInfo, WriteBatch};
use crate::error::{Error, Result};
use crate::log::{Log, Operation};
use crate::node::cell::MAX_VALUE_BYTES;
use crate::node::{LeafCell, ValuePlace};
use crate::pages::{BlockWriter, Draft, RetiredPage};
use crate::range::KeyRange;
use crate::state::check_name;
use crate::state::feed::FEED;
use crate::state::{Collection, Entry, MAX_CODEC_BYTES, Shared, Version, Writer, expiry, write_roots};
use crate::sync::MutexGuard;
use crate::tree::{DraftPages, Editor, read, value};

/// A place for the changes, if somebody is to learn of them.
fn begin_capture(shared: &Shared, state: &Version) -> Option<Capture> {
    if state.collections.contains_key(FEED) {
        return Some(Capture::default());
    }
    shared.feed().is_wanted().then(Capture::volatile)
}

/// Longest list of changes that is kept for other transactions where there is no log.
const MAX_RECORD_BYTES: usize = 4 << 20;

/// An exclusive write transaction over any collections. Dropping it undoes everything.
#[allow(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub struct WriteTransaction<'a> {
    pub(super) shared: &'a Shared,
    pub(super) writer: MutexGuard<'a, Writer>,
    pub(super) draft: Draft,
    pub(super) state: Version,
    /// Version that it builds on.
    pub(super) base: u64,
    /// Its changes as the log will have them; `None` once they are too many for a record.
    pub(super) record: Option<Vec<u8>>,
    /// Its changes as the feed will have them, if there is one.
    pub(super) capture: Option<Capture>,
    /// Time of the transaction in milliseconds since 1970.
    pub(super) now: u64,
    /// Something was changed since the transaction began or since the last seal.
    pub(super) changed: bool,
    /// A storage error hit in the middle of a change: the draft is unusable.
    pub(super) failed: Option<Error>,
    pub(super) finished: bool,
    /// It removes nothing but expired records, which nobody sees: no conflict for whoever read them as absent.
    pub(super) is_purge: bool,
    /// It stores something, so that it may not use the reserve.
    pub(super) stores: bool,
    /// Bytes of records that are on their way into a tree.
    pub(super) collected_bytes: usize,
}

impl<'a> WriteTransaction<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Result<Self> {
        Ok(Self::on(shared, shared.writable()?))
    }

    pub(super) fn on(shared: &'a Shared, mut writer: MutexGuard<'a, Writer>) -> Self {
        writer.reclaim_much(shared);
        let state = (*shared.newest()).clone();
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
            collected_bytes: 0,
        }
    }

    /// Stores a record, creating the collection if need be; returns whether the key was there before. O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`] and [`Error::InvalidArgument`] leave the transaction as it was; storage errors
    /// end it.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put(collection, key, value, 0)
    }

    /// As [`set`](Self::set), with an expiry; 0 is none.
    pub(super) fn put(&mut self, collection: &str, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        // What can be refused is refused before the collection is there.
        self.check_lengths(key, value.len(), expires)?;
        self.create(collection)?;
        self.put_record(collection, key, value, expires)
    }

    /// Stores a record in a collection that is there. The lengths were checked.
    pub(super) fn put_record(&mut self, collection: &str, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        self.stores = true;
        // Before the change is logged, so that replaying finds it.
        let hints = match expires {
            0 => None,
            _ => Some(self.create_hints(collection)?),
        };
        let hidden = self.is_hidden(collection, key)?;
        let mut reference = None;
        let version = self.state.version + 1;
        let found = self.edit(collection, |editor| {
            let place = if editor.limits.is_inline(key.len(), value.len()) {
                ValuePlace::Inline(value)
            } else {
                let written = editor.write_value(value)?;
                reference = Some(written);
                ValuePlace::OutOfLine(written)
            };
            let cell = LeafCell {
                version,
                expires,
                ..LeafCell::new(value.len(), place)
            };
            editor.put(key, &cell)
        })?;
        self.log(collection, |collection| match reference {
            None => Operation::Set {
                collection,
                key,
                value,
                expires,
            },
            Some(reference) => Operation::SetOutOfLine {
                collection,
                key,
                value_len: value.len() as u64,
                reference,
                expires,
            },
        });
        if self.capture.is_some() {
            let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
            let operation = Operation::Set {
                collection: id,
                key,
                value,
                expires,
            };
            self.capture(id, collection, &operation);
        }
        if let Some(hints) = hints {
            self.add_hint(&hints, key, expires)?;
        }
        self.spill_if_large()?;
        Ok(found.unwrap_or(false) && !hidden)
    }

    pub(super) fn check_lengths(&self, key: &[u8], value_len: usize, expires: u64) -> Result<()> {
        self.shared.check_key(key)?;
        if value_len > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLarge {
                len_bytes: value_len,
                max_bytes: MAX_VALUE_BYTES,
            });
        }
        if expires != 0 {
            // A hint has the expiry in front of the key.
            self.shared.check_key(&expiry::hint(expires, key))?;
        }
        Ok(())
    }

    /// Whether records of a collection may expire.
    pub(super) fn has_hints(&self, collection: &str) -> bool {
        let collections = &self.state.collections;
        let has_hints = |entry: &Collection| collections.contains_key(&expiry::hints_of(entry.id));
        self.state.has_hidden() && collections.get(collection).is_some_and(has_hints)
    }

    /// Whether a record is there but has expired.
    fn is_hidden(&self, collection: &str, key: &[u8]) -> Result<bool> {
        if !self.has_hints(collection) {
            return Ok(false);
        }
        Ok(self
            .find(collection, key)?
            .is_some_and(|found| found.leaf.record(found.index).is_expired(self.now)))
    }

    pub(super) fn find(&self, collection: &str, key: &[u8]) -> Result<Option<read::Found>> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(None);
        };
        let found = read::find(&self.pages(), entry.root.as_ref(), entry.id, key);
        found.map_err(|error| error.in_collection(collection))
    }

    pub(super) fn pages(&self) -> DraftPages<'_> {
        DraftPages {
            draft: &self.draft,
            pager: &self.shared.pager,
        }
    }

    /// Removes a record; returns whether it was there. O(log n).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        let hidden = self.is_hidden(collection, key)?;
        let found = self.edit(collection, |editor| editor.delete(key))?.unwrap_or(false);
        if found {
            self.log(collection, |collection| Operation::Delete { collection, key });
            self.spill_if_large()?;
        }
        Ok(found && !hidden)
    }

    /// Removes all records of a range; returns how many there were, expired ones included. Copies O(log n) pages; of what it frees it reads
    /// the inner nodes, and the leaves that lead to out-of-line values.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        let removed = self.edit(collection, |editor| editor.clear(&range))?.unwrap_or(0);
        if removed > 0 {
            self.log(collection, |collection| Operation::Clear {
                collection,
                lower: range.lower,
                upper: range.upper,
            });
            self.spill_if_large()?;
        }
        Ok(removed)
    }

    /// Gives a collection another name; returns whether it was there.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if there is one of the new name, [`Error::InvalidArgument`] for bad names.
    pub fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        self.check_usable()?;
        check_name(to, self.shared)?;
        if from == to || !self.state.collections.contains_key(from) {
            return Ok(self.state.collections.contains_key(from));
        }
        if self.state.collections.contains_key(to) {
            return Err(Error::AlreadyExists {
                what: ["the collection ", to].concat(),
            });
        }
        if let Some(collection) = self.state.collections.remove(from) {
            let id = collection.id;
            self.state.collections.insert(to.to_owned(), collection);
            self.log_as(to, from, |_| Operation::Rename {
                collection: id,
                name: to,
            });
        }
        Ok(true)
    }

    /// The codec ids of a collection for keys and values; empty ones if none were recorded, `None` if it is not there.
    #[must_use]
    pub fn codecs(&self, collection: &str) -> Option<(String, String)> {
        let found = self.state.collections.get(collection)?;
        Some((found.key_codec.clone(), found.value_codec.clone()))
    }

    /// Records the codec ids of a collection, creating it if need be.
    ///
    /// # Errors
    /// [`Error::CodecMismatch`] if it has others already, [`Error::InvalidArgument`] for bad names or ids.
    pub fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        if key_codec.len().max(value_codec.len()) > MAX_CODEC_BYTES {
            return Err(Error::InvalidArgument {
                what: format!("a codec id has at most {MAX_CODEC_BYTES} bytes"),
            });
        }
        self.create(collection)?;
        let entry = self.state.collections.get_mut(collection).expect("it was just created");
        let unset = entry.key_codec.is_empty() && entry.value_codec.is_empty();
        if unset && !(key_codec.is_empty() && value_codec.is_empty()) {
            key_codec.clone_into(&mut entry.key_codec);
            value_codec.clone_into(&mut entry.value_codec);
            self.log(collection, |collection| Operation::Codecs {
                collection,
                key_codec,
                value_codec,
            });
        } else if entry.key_codec != key_codec || entry.value_codec != value_codec {
            return Err(Error::CodecMismatch {
                collection: collection.into(),
                stored: [&entry.key_codec, "/", &entry.value_codec].concat().into(),
                requested: [key_codec, "/", value_codec].concat().into(),
            });
        }
        Ok(())
    }

    /// Removes a collection with all its records; returns whether it was there.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn drop_collection(&mut self, name: &str) -> Result<bool> {
        let dropped = self.edit(name, |editor| editor.clear(&KeyRange::all()))?.is_some();
        if dropped {
            self.log(name, |collection| Operation::Drop { collection });
            self.remove_collection(name)?;
        }
        Ok(dropped)
    }

    /// Removes an emptied collection and the hints about its records.
    pub(super) fn remove_collection(&mut self, name: &str) -> Result<()> {
        if let Some(entry) = self.state.collections.remove(name) {
            let hints = expiry::hints_of(entry.id);
            if self.edit(&hints, |editor| editor.clear(&KeyRange::all()))?.is_some() {
                self.state.collections.remove(&hints);
            }
        }
        Ok(())
    }

    /// Reads a record, this transaction's own writes included.
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
        let record = found.leaf.record(found.index);
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

    /// Applies a batch; returns how many of the keys it deletes were there.
    ///
    /// # Errors
    /// As the single operations. Names and lengths are checked for the whole batch before anything is changed; an error after that ends the
    /// transaction.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<u64> {
        for operation in batch.operations() {
            let value_len = operation.value.as_ref().map_or(0, Vec::len);
            self.shared
                .check_record(&operation.collection, &operation.key, value_len, None)?;
        }
        self.together(|transaction| transaction.apply_checked(batch))
    }

    fn apply_checked(&mut self, batch: &WriteBatch) -> Result<u64> {
        let mut removed = 0;
        for operations in batch.operations().chunk_by(|a, b| a.collection == b.collection) {
            let [first, ..] = operations else { continue };
            if operations.iter().all(|operation| operation.value.is_none())
                && !self.state.collections.contains_key(&first.collection)
            {
                // Removing what is not there does not make the collection.
                continue;
            }
            let mut many = self.change_many(&first.collection)?;
            for operation in operations {
                match &operation.value {
                    Some(value) => many.set(&operation.key, value)?,
                    None => many.delete(&operation.key)?,
                }
            }
            removed += many.finish()?;
        }
        Ok(removed)
    }

    /// Runs changes that belong together. If they fail when some of them were made already, the transaction cannot be committed any more.
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

    /// Ends the commit so far, which gets a version of its own, and begins the next one. All sealed commits become visible and durable
    /// together with [`commit`](Self::commit); an error or drop undoes all of them.
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

    pub(super) fn create(&mut self, name: &str) -> Result<()> {
        self.check_usable()?;
        if self.state.collections.contains_key(name) {
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
        let collection = Collection {
            id,
            root: None,
            key_codec: String::new(),
            value_codec: String::new(),
        };
        self.state.collections.insert(name.to_owned(), collection);
    }

    /// Takes note of a change that was made.
    fn log<'o>(&mut self, name: &str, operation: impl FnOnce(u32) -> Operation<'o>) {
        self.log_as(name, name, operation);
    }

    /// As [`log`](Self::log), for a collection that had the name `before`.
    fn log_as<'o>(&mut self, name: &str, before: &str, operation: impl FnOnce(u32) -> Operation<'o>) {
        self.changed = true;
        if self.record.is_none() && self.capture.is_none() {
            return;
        }
        let Some(id) = self.state.collections.get(name).map(|entry| entry.id) else {
            return;
        };
        let operation = operation(id);
        // Records that are stored are captured with their values.
        if !matches!(operation, Operation::Set { .. } | Operation::SetOutOfLine { .. }) {
            self.capture(id, before, &operation);
        }
        self.record(&operation);
    }

    /// Takes note of a record that is stored with its value in place.
    pub(super) fn log_set(&mut self, name: &str, id: u32, operation: &Operation<'_>) {
        self.changed = true;
        self.stores = true;
        self.capture(id, name, operation);
        self.record(operation);
    }

    /// Takes note of the removal of a record that may not be there.
    pub(super) fn log_delete(&mut self, collection: u32, key: &[u8]) {
        self.record(&Operation::Delete { collection, key });
    }

    fn record(&mut self, operation: &Operation<'_>) {
        let Some(record) = &mut self.record else { return };
        operation.encode(record);
        let max = self.writer.log.as_ref().map_or(MAX_RECORD_BYTES, Log::max_payload);
        if record.len() > max {
            self.record = None;
        }
    }

    /// Writes the draft's pages to fresh extents once they take most of the cache. Nothing refers to those extents but the draft, so
    /// dropping it is still enough to undo everything. The log could not tell of such extents, so the commit will be a checkpoint.
    pub(super) fn spill_if_large(&mut self) -> Result<()> {
        self.write_chunks()?;
        let bytes = self.draft.bytes + self.collected_bytes;
        self.shared.pager.reserve(bytes);
        if bytes <= self.shared.config.max_dirty_bytes() {
            return Ok(());
        }
        self.record = None;
        let result = self.spill();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    pub(super) fn spill(&mut self) -> Result<()> {
        self.release_spilled()?;
        let generation = self.writer.superblock.generation + 1;
        let compression = self.shared.config.compression;
        let pager = &self.shared.pager;
        let space = &mut self.writer.space;
        let mut writer = BlockWriter::new(pager, &self.draft, &mut space.free, generation, compression);
        let roots = write_roots(&mut writer, &self.state);
        let finished = writer.finish();
        let (allocated, written) = (
            std::mem::take(&mut writer.allocated),
            std::mem::take(&mut writer.written),
        );
        let spilled = &mut self.draft.spilled;
        spilled.extend(allocated.iter().map(|extent| (extent.start, extent.units)));
        finished?;
        let roots = roots?;
        for page in written {
            match self.draft.pages.remove(&page.number) {
                Some(own) => self.draft.bytes -= own.memory_bytes(),
                None => self.draft.retired_pages.push(RetiredPage {
                    number: page.number,
                    stamp: page.stamp,
                }),
            }
            pager.insert_clean(page.reference.unit, page.node);
        }
        for (name, root) in roots {
            if let Some(collection) = self.state.collections.get_mut(&name) {
                collection.root = Some(root);
            }
        }
        Ok(())
    }

    /// Runs a change on a collection's tree; `None` if there is no such collection.
    pub(super) fn edit<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Editor<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get_mut(name) else {
            return Ok(None);
        };
        let config = &self.shared.config;
        let generation = self.writer.superblock.generation + 1;
        let mut editor = Editor {
            pager: &self.shared.pager,
            draft: &mut self.draft,
            free: &mut self.writer.space.free,
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

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        self.shared.pager.reserve(0);
        if !self.finished {
            let unpublished = self.draft.take_unpublished();
            self.writer.give_back(self.shared, unpublished);
            self.draft = Draft::default();
            self.writer.is_full |= matches!(self.failed, Some(Error::StorageFull { .. }));
            // What failed for lack of room can be tried again.
            self.writer.reclaim(self.shared);
        }
    }
}

impl std::fmt::Debug for WriteTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteTransaction")
            .field("version", &self.state.version)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

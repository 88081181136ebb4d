//! Repeats changes made earlier: replay of the log, whose records have one or more commits each, and the restore
//! of a backup.

use super::{ExclusiveTransaction, ReadWrite};
use crate::block::Kind;
use crate::error::{Error, Result};
use crate::log::{Operation, Operations, Replay};
use crate::node::{LeafCell, ValuePlace};
use crate::pages::Extent;
use crate::range::KeyRange;
use crate::state::index::decode_indexes;
use crate::state::{Change, Shared};
use crate::tree::value::CHUNK_BYTES;
use crate::tree::{read, value};

/// Brings a newly opened database to the state at the end of its log. Writes nothing, unless it
/// `may_merge` memtables that exceed the memory.
pub(crate) fn apply_log(shared: &Shared, replay: &mut Replay<'_>, may_merge: bool) -> Result<()> {
    if replay.is_empty() {
        return Ok(());
    }
    let mut transaction = ExclusiveTransaction::for_replay(shared);
    // A partial checkpoint was made after its log was flushed.
    let flushed_version = transaction.writer.superblock.log_reaches;
    let mut applied = 0;
    while let Some((record, payload)) = replay.read(applied)? {
        let is_confirmed = record.confirmed || record.version <= flushed_version;
        if !is_confirmed && !transaction.blocks_are_there(&payload)? {
            break;
        }
        transaction.apply_record(&payload, true)?;
        if transaction.state.version != record.version {
            return Err(Error::corrupt(format!(
                "the log lacks commits before version {}, which were in a checkpoint that is lost; files that were copied \
                 while the database was written to look like this: make copies with backup",
                record.version
            )));
        }
        if may_merge && transaction.memory_bytes > shared.config.max_memtable_bytes() {
            transaction.merge_replayed()?;
        }
        applied += 1;
    }
    replay.truncate(applied)?;
    transaction.end_merges()?;
    let state = std::mem::take(&mut transaction.state);
    transaction.writer.stage(shared, state, &mut transaction.draft, false);
    transaction.finished = true;
    Ok(())
}

impl<'a> ExclusiveTransaction<'a> {
    fn for_replay(shared: &'a Shared) -> Self {
        let mut transaction = Self::on(shared, shared.lock_writer());
        transaction.record = None;
        transaction
    }

    /// Merges the memtables into trees that nothing durable refers to.
    fn merge_replayed(&mut self) -> Result<()> {
        let blocks = &self.shared.pager.blocks;
        let free = &self.writer.space.free;
        // Records that follow may name any free extent of the file as it is.
        free.set_floor(
            blocks
                .file()
                .len()?
                .div_ceil(blocks.unit_bytes() as u64)
                .max(free.floor()),
        );
        self.writer.merge_all(self.shared, &mut self.state, &mut self.draft)?;
        self.writer.trees_are_ahead = true;
        self.memory_bytes = 0;
        self.shared.pager.reserve(0);
        Ok(())
    }

    /// Makes the blocks of these trees like those of any version that no checkpoint has yet.
    fn end_merges(&mut self) -> Result<()> {
        self.writer.space.free.set_floor(0);
        self.release_spilled()?;
        self.draft.spilled.clear();
        Ok(())
    }

    /// Whether all out-of-line values of a record that may not have been flushed are on disk.
    fn blocks_are_there(&self, payload: &[u8]) -> Result<bool> {
        for operation in Operations::new(payload) {
            if let Operation::SetOutOfLine {
                collection,
                value_len,
                reference,
                ..
            } = operation?
            {
                let blocks = &self.shared.pager.blocks;
                let len = usize::try_from(value_len).unwrap_or(usize::MAX);
                if !value::is_readable(blocks, collection, len, &reference)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Applies the changes of a record. With `reserves`, the blocks of the values that it names are
    /// taken out of the free space.
    fn apply_record(&mut self, payload: &[u8], reserves: bool) -> Result<()> {
        for operation in Operations::new(payload) {
            self.apply_operation(&operation?, reserves)?;
        }
        Ok(())
    }

    /// Repeats the changes of this transaction.
    pub(super) fn repeat_record(&mut self, record: &[u8]) -> Result<()> {
        self.apply_record(record, false)
    }

    fn name_of(&self, collection: u32) -> Result<String> {
        let found = self.state.collections.by_id(collection);
        let missing = || Error::corrupt(format!("the log names collection {collection}, which does not exist"));
        found.map(|(name, _)| name.clone()).ok_or_else(missing)
    }

    fn apply_operation(&mut self, operation: &Operation<'_>, reserves: bool) -> Result<()> {
        match *operation {
            Operation::Set {
                collection,
                key,
                value,
                expires,
                index_keys,
            } => {
                let cell = LeafCell {
                    index_keys,
                    ..LeafCell::new(value.len(), ValuePlace::Inline(value))
                };
                if !self.shared.config.limits.is_inline(key.len(), value.len()) {
                    return Err(Error::corrupt("the log holds a value that is too long for a leaf"));
                }
                self.put_again(collection, key, cell, expires)?;
            }
            Operation::SetOutOfLine {
                collection,
                key,
                value_len,
                reference,
                expires,
                index_keys,
            } => {
                let value_len = usize::try_from(value_len).unwrap_or(usize::MAX);
                let cell = LeafCell {
                    index_keys,
                    ..LeafCell::new(value_len, ValuePlace::OutOfLine(reference))
                };
                if reserves && !self.reserve_value(collection, &cell)? && self.is_merged(collection, key, &cell)? {
                    // The hints are another tree, of which the checkpoint may hold less.
                    return self.add_hint_again(collection, key, expires);
                }
                self.put_again(collection, key, cell, expires)?;
            }
            Operation::Delete { collection, key } => {
                let name = self.name_of(collection)?;
                self.change(&name, key, None, None)?;
            }
            Operation::Clear {
                collection,
                lower,
                upper,
            } => {
                let name = self.name_of(collection)?;
                let range = KeyRange { lower, upper };
                if range.is_all() {
                    self.empty(&name)?;
                } else {
                    self.remove_one_by_one(&name, &range)?;
                }
            }
            Operation::Create { collection, name } => {
                self.writer.reserve_collection_id(collection);
                self.add_collection(collection, name);
            }
            Operation::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                let name = self.name_of(collection)?;
                if let Some(entry) = self.entry_mut(&name) {
                    key_codec.clone_into(&mut entry.key_codec);
                    value_codec.clone_into(&mut entry.value_codec);
                }
            }
            Operation::Drop { collection } => {
                let name = self.name_of(collection)?;
                self.empty(&name)?;
                self.remove_collection(&name)?;
            }
            Operation::Rename { collection, name } => {
                let from = self.name_of(collection)?;
                if let Some(entry) = self.state.collections.remove(&from) {
                    self.add_renamed(name, entry);
                }
            }
            Operation::Indexes { collection, list } => {
                let malformed = || Error::corrupt("the log holds a malformed list of indexes");
                let indexes = decode_indexes(list).ok_or_else(malformed)?;
                let name = self.name_of(collection)?;
                if let Some(entry) = self.entry_mut(&name) {
                    entry.indexes = (!indexes.is_empty()).then_some(indexes);
                }
            }
            Operation::End => self.state.version += 1,
            Operation::Expire { .. } => return Err(Error::corrupt("the log holds a change that only feeds have")),
        }
        Ok(())
    }

    fn put_again(&mut self, collection: u32, key: &[u8], cell: LeafCell<'_>, expires: u64) -> Result<()> {
        self.shared.check_key_len(key.len())?;
        let (limits, keys_len) = (&self.shared.config.limits, cell.index_keys.len());
        if keys_len > 0 && !limits.fits_index_keys(key.len(), keys_len, cell.stored_len()) {
            return Err(Error::corrupt("the log holds index keys that are too long for a leaf"));
        }
        let name = self.name_of(collection)?;
        let cell = LeafCell {
            version: self.version_of(&name, key),
            expires,
            ..cell
        };
        self.put_cell(&name, key, &cell, None)?;
        self.add_hint_again(collection, key, expires)
    }

    fn add_hint_again(&mut self, collection: u32, key: &[u8], expires: u64) -> Result<()> {
        if expires != 0 {
            let hints = self.create_hints(&self.name_of(collection)?)?;
            self.add_hint(&hints, key, expires)?;
        }
        Ok(())
    }

    /// Takes the extents of an already written value out of the free space. `false`: they are in
    /// use, by this value. In that case a partial checkpoint contains the value or keeps its place.
    fn reserve_value(&mut self, owner: u32, cell: &LeafCell<'_>) -> Result<bool> {
        let blocks = &self.shared.pager.blocks;
        let mut is_free = true;
        for reference in value::references(blocks, owner, cell)? {
            let extent = Extent::of(&reference);
            let free = &self.writer.space.free;
            if free.reserve(extent) || (free.floor() > 0 && self.draft.reuse(extent)) {
                continue;
            }
            is_free = false;
            if blocks
                .read(&reference, &[Kind::ValueChunk, Kind::ValueIndex], owner)
                .is_err()
            {
                return Err(Error::corrupt_at(
                    extent.start,
                    "the log refers to a block that is in use",
                ));
            }
        }
        Ok(is_free)
    }

    /// Whether the tree already holds this very value. If so, drops the key's changes made by
    /// earlier records, and nothing else is left to do.
    fn is_merged(&mut self, collection: u32, key: &[u8], cell: &LeafCell<'_>) -> Result<bool> {
        let name = self.name_of(collection)?;
        let Some(entry) = self.state.collections.get(&name) else {
            return Ok(false);
        };
        let found = read::find(&self.shared.pager, entry.root.as_ref(), collection, key)?;
        if found.is_none_or(|found| found.leaf.record(found.index).place != cell.place) {
            return Ok(false);
        }
        self.forget(&name, key)?;
        Ok(true)
    }
}

// Restore of a backup.
impl ExclusiveTransaction<'_> {
    /// Stores a record whose value `fill` supplies: each call appends the given number of bytes.
    /// The lengths must already have been checked. After an error the transaction can only be
    /// dropped.
    pub(crate) fn set_from(
        &mut self,
        collection: &str,
        key: &[u8],
        expires: u64,
        value_len: usize,
        fill: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
    ) -> Result<()> {
        if value_len <= CHUNK_BYTES {
            let mut value = Vec::new();
            fill(&mut value, value_len)?;
            let expires_at = (expires != 0).then_some(expires);
            return self.set_until(collection, key, &value, expires_at).map(drop);
        }
        self.create(collection)?;
        // The log does not record the value: a restore ends with a checkpoint.
        self.record = None;
        let Some(reference) = self.edit(collection, |editor| editor.write_long_value(value_len, fill))? else {
            return Ok(());
        };
        let cell = LeafCell {
            version: self.state.version + 1,
            expires,
            ..LeafCell::new(value_len, ValuePlace::OutOfLine(reference))
        };
        self.put_cell(collection, key, &cell, None)?;
        if expires != 0 {
            let hints = self.create_hints(collection)?;
            self.add_hint(&hints, key, expires)?;
        }
        self.merge_if_large()
    }

    /// Gives the commit this version, which is beyond the base version, instead of the next one,
    /// even if the commit changes nothing. The log cannot skip versions, so this makes a
    /// checkpoint.
    pub(crate) fn start_as(&mut self, version: u64) {
        self.state.version = version - 1;
        self.draft.version = version;
        self.record = None;
        self.changed = true;
    }

    /// Version of the newest commit in the transaction, including sealed ones.
    pub(crate) fn version(&self) -> u64 {
        self.state.version
    }

    pub(crate) fn database_id(&self) -> u128 {
        self.shared.config.database_id
    }

    /// Ends the current commit, even if it changes nothing, and begins the next one.
    pub(crate) fn seal_always(&mut self) {
        self.changed = true;
        self.seal();
    }

    /// Repeats a change made earlier in this database or in the one that it is a copy of.
    pub(crate) fn repeat(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Set {
                collection,
                key,
                value,
                expires_at,
            } => self.set_until(collection, key, value, *expires_at).map(drop),
            Change::Delete { collection, key, .. } => self.delete(collection, key).map(drop),
            Change::Clear {
                collection,
                lower,
                upper,
            } => {
                let range = KeyRange {
                    lower: lower.as_ref().map(Vec::as_slice),
                    upper: upper.as_ref().map(Vec::as_slice),
                };
                self.clear(collection, range).map(drop)
            }
            Change::Create { collection } => self.create(collection),
            Change::Codecs {
                collection,
                key_codec,
                value_codec,
            } => self.set_codecs(collection, key_codec, value_codec),
            Change::Drop { collection } => self.drop_collection(collection).map(drop),
            Change::Rename { from, to } => self.rename_collection(from, to).map(drop),
        }
    }
}

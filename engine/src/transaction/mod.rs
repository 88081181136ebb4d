//! Write transactions: changes collect in a draft and become visible and durable together.
//!
//! There is one writer at a time; readers never wait for it. The log will take its place here: a commit then appends one record to the
//! log where it now makes a checkpoint (see [`WriteTransaction::commit`]).

use std::sync::{Arc, MutexGuard};

use crate::database::{Collection, MAX_CODEC_BYTES, MAX_NAME_BYTES, Shared, Version, Writer};
use crate::error::{Error, Result};
use crate::node::cell::MAX_VALUE_BYTES;
use crate::tree::{DraftPages, Editor, KeyRange, read, value};

mod batch;
mod draft;

pub use batch::WriteBatch;
pub(crate) use draft::Draft;

/// When a commit survives what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On disk when the call returns.
    #[default]
    Strict,
    /// Survives process death when the call returns and power loss soon after. As long as there is no log it is as strong as `Strict`.
    Relaxed,
    /// Visible at once, durable with the next strict commit, checkpoint or close.
    None,
}

/// What a commit reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitInfo {
    /// Commit sequence number: 1 for the first commit of a database.
    pub version: u64,
}

/// An exclusive write transaction over any collections. Dropping it undoes everything.
pub struct WriteTransaction<'a> {
    shared: &'a Shared,
    writer: MutexGuard<'a, Writer>,
    draft: Draft,
    state: Version,
    /// Something was changed since the transaction began or since the last seal.
    changed: bool,
    /// A storage error hit in the middle of a change: the draft is unusable.
    failed: Option<Error>,
    finished: bool,
}

impl<'a> WriteTransaction<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Result<Self> {
        let writer = shared.writable()?;
        let state = (*shared.current()).clone();
        Ok(Self {
            shared,
            writer,
            draft: Draft::new(state.version + 1),
            state,
            changed: false,
            failed: None,
            finished: false,
        })
    }

    /// Stores a record, creating the collection if need be; returns whether the key was there before. O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`] and [`Error::InvalidArgument`] leave the transaction as it was; storage errors
    /// end it.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> Result<bool> {
        self.shared.check_key(key)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLarge {
                len_bytes: value.len(),
                max_bytes: MAX_VALUE_BYTES,
            });
        }
        self.create(collection)?;
        self.edit(collection, |editor| editor.set(key, value)).map(|found| {
            self.changed = true;
            found.unwrap_or(false)
        })
    }

    /// Removes a record; returns whether it was there. O(log n).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> Result<bool> {
        let found = self.edit(collection, |editor| editor.delete(key))?.unwrap_or(false);
        self.changed |= found;
        Ok(found)
    }

    /// Removes all records of a range; returns how many there were. O(pages of the range).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        let removed = self.edit(collection, |editor| editor.clear(&range))?.unwrap_or(0);
        self.changed |= removed > 0;
        Ok(removed)
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
            self.changed = true;
        } else if entry.key_codec != key_codec || entry.value_codec != value_codec {
            return Err(Error::CodecMismatch {
                collection: collection.to_owned(),
                stored: format!("{}/{}", entry.key_codec, entry.value_codec),
                requested: format!("{key_codec}/{value_codec}"),
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
            self.state.collections.remove(name);
            self.changed = true;
        }
        Ok(dropped)
    }

    /// Reads a record, this transaction's own writes included.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get(&self, collection: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(None);
        };
        let pages = DraftPages {
            draft: &self.draft,
            pager: &self.shared.pager,
        };
        let read = || {
            let Some(found) = read::find(&pages, entry.root.as_ref(), entry.id, key)? else {
                return Ok(None);
            };
            let mut bytes = Vec::new();
            let record = found.leaf.record(found.index);
            value::read(&self.shared.pager.blocks, entry.id, &record, &mut bytes)?;
            Ok(Some(bytes))
        };
        read().map_err(|error: Error| error.in_collection(collection))
    }

    /// Applies a batch; returns how many of the keys it deletes were there.
    ///
    /// # Errors
    /// As the single operations. Lengths are checked for the whole batch before anything is changed.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<u64> {
        for operation in batch.operations() {
            self.shared.check_key(&operation.key)?;
            check_name(&operation.collection, self.shared)?;
        }
        let mut removed = 0;
        for operation in batch.operations() {
            match &operation.value {
                Some(value) => {
                    self.set(&operation.collection, &operation.key, value)?;
                }
                None => removed += u64::from(self.delete(&operation.collection, &operation.key)?),
            }
        }
        Ok(removed)
    }

    /// Ends the commit so far, which gets a version of its own, and begins the next one. All sealed commits become visible and durable
    /// together with [`commit`](Self::commit); an error or drop undoes all of them.
    pub fn seal(&mut self) -> CommitInfo {
        if self.changed {
            self.state.version += 1;
            self.changed = false;
        }
        CommitInfo {
            version: self.state.version,
        }
    }

    /// Makes the changes visible and, unless `durability` is [`Durability::None`], durable together with all commits before them.
    ///
    /// # Errors
    /// On any error the transaction is undone. [`Error::StorageFull`]: try again when there is space. [`Error::Poisoned`] and
    /// [`Error::Io`]: see there.
    pub fn commit(mut self, durability: Durability) -> Result<CommitInfo> {
        self.check_usable()?;
        let info = self.seal();
        let unchanged = self.state.version == self.shared.current().version;
        // The prefix rule: a durable commit, even an empty one, makes all commits before it durable.
        if unchanged && (durability == Durability::None || self.writer.is_durable(&self.state)) {
            return Ok(info);
        }
        let mut state = std::mem::take(&mut self.state);
        let dirty = self.draft.bytes + self.shared.pager.dirty_bytes();
        let spill = dirty > self.shared.config.cache_bytes / 2;
        if durability == Durability::None && !spill {
            self.writer.publish(self.shared, state, &mut self.draft);
        } else {
            // The seam for the log: appending a record here, instead of the checkpoint, makes the commit durable.
            self.writer.checkpoint(self.shared, &mut state, &mut self.draft)?;
        }
        self.finished = true;
        Ok(info)
    }

    fn check_usable(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn create(&mut self, name: &str) -> Result<()> {
        self.check_usable()?;
        if self.state.collections.contains_key(name) {
            return Ok(());
        }
        check_name(name, self.shared)?;
        let collection = Collection {
            id: self.writer.take_collection_id()?,
            root: None,
            key_codec: String::new(),
            value_codec: String::new(),
        };
        self.state.collections.insert(name.to_owned(), collection);
        self.changed = true;
        Ok(())
    }

    /// Runs a change on a collection's tree; `None` if there is no such collection.
    fn edit<T>(&mut self, name: &str, change: impl FnOnce(&mut Editor<'_>) -> Result<T>) -> Result<Option<T>> {
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

fn check_name(name: &str, shared: &Shared) -> Result<()> {
    let max = MAX_NAME_BYTES.min(shared.config.limits.max_key_bytes);
    if name.len() > max {
        return Err(Error::InvalidArgument {
            what: format!(
                "the collection name has {} bytes, at most {max} are allowed",
                name.len()
            ),
        });
    }
    Ok(())
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Blocks of out-of-line values were written to space that nothing refers to.
            let allocated = std::mem::take(&mut self.draft.allocated);
            self.writer.give_back(allocated);
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

/// Pages of a draft on their way to the page table.
pub(crate) fn into_pages(draft: &mut Draft) -> impl Iterator<Item = (u64, Arc<crate::node::Node>)> {
    std::mem::take(&mut draft.pages).into_iter()
}

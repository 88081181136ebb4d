//! Staged values: written in parts before the commit that stores them, so that no value has to be in
//! memory as a whole.
//!
//! Each full chunk goes to a newly allocated extent at once. Only memory knows of these extents: a
//! checkpoint counts them as free (`FreeExtents::staged`), so a crash leaves nothing behind. A
//! transaction that stores the value takes them over, and its log record names them like those of
//! any out-of-line value.

use std::sync::Arc;

use super::ExclusiveTransaction;
use super::write::stored_expiry;
use crate::block::{BlockInfo, BlockRef, Kind, REF_BYTES};
use crate::error::{Error, Result};
use crate::log::Operation;
use crate::node::cell::MAX_VALUE_BYTES;
use crate::node::{LeafCell, ValuePlace};
use crate::pages::{Extent, FreeSpace};
use crate::state::{Shared, Writer, expiry};
use crate::tree::value::{self, CHUNK_BYTES};

/// A value that is written in parts, for one collection.
///
/// It holds at most a chunk, 1 MiB, in memory. Nobody sees it before
/// [`put_staged`](ExclusiveTransaction::put_staged). Dropping it gives its space back, as does closing
/// the database.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Durability, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// # database.set("films", b"old", b"", Durability::Relaxed)?;
/// let mut film = database.stage_value("films")?;
/// for part in [b"reel 1", b"reel 2"] {
///     film.append(part)?;
/// }
/// let mut transaction = database.begin()?;
/// transaction.put_staged("films", b"new", film, None)?;
/// transaction.commit(Durability::Strict)?;
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct StagedValue {
    shared: Arc<Shared>,
    free: FreeSpace,
    /// Id of the collection, which the blocks name as their owner.
    owner: u32,
    /// Full chunks.
    chunks: Vec<BlockRef>,
    /// The bytes that follow them, less than a chunk.
    rest: Vec<u8>,
    /// An error that left part of an `append` undone.
    failed: Option<Error>,
}

impl StagedValue {
    pub(crate) fn new(shared: &Arc<Shared>, collection: &str) -> Result<Self> {
        let free = shared.writable()?.space.free.clone();
        let newest = shared.newest();
        let found = newest.collections.get(collection);
        match found.filter(|_| !collection.starts_with(expiry::HIDDEN)) {
            Some(found) => Ok(Self {
                shared: Arc::clone(shared),
                free,
                owner: found.id,
                chunks: Vec::new(),
                rest: Vec::new(),
                failed: None,
            }),
            None => Err(Error::NotFound {
                what: format!("the collection {collection}").into(),
            }),
        }
    }

    /// Number of bytes appended.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES + self.rest.len()) as u64
    }

    /// Whether nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.rest.is_empty()
    }

    /// The collection that owns the value's blocks, and those written so far.
    #[cfg(feature = "testing")]
    pub(crate) fn blocks(&self) -> (u32, &[BlockRef]) {
        (self.owner, &self.chunks)
    }

    /// Appends bytes. Writes each chunk that they fill; waits for the writer then, so the calling
    /// thread must not hold a [`ExclusiveTransaction`].
    ///
    /// # Errors
    /// [`Error::ValueTooLarge`] leaves the value as it was. After any other error it can only be
    /// dropped: [`Error::StorageFull`], [`Error::Io`], [`Error::Poisoned`], and [`Error::Closed`]
    /// once the database was closed.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let len = self.len() + bytes.len() as u64;
        if len > MAX_VALUE_BYTES as u64 {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            return Err(Error::value_too_large(len, MAX_VALUE_BYTES));
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == CHUNK_BYTES {
                self.write_chunk()
                    .inspect_err(|error| self.failed = Some(error.clone()))?;
            }
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut writer = shared.writable()?;
        let mut written = self.write_rest(&shared, &mut writer);
        if matches!(written, Err(Error::StorageFull { .. }))
            && writer.reclaim_space(&shared).is_ok_and(|is_freed| is_freed)
        {
            written = self.write_rest(&shared, &mut writer);
        }
        written
    }

    /// Writes the appended bytes to an extent of its own.
    fn write_rest(&mut self, shared: &Shared, writer: &mut Writer) -> Result<()> {
        let info = BlockInfo {
            kind: Kind::ValueChunk,
            level: 0,
            owner: self.owner,
            generation: writer.superblock.generation + 1,
        };
        let blocks = &shared.pager.blocks;
        let mut encoded = Vec::new();
        let mut reference = blocks.encode(info, &[&self.rest], shared.config.compression, &mut encoded);
        // The writer's lock is held until the chunk is written: a checkpoint may truncate the file
        // behind what it knows of.
        let extent = self.free.allocate(u64::from(reference.units))?;
        if !self.free.stage(extent) {
            self.free.free(extent)?;
            return Err(Error::Closed);
        }
        blocks.place(&mut encoded, &mut reference, extent.start);
        let written = blocks.write_units(extent.start, &encoded);
        // Otherwise staged values could take the space in which to merge and to remove.
        let admitted = written.and_then(|()| writer.admit(shared, &shared.newest(), Some(0)));
        if let Err(error) = admitted {
            self.free.free_staged(extent);
            self.free.trim_end();
            if matches!(error, Error::StorageFull { .. }) {
                writer.cut_free_tail(shared);
            }
            return Err(error);
        }
        self.chunks.push(reference);
        self.rest.clear();
        Ok(())
    }
}

impl Drop for StagedValue {
    fn drop(&mut self) {
        // Without the writer's lock, which the thread may hold. So the end of the file stays where a
        // checkpoint under way expects it.
        for chunk in &self.chunks {
            self.free.free_staged(Extent::of(chunk));
        }
    }
}

impl std::fmt::Debug for StagedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StagedValue")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl ExclusiveTransaction<'_> {
    /// Stores a staged value as a record that expires at `expires_at` milliseconds since 1970, or
    /// never, without checking whether the key exists.
    ///
    /// The staged value is used up even if the call or the commit fails. While a feed is stored or
    /// followed, the whole value is read into memory for it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the value was staged for another collection or database, or for
    /// one of this name that was dropped since; the error of an `append` that failed; otherwise as
    /// [`put_until`](Self::put_until).
    pub fn put_staged(
        &mut self,
        collection: &str,
        key: &[u8],
        mut staged: StagedValue,
        expires_at: Option<u64>,
    ) -> Result<()> {
        self.check_usable()?;
        self.check_unindexed(collection)?;
        if let Some(error) = &staged.failed {
            return Err(error.clone());
        }
        let expires = stored_expiry(expires_at);
        // `append` checked the length.
        let value_len = staged.chunks.len() * CHUNK_BYTES + staged.rest.len();
        self.shared.check_lengths(key, value_len, expires != 0)?;
        let owner = self.state.collections.get(collection).map(|entry| entry.id);
        if !std::ptr::eq(self.shared, &raw const *staged.shared) || owner != Some(staged.owner) {
            return Err(Error::InvalidArgument {
                what: "the value was staged for another collection, or one that is gone".into(),
            });
        }
        if staged.chunks.is_empty() {
            return self.store(collection, key, &staged.rest, expires, &[], None);
        }
        let chunks = std::mem::take(&mut staged.chunks);
        for chunk in &chunks {
            let extent = Extent::of(chunk);
            if staged.free.unstage(extent) {
                self.draft.allocated.push(extent);
            }
        }
        let reference = self.edit_or_reclaim(collection, |editor| {
            let mut index: Vec<u8> = chunks.iter().flat_map(BlockRef::encode).collect();
            if !staged.rest.is_empty() {
                let last = editor.write_value_block(Kind::ValueChunk, &staged.rest)?;
                index.extend_from_slice(&last.encode());
            }
            if index.len() == REF_BYTES {
                return Ok(chunks[0]);
            }
            editor.write_value_block(Kind::ValueIndex, &index)
        })?;
        let Some(reference) = reference else { return Ok(()) };
        self.put_written(collection, key, value_len, reference, expires)
    }

    /// As [`store`](Self::store), for a value whose blocks are written.
    fn put_written(
        &mut self,
        collection: &str,
        key: &[u8],
        value_len: usize,
        reference: BlockRef,
        expires: u64,
    ) -> Result<()> {
        self.stores = true;
        let hints = match expires {
            0 => None,
            _ => Some(self.create_hints(collection)?),
        };
        let cell = LeafCell {
            version: self.state.version + 1,
            expires,
            ..LeafCell::new(value_len, ValuePlace::OutOfLine(reference))
        };
        self.put_cell(collection, key, &cell, None)?;
        self.log(collection, |collection| Operation::SetOutOfLine {
            collection,
            key,
            value_len: value_len as u64,
            reference,
            expires,
            index_keys: &[],
        });
        if self.capture.is_some() {
            let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
            let mut value = Vec::new();
            let read = value::read(&self.shared.pager.blocks, id, &cell, &mut value);
            read.inspect_err(|error| self.failed = Some(error.clone()))?;
            let operation = Operation::Set {
                collection: id,
                key,
                value: &value,
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
}

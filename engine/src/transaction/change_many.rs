//! Many changes of one collection: collected first, made in the order of their keys.
//!
//! Random keys dirty a leaf each. In order, the changes of a leaf come one after another, so it is found once, and, if the transaction is larger
//! than memory, written once per collection instead of once per record.

use super::WriteTransaction;
use crate::error::Result;
use crate::index::key_head;
use crate::log::Operation;
use crate::node::{LeafCell, ValuePlace};

/// Changes that are made between two looks at the size of the transaction.
const SLICE: usize = 512;

/// Changes are kept in chunks of this many bytes: one buffer that grows would for a moment take three times its size.
const CHUNK_BYTES: usize = 1 << 20;

/// A collected change.
#[derive(Clone, Copy)]
struct Collected {
    /// The bytes behind those that all keys begin with, as a number that orders as they do; known once they are sorted.
    head: u64,
    /// Chunk, and start of key and value in it.
    at: (u32, u32),
    key_len: u32,
    /// `None`: the record is removed.
    value_len: Option<u32>,
}

/// Collected changes and their bytes.
#[derive(Default)]
struct Buffer {
    chunks: Vec<Vec<u8>>,
    bytes: usize,
    records: Vec<Collected>,
}

impl Buffer {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let len = key.len() + value.map_or(0, <[u8]>::len);
        let is_full = |chunk: &Vec<u8>| chunk.len() + len > CHUNK_BYTES;
        if self.chunks.last().is_none_or(is_full) {
            // The first one grows, since most batches are small.
            let capacity = if self.chunks.is_empty() {
                0
            } else {
                CHUNK_BYTES.max(len)
            };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        self.records.push(Collected {
            head: 0,
            at: (number as u32, chunk.len() as u32),
            key_len: key.len() as u32,
            value_len: value.map(|value| value.len() as u32),
        });
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value.unwrap_or_default());
        self.bytes += len;
    }

    fn len_bytes(&self) -> usize {
        self.bytes + self.records.len() * size_of::<Collected>()
    }

    fn clear(&mut self) {
        self.chunks.clear();
        self.bytes = 0;
        self.records.clear();
    }

    fn rest(&self, record: &Collected) -> &[u8] {
        &self.chunks[record.at.0 as usize][record.at.1 as usize..]
    }

    fn key(&self, record: &Collected) -> &[u8] {
        &self.rest(record)[..record.key_len as usize]
    }

    fn value(&self, record: &Collected) -> Option<&[u8]> {
        let len = record.value_len?;
        Some(&self.rest(record)[record.key_len as usize..][..len as usize])
    }

    /// Sorts by key and leaves the last change of each.
    fn sort(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        let first = records.first().map_or(&[][..], |record| self.key(record));
        let shared = |record| first.iter().zip(self.key(record)).take_while(|(a, b)| a == b).count();
        let prefix = records.iter().map(shared).min().unwrap_or_default();
        for record in &mut records {
            record.head = key_head(self.key(record), prefix);
        }
        records.sort_unstable_by(|a, b| {
            let heads = a.head.cmp(&b.head);
            heads.then_with(|| self.key(a).cmp(self.key(b))).then(b.at.cmp(&a.at))
        });
        records.dedup_by(|later, first| later.head == first.head && self.key(later) == self.key(first));
        self.records = records;
    }
}

/// Makes many changes to one collection, faster than one [`set`](WriteTransaction::set) or [`delete`](WriteTransaction::delete) after
/// another: they are collected in up to a quarter of the cache and made in the order of their keys. Of two changes of one key the later
/// counts. Dropping it makes what was collected too; a failure then shows at the commit.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Durability, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// let mut transaction = database.begin()?;
/// let mut users = transaction.change_many("users")?;
/// users.set(b"grace", b"1906")?;
/// users.set(b"ada", b"1815")?;
/// users.delete(b"charles")?;
/// assert_eq!(users.finish()?, 0);
/// transaction.commit(Durability::Strict)?;
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct ChangeMany<'t, 'a> {
    transaction: &'t mut WriteTransaction<'a>,
    collection: String,
    id: u32,
    max_bytes: usize,
    buffer: Buffer,
    removed: u64,
}

impl<'a> WriteTransaction<'a> {
    /// Begins to make many changes, creating the collection if need be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for bad names; storage errors end the transaction.
    pub fn change_many(&mut self, collection: &str) -> Result<ChangeMany<'_, 'a>> {
        self.create(collection)?;
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        Ok(ChangeMany {
            max_bytes: self.shared.config.cache_bytes / 4,
            transaction: self,
            collection: collection.to_owned(),
            id,
            buffer: Buffer::default(),
            removed: 0,
        })
    }
}

impl ChangeMany<'_, '_> {
    /// Stores a record.
    ///
    /// # Errors
    /// See [`WriteTransaction::set`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = &mut *self.transaction;
        let shared = transaction.shared;
        let config = &shared.config;
        transaction.check_lengths(key, value.len(), 0)?;
        transaction.check_usable()?;
        if !config.limits.is_inline(key.len(), value.len()) {
            // Its value goes to the file at once.
            self.apply()?;
            let stored = self.transaction.put_record(&self.collection, key, value, 0);
            return stored.map(|_| ());
        }
        let operation = Operation::Set {
            collection: self.id,
            key,
            value,
            expires: 0,
        };
        transaction.log_set(&self.collection, self.id, &operation);
        self.collect(key, Some(value))?;
        self.transaction.write_chunks()
    }

    /// Removes a record, if it is there.
    ///
    /// # Errors
    /// Storage errors, which end the transaction.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        let transaction = &mut *self.transaction;
        let shared = transaction.shared;
        transaction.check_usable()?;
        if shared.check_key(key).is_err() {
            // There is none with such a key.
            return Ok(());
        }
        if transaction.capture.is_some() || transaction.has_hints(&self.collection) {
            // Those who follow the changes learn of records that were there only, and expired ones do not count.
            self.apply()?;
            self.removed += u64::from(self.transaction.delete(&self.collection, key)?);
            return Ok(());
        }
        transaction.log_delete(self.id, key);
        self.collect(key, None)
    }

    /// Makes the last collected changes; returns how many records were removed.
    ///
    /// # Errors
    /// Storage errors, which end the transaction.
    pub fn finish(mut self) -> Result<u64> {
        self.apply()?;
        Ok(self.removed)
    }

    fn collect(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.buffer.push(key, value);
        let bytes = self.buffer.len_bytes();
        self.transaction.collected_bytes = bytes;
        if bytes < self.max_bytes { Ok(()) } else { self.apply() }
    }

    fn apply(&mut self) -> Result<()> {
        self.buffer.sort();
        let version = self.transaction.state.version + 1;
        let buffer = &self.buffer;
        let mut applied = Ok(());
        for slice in buffer.records.chunks(SLICE) {
            let changes = slice.iter().map(|record| {
                let cell = buffer.value(record).map(|value| LeafCell {
                    version,
                    ..LeafCell::new(value.len(), ValuePlace::Inline(value))
                });
                (buffer.key(record), cell)
            });
            let removed = self
                .transaction
                .edit(&self.collection, |editor| editor.change_ascending(changes));
            applied = removed.and_then(|removed| {
                let removed = removed.unwrap_or(0);
                self.removed += removed;
                self.transaction.changed |= removed > 0;
                self.transaction.spill_if_large()
            });
            if applied.is_err() {
                break;
            }
        }
        self.buffer.clear();
        self.transaction.collected_bytes = 0;
        applied
    }
}

impl Drop for ChangeMany<'_, '_> {
    fn drop(&mut self) {
        // The transaction knows of a failure.
        let _ = self.apply();
    }
}

impl std::fmt::Debug for ChangeMany<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeMany")
            .field("collection", &self.collection)
            .field("collected", &self.buffer.records.len())
            .finish_non_exhaustive()
    }
}

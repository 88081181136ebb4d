//! Many records into one collection: collected first, stored in the order of their keys.
//!
//! Random keys dirty a leaf each. In order, the records of a leaf come one after another, so it is found once, and, if the transaction is larger
//! than memory, written once per collection instead of once per record.

use super::WriteTransaction;
use crate::error::Result;
use crate::index::key_head;
use crate::log::Operation;
use crate::node::{LeafCell, ValuePlace};

/// Records that are stored between two looks at the size of the transaction.
const SLICE: usize = 512;

/// A collected record.
#[derive(Clone, Copy)]
struct Collected {
    /// The bytes behind those that all keys begin with, as a number that orders as they do; known once they are sorted.
    head: u64,
    /// Start of key and value in the buffer.
    at: usize,
    key_len: u32,
    value_len: u32,
}

/// Collected records and their bytes.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    records: Vec<Collected>,
}

impl Buffer {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.records.push(Collected {
            head: 0,
            at: self.bytes.len(),
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn len_bytes(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<Collected>()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    fn key(&self, record: &Collected) -> &[u8] {
        &self.bytes[record.at..][..record.key_len as usize]
    }

    fn value(&self, record: &Collected) -> &[u8] {
        &self.bytes[record.at + record.key_len as usize..][..record.value_len as usize]
    }

    /// Sorts by key and leaves the last record of each.
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

/// Stores many records in one collection, faster than one [`set`](WriteTransaction::set) after another: they are collected in up to
/// a quarter of the cache and stored in the order of their keys. Of two records with one key the later counts. Dropping it stores what was
/// collected too; a failure then shows at the commit.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Durability, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// let mut transaction = database.begin()?;
/// let mut users = transaction.set_many("users")?;
/// users.set(b"grace", b"1906")?;
/// users.set(b"ada", b"1815")?;
/// users.finish()?;
/// transaction.commit(Durability::Strict)?;
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct SetMany<'t, 'a> {
    transaction: &'t mut WriteTransaction<'a>,
    collection: String,
    id: u32,
    max_bytes: usize,
    buffer: Buffer,
}

impl<'a> WriteTransaction<'a> {
    /// Begins to store many records, creating the collection if need be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for bad names; storage errors end the transaction.
    pub fn set_many(&mut self, collection: &str) -> Result<SetMany<'_, 'a>> {
        self.create(collection)?;
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        Ok(SetMany {
            max_bytes: self.shared.config.cache_bytes / 4,
            transaction: self,
            collection: collection.to_owned(),
            id,
            buffer: Buffer::default(),
        })
    }
}

impl SetMany<'_, '_> {
    /// Stores a record.
    ///
    /// # Errors
    /// See [`WriteTransaction::set`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = &mut *self.transaction;
        let shared = transaction.shared;
        let config = &shared.config;
        let key = config.order.stored(key);
        transaction.check_lengths(&key, value.len(), 0)?;
        transaction.check_usable()?;
        if !config.limits.is_inline(key.len(), value.len()) {
            // Its value goes to the file at once.
            self.store()?;
            let stored = self.transaction.put_record(&self.collection, &key, value, 0);
            return stored.map(|_| ());
        }
        let operation = Operation::Set {
            collection: self.id,
            key: &key,
            value,
            expires: 0,
        };
        transaction.log_set(&self.collection, self.id, &operation);
        self.buffer.push(&key, value);
        transaction.collected_bytes = self.buffer.len_bytes();
        transaction.write_chunks()?;
        if self.buffer.len_bytes() < self.max_bytes {
            return Ok(());
        }
        self.store()
    }

    /// Stores the last collected records.
    ///
    /// # Errors
    /// Storage errors, which end the transaction.
    pub fn finish(mut self) -> Result<()> {
        self.store()
    }

    fn store(&mut self) -> Result<()> {
        self.buffer.sort();
        let version = self.transaction.state.version + 1;
        let buffer = &self.buffer;
        let mut stored = Ok(());
        for slice in buffer.records.chunks(SLICE) {
            let records = slice.iter().map(|record| {
                let value = buffer.value(record);
                let cell = LeafCell {
                    version,
                    ..LeafCell::new(value.len(), ValuePlace::Inline(value))
                };
                (buffer.key(record), cell)
            });
            stored = self
                .transaction
                .edit(&self.collection, |editor| editor.put_ascending(records))
                .and_then(|_| self.transaction.spill_if_large());
            if stored.is_err() {
                break;
            }
        }
        self.buffer.clear();
        self.transaction.collected_bytes = 0;
        stored
    }
}

impl Drop for SetMany<'_, '_> {
    fn drop(&mut self) {
        // The transaction knows of a failure.
        let _ = self.store();
    }
}

impl std::fmt::Debug for SetMany<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SetMany")
            .field("collection", &self.collection)
            .field("collected", &self.buffer.records.len())
            .finish_non_exhaustive()
    }
}

//! Uncommitted changes: the collections of a version, copied on write.

use std::sync::Arc;

use crate::index::OrderedIndex;
use mangrove_engine::{Error, KeyRange, Result};

use super::state::{Collection, Collections, Record, State};
use super::{MAX_KEY_BYTES, MemoryTree};
use crate::limits::{HIDDEN, MAX_CODEC_BYTES, MAX_NAME_BYTES};

/// The collections as one transaction sees them. A clone costs O(number of collections).
#[derive(Clone)]
pub(super) struct Draft<I> {
    collections: Collections<I>,
    next_id: u64,
    /// Version of the records that the transaction writes.
    version: u64,
    /// Time of the transaction in milliseconds since 1970.
    pub now: u64,
    pub changed: bool,
}

impl<I: OrderedIndex<Record>> Draft<I> {
    pub(super) fn new(state: &State<I>, version: u64, now: u64) -> Self {
        Self {
            collections: state.collections.clone(),
            next_id: state.next_id,
            version,
            now,
            changed: false,
        }
    }

    pub(super) fn into_state(self, version: u64) -> State<I> {
        State {
            version,
            collections: self.collections,
            next_id: self.next_id,
        }
    }

    pub(super) fn collection(&self, name: &str) -> Option<&Collection<I>> {
        self.collections.get(name).map(|collection| &**collection)
    }

    pub(super) fn tree(&self, name: &str) -> Option<MemoryTree<I>> {
        let collection = self.collections.get(name)?;
        Some(MemoryTree::new(Arc::clone(collection), self.now))
    }

    pub(super) fn find(&self, collection: &str, key: &[u8]) -> Option<&Record> {
        self.collection(collection)?.find(key, self.now)
    }

    fn collection_mut(&mut self, name: &str) -> Option<&mut Collection<I>> {
        self.collections.get_mut(name).map(Arc::make_mut)
    }

    /// Returns the collection of this name, created if needed.
    fn create(&mut self, name: &str) -> Result<&mut Collection<I>> {
        if !self.collections.contains_key(name) {
            check_name(name)?;
            let collection = Collection::new(self.next_id);
            self.next_id += 1;
            self.changed = true;
            self.collections.insert(name.into(), Arc::new(collection));
        }
        Ok(self.collection_mut(name).expect("it was inserted if it was missing"))
    }

    /// Stores a record; returns whether the key existed.
    pub(super) fn put(&mut self, collection: &str, key: &[u8], value: Arc<[u8]>, expires: u64) -> Result<bool> {
        check_key(key)?;
        let (version, now) = (self.version, self.now);
        let record = Record {
            value,
            version,
            expires,
        };
        let former = self.create(collection)?.put(key, record);
        self.changed = true;
        Ok(former.is_some_and(|former| !former.is_expired(now)))
    }

    /// Removes a record; returns whether the key existed. Copies nothing if it did not.
    pub(super) fn delete(&mut self, collection: &str, key: &[u8]) -> bool {
        let is_stored = |collection: &Collection<I>| collection.records.get(key).is_some();
        if !self.collection(collection).is_some_and(is_stored) {
            return false;
        }
        self.changed = true;
        let now = self.now;
        let removed = self
            .collection_mut(collection)
            .and_then(|collection| collection.remove(key));
        removed.is_some_and(|removed| !removed.is_expired(now))
    }

    /// Removes all records of a range; returns how many there were, including expired ones.
    pub(super) fn clear(&mut self, collection: &str, range: &KeyRange<'_>) -> usize {
        let removed = self
            .collection_mut(collection)
            .map_or(0, |collection| collection.clear(range));
        self.changed |= removed > 0;
        removed
    }

    pub(super) fn set_codecs(&mut self, collection: &str, key_codec: &str, value_codec: &str) -> Result<()> {
        if key_codec.len().max(value_codec.len()) > MAX_CODEC_BYTES {
            return Err(Error::InvalidArgument {
                what: format!("a codec id has at most {MAX_CODEC_BYTES} bytes").into(),
            });
        }
        let entry = self.create(collection)?;
        let unset = entry.key_codec.is_empty() && entry.value_codec.is_empty();
        if unset {
            key_codec.clone_into(&mut entry.key_codec);
            value_codec.clone_into(&mut entry.value_codec);
            self.changed = true;
        } else if entry.key_codec != key_codec || entry.value_codec != value_codec {
            return Err(Error::codec_mismatch(
                collection,
                format!("{}/{}", entry.key_codec, entry.value_codec),
                format!("{key_codec}/{value_codec}"),
            ));
        }
        Ok(())
    }

    pub(super) fn drop_collection(&mut self, name: &str) -> bool {
        let dropped = self.collections.remove(name).is_some();
        self.changed |= dropped;
        dropped
    }

    pub(super) fn rename_collection(&mut self, from: &str, to: &str) -> Result<bool> {
        check_name(to)?;
        if from == to || !self.collections.contains_key(from) {
            return Ok(self.collections.contains_key(from));
        }
        if self.collections.contains_key(to) {
            return Err(Error::AlreadyExists {
                what: format!("the collection {to}").into(),
            });
        }
        if let Some(collection) = self.collections.remove(from) {
            self.collections.insert(to.into(), collection);
            self.changed = true;
        }
        Ok(true)
    }

    /// Removes up to `limit` expired records; returns how many.
    pub(super) fn purge(&mut self, limit: usize) -> usize {
        let mut purged = 0;
        for collection in self.collections.values_mut() {
            let due = collection.due(self.now).take(limit - purged);
            let keys: Vec<Vec<u8>> = due.map(<[u8]>::to_vec).collect();
            if keys.is_empty() {
                continue;
            }
            let collection = Arc::make_mut(collection);
            for key in &keys {
                collection.remove(key);
            }
            purged += keys.len();
        }
        self.changed |= purged > 0;
        purged
    }
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::key_too_large(key.len(), MAX_KEY_BYTES));
    }
    Ok(())
}

/// Accepts the same names as the durable database, so that a program can switch to it.
pub(super) fn check_name(name: &str) -> Result<()> {
    let what = if name.starts_with(HIDDEN) {
        "the collection name begins with U+0000, as only the engine's own do".to_owned()
    } else if name.len() > MAX_NAME_BYTES {
        format!(
            "the collection name has {} bytes, at most {MAX_NAME_BYTES} are allowed",
            name.len()
        )
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument { what: what.into() })
}

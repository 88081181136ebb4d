//! Declaring, building and dropping indexes.

use super::Indexed;
use crate::error::{Error, Result};
use crate::log::Operation;
use crate::state::index::{MAX_INDEX_NAME_BYTES, encode_indexes, index_keys_of, index_of};
use crate::state::{Index, IndexDefinition, IndexKeys, IndexProgress};
use crate::transaction::ExclusiveTransaction;

/// A record that [`ExclusiveTransaction::index_slice`] adds to an index.
#[derive(Clone, Debug)]
pub struct SliceRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Its version as read.
    pub version: u64,
    /// Its keys in the index.
    pub index_keys: Vec<Vec<u8>>,
}

impl ExclusiveTransaction<'_> {
    /// Declares indexes of a collection, which is created if necessary. Those that exist in the
    /// declared version stay, newer versions replace older ones. Returns all indexes of the
    /// collection, undeclared ones included, ascending by id.
    ///
    /// A new index of a collection with records is not complete:
    /// [`index_slice`](Self::index_slice) builds it. From this commit on every write states its
    /// keys.
    ///
    /// # Errors
    /// [`Error::IndexMismatch`] if an index is stored in a newer version, or is unique in one and
    /// not in the other declaration of the same version; [`Error::InvalidArgument`] for bad names.
    pub fn declare_indexes(&mut self, collection: &str, declared: &[IndexDefinition]) -> Result<Vec<Index>> {
        for (at, definition) in declared.iter().enumerate() {
            if definition.name.len() > MAX_INDEX_NAME_BYTES {
                return Err(Error::InvalidArgument {
                    what: format!("an index's name has at most {MAX_INDEX_NAME_BYTES} bytes").into(),
                });
            }
            if declared[..at].iter().any(|other| other.name == definition.name) {
                return Err(Error::InvalidArgument {
                    what: format!("the index {} is declared twice", definition.name).into(),
                });
            }
            let stored = self.indexes(collection).iter().map(|index| &index.definition);
            for stored in stored.filter(|stored| stored.name == definition.name) {
                if stored.version > definition.version {
                    return Err(Error::index_mismatch(
                        collection,
                        &stored.name,
                        "it is stored in a newer version than the declared one; update the program",
                    ));
                }
                if stored.version == definition.version && stored.unique != definition.unique {
                    return Err(Error::index_mismatch(
                        collection,
                        &stored.name,
                        "it is stored with another value of unique; declare a newer version",
                    ));
                }
            }
        }
        self.create(collection)?;
        self.together(|transaction| transaction.declare_checked(collection, declared))
    }

    fn declare_checked(&mut self, collection: &str, declared: &[IndexDefinition]) -> Result<Vec<Index>> {
        let mut indexes = self.indexes(collection).to_vec();
        let mut is_changed = false;
        for definition in declared {
            let stored = indexes
                .iter()
                .position(|index| index.definition.name == definition.name);
            if let Some(at) = stored {
                if indexes[at].definition.version == definition.version {
                    continue;
                }
                self.drop_entries(indexes.remove(at).id)?;
            }
            let id = self.writer.take_collection_id()?;
            let name = index_of(id);
            self.add_collection(id, &name);
            self.log(&name, |collection| Operation::Create {
                collection,
                name: &name,
            });
            let is_empty = match self.state.collections.get(collection) {
                Some(entry) => entry.records(&self.shared.pager).len()? == 0,
                None => true,
            };
            indexes.push(Index {
                id,
                definition: definition.clone(),
                progress: if is_empty {
                    IndexProgress::Complete
                } else {
                    IndexProgress::Building(None)
                },
            });
            is_changed = true;
        }
        if is_changed {
            self.set_indexes(collection, &indexes);
        }
        Ok(indexes)
    }

    /// Drops an index; returns whether it existed. Writes need not state its keys any more.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn drop_index(&mut self, collection: &str, name: &str) -> Result<bool> {
        self.check_usable()?;
        let mut indexes = self.indexes(collection).to_vec();
        let Some(at) = indexes.iter().position(|index| index.definition.name == name) else {
            return Ok(false);
        };
        self.together(|transaction| {
            transaction.drop_entries(indexes.remove(at).id)?;
            transaction.set_indexes(collection, &indexes);
            if indexes.is_empty() {
                let id = transaction
                    .state
                    .collections
                    .get(collection)
                    .map_or(0, |entry| entry.id);
                transaction.drop_collection(&index_keys_of(id))?;
            }
            Ok(true)
        })
    }

    /// Removes the entries of an index. Keys that records still state for it are ignored from now
    /// on.
    fn drop_entries(&mut self, id: u32) -> Result<()> {
        self.drop_collection(&index_of(id)).map(drop)
    }

    /// Drops all indexes of a collection, with their hidden collections.
    // Lazy root.
    #[inline(never)]
    pub(in crate::transaction) fn drop_indexes(&mut self, collection: &str) -> Result<()> {
        let ids: Vec<u32> = self.indexes(collection).iter().map(|index| index.id).collect();
        for id in &ids {
            self.drop_entries(*id)?;
        }
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        if !ids.is_empty() {
            self.drop_collection(&index_keys_of(id))?;
        }
        Ok(())
    }

    fn set_indexes(&mut self, collection: &str, indexes: &[Index]) {
        if let Some(entry) = self.entry_mut(collection) {
            entry.indexes = (!indexes.is_empty()).then(|| indexes.into());
            let list = encode_indexes(indexes);
            self.log(collection, |collection| Operation::Indexes {
                collection,
                list: &list,
            });
        }
    }

    /// Adds the records after `from`, up to and including `to`, to an index that is being built.
    /// `from` is the key up to which it covers the collection so far; `to: None` completes it.
    ///
    /// `records` are those of the range, as a snapshot taken after the declaration has them.
    /// Records that have changed since were written with their index keys, and are skipped.
    ///
    /// Returns whether the slice was added; `false` if the index no longer exists, or is not at
    /// `from` because another program builds it too.
    ///
    /// # Errors
    /// [`Error::NotUnique`] if a unique index cannot be built; [`Error::KeyTooLarge`]; storage
    /// errors. All end the transaction if part of the slice was added.
    pub fn index_slice(
        &mut self,
        collection: &str,
        id: u32,
        from: Option<&[u8]>,
        records: &[SliceRecord],
        to: Option<&[u8]>,
    ) -> Result<bool> {
        self.check_usable()?;
        let mut indexes = self.indexes(collection).to_vec();
        let Some(at) = indexes.iter().position(|index| index.id == id) else {
            return Ok(false);
        };
        if indexes[at].progress != IndexProgress::Building(from.map(<[u8]>::to_vec)) {
            return Ok(false);
        }
        self.together(|transaction| {
            for record in records {
                transaction.index_record(collection, &indexes, at, record)?;
            }
            indexes[at].progress = match to {
                Some(key) => IndexProgress::Building(Some(key.to_vec())),
                None => IndexProgress::Complete,
            };
            transaction.set_indexes(collection, &indexes);
            Ok(true)
        })
    }

    fn index_record(
        &mut self,
        collection: &str,
        indexes: &[Index],
        at: usize,
        SliceRecord {
            key,
            version,
            index_keys,
        }: &SliceRecord,
    ) -> Result<()> {
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let indexed = Indexed { id, indexes };
        let Some(found) = self.find(collection, key)? else {
            return Ok(());
        };
        let record = found.record();
        if record.version != *version {
            return Ok(());
        }
        let expires = record.expires;
        let apart = self.keys_apart(id, key)?;
        let before = indexed.before(key, record.index_keys, &apart, expires)?;
        let mut keys = before.keys.clone();
        let index = &indexes[at];
        keys.set(index.id, index_keys.iter().cloned());
        Indexed::check_lengths(self.shared, &keys, key, expires)?;
        if index.definition.unique {
            for index_key in index_keys {
                self.check_unique(collection, index, index_key, Some(key))?;
            }
        }
        Indexed::replace_entries(self, key, &before, &keys, expires)?;
        let mut apart = IndexKeys::decode(&apart).unwrap_or_default();
        apart.set(index.id, index_keys.iter().cloned());
        self.set_apart(id, key, &apart.encode(), expires)
    }
}

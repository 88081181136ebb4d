//! The collections: creating, renaming and dropping them, and the codecs that they name.

use super::WriteTransaction;
use crate::error::{Error, Message, Result};
use crate::log::Operation;
use crate::state::{Collection, MAX_CODEC_BYTES, check_name, expiry};

impl WriteTransaction<'_> {
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
                what: ["the collection ", to].concat().into(),
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
                what: Message::default()
                    .text("a codec id has at most ")
                    .number(MAX_CODEC_BYTES as u64)
                    .text(" bytes")
                    .end()
                    .into(),
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
                [&entry.key_codec, "/", &entry.value_codec].concat(),
                [key_codec, "/", value_codec].concat(),
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
            let hints = expiry::hints_of(entry.id);
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

//! Transaction operations that only restoring a backup needs.

use super::{ReadWrite, WriteTransaction};
use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};
use crate::range::KeyRange;
use crate::state::Change;
use crate::tree::value::CHUNK_BYTES;

impl WriteTransaction<'_> {
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

//! What only the restoration of a backup does in a transaction.

use super::{ReadWrite, WriteTransaction};
use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};
use crate::range::KeyRange;
use crate::state::Change;
use crate::tree::value::CHUNK_BYTES;

impl WriteTransaction<'_> {
    /// Stores a record of which `fill` appends the next so many bytes of the value. The lengths were checked. After an error the
    /// transaction can only be dropped.
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
        // The log does not learn of it: a restoration ends with a checkpoint.
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
        self.settle_if_large()
    }

    /// Makes the commit one with this version, which is beyond the one the transaction builds on, instead of the next one, even if it changes
    /// nothing. The log cannot leave versions out, so this makes a checkpoint.
    pub(crate) fn start_as(&mut self, version: u64) {
        self.state.version = version - 1;
        self.draft.version = version;
        self.record = None;
        self.changed = true;
    }

    /// Version of the newest commit in it, sealed ones included.
    pub(crate) fn version(&self) -> u64 {
        self.state.version
    }

    pub(crate) fn database_id(&self) -> u128 {
        self.shared.config.database_id
    }

    /// Ends the commit so far, even if it changes nothing, and begins the next one.
    pub(crate) fn seal_always(&mut self) {
        self.changed = true;
        self.seal();
    }

    /// Makes a change that was made before, in this database or the one it is a copy of.
    pub(crate) fn repeat(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Set {
                collection,
                key,
                value,
                expires_at,
            } => self.set_until(collection, key, value, *expires_at).map(drop),
            Change::Delete { collection, key } => self.delete(collection, key).map(drop),
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

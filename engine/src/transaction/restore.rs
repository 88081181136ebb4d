//! What only the restoration of a backup does in a transaction.

use super::{CommitInfo, Durability, WriteTransaction};
use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};
use crate::tree::value::CHUNK_BYTES;

impl WriteTransaction<'_> {
    /// Stores a record of which `fill` appends the next so many bytes of the value. The lengths were checked. After an error the
    /// transaction can only be dropped.
    pub(crate) fn set_from(
        &mut self,
        collection: &str,
        key: &[u8],
        value_len: usize,
        fill: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
    ) -> Result<()> {
        if value_len <= CHUNK_BYTES {
            let mut value = Vec::new();
            fill(&mut value, value_len)?;
            return self.set(collection, key, &value).map(drop);
        }
        self.create(collection)?;
        let key = &*self.shared.config.order.stored(key);
        // The log does not learn of it: a restoration ends with a checkpoint.
        self.record = None;
        self.edit(collection, |editor| {
            let reference = editor.write_long_value(value_len, fill)?;
            let place = ValuePlace::OutOfLine(reference);
            editor.put(key, &LeafCell::new(value_len, place))
        })?;
        self.spill_if_large()
    }

    /// Commits as this version, which is beyond the one the transaction builds on, instead of as the next one. The log cannot leave
    /// versions out, so this makes a checkpoint.
    pub(crate) fn commit_as(mut self, version: u64) -> Result<CommitInfo> {
        self.seal();
        self.state.version = version;
        self.record = None;
        self.commit(Durability::Strict)
    }
}

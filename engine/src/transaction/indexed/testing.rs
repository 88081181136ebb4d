//! Damages indexes, for tests.

use crate::error::Result;
use crate::range::{Direction, KeyRange};
use crate::state::{Index, IndexKeys};
use crate::transaction::WriteTransaction;

impl WriteTransaction<'_> {
    /// Id of a collection, its first index, and the key of its first record with index keys.
    #[allow(clippy::type_complexity, reason = "only tests call it")]
    pub(crate) fn first_indexed(&self, collection: &str) -> Result<Option<(u32, Index, Vec<u8>)>> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(None);
        };
        let Some(index) = entry.indexes().first() else {
            return Ok(None);
        };
        let mut cursor = entry.cursor(&KeyRange::all(), Direction::Forward);
        while cursor.advance(&entry.records(&self.shared.pager))? {
            let has_own = cursor.record().is_some_and(|record| !record.index_keys.is_empty());
            if has_own || !self.keys_apart(entry.id, cursor.key())?.is_empty() {
                return Ok(Some((entry.id, index.clone(), cursor.key().to_vec())));
            }
        }
        Ok(None)
    }

    /// Takes a record's index keys away and leaves its entries in the indexes.
    pub(crate) fn lose_keys(&mut self, collection: &str, id: u32, key: &[u8]) -> Result<()> {
        let value = self.get(collection, key)?.unwrap_or_default();
        self.set_apart(id, key, &[], 0)?;
        self.store(collection, key, &value, 0, &[], None)
    }

    /// Stores index keys apart, whatever the record has.
    pub(crate) fn keep_apart(&mut self, id: u32, key: &[u8], keys: &IndexKeys) -> Result<()> {
        self.set_apart(id, key, &keys.encode(), 0)
    }
}

//! Removing the records of a range, and all of a collection.

use super::WriteTransaction;
use crate::error::Result;
use crate::log::Operation;
use crate::memtable::Memtable;
use crate::node::LeafCell;
use crate::range::{Direction, KeyRange};

/// Ranges with more records are cut out of the tree, rather than removed record by record.
const MAX_SINGLE_REMOVALS: u64 = 1000;

/// If the removed keys are longer in total, the log names the range instead.
const MAX_LOGGED_KEY_BYTES: usize = 1 << 10;

impl WriteTransaction<'_> {
    /// Removes all records of a range; returns how many there were, including expired ones. Copies
    /// O(log n) pages. Of the pages it frees, it reads the inner nodes and those leaves that lead
    /// to out-of-line values. Where the collection has indexes and the range is a part of it, it
    /// visits every record's index keys.
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn clear(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        if self.indexes(collection).is_empty() {
            self.clear_records(collection, range)
        } else {
            self.clear_indexed(collection, range)
        }
    }

    /// As [`clear`](Self::clear), but leaves the indexes as they are.
    pub(super) fn clear_records(&mut self, collection: &str, range: KeyRange<'_>) -> Result<u64> {
        self.check_usable()?;
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(0);
        };
        let (from, to) = entry.records(&self.shared.pager).positions(&range)?;
        let removed = to - from;
        if removed == 0 {
            return Ok(0);
        }
        let (id, bounds) = (entry.id, range);
        let operation = Operation::Clear {
            collection: id,
            lower: bounds.lower,
            upper: bounds.upper,
        };
        if range.is_all() {
            self.empty(collection)?;
            self.log(collection, |_| operation);
            return Ok(removed);
        }
        if removed <= MAX_SINGLE_REMOVALS {
            let keys = self.remove_one_by_one(collection, &range)?;
            if keys.iter().map(|key| key.len() + 8).sum::<usize>() > MAX_LOGGED_KEY_BYTES {
                self.record(&operation);
            } else {
                // Replay applies these without searching the tree.
                for key in &keys {
                    self.record(&Operation::Delete { collection: id, key });
                }
            }
            self.changed = true;
            self.capture(id, collection, &operation);
            self.merge_if_large()?;
            return Ok(removed);
        }
        // Cuts the range out of the tree; the commit will be a checkpoint.
        self.merge_into_draft()?;
        self.edit(collection, |editor| editor.cut(&range))?;
        self.log(collection, |_| operation);
        self.record = None;
        self.merge_if_large()?;
        Ok(removed)
    }

    /// Removes the records of a range one by one in the fresh memtable; returns their keys.
    #[inline(never)]
    pub(super) fn remove_one_by_one(&mut self, collection: &str, range: &KeyRange<'_>) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        if let Some(entry) = self.state.collections.get(collection) {
            let mut cursor = entry.cursor(range, Direction::Forward);
            while cursor.advance(&entry.records(&self.shared.pager))? {
                keys.push(cursor.key().to_vec());
            }
        }
        for key in &keys {
            self.change(collection, key, None, None)?;
        }
        Ok(keys)
    }

    /// Removes all records of a collection.
    #[inline(never)]
    pub(super) fn empty(&mut self, collection: &str) -> Result<()> {
        let Some(entry) = self.state.collections.get(collection) else {
            return Ok(());
        };
        if !entry.layers.frozen.is_empty() {
            // Otherwise the tree that it is merged into would have to be given up as well.
            self.thaw()?;
        }
        let Some(entry) = self.entry_mut(collection) else {
            return Ok(());
        };
        let layers = std::mem::take(&mut entry.layers);
        entry.emptied_at = entry.changed_at;
        self.memory_bytes -= layers.bytes();
        self.edit(collection, |editor| {
            let nothing = Memtable::default();
            for (memtable, above) in [(&layers.fresh, &nothing), (&layers.active, &layers.fresh)] {
                for entry in memtable.entries() {
                    if let Some(reference) = entry.reference().filter(|_| above.get(entry.key).is_none()) {
                        editor.retire_value(&LeafCell::decode(reference))?;
                    }
                }
            }
            editor.clear_all()
        })?;
        Ok(())
    }
}

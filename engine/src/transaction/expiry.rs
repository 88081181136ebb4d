//! Hints for expiring records, and the removal of expired ones.

use crate::state::expiry::{HINT_BYTES, all_hints, due_hints, hint, hints_of};

use super::WriteTransaction;
use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};

impl WriteTransaction<'_> {
    /// Name of the collection with the hints for another one; creates it if necessary.
    pub(super) fn create_hints(&mut self, collection: &str) -> Result<String> {
        let id = self.state.collections.get(collection).map_or(0, |entry| entry.id);
        let hints = hints_of(id);
        self.create_unchecked(&hints)?;
        Ok(hints)
    }

    pub(super) fn add_hint(&mut self, hints: &str, key: &[u8], expires: u64) -> Result<()> {
        let cell = LeafCell {
            version: self.state.version + 1,
            ..LeafCell::new(0, ValuePlace::Inline(&[]))
        };
        self.put_cell(hints, &hint(expires, key), &cell, None)
    }

    /// Removes up to `limit` expired records from all collections; returns how many hints were due,
    /// whether their records were removed or not. The transaction may have no other changes.
    pub(crate) fn purge(&mut self, limit: usize) -> Result<usize> {
        self.is_purge = true;
        let mut due = 0;
        for (hints, name) in all_hints(&self.state.collections) {
            let Some(entry) = self.state.collections.get(&hints) else {
                continue;
            };
            let entry = entry.clone();
            for hint in due_hints(&self.shared.pager, &entry, self.now, limit - due)? {
                due += 1;
                let key = &hint[HINT_BYTES..];
                if let Some(found) = self.find(&name, key)?
                    && found.record().is_expired(self.now)
                {
                    self.delete(&name, key)?;
                }
                self.delete(&hints, &hint)?;
            }
            if due >= limit {
                break;
            }
        }
        Ok(due)
    }
}

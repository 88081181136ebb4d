//! Indexed collections in an optimistic transaction: its writes to the indexes are writes to hidden
//! collections, so readers of an index see them, and conflicts in an index are found like others.
//!
//! In browsers this is part of a module that only databases with indexes load; see
//! `transaction::indexed`.

use std::sync::Arc;

use super::overlay::{Overlay, index_keys, record};
use super::{OptimisticTransaction, Structure, TransactionScan};
use crate::error::{ConflictReason, Error, Result};
use crate::range::{Direction, KeyRange};
use crate::snapshot::{SnapshotCollection, split};
use crate::state::expiry::HIDDEN;
use crate::state::index::{EntryRange, index_keys_of, index_of, seek_key};
use crate::state::{Index, IndexDefinition, IndexKeys, IndexProgress};
use crate::transaction::ExclusiveTransaction;
use crate::transaction::indexed::{Entries, Indexed, StoredKeys, lacking};
use crate::transaction::write::stored_expiry;

/// Indexes that a transaction declares have ids counted down from here until the commit gives them
/// others. The database counts its own upwards.
const LAST_PROVISIONAL: u32 = u32::MAX - 1;

/// A key in a unique index that the transaction has written.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UniqueKey {
    collection: String,
    index: Index,
    index_key: Vec<u8>,
}

impl OptimisticTransaction {
    /// Id and indexes of an indexed collection.
    fn indexed(&self, collection: &str) -> Option<(u32, Arc<[Index]>)> {
        match self.view(collection) {
            (Some(overlay), _) => overlay.indexed.clone(),
            (None, base) => indexed(base.as_ref()),
        }
    }

    /// Indexes of a collection, those that are being built included, ascending by id.
    #[must_use]
    pub fn indexes(&self, collection: &str) -> Vec<Index> {
        self.indexed(collection)
            .map_or_else(Vec::new, |(_, indexes)| indexes.to_vec())
    }

    /// Whether [`declare_indexes`](Self::declare_indexes) is possible.
    #[must_use]
    pub fn may_declare_indexes(&self, collection: &str) -> bool {
        let is_drop = |change: &Structure| matches!(change, Structure::Drop(name) if name == collection);
        let overlay = self.overlays.get(collection);
        overlay.is_some_and(|overlay| overlay.base.is_none() && overlay.indexed.is_none() && overlay.writes.is_empty())
            && self.structure.iter().any(is_drop)
    }

    /// Creates a collection again that this transaction has dropped, with indexes. They are complete.
    ///
    /// Elsewhere [`ExclusiveTransaction::declare_indexes`] declares indexes, in a commit of its own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if this transaction has not dropped the collection, or has written
    /// to the new one. The commit may fail with [`Error::NotUnique`], and as
    /// [`ExclusiveTransaction::declare_indexes`].
    pub fn declare_indexes(&mut self, collection: &str, declared: &[IndexDefinition]) -> Result<()> {
        if !self.may_declare_indexes(collection) {
            return Err(Error::InvalidArgument {
                what:
                    "a transaction declares indexes of no collection but one that it has dropped and not yet written to"
                        .into(),
            });
        }
        self.provisional += 1 + declared.len() as u32;
        let id = LAST_PROVISIONAL - self.provisional;
        let indexes = declared.iter().zip(id + 1..).map(|(definition, id)| Index {
            id,
            definition: definition.clone(),
            progress: IndexProgress::Complete,
        });
        let indexes: Arc<[Index]> = indexes.collect();
        for index in &*indexes {
            self.hidden_overlay(&index_of(index.id)).is_provisional = true;
        }
        let overlay = self.overlay(collection);
        overlay.is_provisional = true;
        overlay.exists = true;
        overlay.indexed = Some((id, indexes));
        Ok(())
    }

    /// Makes the changes of a collection whose indexes this transaction declares.
    // Lazy root.
    #[inline(never)]
    pub(super) fn apply_declared(
        transaction: &mut ExclusiveTransaction<'_>,
        name: &str,
        overlay: &Overlay,
    ) -> Result<()> {
        // The entries of indexes are made from the records.
        let Some((_, indexes)) = overlay.indexed.as_ref().filter(|_| !name.starts_with(HIDDEN)) else {
            return Ok(());
        };
        if let Some((key_codec, value_codec)) = &overlay.codecs {
            transaction.set_codecs(name, key_codec, value_codec)?;
        }
        let declared: Vec<IndexDefinition> = indexes.iter().map(|index| index.definition.clone()).collect();
        let stored = transaction.declare_indexes(name, &declared)?;
        for written in overlay.writes.entries() {
            let Some((value, expires_at)) = record(written) else {
                continue;
            };
            let own = IndexKeys::decode(index_keys(written)).unwrap_or_default();
            let mut keys = IndexKeys::new();
            for (index, stored) in indexes.iter().zip(&stored) {
                keys.set(stored.id, own.get(index.id).iter().cloned());
            }
            transaction.set_indexed(name, written.key, value, expires_at, &keys)?;
        }
        Ok(())
    }

    pub(super) fn check_unindexed(&self, collection: &str) -> Result<()> {
        if self.has_indexes(collection) {
            self.refuse_unindexed(collection)
        } else {
            Ok(())
        }
    }

    // Lazy root.
    #[inline(never)]
    fn refuse_unindexed(&self, collection: &str) -> Result<()> {
        let indexed = self.indexed(collection);
        let first = indexed.as_ref().and_then(|(_, indexes)| indexes.first());
        first.map_or(Ok(()), |index| Err(lacking(collection, index)))
    }

    /// Stores a record that expires at `expires_at` milliseconds since 1970, or never, with its
    /// keys in the collection's indexes; returns whether the key existed.
    ///
    /// Whether the keys of unique indexes are unique is checked at commit, so two records can
    /// exchange theirs.
    ///
    /// # Errors
    /// As [`ExclusiveTransaction::set_indexed`], except for [`Error::NotUnique`].
    pub fn set_indexed(
        &mut self,
        collection: &str,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
        keys: &IndexKeys,
    ) -> Result<bool> {
        self.shared.check_record(collection, key, value.len(), expires_at)?;
        let found = self.entry(collection, key)?.is_some();
        let own = self.indexed(collection);
        let (id, indexes) = own.as_ref().map_or((0, [].as_slice()), |(id, indexes)| (*id, indexes));
        let indexed = Indexed { id, indexes };
        let expires = stored_expiry(expires_at);
        indexed.check(&self.shared, collection, keys, key, expires)?;
        let mut bytes = Vec::new();
        if !indexes.is_empty() {
            let before = indexed.keys_of(self, collection, key)?;
            Indexed::replace_entries(self, key, &before, keys, expires)?;
            bytes = keys.encode();
            for index in indexes.iter().filter(|index| index.definition.unique) {
                let written = keys.get(index.id).iter().map(|index_key| UniqueKey {
                    collection: collection.to_owned(),
                    index: index.clone(),
                    index_key: index_key.clone(),
                });
                self.unique.extend(written);
            }
        }
        let overlay = self.overlay(collection);
        overlay.exists = true;
        overlay.set(key, value, expires_at, &bytes);
        Ok(found)
    }

    /// Whether a collection has indexes.
    pub(super) fn has_indexes(&self, collection: &str) -> bool {
        match self.view(collection) {
            (Some(overlay), _) => overlay.indexed.is_some(),
            (None, base) => base.is_some_and(|base| base.indexes().is_some()),
        }
    }

    /// Removes a record's entries from the indexes.
    // Lazy root.
    #[inline(never)]
    pub(super) fn unindex_key(&mut self, collection: &str, key: &[u8]) -> Result<()> {
        let Some((id, indexes)) = self.indexed(collection) else {
            return Ok(());
        };
        Indexed { id, indexes: &indexes }.remove_entries(self, collection, key)
    }

    /// As [`unindex_key`](Self::unindex_key), for all records of a range.
    // Lazy root.
    #[inline(never)]
    pub(super) fn unindex_keys(&mut self, collection: &str, range: &KeyRange<'_>) -> Result<()> {
        let Some((id, indexes)) = self.indexed(collection) else {
            return Ok(());
        };
        if range.is_all() {
            for index in &*indexes {
                self.hidden_overlay(&index_of(index.id)).clear(range);
            }
            return Ok(());
        }
        let mut scan = self.scan(collection, *range, Direction::Forward);
        let indexed = Indexed { id, indexes: &indexes };
        while scan.advance(self)? {
            let key = scan.key().to_vec();
            indexed.remove_entries(self, collection, &key)?;
        }
        Ok(())
    }

    /// Forgets the writes to the hidden collections of a collection that is dropped.
    // Lazy root.
    #[inline(never)]
    pub(super) fn forget_indexes(&mut self, collection: &str) {
        if let Some((_, indexes)) = self.indexed(collection) {
            for index in &*indexes {
                self.overlays.remove(&index_of(index.id));
            }
        }
    }

    /// A hidden collection's writes, if any, and its tree in the snapshot.
    fn hidden_view(&self, name: &str) -> (Option<&Overlay>, Option<SnapshotCollection>) {
        match self.overlays.get(name) {
            Some(overlay) => (Some(overlay), overlay.base.clone()),
            None => (None, self.snapshot.tree(name)),
        }
    }

    fn hidden_overlay(&mut self, name: &str) -> &mut Overlay {
        let snapshot = &self.snapshot;
        self.overlays
            .get_or_insert_with(name.to_owned(), || Overlay::new(snapshot.tree(name)))
    }

    fn hidden_scan(&self, name: &str, range: &KeyRange<'_>, direction: Direction) -> TransactionScan {
        let (overlay, tree) = self.hidden_view(name);
        TransactionScan::over(self, overlay.cloned(), tree, range, direction)
    }

    fn complete_index(&self, collection: &str, name: &str) -> Result<Index> {
        let indexes = self.indexes(collection);
        let index = indexes.into_iter().find(|index| index.definition.name == name);
        let index = index.ok_or_else(|| Error::NotFound {
            what: format!("the index \"{name}\" of collection \"{collection}\"").into(),
        })?;
        if index.is_complete() {
            Ok(index)
        } else {
            Err(Error::index_incomplete(collection, name))
        }
    }

    /// Opens a scan of an index over a range of index keys, including this transaction's own
    /// writes. What it passes counts as read.
    ///
    /// # Errors
    /// As [`Snapshot::index`](crate::Snapshot::index).
    pub fn index_scan(
        &self,
        collection: &str,
        index: &str,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<IndexScan> {
        let index = self.complete_index(collection, index)?;
        let range = EntryRange::new(&range);
        Ok(IndexScan {
            scan: self.hidden_scan(&index_of(index.id), &range.borrow(), direction),
            collection: collection.to_owned(),
            is_reverse: direction == Direction::Reverse,
            index_key: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Number of entries of an index in a range of index keys. O(log n) if this transaction has not
    /// written to the index, otherwise it visits every entry of the range.
    ///
    /// # Errors
    /// As [`index_scan`](Self::index_scan); storage errors and corruption.
    pub fn index_count(&self, collection: &str, index: &str, range: KeyRange<'_>) -> Result<u64> {
        let id = self.complete_index(collection, index)?.id;
        let range = EntryRange::new(&range);
        if let (None, Some(tree)) = self.hidden_view(&index_of(id)) {
            self.note(&tree, |footprint| footprint.add_range(&range.borrow()));
            return tree.count(range.borrow());
        }
        let mut scan = self.hidden_scan(&index_of(id), &range.borrow(), Direction::Forward);
        let mut count = 0;
        while scan.advance(self)? {
            count += 1;
        }
        Ok(count)
    }

    /// Fails if the indexes of a collection that this transaction writes to have changed.
    pub(super) fn check_indexes(&self, transaction: &ExclusiveTransaction<'_>) -> Result<()> {
        for (name, overlay) in &self.overlays {
            let own = overlay.indexed.as_ref().map_or([].as_slice(), |(_, indexes)| indexes);
            let now = transaction.indexes(name);
            let same = own.len() == now.len() && own.iter().zip(now).all(|(own, now)| own.id == now.id);
            if !same && overlay.base.is_some() && overlay.is_changed() {
                return Err(Error::conflict(Some(name), None, ConflictReason::Changed));
            }
        }
        Ok(())
    }

    /// Fails if a key that was written to a unique index is not unique.
    // Lazy root.
    #[inline(never)]
    pub(super) fn check_unique_keys(&self, transaction: &ExclusiveTransaction<'_>) -> Result<()> {
        for UniqueKey {
            collection,
            index,
            index_key,
        } in &self.unique
        {
            transaction.check_unique(collection, index, index_key, None)?;
        }
        Ok(())
    }
}

/// Id and indexes of a collection that has any.
pub(super) fn indexed(tree: Option<&SnapshotCollection>) -> Option<(u32, Arc<[Index]>)> {
    let tree = tree?;
    Some((tree.id(), Arc::clone(tree.indexes()?)))
}

impl Entries for OptimisticTransaction {
    fn stored_keys(&self, collection: &str, id: u32, key: &[u8]) -> Result<Option<StoredKeys>> {
        let (overlay, base) = self.view(collection);
        if let Some(overlay) = overlay {
            if let Some(written) = overlay.writes.get(key) {
                return Ok(record(written).map(|(_, expires_at)| StoredKeys {
                    own: index_keys(written).to_vec(),
                    apart: Vec::new(),
                    expires: stored_expiry(expires_at),
                }));
            }
            if overlay.is_cleared(key) {
                return Ok(None);
            }
        }
        let Some(base) = base else { return Ok(None) };
        self.note(&base, |footprint| footprint.add_key(key));
        let Some((own, expires)) = base.stored_index_keys(key)? else {
            return Ok(None);
        };
        // What a build adds after this snapshot is removed at commit; see
        // `ExclusiveTransaction::apply_indexed`.
        let apart = match self.snapshot.tree(&index_keys_of(id)) {
            Some(tree) => tree.stored(key)?.map_or_else(Vec::new, |(keys, _)| keys),
            None => Vec::new(),
        };
        Ok(Some(StoredKeys { own, apart, expires }))
    }

    fn put_entry(&mut self, index: &str, key: &[u8], expires: u64) -> Result<()> {
        let overlay = self.hidden_overlay(index);
        overlay.exists = true;
        overlay.set(key, &[], (expires != 0).then_some(expires), &[]);
        Ok(())
    }

    fn remove_entry(&mut self, index: &str, key: &[u8]) -> Result<()> {
        self.hidden_overlay(index).remove(key, None);
        Ok(())
    }
}

/// A scan of an index in an optimistic transaction. It sees what the transaction wrote before it
/// was created.
pub struct IndexScan {
    scan: TransactionScan,
    collection: String,
    is_reverse: bool,
    index_key: Vec<u8>,
    key: Vec<u8>,
}

impl IndexScan {
    /// Moves to the next entry; `false` at the end of the range. `transaction` must be the one that
    /// created the scan.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn advance(&mut self, transaction: &OptimisticTransaction) -> Result<bool> {
        let advanced = self.scan.advance(transaction)?;
        if advanced {
            (self.index_key, self.key) = split(self.scan.key())?;
        }
        Ok(advanced)
    }

    /// Index key of the current entry.
    #[must_use]
    pub fn index_key(&self) -> &[u8] {
        &self.index_key
    }

    /// Key of the current entry's record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the current entry's record as the transaction sees it now; `None` if it has removed
    /// the record since.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn value(&self, transaction: &OptimisticTransaction) -> Result<Option<Vec<u8>>> {
        transaction.get(&self.collection, &self.key)
    }

    /// Makes the first entry at or past `index_key`, in the scan's direction and within its range,
    /// the next one.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek(&mut self, index_key: &[u8]) -> Result<()> {
        self.scan.seek(&seek_key(index_key, self.is_reverse))
    }
}

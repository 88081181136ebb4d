//! Indexes: declaring, building and reading them, and the index keys of written records.
//!
//! In browsers all of this belongs to the lazy part of the module; see [`lazy`](crate::lazy).

use mangrove_engine::{
    ConflictReason, Database, Direction, Durability, Error, ExclusiveTransaction, Index, IndexDefinition, IndexKeys,
    IndexProgress, KeyRange, OptimisticTransaction, Result, Snapshot, SnapshotIndex,
};

use super::writes::Record;
use super::{Lost, Slot, State, missing, unacceptable};
use crate::index_items::{IndexItems, write_record};
use crate::pending::Writes;
use crate::protocol::{BatchOp, Reader, ScanFlags, ScanOptions, VALUES, View, Writer};
use crate::range;
use crate::request::{Definitions, Request, Write};
use crate::scan::{Origin, Scan, direction};
use crate::table::MAX_OPEN;

/// View, index of the collection, and place of the index among those that the client uses.
type Place = (View, u64, u64);

/// Id, which no client uses, of the transaction in which a batch runs separately.
const APART: u64 = u64::MAX;

/// Stores a record of a batch with its index keys.
// A root of the lazy part of the module: see `lazy`.
// Lazy root.
#[inline(never)]
pub(super) fn put_in_group(
    transaction: &mut ExclusiveTransaction<'_>,
    slot: &Slot,
    record: Record<'_>,
    index_keys: &[u8],
) -> Result<()> {
    let keys = stated(slot, transaction.indexes(&slot.name), index_keys)?;
    transaction.set_indexed(&slot.name, record.key, record.value, record.expires_at, &keys)?;
    Ok(())
}

/// As [`put_in_group`], in a transaction.
// A root of the lazy part of the module: see `lazy`.
// Lazy root.
#[inline(never)]
pub(super) fn put_in_transaction(
    transaction: &mut OptimisticTransaction,
    slot: &Slot,
    record: Record<'_>,
    index_keys: &[u8],
) -> Result<()> {
    if !slot.indexes.is_empty() && transaction.may_declare_indexes(&slot.name) {
        transaction.declare_indexes(&slot.name, &slot.indexes)?;
    }
    let keys = stated(slot, &transaction.indexes(&slot.name), index_keys)?;
    transaction.set_indexed(&slot.name, record.key, record.value, record.expires_at, &keys)?;
    Ok(())
}

/// What to report instead of a mismatch, if the indexes were declared since the transaction that
/// wrote began: it has to run again.
// A root of the lazy part of the module: see `lazy`.
// Lazy root.
#[inline(never)]
pub(super) fn since_declared(error: Error, write: &Write<'_>, slots: &[Slot], database: &Database) -> Error {
    let (Error::IndexMismatch(refusal), Write::Batch { changes, .. }) = (&error, write) else {
        return error;
    };
    let snapshot = database.snapshot();
    let stored = snapshot.indexes(&refusal.collection);
    let mut written = changes.iter().filter_map(|change| match change {
        Ok(BatchOp::SetIndexed { collection, .. }) => slots.get(usize::try_from(collection).ok()?),
        _ => None,
    });
    let is_declared = |slot: &&Slot| {
        slot.name == *refusal.collection
            && slot.indexes.len() == stored.len()
            && slot.indexes.iter().all(|declared| find(&stored, declared).is_some())
    };
    match written.find(is_declared) {
        Some(slot) => Error::conflict(Some(&slot.name), None, ConflictReason::Changed),
        None => error,
    }
}

/// Continues a scan of an index that another session exported.
// A root of the lazy part of the module: see `lazy`.
// Lazy root.
#[inline(never)]
pub(super) fn resume_index(
    scan: &mut Scan,
    slot: &Slot,
    index: u64,
    snapshot: &Snapshot,
    exported: Reader<'_>,
) -> Result<()> {
    let name = slot.check_index(index, &snapshot.indexes(&slot.name))?;
    scan.resume_index(&snapshot.index(&slot.name, name)?, exported)
}

/// Number of indexes that do not cover the whole collection.
fn incomplete(stored: &[Index]) -> u64 {
    stored.iter().filter(|index| !index.is_complete()).count() as u64
}

/// The stored index that the client means.
fn find<'i>(stored: &'i [Index], declared: &IndexDefinition) -> Option<&'i Index> {
    stored.iter().find(|index| index.definition == *declared)
}

/// Reads the index keys of a record. The engine refuses them unless they are for all stored
/// indexes.
fn stated(slot: &Slot, stored: &[Index], bytes: &[u8]) -> Result<IndexKeys> {
    let mut reader = Reader::new(bytes);
    let mut keys = IndexKeys::new();
    for declared in &slot.indexes {
        let list = reader.index_keys()?;
        // An index that no longer exists gets an id that none has.
        keys.set(find(stored, declared).map_or(u32::MAX, |index| index.id), list);
    }
    if reader.is_empty() {
        Ok(keys)
    } else {
        Err(reader.malformed())
    }
}

impl Slot {
    /// The client's declaration of an index.
    fn index(&self, at: u64) -> Result<&IndexDefinition> {
        let declared = usize::try_from(at).ok().and_then(|at| self.indexes.get(at));
        declared.ok_or_else(|| unacceptable("unknown index"))
    }

    /// Fails unless the stored index of the declared name is what the client declared.
    fn check_index(&self, at: u64, stored: &[Index]) -> Result<&str> {
        let declared = self.index(at)?;
        let same_name = |index: &&Index| index.definition.name == declared.name;
        match stored.iter().find(same_name) {
            Some(index) if index.definition != *declared => Err(Error::index_mismatch(
                &self.name,
                &declared.name,
                "it is stored in another version than the one that is declared here; reload the program that declares it",
            )),
            _ => Ok(&declared.name),
        }
    }
}

impl State {
    pub(super) fn use_indexes(&mut self, collection: u64, indexes: Definitions<'_>) -> Result<()> {
        let (index, indexes) = (self.slot_index(collection)?, indexes.to_vec()?);
        let slot = &mut self.slots[index];
        if slot.indexes.is_empty() {
            slot.indexes = indexes;
        } else if slot.indexes != indexes {
            // The client may repeat a declaration but not change it.
            return Err(unacceptable(
                "the number of a collection is used for one with other indexes",
            ));
        }
        Ok(())
    }

    /// Writes the number of indexes that have to be built.
    pub(super) fn declare_indexes(
        &mut self,
        durability: Durability,
        collection: u64,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (index, is_fresh) = self.prepare_slot(None, collection, true, writes)?;
        let slot = &self.slots[index];
        let snapshot = writes.database.snapshot();
        let stored = snapshot.indexes(&slot.name);
        if slot.indexes.iter().all(|declared| find(&stored, declared).is_some()) {
            out.uv(snapshot.version());
            out.uv(incomplete(&stored));
            return Ok(());
        }
        drop(snapshot);
        self.forget_current();
        let slot = &self.slots[index];
        let (info, stored) = writes.commit(durability, |transaction| {
            if is_fresh {
                transaction.set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            }
            transaction.declare_indexes(&slot.name, &slot.indexes)
        })?;
        if is_fresh {
            self.now_has_codecs_of(index);
        }
        out.uv(info.version);
        out.uv(incomplete(&stored));
        Ok(())
    }

    pub(super) fn drop_index(
        &mut self,
        durability: Durability,
        collection: u64,
        name: &str,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (index, _) = self.prepare_slot(None, collection, false, writes)?;
        self.forget_current();
        let slot = &self.slots[index];
        let (info, existed) = writes.commit(durability, |transaction| transaction.drop_index(&slot.name, name))?;
        out.uv(info.version);
        out.flag(existed);
        Ok(())
    }

    /// Writes for each index that the client uses: 0 if it does not exist, 2 if it is complete,
    /// otherwise 1, the key up to which it covers the collection, if any, and the numbers of
    /// records that it covers and of all.
    pub(super) fn report_indexes(&mut self, collection: u64, database: &Database, out: &mut Writer) -> Result<()> {
        let index = self.slot_index(collection)?;
        self.check(database, index)?;
        let slot = &self.slots[index];
        let snapshot = database.snapshot();
        let stored = snapshot.indexes(&slot.name);
        let records = snapshot.collection(&slot.name);
        out.uv(slot.indexes.len() as u64);
        for declared in &slot.indexes {
            let progress = find(&stored, declared).map(|index| &index.progress);
            let (Some(IndexProgress::Building(at)), Some(records)) = (progress, &records) else {
                out.raw(&[if progress.is_some() { 2 } else { 0 }]);
                continue;
            };
            out.raw(&[1]);
            out.flag(at.is_some());
            if let Some(at) = at {
                out.bytes(at);
            }
            out.uv(at.as_ref().map_or(Ok(0), |at| records.rank(at))?);
            out.uv(records.len());
        }
        Ok(())
    }

    /// Writes whether the slice was added: the index may be at another record by now.
    pub(super) fn index_slice(
        &mut self,
        request: &Request<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let Request::IndexSlice {
            durability,
            collection,
            index,
            from,
            to,
            records,
        } = *request
        else {
            return Ok(());
        };
        let (at, _) = self.prepare_slot(None, collection, false, writes)?;
        self.forget_current();
        let slot = &self.slots[at];
        let (declared, records) = (slot.index(index)?, records.to_vec()?);
        let (info, was_added) = writes.commit(durability, |transaction| {
            match find(transaction.indexes(&slot.name), declared).map(|index| index.id) {
                Some(id) => transaction.index_slice(&slot.name, id, from, &records, to),
                None => Ok(false),
            }
        })?;
        out.uv(info.version);
        out.flag(was_added);
        Ok(())
    }

    fn transaction_of(&self, view: View) -> Option<&OptimisticTransaction> {
        let View::Opened(id) = view else { return None };
        self.transactions.get(id).map(|open| &open.transaction)
    }

    /// An index in a committed state, and the version of that. Fails if the client declared another
    /// version of the index.
    fn index_tree(&mut self, (view, collection, index): Place, database: &Database) -> Result<(SnapshotIndex, u64)> {
        let at = self.slot_index(collection)?;
        let snapshot = match view {
            View::Current => {
                self.check(database, at)?;
                database.snapshot()
            }
            View::Opened(id) => {
                let view = self.snapshots.get(id);
                view.ok_or_else(|| missing(&self.lost, id, Lost::View))?
                    .snapshot
                    .clone()
            }
        };
        let slot = &self.slots[at];
        let name = slot.check_index(index, &snapshot.indexes(&slot.name))?;
        Ok((snapshot.index(&slot.name, name)?, snapshot.version()))
    }

    pub(super) fn index_count(
        &mut self,
        place: Place,
        range: KeyRange<'_>,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection, index) = place;
        let count = if range::is_empty(&range) {
            0
        } else if let Some(transaction) = self.transaction_of(view) {
            let slot = &self.slots[self.slot_index(collection)?];
            let name = slot.check_index(index, &transaction.indexes(&slot.name))?;
            transaction.index_count(&slot.name, name, range)?
        } else {
            self.index_tree(place, database)?.0.count(range)?
        };
        out.uv(count);
        Ok(())
    }

    /// Writes whether there is an entry at the position, its index key, its key and the value.
    /// O(log n) in committed states, O(position) in transactions.
    pub(super) fn index_at(
        &mut self,
        place: Place,
        range: KeyRange<'_>,
        (from_end, position): (bool, u64),
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection, index) = place;
        let flags = ScanFlags::of(VALUES);
        if range::is_empty(&range) {
            out.flag(false);
            return Ok(());
        }
        if let Some(transaction) = self.transaction_of(view) {
            let slot = &self.slots[self.slot_index(collection)?];
            let name = slot.check_index(index, &transaction.indexes(&slot.name))?;
            let direction = if from_end {
                Direction::Reverse
            } else {
                Direction::Forward
            };
            let scan = transaction.index_scan(&slot.name, name, range, direction)?;
            let mut items = IndexItems::within(scan, &slot.name, flags);
            items.skip(position, Some(transaction))?;
            let found = items.advance(Some(transaction))?;
            out.flag(found);
            if found {
                items.write(flags, out);
            }
            return Ok(());
        }
        let (tree, _) = self.index_tree(place, database)?;
        let (start, end) = tree.positions(range)?;
        let found = match position < end - start {
            true if from_end => tree.at(end - 1 - position)?,
            true => tree.at(start + position)?,
            false => None,
        };
        out.flag(found.is_some());
        if let Some((index_key, key)) = found {
            out.bytes(&index_key);
            out.bytes(&key);
            write_record(&tree.record(&key)?, flags, out);
        }
        Ok(())
    }

    pub(super) fn index_scan(
        &mut self,
        id: u64,
        place: Place,
        range: KeyRange<'_>,
        options: ScanOptions,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection, index) = place;
        self.scans
            .check_room(MAX_OPEN, "open iterators; read them to the end or return()")?;
        let towards = direction(options.flags);
        let mut scan = if let Some(transaction) = self.transaction_of(view) {
            let View::Opened(transaction_id) = view else {
                return Err(Error::Closed);
            };
            let slot = &self.slots[self.slot_index(collection)?];
            let name = slot.check_index(index, &transaction.indexes(&slot.name))?;
            let items = transaction.index_scan(&slot.name, name, range, towards)?;
            let items = IndexItems::within(items, &slot.name, options.flags);
            Scan::open_index(items, transaction_id, Some(transaction), &options)?
        } else {
            let (tree, version) = self.index_tree(place, database)?;
            let items = IndexItems::committed(tree.cursor(range, towards), options.flags);
            let mut scan = Scan::open_index(items, 0, None, &options)?;
            if self.is_portable {
                scan.origin = Some(Origin::new(collection, index + 1, version, range));
            }
            scan
        };
        if scan.chunk(options.chunk, self.transaction_of(view), out)? {
            self.scans.insert(id, scan);
            self.has_changed = true;
        }
        Ok(())
    }

    /// Commits a batch in a separate transaction.
    // A root of the lazy part of the module: see `lazy`.
    // Lazy root.
    #[inline(never)]
    pub(super) fn write_apart(&mut self, write: &Write<'_>, writes: &mut Writes<'_>, out: &mut Writer) -> Result<()> {
        let Write::Batch { durability, .. } = *write else {
            return Ok(());
        };
        let mut reply = Writer::default();
        self.transaction_open(APART, true, writes, &mut Writer::default())?;
        let written = self.write_within(APART, write, writes, &mut reply);
        let open = self.transactions.take(APART).ok_or(Error::Closed)?;
        written?;
        let mut reader = Reader::new(reply.as_slice());
        let existed = (reader.uv()?, reader.uv()?).1;
        self.forget_current();
        let info = writes.commit_other(durability, open.transaction, Some(existed))?;
        self.undo();
        out.uv(info.version);
        out.uv(existed);
        Ok(())
    }
}

//! What a client has open, and what each request does.

use mangrove_engine::{
    Database, Error, IndexDefinition, LayoutScan, Result, Snapshot, SnapshotCollection, StagedValue, Verification,
};

use crate::followers::Followers;
use crate::pending::Writes;
use crate::protocol::{View, Writer};
use crate::request::Request;
use crate::scan::Scan;
use crate::schema::Joined;
use crate::source::Source;
use crate::table::{MAX_OPEN, Table};
use crate::{range, report};

mod backup;
mod changes;
mod handover;
mod indexes;
mod layout;
mod lazy;
mod reads;
mod staged;
mod transactions;
mod verify;
mod writes;

use backup::Backup;
use handover::missing;
use transactions::Open;

/// A collection that the client has declared, with the codecs it uses.
struct Slot {
    name: String,
    key_codec: String,
    value_codec: String,
    codecs: Codecs,
    /// The indexes for which the client's writes have keys, in the order of these.
    indexes: Vec<IndexDefinition>,
}

impl Slot {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.key_codec == other.key_codec && self.value_codec == other.value_codec
    }
}

/// A slot's codecs compared with the stored ones.
enum Codecs {
    Unknown,
    /// The collection does not exist; its first write stores them.
    Absent,
    Stored,
    Mismatch(Error),
}

/// A state of the database to read from.
#[derive(Clone)]
struct ReadView {
    snapshot: Snapshot,
    /// The collections looked up so far, if they exist, by index of the slot.
    trees: Table<Option<SnapshotCollection>>,
}

impl ReadView {
    fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            trees: Table::default(),
        }
    }
}

/// What one client has open, by the ids it assigned.
#[derive(Default)]
pub(crate) struct State {
    slots: Vec<Slot>,
    /// Indexes of the slots, in the order of their names.
    slots_by_name: Vec<u32>,
    /// The newest committed state, kept between reads. Dropped before each commit, which would
    /// otherwise have to keep what it replaces.
    current: Option<ReadView>,
    snapshots: Table<ReadView>,
    transactions: Table<Open>,
    scans: Table<Scan>,
    followers: Followers,
    backups: Table<Backup>,
    verifications: Table<Verification>,
    layouts: Table<LayoutScan>,
    /// Values that are being written, if any ever were.
    staged: Option<Box<Table<StagedValue>>>,
    lost: Losses,
    /// The schema version that the client has stated.
    pub(crate) joined: Option<Joined>,
    /// The schema version of the database has changed, or will, and the client does not know.
    pub(crate) must_hear_of_schema: bool,
    /// Another session may have to continue with what is open.
    is_portable: bool,
    /// What is open has changed since the last export.
    has_changed: bool,
}

/// What was open in an earlier session and could not be taken over.
#[derive(Default)]
struct Losses {
    table: Table<Lost>,
    /// What was open is not known.
    is_all: bool,
}

/// What an id stood for.
#[derive(Clone, Copy)]
enum Lost {
    View,
    Transaction,
}

impl State {
    /// Returns the state of a client that another session may have to take over.
    pub(crate) fn portable() -> Self {
        Self {
            is_portable: true,
            ..Self::default()
        }
    }

    /// Forgets what is known about stored codecs: writes were undone, or others committed.
    pub(crate) fn undo(&mut self) {
        for slot in &mut self.slots {
            slot.codecs = Codecs::Unknown;
        }
    }

    /// Releases the newest state.
    pub(crate) fn forget_current(&mut self) {
        self.current = None;
    }

    /// Releases the newest state if records may have expired since it was read.
    pub(crate) fn forget_if_timed(&mut self) {
        if self.current.as_ref().is_some_and(|view| view.snapshot.may_expire()) {
            self.current = None;
        }
    }

    /// Executes a request and appends what follows the status byte of its reply.
    #[allow(clippy::too_many_lines, reason = "one arm for each request")]
    pub(crate) fn execute_request(
        &mut self,
        request: &Request<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let database = writes.database;
        self.has_changed |= request.opens();
        match *request {
            Request::Use {
                index,
                name,
                key_codec,
                value_codec,
            } => self.use_collection(database, index, name, key_codec, value_codec)?,
            Request::UseIndexes { collection, indexes } => self.use_indexes(collection, indexes)?,
            Request::Get { view, collection, key } => self.get(view, collection, key, writes, out)?,
            Request::GetMany {
                view,
                collection,
                id,
                keys,
            } => self.get_many(view, collection, id, keys, writes, out)?,
            Request::HasMany { view, collection, keys } => self.has_many(view, collection, keys, writes, out)?,
            Request::Count {
                view,
                collection,
                range,
            } => self.count(view, collection, range, database, out)?,
            Request::At {
                view,
                collection,
                range,
                from_end,
                index,
            } => self.at((view, collection, range), from_end, index, database, out)?,
            Request::Rank {
                view,
                collection,
                range,
                key,
            } => self.count(view, collection, range::before(range, key), database, out)?,
            Request::NextExpiry {
                view,
                collection,
                range,
            } => out.uv(self
                .source(database, view, collection)?
                .next_expiry(&range)?
                .unwrap_or(0)),
            Request::Edge {
                view,
                collection,
                range,
                from_end,
            } => self.at((view, collection, range), from_end, 0, database, out)?,
            Request::Entry { view, collection, key } => self.entry(view, collection, key, writes, out)?,
            Request::ScanOpen {
                id,
                view,
                collection,
                range,
                options,
            } => self.scan_open(id, (view, collection, range), options, database, out)?,
            Request::ScanNext { id, chunk } => self.scan_next(id, chunk, out)?,
            Request::ScanSeek { id, key, limit } => self.scan_seek(id, key, limit)?,
            Request::ScanClose { id } => self.scan_close(id),
            Request::SnapshotOpen { id } => self.snapshot_open(id, database, out)?,
            Request::SnapshotClose { id } => self.snapshot_close(id),
            Request::TransactionOpen { id, is_snapshot } => self.transaction_open(id, is_snapshot, writes, out)?,
            Request::TransactionCommit { id, durability } => self.transaction_commit(id, durability, writes, out)?,
            Request::TransactionClose { id } => self.transaction_close(id),
            Request::Savepoint { transaction } => self.savepoint(transaction, out)?,
            Request::RollbackTo { transaction, savepoint } => self.rollback_to(transaction, savepoint)?,
            Request::Within { transaction, ref write } => self.write_within(transaction, write, writes, out)?,
            Request::Write(ref write) => self.write(write, writes, out)?,
            Request::ChangesOpen { id, since, part } => self.changes_open(id, since.0, part, database, out)?,
            Request::ChangesNext { id, max_bytes } => self.changes_next(id, max_bytes, database, out)?,
            Request::ChangesClose { id } => self.changes_close(id),
            Request::ChangesReady {} => self.changes_ready(database, out),
            Request::Collections {} => report::collections(&database.collections(), out),
            Request::Flush {} => database.flush()?,
            Request::VerifyClose { id } => self.verify_close(id),
            Request::Purge { limit } => {
                writes.client.check_writable()?;
                self.forget_current();
                let purged = database.purge_expired(usize::try_from(limit).unwrap_or(usize::MAX))?;
                out.uv(purged as u64);
            }
            // Not in the lazy part: a backup is of the state at its call.
            Request::BackupOpen { id } => self.backup_open(id, database)?,
            Request::BackupClose { id } => self.backup_close(id),
            Request::Stats {}
            | Request::Verify { .. }
            | Request::BackupNext { .. }
            | Request::Compact { .. }
            | Request::Layout { .. }
            | Request::DeclareIndexes { .. }
            | Request::DropIndex { .. }
            | Request::Indexes { .. }
            | Request::IndexSlice { .. }
            | Request::IndexCount { .. }
            | Request::IndexAt { .. }
            | Request::IndexScan { .. }
            | Request::Lazy { .. } => self.execute_lazy(request, writes, out)?,
            // The session handles these itself.
            Request::SchemaJoin { .. }
            | Request::SchemaProgress { .. }
            | Request::SchemaEnd {}
            | Request::Refresh {}
            | Request::Close {} => return Err(Error::Closed),
        }
        Ok(())
    }

    fn use_collection(
        &mut self,
        database: &Database,
        index: usize,
        name: &str,
        key_codec: &str,
        value_codec: &str,
    ) -> Result<()> {
        let slot = Slot {
            name: name.to_owned(),
            key_codec: key_codec.to_owned(),
            value_codec: value_codec.to_owned(),
            codecs: Codecs::Unknown,
            indexes: Vec::new(),
        };
        // Another slot of the same name may know of an uncommitted write.
        let named = self.slots_named(name).iter().map(|index| &self.slots[*index as usize]);
        let known = { named }.find(|known| !matches!(known.codecs, Codecs::Unknown));
        let codecs = known.map_or(Codecs::Unknown, |known| match &known.codecs {
            Codecs::Stored => compare(&slot, &known.key_codec, &known.value_codec),
            Codecs::Absent => Codecs::Absent,
            _ => Codecs::Unknown,
        });
        let slot = Slot { codecs, ..slot };
        let known = self.slots.get(index);
        if known.is_none() && index == self.slots.len() {
            self.add_slot(slot);
        } else if !known.is_some_and(|known| known.is_same(&slot)) {
            // The client may repeat a declaration but not change it.
            return Err(unacceptable("the number of a collection is used for another one"));
        }
        self.check(database, index)
    }

    fn add_slot(&mut self, slot: Slot) {
        let at = self
            .slots_by_name
            .partition_point(|index| self.slots[*index as usize].name <= slot.name);
        self.slots_by_name.insert(at, self.slots.len() as u32);
        self.slots.push(slot);
    }

    /// Indexes of the slots with a name.
    fn slots_named(&self, name: &str) -> &[u32] {
        let named = |index: &u32| self.slots[*index as usize].name.as_str();
        let from = self.slots_by_name.partition_point(|index| named(index) < name);
        let rest = &self.slots_by_name[from..];
        &rest[..rest.iter().take_while(|index| named(index) == name).count()]
    }

    fn slot_index(&self, index: u64) -> Result<usize> {
        usize::try_from(index)
            .ok()
            .filter(|&index| index < self.slots.len())
            .ok_or_else(|| unacceptable("unknown collection"))
    }

    /// Fails if the collection has other codecs than the slot.
    fn check(&mut self, database: &Database, index: usize) -> Result<()> {
        if matches!(self.slots[index].codecs, Codecs::Unknown) {
            let snapshot = &self
                .current
                .get_or_insert_with(|| ReadView::new(database.snapshot()))
                .snapshot;
            self.slots[index].codecs = compare_in(snapshot, &self.slots[index]);
        }
        match &self.slots[index].codecs {
            Codecs::Mismatch(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the collection in the given state.
    fn tree(&mut self, database: &Database, view: View, index: u64) -> Result<Option<&SnapshotCollection>> {
        let index = self.slot_index(index)?;
        let view = match view {
            View::Current => {
                self.check(database, index)?;
                self.current.get_or_insert_with(|| ReadView::new(database.snapshot()))
            }
            View::Opened(id) => {
                let lost = &self.lost;
                self.snapshots
                    .get_mut(id)
                    .ok_or_else(|| missing(lost, id, Lost::View))?
            }
        };
        let id = index as u64;
        if view.trees.get(id).is_none() {
            let slot = &self.slots[index];
            if let Codecs::Mismatch(error) = compare_in(&view.snapshot, slot) {
                return Err(error);
            }
            view.trees.insert(id, view.snapshot.collection(&slot.name));
        }
        Ok(view.trees.get(id).and_then(Option::as_ref))
    }

    /// Returns where a request reads.
    pub(crate) fn source(&mut self, database: &Database, view: View, collection: u64) -> Result<Source<'_>> {
        if let View::Opened(id) = view
            && self.transactions.get_mut(id).is_some()
        {
            let index = self.slot_index(collection)?;
            return self.source_within(id, index);
        }
        Ok(Source::Committed(self.tree(database, view, collection)?))
    }

    /// Returns where a lookup reads: in uncommitted writes if there are any and the newest state is
    /// meant.
    fn newest_source<'a>(&'a mut self, writes: &'a mut Writes<'_>, view: View, collection: u64) -> Result<Source<'a>> {
        let database = writes.database;
        if view == View::Current && writes.is_open() {
            let index = self.slot_index(collection)?;
            self.check(database, index)?;
            if let Some(transaction) = writes.seen() {
                return Ok(Source::Uncommitted(transaction, &self.slots[index].name));
            }
        }
        self.source(database, view, collection)
    }

    /// Returns the version of a committed state that was read before.
    fn version(&self, view: View) -> Option<u64> {
        let view = match view {
            View::Current => self.current.as_ref(),
            View::Opened(id) => self.snapshots.get(id),
        };
        view.map(|view| view.snapshot.version())
    }

    fn snapshot_open(&mut self, id: u64, database: &Database, out: &mut Writer) -> Result<()> {
        let view = ReadView::new(database.snapshot());
        out.uv(view.snapshot.version());
        self.keep(id, view)
    }

    /// Keeps the newest state, which was read before, open as a snapshot.
    fn keep_current(&mut self, id: u64) -> Result<()> {
        self.has_changed = true;
        match &self.current {
            Some(view) => self.keep(id, view.clone()),
            None => Ok(()),
        }
    }

    fn keep(&mut self, id: u64, view: ReadView) -> Result<()> {
        check_id(id)?;
        self.snapshots
            .check_room(MAX_OPEN, "open snapshots; close() those that are no longer used")?;
        self.snapshots.insert(id, view);
        Ok(())
    }

    fn snapshot_close(&mut self, id: u64) {
        self.snapshots.remove(id);
        self.lost.table.remove(id);
    }
}

/// Fails for 0, which means the newest state.
fn check_id(id: u64) -> Result<()> {
    if id == 0 {
        return Err(unacceptable("0 is no number of a snapshot or transaction"));
    }
    Ok(())
}

fn unacceptable(what: &str) -> Error {
    Error::InvalidArgument { what: what.into() }
}

fn compare_in(snapshot: &Snapshot, slot: &Slot) -> Codecs {
    let stored = snapshot.codecs(&slot.name);
    stored.map_or(Codecs::Absent, |(key_codec, value_codec)| {
        compare(slot, key_codec, value_codec)
    })
}

/// Compares the slot's codecs with the stored ones.
fn compare(slot: &Slot, key_codec: &str, value_codec: &str) -> Codecs {
    if slot.key_codec == key_codec && slot.value_codec == value_codec {
        return Codecs::Stored;
    }
    Codecs::Mismatch(Error::codec_mismatch(
        slot.name.as_str(),
        [key_codec, "/", value_codec].concat(),
        [slot.key_codec.as_str(), "/", &slot.value_codec].concat(),
    ))
}

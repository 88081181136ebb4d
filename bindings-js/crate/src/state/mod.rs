//! What a client has open, and each request's meaning.

use mangrove_engine::{BackupPieces, Database, Error, LayoutScan, Result, Snapshot, Tree, Verification};

use crate::followers::Followers;
use crate::protocol::{Reader, View, Writer, op};
use crate::scan::Scan;
use crate::session::Writes;
use crate::table::{MAX_OPEN, Table};

mod backup;
mod changes;
mod handover;
mod layout;
mod reads;
mod source;
mod transactions;
mod verify;
mod writes;

use handover::missing;
pub(crate) use source::Source;
use transactions::Open;

/// A collection that the client has named, with the codecs it uses.
struct Slot {
    name: String,
    key_codec: String,
    value_codec: String,
    codecs: Codecs,
}

impl Slot {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.key_codec == other.key_codec && self.value_codec == other.value_codec
    }
}

/// A slot's codecs compared with those stored now.
enum Codecs {
    Unknown,
    /// The collection is not there; its first write stores them.
    Absent,
    Stored,
    Mismatch(Error),
}

/// A state of the database to read from.
struct ReadView {
    snapshot: Snapshot,
    /// By slot.
    trees: Vec<Lookup>,
}

/// A collection in a state, looked up at first use.
#[derive(Clone)]
enum Lookup {
    NotYet,
    Absent,
    Found(Tree),
}

impl ReadView {
    fn new(database: &Database) -> Self {
        Self {
            snapshot: database.snapshot(),
            trees: Vec::new(),
        }
    }
}

/// Collections, snapshots and scans of one client, by the numbers it gave them.
#[derive(Default)]
pub(crate) struct State {
    slots: Vec<Slot>,
    /// The newest committed state, kept from read to read and dropped before each commit, which would otherwise have
    /// to keep what it replaces.
    current: Option<ReadView>,
    snapshots: Table<ReadView>,
    transactions: Table<Open>,
    scans: Table<Scan>,
    followers: Followers,
    backups: Table<BackupPieces>,
    verifications: Table<Verification>,
    layouts: Table<LayoutScan>,
    lost: Losses,
    /// Another session may have to go on with what is open.
    is_portable: bool,
    /// What is open has changed since it was last exported.
    has_changed: bool,
}

/// What was open in the session before this one and could not be taken over.
#[derive(Default)]
struct Losses {
    table: Table<Lost>,
    /// Nobody knows what was open.
    is_all: bool,
}

/// What was under a number.
#[derive(Clone, Copy)]
enum Lost {
    View,
    Transaction,
}

impl State {
    /// Of a client whose requests another session may have to go on with.
    pub(crate) fn portable() -> Self {
        Self {
            is_portable: true,
            ..Self::default()
        }
    }

    /// The writes since the last commit were undone, or others committed.
    pub(crate) fn undo(&mut self) {
        for slot in &mut self.slots {
            slot.codecs = Codecs::Unknown;
        }
    }

    /// Lets go of the newest state.
    pub(crate) fn forget_current(&mut self) {
        self.current = None;
    }

    /// Lets go of the newest state if entries may have expired since it was first read.
    pub(crate) fn forget_if_timed(&mut self) {
        if self.current.as_ref().is_some_and(|view| view.snapshot.may_expire()) {
            self.current = None;
        }
    }

    /// Executes a request that changes nothing in the database and appends what follows the status of its reply.
    pub(crate) fn read(
        &mut self,
        code: u8,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let database = writes.database;
        self.has_changed |= opens(code);
        match code {
            op::USE => self.use_collection(database, reader),
            op::GET => self.get(writes, reader, out),
            op::GET_MANY => self.get_many(writes, reader, out),
            op::HAS_MANY => self.has_many(writes, reader, out),
            op::COUNT => self.count(database, reader, out),
            op::AT => self.at(database, reader, out),
            op::RANK => self.rank(database, reader, out),
            op::EDGE => self.edge(database, reader, out),
            op::ENTRY => self.entry(writes, reader, out),
            op::SCAN_OPEN => self.scan_open(database, reader, out),
            op::SCAN_NEXT => self.scan_next(reader, out),
            op::SCAN_SEEK => self.scan_seek(reader),
            op::SCAN_CLOSE => self.scan_close(reader),
            op::SNAPSHOT_OPEN => self.snapshot_open(database, reader, out),
            op::SNAPSHOT_CLOSE => self.snapshot_close(reader),
            op::CHANGES_OPEN => self.changes_open(database, reader, out),
            op::CHANGES_NEXT => self.changes_next(database, reader, out),
            op::CHANGES_CLOSE => self.changes_close(reader),
            op::CHANGES_READY => {
                self.changes_ready(database, out);
                Ok(())
            }
            op::BACKUP_OPEN => self.backup_open(database, reader, out),
            op::BACKUP_NEXT => self.backup_next(reader, out),
            op::BACKUP_CLOSE => self.backup_close(reader),
            op::VERIFY_CLOSE => self.verify_close(reader),
            op::TRANSACTION_OPEN => self.transaction_open(writes, reader, out),
            op::TRANSACTION_COMMIT => self.transaction_commit(writes, reader, out),
            op::TRANSACTION_CLOSE => self.transaction_close(reader),
            op::SAVEPOINT => self.savepoint(reader, out),
            op::ROLLBACK_TO => self.rollback_to(reader),
            op::WITHIN => self.write_within(reader, out),
            _ => Err(reader.malformed()),
        }
    }

    /// Executes a request that writes and appends what follows the status of its reply.
    pub(crate) fn write(
        &mut self,
        code: u8,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        match code {
            op::SET => self.set(writes, reader, out),
            op::DELETE => self.delete(writes, reader, out),
            op::CLEAR => self.clear(writes, reader, out),
            op::BATCH => self.batch(writes, reader, out),
            op::GET_OR_INSERT => self.get_or_insert(writes, reader, out),
            _ => self.move_collection(code == op::RENAME, writes, reader, out),
        }
    }

    fn use_collection(&mut self, database: &Database, reader: &mut Reader<'_>) -> Result<()> {
        let index = reader.size()?;
        let slot = Slot {
            name: reader.str()?.to_owned(),
            key_codec: reader.str()?.to_owned(),
            value_codec: reader.str()?.to_owned(),
            codecs: Codecs::Unknown,
        };
        // Another slot of the name may know of a write that is not committed yet.
        let known = self
            .slots
            .iter()
            .find(|known| known.name == slot.name && !matches!(known.codecs, Codecs::Unknown));
        let codecs = known.map_or(Codecs::Unknown, |known| match &known.codecs {
            Codecs::Stored => compare(&slot, &known.key_codec, &known.value_codec),
            Codecs::Absent => Codecs::Absent,
            _ => Codecs::Unknown,
        });
        let slot = Slot { codecs, ..slot };
        let known = self.slots.get(index);
        if known.is_none() && index == self.slots.len() {
            self.slots.push(slot);
        } else if !known.is_some_and(|known| known.is_same(&slot)) {
            // The client may say it again, but not something else.
            return Err(reader.malformed());
        }
        self.check(database, index)
    }

    fn slot_index(&self, index: u64) -> Result<usize> {
        usize::try_from(index)
            .ok()
            .filter(|&index| index < self.slots.len())
            .ok_or_else(|| Error::InvalidArgument {
                what: "unknown collection".to_owned(),
            })
    }

    /// Fails where the collection holds other codecs than the slot's.
    fn check(&mut self, database: &Database, index: usize) -> Result<()> {
        if matches!(self.slots[index].codecs, Codecs::Unknown) {
            let snapshot = &self.current.get_or_insert_with(|| ReadView::new(database)).snapshot;
            self.slots[index].codecs = compare_in(snapshot, &self.slots[index]);
        }
        match &self.slots[index].codecs {
            Codecs::Mismatch(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The collection in the state asked for.
    fn tree(&mut self, database: &Database, view: View, index: u64) -> Result<Option<&Tree>> {
        let index = self.slot_index(index)?;
        let view = match view {
            View::Current => {
                self.check(database, index)?;
                self.current.get_or_insert_with(|| ReadView::new(database))
            }
            View::Opened(id) => {
                let lost = &self.lost;
                self.snapshots
                    .get_mut(id)
                    .ok_or_else(|| missing(lost, id, Lost::View))?
            }
        };
        if view.trees.len() <= index {
            view.trees.resize(index + 1, Lookup::NotYet);
        }
        let slot = &self.slots[index];
        let lookup = &mut view.trees[index];
        if matches!(lookup, Lookup::NotYet) {
            if let Codecs::Mismatch(error) = compare_in(&view.snapshot, slot) {
                return Err(error);
            }
            *lookup = view
                .snapshot
                .collection(&slot.name)
                .map_or(Lookup::Absent, Lookup::Found);
        }
        Ok(match lookup {
            Lookup::Found(tree) => Some(tree),
            _ => None,
        })
    }

    /// Where to read from.
    pub(crate) fn source(&mut self, database: &Database, view: View, collection: u64) -> Result<Source<'_>> {
        if let View::Opened(id) = view
            && self.transactions.get_mut(id).is_some()
        {
            let index = self.slot_index(collection)?;
            return self.source_within(id, index);
        }
        Ok(Source::Committed(self.tree(database, view, collection)?))
    }

    /// Where to look keys up: in what is not committed yet if there is something and the newest state is asked for.
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

    /// Version of a committed state that was read before.
    fn version(&self, view: View) -> Option<u64> {
        let view = match view {
            View::Current => self.current.as_ref(),
            View::Opened(id) => self.snapshots.get(id),
        };
        view.map(|view| view.snapshot.version())
    }

    fn snapshot_open(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let id = reader.uv()?;
        if id == 0 {
            return Err(reader.malformed());
        }
        self.snapshots
            .check_room(MAX_OPEN, "open snapshots; close() those that are done with")?;
        let view = ReadView::new(database);
        out.uv(view.snapshot.version());
        self.snapshots.insert(id, view);
        Ok(())
    }

    fn snapshot_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.snapshots.remove(id);
        self.lost.table.remove(id);
        Ok(())
    }
}

/// Whether a request changes what is open.
fn opens(code: u8) -> bool {
    matches!(
        code,
        op::USE
            | op::SCAN_NEXT
            | op::SCAN_SEEK
            | op::SCAN_CLOSE
            | op::SNAPSHOT_OPEN
            | op::SNAPSHOT_CLOSE
            | op::CHANGES_OPEN
            | op::CHANGES_NEXT
            | op::CHANGES_CLOSE
            | op::BACKUP_OPEN
            | op::BACKUP_CLOSE
            | op::TRANSACTION_OPEN
            | op::TRANSACTION_COMMIT
            | op::TRANSACTION_CLOSE
    )
}

fn compare_in(snapshot: &Snapshot, slot: &Slot) -> Codecs {
    let collections = snapshot.collections();
    let stored = collections.iter().find(|collection| collection.name == slot.name);
    stored.map_or(Codecs::Absent, |stored| {
        compare(slot, &stored.key_codec, &stored.value_codec)
    })
}

/// The slot's codecs against those that are stored.
fn compare(slot: &Slot, key_codec: &str, value_codec: &str) -> Codecs {
    if slot.key_codec == key_codec && slot.value_codec == value_codec {
        return Codecs::Stored;
    }
    Codecs::Mismatch(Error::CodecMismatch {
        collection: slot.name.as_str().into(),
        stored: [key_codec, "/", value_codec].concat().into(),
        requested: [slot.key_codec.as_str(), "/", &slot.value_codec].concat().into(),
    })
}

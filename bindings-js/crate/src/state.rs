//! What a client has open, and each request's meaning.

use mangrove_engine::{Database, Direction, Durability, Error, Result, Snapshot, Tree, WriteTransaction};

use crate::protocol::{BatchOp, Reader, View, Writer, op};
use crate::range;
use crate::scan::Scan;
use crate::session::Writes;
use crate::table::Table;

/// A collection that the client has named, with the codecs it uses.
struct Slot {
    name: String,
    key_codec: String,
    value_codec: String,
    codecs: Codecs,
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
    scans: Table<Scan>,
}

impl State {
    /// The writes since the last commit were undone.
    pub(crate) fn undo(&mut self) {
        for slot in &mut self.slots {
            slot.codecs = Codecs::Unknown;
        }
    }

    /// Lets go of the newest state.
    pub(crate) fn forget_current(&mut self) {
        self.current = None;
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
        match code {
            op::USE => self.use_collection(database, reader),
            op::GET => self.get(writes, reader, out),
            op::GET_MANY => self.get_many(writes, reader, out),
            op::HAS_MANY => self.has_many(writes, reader, out),
            op::COUNT => self.count(database, reader, out),
            op::AT => self.at(database, reader, out),
            op::RANK => self.rank(database, reader, out),
            op::EDGE => self.edge(database, reader, out),
            op::SCAN_OPEN => self.scan_open(database, reader, out),
            op::SCAN_NEXT => self.scan_next(reader, out),
            op::SCAN_SEEK => self.scan_seek(reader),
            op::SCAN_CLOSE => self.scan_close(reader),
            op::SNAPSHOT_OPEN => self.snapshot_open(database, reader, out),
            op::SNAPSHOT_CLOSE => self.snapshot_close(reader),
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
            _ => self.drop_collection(writes, reader, out),
        }
    }

    // Collections.

    fn use_collection(&mut self, database: &Database, reader: &mut Reader<'_>) -> Result<()> {
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
        self.slots.push(Slot { codecs, ..slot });
        self.check(database, self.slots.len() - 1)
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

    // States to read from.

    /// The collection in the state asked for.
    fn tree(&mut self, database: &Database, view: View, index: u64) -> Result<Option<&Tree>> {
        let index = self.slot_index(index)?;
        let view = match view {
            View::Current => {
                self.check(database, index)?;
                self.current.get_or_insert_with(|| ReadView::new(database))
            }
            View::Snapshot(id) => self.snapshots.get_mut(id).ok_or(Error::Closed)?,
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

    /// Where to look keys up: in the open transaction if there is one and the newest state is asked for.
    fn source<'a>(&'a mut self, writes: &'a mut Writes<'_>, view: View, collection: u64) -> Result<Source<'a>> {
        let database = writes.database;
        if view == View::Current && writes.is_open() {
            let index = self.slot_index(collection)?;
            self.check(database, index)?;
            if let Some(transaction) = writes.seen() {
                return Ok(Source::Open(transaction, &self.slots[index].name));
            }
        }
        Ok(Source::Committed(self.tree(database, view, collection)?))
    }

    fn snapshot_open(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let id = reader.uv()?;
        if id == 0 {
            return Err(reader.malformed());
        }
        let view = ReadView::new(database);
        out.uv(view.snapshot.version());
        self.snapshots.insert(id, view);
        Ok(())
    }

    fn snapshot_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.snapshots.remove(id);
        Ok(())
    }

    // Reads.

    fn get(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, key) = (reader.view()?, reader.uv()?, reader.bytes()?);
        let source = self.source(writes, view, collection)?;
        out.optional_with(|into| source.get_into(key, into))
    }

    fn get_many(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.source(writes, view, collection)?;
        for _ in 0..count {
            let key = keys.bytes()?;
            out.optional_with(|into| source.get_into(key, into))?;
        }
        Ok(())
    }

    fn has_many(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.source(writes, view, collection)?;
        for _ in 0..count {
            out.flag(source.contains(keys.bytes()?)?);
        }
        Ok(())
    }

    fn count(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let tree = self.tree(database, view, collection)?;
        out.uv(tree.map_or(Ok(0), |tree| range::count(tree, range))?);
        Ok(())
    }

    fn rank(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range, key) = (reader.view()?, reader.uv()?, reader.range()?, reader.bytes()?);
        let tree = self.tree(database, view, collection)?;
        out.uv(tree.map_or(Ok(0), |tree| range::count(tree, range::before(range, key)))?);
        Ok(())
    }

    fn at(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let (from_end, index) = (reader.flag()?, reader.uv()?);
        let entry = match self.tree(database, view, collection)? {
            Some(tree) => match range::position(tree, &range, from_end, index)? {
                Some(position) => tree.at(position)?,
                None => None,
            },
            None => None,
        };
        out.flag(entry.is_some());
        if let Some((key, value)) = entry {
            out.bytes(&key);
            out.bytes(&value);
        }
        Ok(())
    }

    fn edge(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let direction = if reader.flag()? {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let tree = self.tree(database, view, collection)?;
        if let Some(tree) = tree.filter(|_| !range::is_empty(&range)) {
            let mut cursor = tree.cursor(range, direction);
            if cursor.advance()? {
                out.flag(true);
                out.bytes(cursor.key());
                return out.bytes_with(|into| cursor.value_into(into));
            }
        }
        out.flag(false);
        Ok(())
    }

    // Scans.

    fn scan_open(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, view, collection) = (reader.uv()?, reader.view()?, reader.uv()?);
        let (range, options) = (reader.range()?, reader.scan_options()?);
        let tree = self.tree(database, view, collection)?;
        let mut scan = Scan::open(tree, range, &options)?;
        if scan.chunk(options.chunk, out)? {
            self.scans.insert(id, scan);
        }
        Ok(())
    }

    fn scan_next(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, chunk) = (reader.uv()?, reader.chunk()?);
        let scan = self.scans.get_mut(id).ok_or(Error::Closed)?;
        let result = scan.chunk(chunk, out);
        if !matches!(result, Ok(true)) {
            self.scans.remove(id);
        }
        result.map(|_| ())
    }

    fn scan_seek(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (id, key, limit) = (reader.uv()?, reader.bytes()?, reader.limit()?);
        self.scans.get_mut(id).ok_or(Error::Closed)?.seek(key, limit)
    }

    fn scan_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.scans.remove(id);
        Ok(())
    }

    // Writes.

    /// Makes ready for a write; tells whether the collection's codecs have to be stored with it.
    fn prepare(&mut self, writes: &Writes<'_>, index: u64, key: &[u8]) -> Result<(usize, bool)> {
        let index = self.slot_index(index)?;
        self.check(writes.database, index)?;
        let max_bytes = writes.database.max_key_bytes();
        if key.len() > max_bytes {
            return Err(Error::KeyTooLarge {
                len_bytes: key.len(),
                max_bytes,
            });
        }
        Ok((index, !matches!(self.slots[index].codecs, Codecs::Stored)))
    }

    /// Runs one atomic commit and appends its version. `fresh` are the slots whose codecs it stores. Gives what `work` counted.
    fn commit(
        &mut self,
        writes: &mut Writes<'_>,
        durability: Durability,
        fresh: &[usize],
        out: &mut Writer,
        // Not generic: there would be one copy of this for each kind of write.
        work: &mut dyn FnMut(&[Slot], &mut WriteTransaction<'_>) -> Result<u64>,
    ) -> Result<u64> {
        let slots = &self.slots;
        let (info, result) = writes.commit(durability, |transaction| {
            for &index in fresh {
                let slot = &slots[index];
                transaction.set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            }
            work(slots, transaction)
        })?;
        for &index in fresh {
            let Slot {
                name,
                key_codec,
                value_codec,
                ..
            } = &self.slots[index];
            let (name, key_codec, value_codec) = (name.clone(), key_codec.clone(), value_codec.clone());
            for slot in self.slots.iter_mut().filter(|slot| slot.name == name) {
                slot.codecs = compare(slot, &key_codec, &value_codec);
            }
        }
        out.uv(info.version);
        Ok(result)
    }

    fn set(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection) = (reader.durability()?, reader.uv()?);
        let (key, value) = (reader.bytes()?, reader.bytes()?);
        let (index, is_fresh) = self.prepare(writes, collection, key)?;
        let fresh: &[usize] = if is_fresh { &[index] } else { &[] };
        self.commit(writes, durability, fresh, out, &mut |slots, transaction| {
            transaction.set(&slots[index].name, key, value).map(u64::from)
        })?;
        Ok(())
    }

    fn delete(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection, key) = (reader.durability()?, reader.uv()?, reader.bytes()?);
        let (index, _) = self.prepare(writes, collection, &[])?;
        let existed = self.commit(writes, durability, &[], out, &mut |slots, transaction| {
            transaction.delete(&slots[index].name, key).map(u64::from)
        })?;
        out.flag(existed > 0);
        Ok(())
    }

    fn clear(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection, range) = (reader.durability()?, reader.uv()?, reader.range()?);
        let (index, _) = self.prepare(writes, collection, &[])?;
        let removed = self.commit(writes, durability, &[], out, &mut |slots, transaction| {
            if range::is_empty(&range) {
                return Ok(0);
            }
            transaction.clear(&slots[index].name, range)
        })?;
        out.uv(removed);
        Ok(())
    }

    fn batch(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let durability = reader.durability()?;
        let (count, mut changes) = reader.batch()?;
        let mut fresh = Vec::new();
        let mut ahead = changes;
        for _ in 0..count {
            match ahead.batch_op()? {
                BatchOp::Set { collection, key, .. } => {
                    let (index, is_fresh) = self.prepare(writes, collection, key)?;
                    if is_fresh && !fresh.contains(&index) {
                        fresh.push(index);
                    }
                }
                BatchOp::Delete { collection, .. } => {
                    self.prepare(writes, collection, &[])?;
                }
            }
        }
        let existed = self.commit(writes, durability, &fresh, out, &mut |slots, transaction| {
            let mut existed = 0;
            for _ in 0..count {
                match changes.batch_op()? {
                    BatchOp::Set { collection, key, value } => {
                        transaction.set(&slots[to_index(collection)].name, key, value)?;
                    }
                    BatchOp::Delete { collection, key } => {
                        existed += u64::from(transaction.delete(&slots[to_index(collection)].name, key)?);
                    }
                }
            }
            Ok(existed)
        })?;
        out.uv(existed);
        Ok(())
    }

    fn drop_collection(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, name) = (reader.durability()?, reader.str()?);
        let existed = self.commit(writes, durability, &[], out, &mut |_, transaction| {
            transaction.drop_collection(name).map(u64::from)
        })?;
        for slot in self.slots.iter_mut().filter(|slot| slot.name == name) {
            slot.codecs = Codecs::Absent;
        }
        out.flag(existed > 0);
        Ok(())
    }
}

/// For an index that was found to be a slot's.
#[allow(
    clippy::cast_possible_truncation,
    reason = "it was compared with the number of slots"
)]
fn to_index(collection: u64) -> usize {
    collection as usize
}

/// Where keys are looked up.
enum Source<'a> {
    Committed(Option<&'a Tree>),
    Open(&'a WriteTransaction<'a>, &'a str),
}

impl Source<'_> {
    /// Appends the value of a key, if there is one.
    fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(false), |tree| tree.get_into(key, into)),
            Self::Open(transaction, name) => {
                let value = transaction.get(name, key)?;
                into.extend_from_slice(value.as_deref().unwrap_or_default());
                Ok(value.is_some())
            }
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(false), |tree| tree.contains(key)),
            Self::Open(transaction, name) => Ok(transaction.get(name, key)?.is_some()),
        }
    }
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
